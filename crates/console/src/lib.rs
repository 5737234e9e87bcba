//! The console: a web page for many clusters and many gateways, in a process of its own.
//!
//! # The story
//!
//! [`run`] opens the embedded store (users, the registry with its secrets sealed, texts, the audit log),
//! listens, and prints its address. While there is no user, it also prints a one-time link that makes the
//! first one. Everything runs on one thread: browsers' requests, a task that polls each registered cluster
//! and gateway, and the client that asks them.
//!
//! Polls write their findings on a board in memory, and pages read them from there, so a page that is open in
//! ten browsers costs a cluster no more than one. A poll has one question under way, asks less often the
//! longer the answers take, and backs off while they fail. Of a gateway, polls ask only the admin API.
//!
//! The dev tools send calls to registered clusters only, with the account in the registry. A cluster's
//! restrictions (read-only, protected) are enforced here, whatever the page does. No answer to a call is
//! stored.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod accounts;
mod alerts;
mod api;
mod board;
mod clock;
mod draft;
mod heat;
mod import;
mod indices;
mod names;
mod oidc;
mod outbound;
mod page;
mod password;
mod peer;
mod poll;
mod probe;
mod refused;
mod rights;
mod roles;
mod secrets;
mod series;
mod serve;
mod store;
mod target;
mod throttle;
mod traffic;
mod trials;

use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use settings::Secret;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use wire::Worker;
use wire::guard::{Work, restarted, spawn};

use crate::alerts::Alerts;
use crate::api::ApiState;
use crate::board::Board;
use crate::oidc::Oidc;
use crate::outbound::Outbound;
use crate::poll::Polls;
use crate::refused::Refused;
use crate::serve::Certificate;
use crate::store::Store;
use crate::trials::Trials;

pub use crate::serve::TlsFiles;

/// Options with which a console starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The folder of the console's store and key.
    pub data: PathBuf,
    /// The path below which the console is served: empty, or `/path` without a slash at its end.
    pub base_path: String,
    /// The files of the console's certificate, which are read again when they change; none: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Host names that browsers may use, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Listen beyond this machine without TLS.
    pub insecure_http: bool,
    /// The entries to register at the start, as an import file.
    pub registry: Option<Secret>,
    /// The settings of logins at an OpenID provider, as the file has them.
    pub oidc: Option<Secret>,
    /// The program `tidegate`, whose command `compare` is run for trials; none: there are no trials.
    pub program: Option<PathBuf>,
}

/// The addresses of a console, once it listens.
#[derive(Debug, Clone)]
pub struct Started {
    /// The console's address.
    pub url: String,
    /// The one-time link that makes the first user, if there is none.
    pub setup_url: Option<String>,
}

