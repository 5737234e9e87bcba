//! Turning nodes' descriptions of themselves into nodes that can be reached from here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::guard::{self, Work};
use wire::{ClientTls, Origin};

use crate::address::Address;
use crate::ask::{AskError, Asker};
use crate::config::{ClusterConfig, HealthRules};
use crate::discover::{DiscoveredNode, WHO, WhoReply};
use crate::health::{Health, NodeOutcome};
use crate::node::Node;

/// Makes nodes, and keeps the knowledge about each address from one topology to the next.
#[derive(Clone, Debug)]
pub(crate) struct NodeRegistry {
    config: ClusterConfig,
    tls: Option<ClientTls>,
    /// The health of each address, so that it outlives a change of the topology.
    known: HashMap<Address, Arc<Health>>,
    /// The configured endpoints, as nodes about which nothing is known.
    pub(crate) endpoints: Vec<Arc<Node>>,
}

/// The nodes of one topology.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) warnings: Vec<String>,
    /// Whether some publish address could not be reached, so that another attempt later is worthwhile.
    pub(crate) incomplete: bool,
}

impl NodeRegistry {
    pub(crate) fn new(config: ClusterConfig, tls: Option<ClientTls>) -> Self {
        let mut registry = Self {
            config,
            tls,
            known: HashMap::new(),
            endpoints: Vec::new(),
        };
        let endpoints = registry.config.endpoints.clone();
        registry.endpoints = endpoints
            .into_iter()
            .map(|address| registry.node(address, None))
            .collect();
        registry
    }

    /// Tries each new publish address. `tls` is inherited from the endpoint that was asked, since publish
    /// addresses do not say whether they use TLS. Nodes that cannot be reached there are looked for behind
    /// the configured endpoints; when none can be reached at all, the endpoints are the nodes.
    pub(crate) async fn reach(&mut self, asker: &Asker, found: &[DiscoveredNode], tls: bool) -> Reached {
        let mut tries = Vec::new();
        let mut warnings = Vec::new();
        for node in found {
            let Some(text) = &node.publish_address else {
                continue;
            };
            match Address::from_publish_address(text, tls) {
                Ok(address) => {
                    let known = self.known.contains_key(&address);
                    let (asker, origin, id) = (asker.clone(), self.origin(&address), node.id.clone());
                    let (tell, reached) = oneshot::channel();
                    guard::spawn(Work::Watch, async move {
                        let said = |who: Option<String>| who.is_none_or(|who| who == id);
                        let answers = known || who(&asker, &origin).await.is_ok_and(said);
                        let _ = tell.send(answers); // the caller may be gone
                    });
                    tries.push((node, address, reached));
                }
                Err(error) => warnings.push(format!("node {}: {error}", node.name)),
            }
        }
        let (mut nodes, mut lost) = (Vec::new(), Vec::new());
        for (node, address, reached) in tries {
            match reached.await {
                Ok(true) => nodes.push(self.node(address, Some(node))),
                _ => lost.push((node, address)),
            }
        }
        let incomplete = !lost.is_empty() || nodes.is_empty();
        if incomplete {
            let behind = self.behind_endpoints(asker).await;
            self.find_lost(lost, &behind, &mut nodes, &mut warnings);
        }
        if nodes.is_empty() {
            nodes.clone_from(&self.endpoints);
        }
        Reached {
            nodes,
            warnings,
            incomplete,
        }
    }

    fn find_lost(
        &mut self,
        lost: Vec<(&DiscoveredNode, Address)>,
        behind: &HashMap<String, Address>,
        nodes: &mut Vec<Arc<Node>>,
        warnings: &mut Vec<String>,
    ) {
        let all_lost = nodes.is_empty();
        let any_behind = lost.iter().any(|(node, _)| behind.contains_key(&node.id));
        for (node, address) in lost {
            match behind.get(&node.id) {
                Some(endpoint) => {
                    warnings.push(format!(
                        "node {} publishes {address}, which cannot be reached from here: using the endpoint {endpoint}",
                        node.name
                    ));
                    nodes.push(self.node(endpoint.clone(), Some(node)));
                }
                None if all_lost && !any_behind => warnings.push(format!(
                    "node {} publishes {address}, which cannot be reached from here: using the given endpoints, \
                     so bulks cannot be sent to their primaries' nodes",
                    node.name
                )),
                None => {
                    warnings.push(format!("node {} publishes {address}, which cannot be reached from here", node.name));
                    let node = self.node(address.clone(), Some(node));
                    node.health.report(NodeOutcome::ConnectRefused, Duration::ZERO, &self.config.health);
                    // The address is not remembered: the next topology tries it again.
                    self.known.remove(&address);
                    nodes.push(node);
                }
            }
        }
    }

