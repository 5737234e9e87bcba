//! `tidegate check --online`: checks what a file cannot say by itself. Do the clusters answer, is the account
//! right, can the folders be written and the addresses be bound, and are the certificates still valid? The
//! check changes nothing anywhere.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::WatchState;
use config::{Certificate, Cluster, Config, Endpoint, EntryTls, Queue, Tracing};
use gateway::AccountUse;
use log::Disk as _;
use serde::Serialize;
use ureq::tls::TlsConfig;

use super::rights;
use crate::output::why;
use crate::queues::carry::new_file;
use crate::queues::ground::Ground;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Fine,
    /// Something worth a look.
    Warning,
    /// A cluster that does not answer; it may do so later.
    Away,
    /// Something that has to be fixed.
    Error,
}

/// One thing that was checked.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The kind of thing: `cluster`, `queue`, `entry`, `admin`, `collector`, `limit`, `certificate`.
    pub(super) of: &'static str,
    pub(super) name: String,
    /// The finding in words.
    pub(super) says: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) then: Option<String>,
}

/// Checks everything that the configuration needs. `indices` are names that the user says are written to.
pub(crate) fn look(config: &Config, indices: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, cluster) in &config.clusters {
        let used = rights::uses(config, name, indices);
        look_at_cluster(name, cluster, &used, &mut findings);
    }
    for (name, queue) in &config.queues {
        findings.push(look_at_queue(name, queue, &config.paths.data));
    }
    let running = config
        .admin
        .binding
        .map_or(Running::No, |address| running(address, config.admin.tls.as_ref()));
    for entry in &config.entries {
        let spread = entry.skip_occupied_port || entry.reuse_port;
        findings.push(look_at_address(
            "entry",
            &entry.name,
            entry.binding,
            &running,
            spread,
        ));
    }
    if let Some(binding) = config.admin.binding {
        findings.push(look_at_address("admin", "admin", binding, &running, false));
    }
    findings.extend(config.tracing.as_ref().map(look_at_collector));
    findings.push(look_at_open_files(config));
    look_at_certificates(config, &mut findings);
    findings
}

fn look_at_cluster(name: &str, settings: &Cluster, used: &AccountUse, findings: &mut Vec<Finding>) {
    let found = |level, says: String, then: Option<&str>| Finding {
        level,
        of: "cluster",
        name: name.to_owned(),
        says,
        then: then.map(str::to_owned),
    };
    let mut reached = false;
    for endpoint in &settings.endpoints {
        match reach(endpoint) {
            Ok(()) => reached = true,
            Err(why) => findings.push(found(Level::Away, why.to_string(), Some(why.remedy()))),
        }
    }
    if !reached {
        return;
    }
    // A cluster that is only forwarded to needs its topology all the same, so that the gateway knows its
    // nodes.
    let watched = match gateway::watch(settings) {
        Ok(watched) => watched,
        Err(error) => {
            let then = "correct what the file says about this cluster";
            return findings.push(found(Level::Error, error.to_string(), Some(then)));
        }
    };
    let (learnt, status) = learn(&watched);
    // If the account is refused altogether, there is nothing more to say about its rights.
    let refused = status.warnings.last().is_some_and(|told| told.contains("401"));
    let rights = match status.state {
        WatchState::Off => Vec::new(),
        WatchState::Unauthorized if refused => Vec::new(),
        WatchState::Unauthorized => rights::look(name, &watched, used),
        _ if !learnt => Vec::new(),
        _ => rights::look(name, &watched, used),
    };
    watched.stop();
    let told = status.warnings.last().cloned().unwrap_or_default();
    match status.state {
        WatchState::Off => {
            let says =
                "it accepts connections; with `discovery.enabled: false`, nothing more is checked".to_owned();
            findings.push(found(Level::Fine, says, None));
        }
        WatchState::Unauthorized => {
            let (says, then) = unauthorized(settings, &told);
            findings.push(found(Level::Error, says, Some(then)));
        }
        _ if !learnt => {
            let says = format!("its topology cannot be read: {told}");
            findings.push(found(Level::Away, says, Some(unread(settings, &told))));
        }
        _ => {
            let up = status.nodes.iter().filter(|node| node.health.up).count();
            let says = format!(
                "{} {}, {up} of {} nodes are up",
                status.flavour.unwrap_or("unknown"),
                status.versions.join(", "),
                status.nodes.len(),
            );
            findings.push(found(Level::Fine, says, None));
            for warning in status.warnings {
                findings.push(found(Level::Warning, warning, None));
            }
        }
    }
    findings.extend(rights);
}

