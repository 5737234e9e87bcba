//! The two ways to the cluster, and the questions asked besides the load.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use wire::ClientTls;

use super::error::CompareError;
use super::options::{CompareOptions, Phase};
use crate::ask::{Ask, AskError};
use crate::options::Options;
use crate::request::{Server, basic};

/// The servers that are asked. The cluster answers all questions; a gateway is asked only which cluster it
/// leads to.
pub(super) struct Servers {
    direct: Target,
    gateway: Target,
    tls: ClientTls,
    timeout: Duration,
}

struct Target {
    server: Server,
    account: Option<HeaderValue>,
}

/// The identity of a cluster.
#[derive(Debug, Default, Deserialize)]
struct Identity {
    #[serde(default)]
    cluster_name: String,
    #[serde(default)]
    cluster_uuid: String,
}

/// A server's description of itself.
#[derive(Debug, Default, Deserialize)]
struct Root {
    #[serde(default)]
    version: Version,
}

#[derive(Debug, Default, Deserialize)]
struct Version {
    #[serde(default)]
    number: String,
    distribution: Option<String>,
}

#[derive(Deserialize)]
struct NodeStats {
    nodes: BTreeMap<String, NodeStat>,
}

#[derive(Deserialize)]
struct NodeStat {
    process: Option<Process>,
}

#[derive(Deserialize)]
struct Process {
    /// The time of the node's figures, by its own clock.
    timestamp: Option<u64>,
    cpu: Cpu,
}

#[derive(Deserialize)]
struct Cpu {
    total_in_millis: u64,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
}

/// The CPU time that each node has used since its start, in milliseconds.
pub(super) type CpuTimes = BTreeMap<String, u64>;

// === impl Servers ===

impl Servers {
    pub(super) fn new(options: &CompareOptions) -> Result<Servers, CompareError> {
        let target = |urls: &[String]| {
            let url = urls.first().map_or("", String::as_str);
            let (server, _, in_url) =
                Server::of(url).map_err(|why| CompareError::Url(url.to_owned(), why))?;
            let given = options.account.as_ref();
            let given = given.map(|(user, password)| basic(format!("{user}:{password}").as_bytes()));
            let account = given.or_else(|| in_url.map(|account| basic(account.as_bytes())));
            Ok::<_, CompareError>(Target { server, account })
        };
        for url in options.direct.iter().chain(&options.gateway) {
            Server::of(url).map_err(|why| CompareError::Url(url.clone(), why))?;
        }
        let tls = Options {
            ca_file: options.ca_file.clone(),
            insecure: options.insecure,
            ..Options::default()
        };
        Ok(Servers {
            direct: target(&options.direct)?,
            gateway: target(&options.gateway)?,
            tls: tls.tls()?,
            timeout: options.timeout,
        })
    }

    /// Returns the product and version of the cluster, after checking that both ways lead to it.
    pub(super) fn cluster(&self) -> Result<String, CompareError> {
        let path = "/_cluster/state/version";
        let identity = |target: &Target| {
            self.with(target, async |ask| {
                ask.json::<Identity>(&Method::GET, path, None).await
            })
        };
        let (direct, gateway) = (identity(&self.direct)?, identity(&self.gateway)?);
        let known = !direct.cluster_uuid.is_empty() && !gateway.cluster_uuid.is_empty();
        if known && direct.cluster_uuid != gateway.cluster_uuid {
            let of = |cluster: &Identity| format!("{} {}", cluster.cluster_name, cluster.cluster_uuid);
            return Err(CompareError::OtherCluster {
                direct: of(&direct),
                gateway: of(&gateway),
            });
        }
        // Not every server says what it is, and nothing depends on it.
        let root = self.with(&self.direct, async |ask| {
            ask.json::<Root>(&Method::GET, "/", None).await
        });
        let version = root.unwrap_or_default().version;
        Ok(match (version.distribution.as_deref(), version.number.as_str()) {
            (_, "") => format!("cluster {}", direct.cluster_name),
            (Some("opensearch"), number) => format!("OpenSearch {number}"),
            (_, number) => format!("Elasticsearch {number}"),
        })
    }

    /// Creates an index.
    pub(super) fn create(&self, index: &str, body: &Value) -> Result<(), CompareError> {
        self.with(&self.direct, async |ask| {
            ask.bytes(&Method::PUT, &format!("/{index}"), Some(body))
                .await
                .map(drop)
        })
    }