/// Why a console does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Passwords would travel in clear.
    #[error(
        "{0} can be reached from other machines: give --tls-cert and --tls-key, or --insecure-http if something in front \
         of it speaks TLS"
    )]
    InTheClear(SocketAddr),
    /// The base path is not valid.
    #[error(
        "`{0}` is not a base path: it begins with `/`, does not end with one, and has letters, digits and `-._~/`"
    )]
    BasePath(String),
    /// The console cannot listen on the address, for example because it is taken.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The folder cannot be created or used.
    #[error("{folder}: {source}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The key file cannot be used.
    #[error("{file}: {why}")]
    Key {
        /// The key file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] rusqlite::Error),
    /// The store is of a newer version.
    #[error("the store was written by a newer version of tidegate")]
    NewerStore,
    /// The store cannot be read.
    #[error("{0}")]
    Read(String),
    /// The entries to register at the start cannot be registered.
    #[error("what is to be registered: {0}")]
    Registry(String),
    /// The settings of logins at an OpenID provider cannot be used.
    #[error("--oidc: {0}")]
    Oidc(String),
    /// The certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system gave no thread or descriptor.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Runs a console until `stopped`.
///
/// # Errors
/// If the console cannot start. Nothing that happens later ends it.
pub fn run(
    options: &Options,
    announce: impl FnOnce(&Started),
    stopped: impl Future<Output = ()>,
) -> Result<(), StartError> {
    if !options.listen.ip().is_loopback() && options.tls.is_none() && !options.insecure_http {
        return Err(StartError::InTheClear(options.listen));
    }
    if !is_base_path(&options.base_path) {
        return Err(StartError::BasePath(options.base_path.clone()));
    }
    let certificate = options.tls.as_ref().map(Certificate::load).transpose();
    let certificate = certificate.map_err(|error| StartError::Tls(error.to_string()))?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&options.data)
        .map_err(|source| StartError::Folder {
            folder: options.data.clone(),
            source,
        })?;
    let store = Store::open(&options.data)?;
    wire::run_local(BUFFER_BYTES_MAX, async |worker| {
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(|source| StartError::Listen {
                address: options.listen,
                source,
            })?;
        let address = listener.local_addr()?;
        note_interrupted(&store)?;
        let first = store
            .is_first_start()
            .map_err(|error| StartError::Read(error.to_string()))?;
        let link = first.then(secrets::token);
        let api = Arc::new(api(store, options, link.clone(), worker)?);
        if let Some(registry) = &options.registry {
            api::register(&api, registry.expose())?;
        }
        let tls = certificate.as_ref().map(|certificate| certificate.tls().clone());
        if let Some(certificate) = certificate {
            spawn(Work::Watch, certificate.watch());
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}{}/", options.base_path);
        announce(&Started {
            setup_url: link
                .filter(|_| api.takes_passwords())
                .map(|link| format!("{url}#setup={link}")),
            url,
        });
        tokio::select! {
            () = serve::serve(listener, tls, api::router(&api), options.base_path.as_str().into()) => {}
            () = stopped => {}
        }
        api.trials.stop().await;
        settle(&api.polls.store, &api.refused, true);
        Ok(())
    })?
}

/// Creates the state that requests share, and starts the tasks that run besides them.
fn api(
    store: Store,
    options: &Options,
    link: Option<String>,
    worker: Worker,
) -> Result<ApiState, StartError> {
    let (outbound, runner) = Outbound::new();
    let oidc = oidc(options, &store, &outbound)?;
    let polls = Polls {
        store,
        board: Arc::new(Board::default()),
        outbound,
        changed: Arc::new(Notify::new()),
        attention: Arc::new(poll::Attention::new()),
    };
    let (told, overview) = watch::channel(Arc::new(Value::Null));
    spawn(Work::Watch, runner.run(worker));
    let polling = polls.clone();
    spawn(Work::Watch, async move {
        restarted(Work::Watch, || polling.clone().run()).await;
    });
    let telling = polls.clone();
    spawn(Work::Housekeeping, async move {
        restarted(Work::Housekeeping, || tell(telling.clone(), told.clone())).await;
    });
    let alerts = Arc::new(Alerts::default());
    let watching = (polls.clone(), Arc::clone(&alerts));
    spawn(Work::Watch, async move {
        let (polls, alerts) = watching;
        restarted(Work::Watch, || alerts::watch(polls.clone(), Arc::clone(&alerts))).await;
    });
    let delivering = (polls.clone(), Arc::clone(&alerts));
    spawn(Work::Watch, async move {
        let (polls, alerts) = delivering;
        restarted(Work::Watch, || {
            alerts::deliver(polls.clone(), Arc::clone(&alerts))
        })
        .await;
    });
    let refused = Arc::new(Refused::default());
    let (kept, counting) = (polls.store.clone(), Arc::clone(&refused));
    spawn(Work::Housekeeping, async move {
        restarted(Work::Housekeeping, || {
            settle_again(kept.clone(), Arc::clone(&counting))
        })
        .await;
    });
    Ok(ApiState {
        polls,
        alerts,
        refused,
        passwords: password::Passwords::new(),
        throttle: throttle::Throttle::default(),
        setup: Mutex::new(link.map(Secret::new)),
        names: names::Names::default(),
        asked: api::Asked::default(),
        heats: api::Heats::default(),
        indices: api::IndexLists::default(),
        trials: Arc::new(Trials::new(options.program.clone(), options.data.clone())),
        leftovers: api::Leftovers::default(),
        overview,
        bodies: api::BodyMemory::default(),
        answers: outbound::AnswerMemory::default(),
        streams: api::Streams::default(),
        hosts: hosts(options, oidc.as_ref()),
        tls: options.tls.is_some() || oidc.as_ref().is_some_and(Oidc::is_secured),
        oidc,
    })
}