/// Waits for the watch to learn the cluster's topology. Returns whether it did, and the status.
fn learn(watched: &cluster::Cluster) -> (bool, cluster::Status) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let learnt = runtime.is_ok_and(|runtime| runtime.block_on(watched.learnt(LEARN_TIMEOUT)));
    let mut status = watched.status();
    // The topology is known a moment before the watch reports that state.
    let ends = Instant::now() + SETTLE_TIMEOUT;
    while learnt && status.state == WatchState::Starting && Instant::now() < ends {
        std::thread::sleep(SETTLE_LOOK);
        status = watched.status();
    }
    (learnt, status)
}

/// Returns what is wrong with the gateway's account, and what to do.
fn unauthorized(settings: &Cluster, told: &str) -> (String, &'static str) {
    match &settings.credentials {
        Some(_) => (
            format!("it refuses the gateway's account: {told}"),
            "correct `basic_auth` or `api_key`, or give the account the right to monitor the cluster",
        ),
        None => (
            format!("it requires an account, and none is configured: {told}"),
            "write `basic_auth` or `api_key`; without an account, bulks pass whole",
        ),
    }
}

/// Returns what to do about a cluster that accepts connections, but whose topology cannot be read.
fn unread(settings: &Cluster, told: &str) -> &'static str {
    let clear = settings.endpoints.iter().any(|endpoint| !endpoint.tls);
    match () {
        () if told.contains("as the CA to trust") => {
            "write its file as `tls.ca_file` of this cluster (`--ca` of `tidegate init`)"
        }
        // Servers that speak TLS close a connection that begins with anything else, without a word.
        () if clear && told.contains("connection closed") => {
            "if the cluster speaks TLS, write its endpoint with https://; otherwise read its log"
        }
        () => "check that this is an Elasticsearch or OpenSearch, and read its log",
    }
}

/// The reason why a connection to an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
enum Unreachable {
    #[error("the name `{host}` cannot be looked up: {error}")]
    NameUnknown { host: String, error: io::Error },
    #[error("`{0}` has no address")]
    NoAddress(String),
    #[error("nothing listens at {place} ({address})")]
    Refused { place: String, address: SocketAddr },
    #[error("{place} ({address}) does not answer")]
    Silent { place: String, address: SocketAddr },
    #[error("{place} ({address}) cannot be reached: {error}")]
    Other {
        place: String,
        address: SocketAddr,
        error: io::Error,
    },
}

// === impl Unreachable ===

impl Unreachable {
    /// Returns what to do about it.
    fn remedy(&self) -> &'static str {
        match self {
            Self::NameUnknown { .. } => "correct the name in `endpoint`, or repair the name server",
            Self::NoAddress(_) => "correct the name in `endpoint`",
            Self::Refused { .. } => "start the cluster, or correct the port in `endpoint`",
            Self::Silent { .. } => "check for a firewall in between, and whether the machine is up",
            Self::Other { .. } => "check the network in between",
        }
    }
}

/// Checks that something listens at the endpoint.
fn reach(endpoint: &Endpoint) -> Result<(), Unreachable> {
    reach_port(&endpoint.host, endpoint.port)
}

