//! What is in force now: a configuration and the clusters that it watches. A reload replaces both as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use cluster::{
    Address, Cluster, ClusterConfig, Credentials, NodeChoice, NodeFilter, Role, Terms, TlsContents, TlsFiles,
};
use config::file::ConfigFile;
use config::{Choice, Config, Forward, Loaded};
use traces::{Counts, Recorder};
use wire::Budget;

use crate::admission::rights::Rights;
use crate::applied::Configs;
use crate::delivery::Memory;
use crate::metrics::Metrics;
use crate::queue::{Queue, Queues};
use crate::recorder;
use crate::reloads::Reloads;
use crate::reshuffle::Directory;
use crate::split::Families;
use crate::start_error::StartError;
use crate::switches::Switches;
use crate::upgrades::Upgrades;

/// The state that all cores share.
#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) live: ArcSwap<Live>,
    pub(crate) metrics: Metrics,
    /// The queues and their consumer groups, as the newest configuration has them.
    pub(crate) queues: ArcSwap<Queues>,
    /// Settings that were switched at run time. They outlive configurations.
    pub(crate) switches: Arc<Switches>,
    /// The round robins of all indices, which give documents their shards.
    pub(crate) directory: Directory,
    /// Memory for bodies, and for large copies of documents.
    pub(crate) body_memory: Arc<Budget>,
    /// The memory that all deliveries may use together.
    pub(crate) delivery_memory: Arc<Memory>,
    /// Whether the gateway has been told to stop.
    pub(crate) draining: AtomicBool,
    /// Whether the running configuration is the one in the file.
    pub(crate) reloads: Reloads,
    /// Requests to replace this program with another.
    pub(crate) upgrades: Upgrades,
    /// Requests to put another configuration in force, and the last one.
    pub(crate) configs: Configs,
    /// The fate of the spans of traced requests.
    pub(crate) spans: Arc<Counts>,
    /// Clients that may write in asynchronous mode.
    pub(crate) rights: Arc<Rights>,
}

/// A configuration in force. A request keeps its configuration until it ends.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) config: Config,
    /// The same configuration as a file, with its defaults.
    pub(crate) file: ConfigFile,
    /// The name of the file, and the fingerprint of its text, if there is a file.
    pub(crate) file_name: Option<String>,
    pub(crate) fingerprint: Option<u64>,
    pub(crate) clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// The queues that the filters of this configuration fill.
    pub(crate) queues: BTreeMap<Arc<str>, Arc<Queue>>,
    /// The families of requests whose parts may travel together.
    pub(crate) families: Arc<Families>,
    /// Records the spans of requests that are traced; `None` if none are.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// What was in the TLS files that the recorder has loaded, if it needs any.
    recorder_tls: Option<TlsContents>,
}

impl Live {
    /// Puts a configuration in force. Clusters that `before` watches with the same settings stay watched,
    /// unless their TLS files were changed: these are loaded when a cluster is started.
    pub(crate) fn new(
        loaded: Loaded,
        before: Option<&Live>,
        queues: BTreeMap<Arc<str>, Arc<Queue>>,
        spans: &Arc<Counts>,
    ) -> Result<Self, StartError> {
        let file_name = loaded.file_name().map(str::to_owned);
        let fingerprint = loaded.fingerprint();
        let Loaded { config, file, .. } = loaded;
        let mut clusters = BTreeMap::new();
        for (name, settings) in &config.clusters {
            let unchanged = before.filter(|before| before.config.clusters.get(name) == Some(settings));
            let watched = unchanged.and_then(|before| before.clusters.get(name));
            let cluster = match watched.filter(|watched| !watched.tls_changed()) {
                Some(watched) => Arc::clone(watched),
                None => Cluster::start(watch_config(settings)).map_err(|source| StartError::Cluster {
                    cluster: Arc::clone(name),
                    source,
                })?,
            };
            clusters.insert(Arc::clone(name), cluster);
        }
        let secured = config.tracing.as_ref().filter(|tracing| tracing.collector.tls);
        let recorder_tls = secured.map(|tracing| tls_files(&tracing.tls).contents());
        let recorder_tls = recorder_tls.transpose().map_err(StartError::Tracing)?;
        let unchanged = before
            .filter(|before| before.config.tracing == config.tracing && before.recorder_tls == recorder_tls);
        let recorder = match (unchanged, &config.tracing) {
            (Some(before), _) => before.recorder.clone(),
            (None, None) => None,
            (None, Some(tracing)) => Some(recorder::start(tracing, tls_files(&tracing.tls), spans)?),
        };
        Ok(Self {
            recorder,
            recorder_tls,
            config,
            file,
            file_name,
            fingerprint,
            clusters,
            queues,
            families: Arc::default(),
        })
    }

