//! An entry's listener, and its certificate, which is loaded anew when its files change.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use wire::{Limits, Server, ServerConfig, ServerTls, ServerTlsConfig, Worker, Workers};

use crate::config::{Certificate, Entry, EntryTls};
use crate::flow::Front;
use crate::live::Shared;
use crate::start_error::StartError;

/// A listener and what its certificate is made of.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) name: Arc<str>,
    pub(crate) address: SocketAddr,
    pub(crate) server: Mutex<Option<Server>>,
    pub(crate) tls: Option<Watched>,
}

/// A certificate on disk.
#[derive(Debug)]
pub(crate) struct Watched {
    tls: ServerTls,
    cert_file: PathBuf,
    key_file: PathBuf,
    loaded: Mutex<(Vec<u8>, Vec<u8>)>,
    /// What was wrong with the files when they were last looked at.
    complaint: Mutex<String>,
}

/// Starts to listen for an entry.
///
/// # Errors
/// What the operator has to mend.
pub(crate) fn listen(
    entry: &Entry,
    workers: &Workers,
    shared: &Arc<Shared>,
) -> Result<Listening, StartError> {
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

// === impl Watched ===

impl Watched {
    /// Loads the files if they differ from what is in use. Contents are compared, not times: a deployment that swaps
    /// symbolic links may keep them.
    pub(crate) fn reload(&self) -> Result<bool, Box<dyn std::error::Error>> {
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
    pub(crate) fn is_news(&self, complaint: &str) -> bool {
        let mut last = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        let news = *last != complaint;
        complaint.clone_into(&mut last);
        news
    }
}

/// Each connection is an open file, of which shells and service managers allow few unless asked.
pub(crate) fn check_descriptors(entries: &[Entry]) {
    let allowed = wire::raise_descriptor_limit();
    let wanted: u64 = entries.iter().map(|entry| entry.connections_max as u64).sum();
    if allowed < wanted {
        tracing::warn!(
            allowed,
            wanted,
            "fewer open files are allowed than max_concurrency promises connections: raise LimitNOFILE (ulimit -n)"
        );
    }
}

/// `skip_occupied_port` gives up after so many.
const PORTS_TRIED_MAX: u32 = 100;