/// Checks that something listens at a port of a host.
fn reach_port(name: &str, port: u16) -> Result<(), Unreachable> {
    let host = || name.to_owned();
    let addresses = (name, port).to_socket_addrs();
    let addresses = addresses.map_err(|error| Unreachable::NameUnknown { host: host(), error })?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = Some((address, error)),
        }
    }
    let (address, error) = last.ok_or_else(|| Unreachable::NoAddress(host()))?;
    let place = format!("{name}:{port}");
    Err(match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreachable::Refused { place, address },
        io::ErrorKind::TimedOut => Unreachable::Silent { place, address },
        _ => Unreachable::Other {
            place,
            address,
            error,
        },
    })
}

/// Checks that something listens where traces go. A collector that is away costs traces and nothing else.
fn look_at_collector(tracing: &Tracing) -> Finding {
    let place = format!("{}:{}", tracing.collector.host, tracing.collector.port);
    let (level, says, then) = match reach(&tracing.collector) {
        Ok(()) => {
            let says = "it accepts connections; `tidegate_spans_dropped_total` says whether it takes spans";
            (Level::Fine, says.to_owned(), None)
        }
        Err(why @ Unreachable::Refused { .. }) => {
            let then = "start the collector, or correct the port in `tracing.otlp.endpoint`";
            (Level::Warning, why.to_string(), Some(then))
        }
        Err(why) => (Level::Warning, why.to_string(), Some(why.remedy())),
    };
    Finding {
        level,
        of: "collector",
        name: place,
        says,
        then: then.map(str::to_owned),
    }
}

/// Checks that something listens at the brokers. One that answers is enough: it names the others.
fn look_at_brokers(brokers: &[Arc<str>]) -> (Level, String, Option<&'static str>) {
    let away: Vec<String> = brokers
        .iter()
        .filter_map(|broker| {
            let (host, port) = broker.rsplit_once(':').unwrap_or((broker, ""));
            let host = host.trim_matches(['[', ']']);
            let reached = reach_port(host, port.parse().unwrap_or(KAFKA_PORT));
            reached.err().map(|why| why.to_string())
        })
        .collect();
    let then = "start the brokers, or correct `queue.brokers`";
    match away.len() {
        0 => {
            let says = "its brokers accept connections; whether they take the account shows at the start";
            (Level::Fine, says.to_owned(), None)
        }
        all if all == brokers.len() => (Level::Away, away.join(", "), Some(then)),
        _ => (Level::Warning, away.join(", "), Some(then)),
    }
}

fn look_at_queue(name: &str, queue: &Queue, data: &Path) -> Finding {
    let found = |level, says: String, then: Option<&str>| Finding {
        level,
        of: "queue",
        name: name.to_owned(),
        says,
        then: then.map(str::to_owned),
    };
    let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let there = absolute.ancestors().find(|folder| folder.is_dir());
    let Some(folder) = there else {
        return found(
            Level::Error,
            format!("{} cannot be created", data.display()),
            Some("correct `path.data`"),
        );
    };
    // The gateway makes missing folders at its start, in the nearest one that exists.
    if let Err(error) = write_probe(folder) {
        let says = format!("{} cannot be written: {}", folder.display(), why(&error));
        return found(
            Level::Error,
            says,
            Some("correct `path.data`, or the owner of the folder"),
        );
    }
    if let Some(kafka) = &queue.kafka {
        let (level, says, then) = look_at_brokers(&kafka.brokers);
        let says = format!("in Kafka; {} can be written; {says}", folder.display());
        return found(level, says, then);
    }
    let free = match log::RealDisk::default().free_bytes(folder) {
        Ok(free) => free,
        Err(error) => return found(Level::Warning, format!("free space is unknown: {error}"), None),
    };
    let says = format!("{} can be written and has {} free", folder.display(), Bytes(free));
    let least = queue.free_bytes_min;
    match queue.bytes_max {
        _ if free <= least => found(
            Level::Error,
            format!(
                "{says}, but {} must stay free: nothing would be accepted",
                Bytes(least)
            ),
            Some("make room, or lower `queue.min_free`"),
        ),
        Some(most) if free < most.saturating_add(least) => found(
            Level::Warning,
            format!(
                "{says}, less than the queue may take ({}) and must leave ({})",
                Bytes(most),
                Bytes(least)
            ),
            Some("make room, or lower `queue.max_size`"),
        ),
        _ => found(Level::Fine, says, None),
    }
}

