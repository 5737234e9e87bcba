//! Reading what changed: nodes, indices, aliases, data streams and pipelines; and making the routes that
//! follow from them.

use std::sync::Arc;
use std::time::Duration;

use bulk::IndexRoute;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{info, warn};

use super::checking::subject;
use super::{SILENCE_PAUSE_MIN, Watch, unled};
use crate::ask::AskError;
use crate::discover::{Discovered, NODES};
use crate::node::Node;
use crate::pipelines::{harmless_pipelines, telling_pipelines};
use crate::routes::{self, Reading, Trust};
use crate::state::{self, Topology};

impl Watch {
    pub(super) async fn read(&mut self, home: &Arc<Node>) -> Result<(), AskError> {
        let (asker, origin) = (self.asker.clone(), &home.origin);
        let topology: Topology = asker.get(origin, state::TOPOLOGY).await?;
        if !topology.at.is_led() {
            return Err(unled(home));
        }
        if let Some(at) = &self.at
            && at.cluster_uuid != topology.at.cluster_uuid
        {
            self.forget(&topology.at);
        }
        if self.discovered.is_none() || self.discovered_for != topology.nodes {
            match self.discover(home, &topology).await {
                Err(error) if self.discovered.is_some() && !error.is_unauthorized() => {
                    self.discover_later(&topology, &error);
                }
                discovered => discovered?,
            }
        }
        let (settings, aliases, data_streams, pipelines) = tokio::join!(
            optional(asker.get_bytes(origin, state::SETTINGS)),
            optional(asker.get_bytes(origin, state::ALIASES)),
            optional(asker.get_bytes(origin, state::DATA_STREAMS)),
            optional(asker.get_bytes(origin, state::PIPELINES)),
        );
        let parsed = |what: &'static str| move |e: serde_json::Error| unexpected(what, &e);
        let settings = state::parse_settings(&or_empty(settings?)).map_err(parsed("_settings"))?;
        let aliases = state::parse_aliases(&or_empty(aliases?)).map_err(parsed("_alias"))?;
        let data_streams =
            state::parse_data_streams(&or_empty(data_streams?)).map_err(parsed("_resolve/index"))?;
        let definitions: Map<String, Value> =
            serde_json::from_slice(&or_empty(pipelines?)).map_err(parsed("_ingest/pipeline"))?;
        self.read_metadata(home, &topology, &settings).await?;
        self.shared
            .watched()
            .score
            .keep(|name| settings.contains_key(name));
        self.at = Some(topology.at.clone());
        let harmless_pipelines = harmless_pipelines(&definitions);
        let telling_pipelines = telling_pipelines(&definitions);
        self.reading = Some(Reading {
            topology,
            settings,
            aliases,
            data_streams,
            harmless_pipelines,
            telling_pipelines,
        });
        Ok(())
    }

    async fn discover(&mut self, home: &Arc<Node>, topology: &Topology) -> Result<(), AskError> {
        let body = self.asker.get_bytes(&home.origin, NODES).await?;
        let discovered = Discovered::parse(&body).map_err(|e| unexpected("_nodes", &e))?;
        let reached = self
            .registry
            .reach(&self.asker, &discovered.nodes, home.address.tls)
            .await;
        for gone in &self.nodes {
            if !reached.nodes.iter().any(|node| node.address == gone.address) {
                self.asker.forget(&gone.origin);
            }
        }
        let cluster = &self.shared.config.name;
        let mut warnings = reached.warnings;
        let silent = topology.nodes.keys().filter(|id| !discovered.knows(id)).count();
        if silent > 0 {
            warnings.push(format!(
                "{silent} of {} nodes did not tell where they can be reached",
                topology.nodes.len()
            ));
        }
        if let Some(first) = warnings.first().filter(|_| warnings != self.node_warnings) {
            warn!(cluster, nodes = warnings.len(), "{first}");
        }
        info!(cluster, nodes = reached.nodes.len(), "nodes discovered");
        self.silence_pause = match silent {
            0 => SILENCE_PAUSE_MIN,
            _ => (self.silence_pause * 2).min(SILENCE_PAUSE_MAX),
        };
        let reprobe = match (silent, reached.incomplete) {
            (0, false) => None,
            (0, true) => Some(REPROBE),
            // A node that has just joined opens its HTTP port in a moment.
            _ => Some(self.silence_pause),
        };
        self.reprobe_at = reprobe.map(|pause| Instant::now() + pause);
        self.nodes = reached.nodes;
        self.node_warnings = warnings;
        self.discovered = Some(discovered);
        self.discovered_for.clone_from(&topology.nodes);
        Ok(())
    }

    /// Goes on with the nodes that are known: one node that hangs is no reason to miss what happens to the
    /// indices. The nodes are asked again after a pause, or when their list changes.
    fn discover_later(&mut self, topology: &Topology, error: &AskError) {
        let cluster = &self.shared.config.name;
        wire::rationed!(
            tracing::warn,
            cluster,
            %error,
            "the nodes cannot be asked about themselves: those known before stay"
        );
        self.silence_pause = (self.silence_pause * 2).min(SILENCE_PAUSE_MAX);
        self.reprobe_at = Some(Instant::now() + self.silence_pause);
        self.discovered_for.clone_from(&topology.nodes);
    }

    pub(super) fn make_routes(&mut self) {
        let (Some(reading), Some(dialect)) =
            (&self.reading, self.discovered.as_ref().and_then(|d| d.dialect))
        else {
            self.routes = None;
            return;
        };
        let before_split = self.shared.config.verify.before_split;
        let trust = |settings: &state::IndexSettings, route: &IndexRoute| match self.trust.get(&settings.uuid)
        {
            Some((checked, trust)) if *checked == subject(route) => *trust,
            _ if route.shards() < 2 || !before_split => Trust::Trusted,
            _ => Trust::Unchecked,
        };
        self.routes = Some(routes::make(reading, &self.metadata, &self.nodes, dialect, trust));
    }
}

/// Turns a refusal (no such API in this build, no right to it) into an empty answer; everything else stays an
/// error.
pub(super) async fn optional<T>(
    asked: impl Future<Output = Result<T, AskError>>,
) -> Result<Option<T>, AskError> {
    match asked.await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

fn or_empty(body: Option<wire::Buffer>) -> Vec<u8> {
    body.map_or_else(|| b"{}".to_vec(), |body| body.to_vec())
}

pub(super) fn unexpected(target: &str, error: &serde_json::Error) -> AskError {
    AskError::Unexpected {
        target: target.to_owned(),
        why: error.to_string(),
    }
}

/// The longest such pause, since there may be nodes whose HTTP is off for good.
const SILENCE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The interval in which publish addresses that could not be reached are tried again.
const REPROBE: Duration = Duration::from_secs(15);