    /// Returns which node answers behind each endpoint. An endpoint that gives two different answers is a
    /// load balancer: it stands for no node.
    ///
    /// All are asked at once: the watch waits for the slowest, and sees no changes meanwhile.
    async fn behind_endpoints(&self, asker: &Asker) -> HashMap<String, Address> {
        let mut asked = Vec::new();
        for endpoint in &self.endpoints {
            let (asker, node, rules) = (asker.clone(), endpoint.clone(), self.config.health.clone());
            let (tell, told) = oneshot::channel();
            guard::spawn(Work::Watch, async move {
                let _ = tell.send(behind(&asker, &node, &rules).await); // the caller may be gone
            });
            asked.push((endpoint.address.clone(), told));
        }
        let mut behind: BTreeMap<String, Vec<Address>> = BTreeMap::new();
        for (address, told) in asked {
            if let Ok(Some(id)) = told.await {
                behind.entry(id).or_default().push(address);
            }
        }
        // A single endpoint may be a balancer that keeps us on one node for now; it is still the way to that
        // node.
        behind
            .into_iter()
            .filter_map(|(id, addresses)| Some((id, addresses.into_iter().next()?)))
            .collect()
    }

    fn node(&mut self, address: Address, found: Option<&DiscoveredNode>) -> Arc<Node> {
        let name = found.map_or_else(|| address.authority(), |node| node.name.clone());
        let roles = found.map(|node| node.roles.clone()).unwrap_or_default();
        let attributes = found.map(|node| node.attributes.clone()).unwrap_or_default();
        let health = self.known.entry(address.clone()).or_default().clone();
        Arc::new(Node {
            id: found.map(|node| node.id.clone()).unwrap_or_default(),
            origin: self.origin(&address),
            discovered: found.is_some(),
            name,
            address,
            roles,
            attributes,
            health,
        })
    }

    fn origin(&self, address: &Address) -> Origin {
        match &self.tls {
            Some(tls) if address.tls => Origin::https(&address.host, address.port, tls.clone()),
            _ => Origin::http(&address.host, address.port),
        }
    }
}

/// Asks which node answers at `origin`. `Ok(None)` means that a node answers but refuses to say which (401,
/// 403).
pub(crate) async fn who(asker: &Asker, origin: &Origin) -> Result<Option<String>, AskError> {
    match asker.get::<WhoReply>(origin, WHO).await {
        Ok(reply) => Ok(reply.nodes.into_keys().next()),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns which node answers behind an endpoint, if it is the same one twice. That an endpoint does not
/// answer counts for its health, and one that is down is not waited for as long. It is not left out: it may
/// be that nobody else asks it.
async fn behind(asker: &Asker, endpoint: &Node, rules: &HealthRules) -> Option<String> {
    let asker = match endpoint.health.is_up() {
        true => asker.clone(),
        false => asker.within(DOWN_TIME_MAX),
    };
    let begun = Instant::now();
    let first = match who(&asker, &endpoint.origin).await {
        Ok(first) => first?,
        Err(error) => {
            // An answer without sense says nothing good of it.
            if let Some(outcome) = error
                .outcome()
                .filter(|outcome| *outcome != NodeOutcome::Answered)
            {
                endpoint.health.report(outcome, begun.elapsed(), rules);
            }
            return None;
        }
    };
    let second = who(&asker, &endpoint.origin).await.ok()??;
    (first == second).then_some(first)
}

/// The longest time for an endpoint that is down to say which node is behind it.
const DOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// The pauses after which a node that is out is asked again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(crate) fn new(rules: &HealthRules) -> Self {
        Self {
            pause: rules.probe_interval_min,
        }
    }

    /// Returns the pause before the next try; each pause is twice as long as the last.
    pub(crate) fn next(&mut self, rules: &HealthRules) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(rules.probe_interval_max);
        pause
    }
}