    /// Waits until the index is yellow and no copy of it is being initialised any more.
    pub(super) fn settle(&self, index: &str) -> Result<(), CompareError> {
        self.with(&self.direct, async |ask| {
            let ready = format!(
                "/_cluster/health/{index}?wait_for_status=yellow&wait_for_no_initializing_shards=true&timeout=60s"
            );
            ask.bytes(&Method::GET, &ready, None).await.map(drop)
        })
    }

    /// Deletes an index, if it is there.
    pub(super) fn delete(&self, index: &str) -> Result<(), CompareError> {
        self.with(&self.direct, async |ask| {
            match ask.bytes(&Method::DELETE, &format!("/{index}"), None).await {
                Err(AskError::Refused(_, StatusCode::NOT_FOUND, _)) | Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// Returns the CPU time of the nodes, measured after this call began; none if they don't report it.
    ///
    /// A node reads its own figures once a second at most and repeats them meanwhile. Its first answer may be
    /// older than the call, so the method waits for a newer one.
    pub(super) fn cpu_times(&self) -> Option<CpuTimes> {
        let end = Instant::now() + LOOK_PATIENCE;
        let first = self.processes()?;
        if first.values().all(|process| process.timestamp.is_none()) {
            return Some(times(&first));
        }
        while Instant::now() < end {
            std::thread::sleep(LOOK_PAUSE);
            let now = self.processes()?;
            let newer = |(node, process): (&String, &Process)| {
                first
                    .get(node)
                    .is_none_or(|first| process.timestamp > first.timestamp)
            };
            if now.iter().all(newer) {
                return Some(times(&now));
            }
        }
        None
    }

    fn processes(&self) -> Option<BTreeMap<String, Process>> {
        let path = "/_nodes/stats/process";
        let stats = self.with(&self.direct, async |ask| {
            ask.json::<NodeStats>(&Method::GET, path, None).await
        });
        let nodes = stats.ok()?.nodes.into_iter();
        nodes.map(|(id, node)| Some((id, node.process?))).collect()
    }

    /// Refreshes and counts until this many documents of the phase are there, or `patience` is over, or
    /// `stopped`. Returns the last count, and when it was known.
    pub(super) fn wait_for(
        &self,
        index: &str,
        phase: Phase,
        wanted: u64,
        patience: Duration,
        see: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(u64, Instant), CompareError> {
        let end = Instant::now() + patience;
        let query = json!({"query": {"term": {"pass": pass_of(phase)}}});
        self.with(&self.direct, async |ask| {
            let mut pause = COUNT_PAUSE_MIN;
            loop {
                let found = count(ask, index, Some(&query)).await?;
                let now = Instant::now();
                if found >= wanted || now >= end || !see(found) {
                    return Ok((found, now));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(COUNT_PAUSE_MAX);
            }
        })
    }

    /// Counts everything that the index holds.
    pub(super) fn count(&self, index: &str) -> Result<u64, CompareError> {
        self.with(&self.direct, async |ask| count(ask, index, None).await)
    }

    fn with<T>(
        &self,
        target: &Target,
        question: impl AsyncFnOnce(&Ask) -> Result<T, AskError>,
    ) -> Result<T, CompareError> {
        let answer = wire::run_local(ANSWERS_BYTES, async |worker| {
            let account = target.account.clone();
            let ask = Ask::new(&worker, &target.server, self.tls.clone(), account, self.timeout);
            question(&ask).await
        })?;
        Ok(answer?)
    }
}

fn times(processes: &BTreeMap<String, Process>) -> CpuTimes {
    let each = processes.iter();
    each.map(|(id, process)| (id.clone(), process.cpu.total_in_millis))
        .collect()
}

async fn count(ask: &Ask, index: &str, query: Option<&Value>) -> Result<u64, AskError> {
    ask.bytes(&Method::POST, &format!("/{index}/_refresh"), None)
        .await?;
    let path = format!("/{index}/_count");
    Ok(ask.json::<Count>(&Method::POST, &path, query).await?.count)
}

/// The value of the field `pass` in documents of a phase.
pub(super) fn pass_of(phase: Phase) -> u8 {
    match phase {
        Phase::New => 1,
        Phase::Updates => 2,
    }
}

const LOOK_PAUSE: Duration = Duration::from_millis(100);
const LOOK_PATIENCE: Duration = Duration::from_secs(5);
const ANSWERS_BYTES: usize = 1 << 30;
/// The shortest pause between two counts. Counting costs the cluster something: this pause is long enough not
/// to disturb the measurement, and short enough not to limit its precision.
const COUNT_PAUSE_MIN: Duration = Duration::from_millis(10);
const COUNT_PAUSE_MAX: Duration = Duration::from_millis(100);
