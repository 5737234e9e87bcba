//! The whole, put together: workers, listeners, clusters, admin port; reload and graceful stop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use wire::{
    Limits, Server, ServerConfig, ServerTls, ServerTlsConfig, TlsError, Worker, Workers, WorkersConfig,
};

use crate::admin::Admin;
use crate::config::{Certificate, Entry, EntryTls, Loaded};
use crate::flow::Front;
use crate::live::{Live, Shared};
use crate::metrics::Metrics;

/// A running gateway. Dropping it cuts every connection; see [`Gateway::drain`].
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    entries: Arc<Vec<Listening>>,
    admin: Option<Admin>,
    workers: Workers,
}

/// A listener and what its certificate is made of.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) name: Arc<str>,
    pub(crate) address: SocketAddr,
    pub(crate) server: Mutex<Option<Server>>,
    tls: Option<Watched>,
}

/// A certificate on disk.
#[derive(Debug)]
struct Watched {
    tls: ServerTls,
    cert_file: PathBuf,
    key_file: PathBuf,
    loaded: Mutex<(Vec<u8>, Vec<u8>)>,
    /// What was wrong with the files when they were last looked at.
    complaint: Mutex<String>,
}

/// Why a gateway cannot start, or a new configuration cannot be put in force. Always something that the operator can
/// mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A cluster's settings cannot work.
    #[error(transparent)]
    Cluster(#[from] cluster::BadConfig),
    /// An entry's certificate cannot be used.
    #[error("entry '{entry}': {source}")]
    Tls {
        /// The entry's name.
        entry: Arc<str>,
        /// Why.
        source: TlsError,
    },
    /// A file of an entry's TLS settings cannot be read.
    #[error("entry '{entry}': {path}: {source}")]
    File {
        /// The entry's name.
        entry: Arc<str>,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("{what} cannot listen on {address}: {source}")]
    Listen {
        /// The entry, or the admin port.
        what: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A self-signed certificate could not be made.
    #[error("entry '{entry}': no certificate could be made: {reason}")]
    SelfSigned {
        /// The entry's name.
        entry: Arc<str>,
        /// Why.
        reason: String,
    },
    /// The admin port is open to strangers and has no token.
    #[error("the admin port is not on loopback ({0}) and has no token: set one, or bind it to 127.0.0.1")]
    OpenAdmin(SocketAddr),
    /// The system gave no thread.
    #[error("threads could not be started: {0}")]
    Threads(#[source] io::Error),
}

/// What a reload did not put in force, in sentences; the rest is in force for requests from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What needs a restart.
    pub needs_restart: Vec<String>,
}

impl Gateway {
    /// Starts everything. Listeners accept at once; until a cluster's topology is learnt its bulks pass whole.
    ///
    /// # Errors
    /// What the operator has to mend. Clusters that cannot be reached are no error.
    pub fn start(loaded: Loaded) -> Result<Self, StartError> {
        let config = &loaded.config;
        if let (Some(binding), None) = (config.admin.binding, &config.admin.token)
            && !binding.ip().is_loopback()
        {
            return Err(StartError::OpenAdmin(binding));
        }
        let workers = Workers::start(WorkersConfig {
            count: config.worker.count.unwrap_or(0),
            budget_bytes: usize::try_from(config.worker.body_memory_bytes_max).unwrap_or(usize::MAX),
            ..WorkersConfig::default()
        })
        .map_err(StartError::Threads)?;
        let metrics = Metrics::new(workers.count());
        let entries = config.entries.clone();
        let admin_settings = config.admin.clone();
        let live = Live::new(loaded, None)?;
        let shared = Arc::new(Shared {
            live: ArcSwap::from_pointee(live),
            metrics,
        });
        let listening: Result<Vec<Listening>, StartError> = entries
            .iter()
            .map(|entry| listen(entry, &workers, &shared))
            .collect();
        let entries = Arc::new(listening?);
        let admin = match admin_settings.binding {
            None => None,
            Some(binding) => Some(
                Admin::start(
                    binding,
                    admin_settings.token,
                    Arc::clone(&shared),
                    Arc::clone(&entries),
                    Arc::clone(workers.budget()),
                )
                .map_err(|source| StartError::Listen {
                    what: "the admin port".to_owned(),
                    address: binding,
                    source,
                })?,
            ),
        };
        Ok(Self {
            shared,
            entries,
            admin,
            workers,
        })
    }

    /// Each entry's name and the address that it really listens on.
    pub fn entries(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.entries.iter().map(|entry| (&*entry.name, entry.address))
    }

    /// Where the admin port listens, if it does.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Waits until every cluster's topology is known; `false` when that took longer than `timeout`.
    pub async fn learnt(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let live = self.shared.live.load_full();
        for cluster in live.clusters.values() {
            if !cluster
                .learnt(deadline.saturating_duration_since(Instant::now()))
                .await
            {
                return false;
            }
        }
        true
    }

    /// Puts a new configuration in force for requests from now on: routers, flows, clusters, logging thresholds.
    ///
    /// # Errors
    /// A cluster's settings that cannot work; the old configuration stays in force.
    pub fn reload(&self, loaded: Loaded) -> Result<Reloaded, StartError> {
        let config = &loaded.config;
        let before = self.shared.live.load_full();
        let mut needs_restart = Vec::new();
        if listeners_differ(&before.config.entries, &config.entries) {
            needs_restart.push("entry: listeners keep their old settings until a restart".to_owned());
        }
        if before.config.admin != config.admin {
            needs_restart.push("admin: the admin port keeps its old settings until a restart".to_owned());
        }
        if before.config.worker != config.worker {
            needs_restart.push("worker: threads and memory stay as they are until a restart".to_owned());
        }
        self.shared
            .live
            .store(Arc::new(Live::new(loaded, Some(&before))?));
        Ok(Reloaded { needs_restart })
    }

    /// Loads certificates whose files have changed; new connections get them. Returns the entries that changed, and
    /// logs those whose files cannot be used (they keep what they have).
    pub fn reload_certificates(&self) -> Vec<String> {
        let mut changed = Vec::new();
        for entry in self.entries.iter() {
            let Some(watched) = &entry.tls else { continue };
            match watched.reload() {
                Ok(false) => {}
                Ok(true) => changed.push(entry.name.to_string()),
                Err(error) if watched.is_news(&error.to_string()) => {
                    tracing::error!(entry = &*entry.name, %error, "certificate not reloaded");
                }
                Err(_) => {}
            }
        }
        changed
    }

    /// Stops accepting, lets requests under way finish within `deadline`, then stops.
    /// Returns how many connections had to be cut.
    pub async fn drain(self, deadline: Duration) -> u64 {
        let ends = Instant::now() + deadline;
        let mut drains = tokio::task::JoinSet::new();
        for entry in self.entries.iter() {
            let server = entry.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(server) = server {
                drains.spawn(server.drain(ends.saturating_duration_since(Instant::now())));
            }
        }
        let mut cut = 0;
        while let Some(report) = drains.join_next().await {
            cut += report.map_or(0, |report| report.cut);
        }
        drop(self.admin);
        // Joins the workers' threads.
        drop(self.workers);
        cut
    }
}

/// Everything about listeners but the router, which requests look up anew.
fn listeners_differ(before: &[Entry], after: &[Entry]) -> bool {
    let without_router = |entry: &Entry| Entry {
        router: Arc::from(""),
        ..entry.clone()
    };
    !before
        .iter()
        .map(without_router)
        .eq(after.iter().map(without_router))
}

fn listen(entry: &Entry, workers: &Workers, shared: &Arc<Shared>) -> Result<Listening, StartError> {
    let (tls, watched) = match &entry.tls {
        None => (None, None),
        Some(settings) => {
            let (tls, watched) = entry_tls(&entry.name, settings)?;
            (Some(tls), watched)
        }
    };
    let cores = workers.count();
    let mut address = entry.binding;
    let attempts = if entry.skip_occupied_port {
        PORTS_TRIED_MAX
    } else {
        1
    };
    for attempt in 1.. {
        let config = ServerConfig {
            address,
            reuse_port: entry.reuse_port,
            tls: tls.clone(),
            limits: limits(entry),
        };
        let (shared, name) = (Arc::clone(shared), Arc::clone(&entry.name));
        let make =
            move |worker: &Worker| Rc::new(Front::new(Arc::clone(&shared), Arc::clone(&name), worker, cores));
        match Server::start(workers, config, make) {
            Ok(server) => {
                return Ok(Listening {
                    name: Arc::clone(&entry.name),
                    address: server.local_addr(),
                    server: Mutex::new(Some(server)),
                    tls: watched,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < attempts => {
                address.set_port(address.port().wrapping_add(1));
            }
            Err(source) => {
                return Err(StartError::Listen {
                    what: format!("entry '{}'", entry.name),
                    address,
                    source,
                });
            }
        }
    }
    unreachable!("the loop above returns at its last attempt at the latest")
}

fn limits(entry: &Entry) -> Limits {
    Limits {
        head_bytes_max: entry.limits.head_bytes_max,
        header_count_max: entry.limits.header_count_max,
        body_bytes_max: entry.limits.body_bytes_max,
        head_timeout: entry.timeouts.header,
        body_idle_timeout: entry.timeouts.read,
        body_rate_min: entry.timeouts.body_bytes_per_second_min,
        keep_alive_timeout: entry.timeouts.idle,
        write_timeout: entry.timeouts.write,
        connections_max: entry.connections_max,
        ..Limits::default()
    }
}

fn entry_tls(entry: &Arc<str>, settings: &EntryTls) -> Result<(ServerTls, Option<Watched>), StartError> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| StartError::File {
            entry: Arc::clone(entry),
            path: path.clone(),
            source,
        })
    };
    let client_ca_pem = settings.client_ca_file.as_ref().map(read).transpose()?;
    let (certificate_pem, key_pem) = match &settings.certificate {
        Certificate::Files { cert_file, key_file } => (read(cert_file)?, read(key_file)?),
        Certificate::SelfSigned => self_signed(entry)?,
    };
    let tls = ServerTls::new(&ServerTlsConfig {
        certificate_pem: certificate_pem.clone(),
        key_pem: key_pem.clone(),
        client_ca_pem,
    })
    .map_err(|source| StartError::Tls {
        entry: Arc::clone(entry),
        source,
    })?;
    let watched = match &settings.certificate {
        Certificate::Files { cert_file, key_file } if settings.hot_reload => Some(Watched {
            tls: tls.clone(),
            cert_file: cert_file.clone(),
            key_file: key_file.clone(),
            loaded: Mutex::new((certificate_pem, key_pem)),
            complaint: Mutex::default(),
        }),
        _ => None,
    };
    Ok((tls, watched))
}

fn self_signed(entry: &Arc<str>) -> Result<(Vec<u8>, Vec<u8>), StartError> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| StartError::SelfSigned {
        entry: Arc::clone(entry),
        reason: error.to_string(),
    })?;
    Ok((
        made.cert.pem().into_bytes(),
        made.signing_key.serialize_pem().into_bytes(),
    ))
}

impl Watched {
    /// Loads the files if they differ from what is in use. Contents are compared, not times: a deployment that swaps
    /// symbolic links may keep them.
    fn reload(&self) -> Result<bool, Box<dyn std::error::Error>> {
        let now = (std::fs::read(&self.cert_file)?, std::fs::read(&self.key_file)?);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if *loaded == now {
            self.is_news("");
            return Ok(false);
        }
        self.tls.reload(&now.0, &now.1)?;
        *loaded = now;
        self.is_news("");
        Ok(true)
    }

    /// Whether this is another complaint than the last one: the files are looked at every second.
    fn is_news(&self, complaint: &str) -> bool {
        let mut last = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *last != complaint;
        complaint.clone_into(&mut last);
        news
    }
}

/// `skip_occupied_port` gives up after so many.
const PORTS_TRIED_MAX: u32 = 100;