    /// Returns the clusters besides the one that clients see to which a queue in Kafka is delivered, each
    /// with its consumer group.
    pub(crate) fn other_clusters(&self, queue: &str) -> Vec<(Arc<str>, Arc<Cluster>)> {
        let Some(queue) = self.queues.get(queue).filter(|queue| queue.log.topic().is_some()) else {
            return Vec::new();
        };
        let deliveries = self.config.deliveries.iter();
        let others = deliveries.filter(|one| one.queue == queue.name && one.cluster != queue.cluster);
        let others = others.filter_map(|one| {
            let cluster = self.clusters.get(&one.cluster)?;
            Some((Arc::clone(&one.group), Arc::clone(cluster)))
        });
        others.collect()
    }

    /// Stops watching the clusters that `next`, which has replaced this configuration, does not watch with
    /// the same settings. Requests under way keep the last known topology. Without this, a core that gets no
    /// further requests would keep the old configuration, and so its clusters would be watched for ever.
    pub(crate) fn retire(&self, next: &Live) {
        for (name, cluster) in &self.clusters {
            let kept = next.clusters.get(name);
            if !kept.is_some_and(|kept| Arc::ptr_eq(kept, cluster)) {
                cluster.stop();
            }
        }
    }
}

/// Watches a cluster as a gateway with this section would. Meant for tools that only look.
///
/// # Errors
/// Fails when the settings cannot work.
pub fn watch(settings: &config::Cluster) -> Result<Arc<Cluster>, cluster::BadConfig> {
    Cluster::start(watch_config(settings))
}

pub(crate) fn watch_config(settings: &config::Cluster) -> ClusterConfig {
    let endpoints = settings.endpoints.iter().map(|endpoint| Address {
        tls: endpoint.tls,
        host: endpoint.host.to_string(),
        port: endpoint.port,
    });
    let mut watch = ClusterConfig::new(&*settings.name, endpoints.collect());
    watch.credentials = match &settings.credentials {
        None => Credentials::None,
        Some(config::Credentials::Basic { username, password }) => Credentials::Basic {
            username: username.clone(),
            password: password.clone(),
        },
        Some(config::Credentials::ApiKey(key)) => Credentials::ApiKey(key.clone()),
    };
    watch.tls = tls_files(&settings.tls);
    watch.discovery = settings.discovery.enabled;
    watch.refresh = settings.discovery.interval;
    watch.timeout = settings.discovery.timeout;
    watch
}

fn tls_files(tls: &config::ClusterTls) -> TlsFiles {
    let shown = tls.client_certificate.as_ref();
    TlsFiles {
        ca_file: tls.ca_file.clone(),
        insecure: tls.insecure_skip_verify,
        certificate: shown.map(|(certificate, _)| certificate.clone()),
        key: shown.map(|(_, key)| key.clone()),
    }
}

/// Returns how an `elasticsearch` filter chooses nodes.
pub(crate) fn node_choice(forward: &Forward) -> NodeChoice {
    let weights = forward.weights.iter();
    NodeChoice {
        filter: NodeFilter {
            roles: terms(&forward.nodes.roles, |role| Role::parse(role)),
            hosts: terms(&forward.nodes.hosts, |host| host.to_string()),
            tags: terms(&forward.nodes.tags, |(name, value)| {
                (name.to_string(), value.to_string())
            }),
        },
        weights: weights
            .map(|(host, weight)| (host.to_string(), *weight))
            .collect(),
        frozen: forward.frozen,
    }
}

fn terms<T, U>(choice: &Choice<T>, read: impl Fn(&T) -> U) -> Terms<U> {
    Terms {
        include: choice.include.iter().map(&read).collect(),
        exclude: choice.exclude.iter().map(&read).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_watches_a_cluster_anew_if_its_authorities_were_replaced_and_not_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let renew = || {
            let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
            std::fs::write(&ca, made.cert.pem()).unwrap();
        };
        renew();
        let text = format!(
            "entry:  [{{name: e, router: r, network.binding: '127.0.0.1:0'}}]\n\
             router: [{{name: r, default_flow: f}}]\n\
             flow:   [{{name: f, filter: [{{elasticsearch: {{elasticsearch: c}}}}]}}]\n\
             elasticsearch: [{{name: c, endpoint: 'https://127.0.0.1:1', tls.ca_file: '{}'}}]\n",
            ca.display()
        );
        let loaded = Config::parse(&text, None, &|_| None).unwrap();
        let reload = |before: Option<&Live>| {
            Live::new(loaded.clone(), before, BTreeMap::new(), &Arc::default()).map(|live| {
                let cluster = Arc::clone(&live.clusters["c"]);
                (live, cluster)
            })
        };
        let (first, cluster) = reload(None).unwrap();
        let (second, kept) = reload(Some(&first)).unwrap();
        assert!(Arc::ptr_eq(&cluster, &kept));
        renew();
        let (third, anew) = reload(Some(&second)).unwrap();
        assert!(!Arc::ptr_eq(&cluster, &anew));
        std::fs::write(&ca, "nonsense").unwrap();
        assert!(reload(Some(&third)).is_err(), "a reload is all or nothing");
    }
}