/// Tries to write into a folder: root as the folder's owner, as which the gateway runs in most cases.
fn write_probe(folder: &Path) -> anyhow::Result<()> {
    let ground = Ground::of(folder)?;
    let probe = ground
        .path()
        .join(format!(".tidegate-check-{}", std::process::id()));
    ground.act(|| {
        new_file(&probe)?.write_all(b"tidegate check --online")?;
        Ok(std::fs::remove_file(&probe)?)
    })
}

fn look_at_address(
    of: &'static str,
    name: &str,
    binding: SocketAddr,
    running: &Running,
    spread: bool,
) -> Finding {
    let found = |level, says: String, then: Option<&str>| Finding {
        level,
        of,
        name: name.to_owned(),
        says,
        then: then.map(str::to_owned),
    };
    match TcpListener::bind(binding) {
        Ok(_) => found(Level::Fine, format!("{binding} is free"), None),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && running.listens_on(binding) => found(
            Level::Fine,
            format!("{binding} is held by the gateway that answers at the admin port"),
            None,
        ),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && matches!(running, Running::Silent) => {
            found(
                Level::Fine,
                format!(
                    "{binding} is held; a gateway answers at the admin port, but does not say without a token \
                 which addresses it listens on"
                ),
                None,
            )
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && spread => {
            let says = format!("{binding} is taken; `skip_occupied_port` or `reuse_port` allows that");
            found(Level::Warning, says, None)
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => found(
            Level::Error,
            format!("{binding} is taken by another program"),
            Some("stop that program, or write another `binding`"),
        ),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => found(
            Level::Error,
            format!("{binding} is not an address of this machine"),
            Some("write one of its addresses, or 0.0.0.0 for all"),
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found(
            Level::Error,
            format!("this user may not listen on {binding}: {error}"),
            Some("use a port from 1024 on, or give the process CAP_NET_BIND_SERVICE"),
        ),
        Err(error) => found(
            Level::Error,
            format!("the gateway cannot listen on {binding}: {error}"),
            None,
        ),
    }
}

/// Checks the limit on open files: each connection of a client or to a node is one.
fn look_at_open_files(config: &Config) -> Finding {
    let allowed = wire::raise_descriptor_limit();
    let promised: u64 = config
        .entries
        .iter()
        .map(|entry| entry.connections_max as u64)
        .sum();
    let (level, relation, then) = match allowed < promised {
        true => (
            Level::Warning,
            "but",
            Some("allow more (LimitNOFILE of a service, ulimit -n), or lower `max_concurrency`".to_owned()),
        ),
        false => (Level::Fine, "and", None),
    };
    Finding {
        level,
        of: "limit",
        name: "open files".to_owned(),
        says: format!(
            "{allowed} are allowed here, {relation} `max_concurrency` promises {promised} connections"
        ),
        then,
    }
}

/// Whether a gateway answers at the admin port.
enum Running {
    No,
    /// The gateway wants a token, so nobody knows what it listens on.
    Silent,
    /// The gateway listens on these addresses.
    On(Vec<SocketAddr>),
}

impl Running {
    fn listens_on(&self, address: SocketAddr) -> bool {
        matches!(self, Self::On(addresses) if addresses.contains(&address))
    }
}

fn running(admin: SocketAddr, tls: Option<&EntryTls>) -> Running {
    let mut address = admin;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    // Nothing secret is sent, and the certificate may be for the name that others call the port by.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let unverified = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .disable_verification(true);
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(CONNECT_TIMEOUT))
        .http_status_as_error(false)
        .tls_config(unverified.build())
        .build();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let agent = ureq::Agent::new_with_config(config);
    let get = |path: &str| {
        let mut answer = agent.get(format!("{scheme}://{address}{path}")).call().ok()?;
        let ok = answer.status().is_success();
        Some((ok, answer.body_mut().read_to_string().ok()?))
    };
    match get("/") {
        Some((_, text)) if text.contains("admin token") => Running::Silent,
        Some((_, text)) if text.contains("\"tidegate\"") => match get("/stats") {
            Some((true, text)) => Running::On(addresses(&text).chain([admin]).collect()),
            _ => Running::Silent,
        },
        // Without a client certificate nobody is answered.
        None if tls.is_some_and(|tls| tls.client_ca_file.is_some()) => {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => Running::Silent,
                Err(_) => Running::No,
            }
        }
        _ => Running::No,
    }
}

/// Returns the addresses on which a gateway's entries listen, from its statistics.
fn addresses(stats: &str) -> impl Iterator<Item = SocketAddr> {
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap_or_default();
    let entries = stats["entries"].as_object().cloned().unwrap_or_default();
    let address = |entry: serde_json::Value| entry["address"].as_str()?.parse().ok();
    entries.into_iter().filter_map(move |(_, entry)| address(entry))
}

fn look_at_certificates(config: &Config, findings: &mut Vec<Finding>) {
    let mut look = |name: String, file: &Path| {
        let finding = look_at_certificate(name, file);
        findings.extend(finding);
    };
    for entry in &config.entries {
        let Some(tls) = &entry.tls else { continue };
        if let Certificate::Files { cert_file, .. } = &tls.certificate {
            look(format!("entry {}", entry.name), cert_file);
        }
        if let Some(file) = &tls.client_ca_file {
            look(format!("client authorities of entry {}", entry.name), file);
        }
    }
    if let Some(tls) = &config.admin.tls {
        if let Certificate::Files { cert_file, .. } = &tls.certificate {
            look("admin port".to_owned(), cert_file);
        }
        if let Some(file) = &tls.client_ca_file {
            look("client authorities of the admin port".to_owned(), file);
        }
    }
    for (name, cluster) in &config.clusters {
        if let Some(file) = &cluster.tls.ca_file {
            look(format!("authorities of cluster {name}"), file);
        }
        if let Some((file, _)) = &cluster.tls.client_certificate {
            look(format!("client certificate for cluster {name}"), file);
        }
    }
}

/// Returns none if the certificate cannot be read: that is an error of the file, and reported as one.
fn look_at_certificate(name: String, file: &Path) -> Option<Finding> {
    let ends = wire::earliest_expiry(&std::fs::read(file).ok()?)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let days = (ends - i64::try_from(now.as_secs()).ok()?).div_euclid(86_400);
    let date = jiff::Timestamp::from_second(ends).map_or_else(|_| "far away".to_owned(), |at| at.to_string());
    let (level, says, then) = match days {
        ..0 => (Level::Error, format!("expired at {date}"), Some("replace it")),
        0..SOON_DAYS => (
            Level::Warning,
            format!("expires in {days} days, at {date}"),
            Some("replace it soon"),
        ),
        _ => (Level::Fine, format!("expires at {date}"), None),
    };
    Some(Finding {
        level,
        of: "certificate",
        name,
        says: format!("{} {says}", file.display()),
        then: then.map(str::to_owned),
    })
}

// === impl Finding ===

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Fine => "fine",
            Level::Warning => "warning",
            Level::Away | Level::Error => "error",
        };
        write!(f, "{level}: {} {}: {}", self.of, self.name, self.says)?;
        self.then.iter().try_for_each(|then| write!(f, "; {then}"))
    }
}

/// A number of bytes, formatted for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ ..1_048_576 => write!(f, "{} kb", bytes >> 10),
            bytes @ ..1_073_741_824 => write!(f, "{} mb", bytes >> 20),
            bytes => write!(f, "{:.1} gb", bytes as f64 / 1_073_741_824.0),
        }
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The port of a broker that is written without one.
const KAFKA_PORT: u16 = 9092;
/// Time limit for reading a cluster's topology.
const LEARN_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit, from then on, for the watch to report another state than starting.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLE_LOOK: Duration = Duration::from_millis(20);
const SOON_DAYS: i64 = 30;
