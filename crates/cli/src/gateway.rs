//! `tidegate gateway`: runs the gateway until it is told to stop.

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gateway::config::reload::{Reload, Reloaded};
use gateway::config::{Anonymous, Config, Loaded, LogFormat, LogLevel, QuickStart};
use gateway::{Gateway, StartError};
use tokio::signal::unix::{SignalKind, signal};

use crate::access::Access;

/// Run the gateway
///
/// Either with a configuration file, or without one before a single cluster:
///
///     tidegate gateway --config tidegate.yml
///     tidegate gateway --cluster http://127.0.0.1:9200
///
/// Bulk requests are split by node, and each part is sent straight to the node
/// that holds its primaries; everything else is forwarded as it is. Clients'
/// own credentials travel to the cluster.
///
/// SIGTERM and SIGINT stop it gracefully: no new connections, requests under
/// way are answered, then it ends. SIGHUP reads the configuration file and the
/// certificates again.
///
/// Exit status: 0 stopped as told, 1 it could not start, 2 wrong usage.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[group(skip)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: From,
    /// Address and port to listen on [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Address and port of the admin API [default: 127.0.0.1:2900]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    admin: Option<SocketAddr>,
    #[command(flatten)]
    access: Access,
    /// Send client requests that carry no credentials with our own account:
    /// whoever reaches the port can write
    #[arg(long, conflicts_with = "config")]
    share_account: bool,
    /// Least level of log lines
    #[arg(long, value_name = "LEVEL", value_parser = ["trace", "debug", "info", "warn", "error"])]
    log_level: Option<String>,
}

/// Where the configuration comes from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct From {
    /// Configuration file (YAML)
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Without a file: URL of any node of the cluster; may carry user:password@
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let loaded = match load(arguments) {
        Ok(loaded) => loaded,
        Err(reason) => return fail(&reason),
    };
    start_logging(arguments, &loaded);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = arguments
            .from
            .config
            .as_ref()
            .map(|file| tracing::field::display(file.display())),
        clusters = loaded.config.clusters.len(),
        "tidegate starts"
    );
    warn_of(&loaded);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    match runtime.block_on(serve(arguments.from.config.as_ref(), loaded)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// The configuration, from the file or from the command line; or what to tell the user.
fn load(arguments: &Arguments) -> Result<Loaded, String> {
    if let Some(file) = &arguments.from.config {
        if arguments.access.is_given() {
            return Err(
                "--config goes without --user, --password-file, --ca and --insecure: \
                        the file says these for each cluster"
                    .to_owned(),
            );
        }
        return Config::load(file)
            .map_err(|rejected| format!("the configuration can't be used:\n{rejected}"));
    }
    let account = arguments.access.account()?;
    let cluster = arguments.from.cluster.clone().unwrap_or_default();
    if arguments.share_account && account.is_none() && !cluster.contains('@') {
        return Err("--share-account needs an account: --user, or user:password@ in the URL".to_owned());
    }
    Config::quick_start(&QuickStart {
        cluster,
        listen: arguments.listen.unwrap_or(LISTEN_DEFAULT),
        insecure_skip_verify: arguments.access.insecure,
        ca_file: arguments.access.ca.clone(),
        anonymous: match arguments.share_account {
            true => Anonymous::UseGatewayAccount,
            false => Anonymous::Pass,
        },
        admin: arguments.admin,
        account,
    })
    .map_err(|rejected| rejected.to_string())
}

async fn serve(file: Option<&PathBuf>, loaded: Loaded) -> Result<(), StartError> {
    let drain_timeout = loaded.config.worker.drain_timeout;
    let running = Arc::new(loaded.config.clone());
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Threads)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Threads)?;
    let gateway = Gateway::start(loaded)?;
    for (name, address) in gateway.entries() {
        tracing::info!(entry = name, %address, "listening");
    }
    if let Some(address) = gateway.admin_address() {
        tracing::info!(%address, "admin API listening");
    }
    let mut reload = file.and_then(|file| match Reload::watch(file, running) {
        Ok(reload) => Some(reload),
        Err(error) => {
            tracing::warn!(%error, "the configuration file is not watched");
            None
        }
    });
    let mut look_at_certificates = tokio::time::interval(CERTIFICATES_LOOK);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            reloaded = next_reload(&mut reload) => apply(&gateway, reloaded),
            _ = look_at_certificates.tick() => {
                for entry in gateway.reload_certificates() {
                    tracing::info!(entry, "certificate reloaded");
                }
            }
        }
    }
    tracing::info!(
        deadline_s = drain_timeout.as_secs(),
        "stopping: requests under way are finished"
    );
    let cut = gateway.drain(drain_timeout).await;
    tracing::info!(connections_cut = cut, "stopped");
    Ok(())
}

/// The next change of the file; never, without a file.
async fn next_reload(reload: &mut Option<Reload>) -> Reloaded {
    match reload {
        Some(reload) => reload.next().await,
        None => std::future::pending().await,
    }
}

fn apply(gateway: &Gateway, reloaded: Reloaded) {
    match reloaded {
        Reloaded::Bad(rejected) => {
            tracing::error!("configuration not reloaded, the old one stays in force:\n{rejected}");
        }
        Reloaded::Good { loaded, .. } => {
            warn_of(&loaded);
            match gateway.reload(*loaded) {
                Ok(done) => {
                    for sentence in &done.needs_restart {
                        tracing::warn!("{sentence}");
                    }
                    tracing::info!("configuration reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "configuration not reloaded, the old one stays in force");
                }
            }
        }
    }
}

/// Warnings without the word, which the line's level says.
fn warn_of(loaded: &Loaded) {
    for warning in &loaded.warnings {
        let line = warning.place.map(|place| place.line);
        let key = (!warning.path.is_empty()).then_some(&warning.path);
        match &warning.help {
            Some(help) => tracing::warn!(key, line, "{}; {help}", warning.message),
            None => tracing::warn!(key, line, "{}", warning.message),
        }
    }
}

fn start_logging(arguments: &Arguments, loaded: &Loaded) {
    use tracing_subscriber::filter::LevelFilter;
    let level = match (arguments.log_level.as_deref(), loaded.config.logging.level) {
        (Some(level), _) => level.parse().unwrap_or(LevelFilter::INFO),
        (None, LogLevel::Trace) => LevelFilter::TRACE,
        (None, LogLevel::Debug) => LevelFilter::DEBUG,
        (None, LogLevel::Info) => LevelFilter::INFO,
        (None, LogLevel::Warn) => LevelFilter::WARN,
        (None, LogLevel::Error) => LevelFilter::ERROR,
    };
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let json = match loaded.config.logging.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // A second subscriber in one process can only be a test's; the first one stays.
    let _ = match json {
        true => builder.json().flatten_event(true).try_init(),
        false => builder.with_target(false).try_init(),
    };
}

fn fail(reason: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "tidegate: {reason}");
    ExitCode::FAILURE
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8000));

/// How often certificate files are looked at.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(1);