/// Opens the logins at an OpenID provider, if there are settings. Ends sessions that could not begin now.
fn oidc(options: &Options, store: &Store, outbound: &Outbound) -> Result<Option<Oidc>, StartError> {
    let open = |text: &Secret| Oidc::open(text.expose(), store, outbound.clone());
    let opened = options.oidc.as_ref().map(open).transpose();
    let opened = opened.map_err(|error| StartError::Oidc(error.to_string()))?;
    let issuer = opened.as_ref().map(Oidc::issuer);
    let passwords = opened.as_ref().is_none_or(Oidc::allows_passwords);
    let ended = store.end_foreign_sessions(issuer, passwords);
    let ended = ended.and_then(|()| match &opened {
        Some(oidc) => store.end_sessions_of_other_rules(&oidc.digest_of_rules()),
        None => Ok(()),
    });
    ended.map_err(|error| StartError::Read(error.to_string()))?;
    Ok(opened)
}

/// Returns the host names that browsers may use.
fn hosts(options: &Options, oidc: Option<&Oidc>) -> Vec<String> {
    options
        .hosts
        .iter()
        .cloned()
        .chain(oidc.map(Oidc::host))
        .collect()
}

/// Notes that trials of an earlier process were interrupted, and names the indices that they may have left.
fn note_interrupted(store: &Store) -> Result<(), StartError> {
    let interrupted = store.interrupt_trials(clock::now_ms());
    for trial in interrupted.map_err(|error| StartError::Read(error.to_string()))? {
        tracing::warn!(
            indices = %format!("{}-*", trial.indices),
            "a trial was interrupted when the console ended; the page of its gateway says if indices were left"
        );
    }
    Ok(())
}

/// Notes the counts of refused logins whose hour is over.
async fn settle_again(store: Store, refused: Arc<Refused>) {
    let mut minutes = tokio::time::interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        settle(&store, &refused, false);
    }
}

fn settle(store: &Store, refused: &Refused, stopping: bool) {
    if let Err(error) = refused.settle(store, clock::now_ms(), stopping) {
        tracing::error!(%error, "refused logins cannot be noted");
    }
}

/// The moment of each second in which the overview goes out.
const OVERVIEW_AT: Duration = Duration::from_millis(400);

/// Publishes the overview once a second, for everybody who looks at it, while anybody does.
async fn tell(polls: Polls, told: watch::Sender<Arc<Value>>) {
    let mut seconds = tokio::time::interval_at(clock::next_second() + OVERVIEW_AT, Duration::from_secs(1));
    seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        // One receiver is the API's own.
        if told.receiver_count() < 2 {
            continue;
        }
        polls.attention.look();
        match (polls.store.clusters(), polls.store.gateways()) {
            (Ok(clusters), Ok(gateways)) => {
                let overview = polls.board.overview(&clusters, &gateways);
                // Sending fails if nobody listens, which does no harm.
                let _ = told.send(Arc::new(overview));
            }
            (Err(error), _) | (_, Err(error)) => tracing::error!(%error, "the registry cannot be read"),
        }
    }
}

fn is_base_path(path: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.is_empty()
        || (path.starts_with('/') && !path.ends_with('/') && !path.contains("//") && path.bytes().all(fits))
}

/// Memory for clusters' answers that are being read.
const BUFFER_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::is_base_path;

    #[test]
    fn base_paths_are_plain() {
        for path in ["", "/tidegate", "/a/b.c-d_e"] {
            assert!(is_base_path(path), "{path}");
        }
        for path in ["tidegate", "/", "/a/", "//a", "/a b", "/a?b", "/a#b"] {
            assert!(!is_base_path(path), "{path}");
        }
    }
}
