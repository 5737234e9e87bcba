//! `tidegate console`: the web page for clusters and gateways.

mod demo;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;

use config::{LogFormat, LogLevel, Logging, Secret};
use console::{Options, StartError, Started};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit;
use demo::Demo;

/// Run the console, a web page for many clusters and gateways
///
///     tidegate console
///     tidegate console --listen 0.0.0.0:9000 --tls-cert c.pem --tls-key k.pem
///     tidegate console --demo
///
/// The console is a separate process. It asks clusters through their APIs and
/// gateways through their admin API; no write depends on it. The first start prints
/// a link that creates the first user. The console stores the registry (passwords
/// are encrypted with a key in a file beside it), users, texts of the dev tools and
/// the audit log. It never stores a document or an answer of a cluster.
///
/// Exit status: 0 stopped as told, 2 wrong usage, 3 it could not start.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Address and port to listen on; any address beyond this machine needs TLS
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// Folder for the console's data (path.data)
    #[arg(long, value_name = "FOLDER", default_value = "data/console")]
    data: PathBuf,
    /// Path below which to serve, for a console behind a proxy
    #[arg(long, value_name = "PATH", default_value = "")]
    base_path: String,
    /// PEM file of the certificate chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Host name that browsers use, besides addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Allow other addresses without TLS: passwords travel in clear text, unless a proxy in front adds
    /// TLS
    #[arg(long)]
    insecure_http: bool,
    /// YAML file of clusters and gateways to register at each start
    #[arg(long, value_name = "FILE")]
    register: Option<PathBuf>,
    /// Also start a fake cluster, a gateway and load, already registered; nothing of it is kept
    #[arg(long, conflicts_with_all = ["data", "register"])]
    demo: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let logging = Logging {
        level: LogLevel::Info,
        format: LogFormat::Auto,
        slow_request: None,
        access: None,
    };
    let _level = crate::logging::start(None, &logging);
    wire::guard::tell_of_panics();
    let fail = |status: u8, reason: &dyn std::fmt::Display| {
        let _ = writeln!(io::stderr(), "tidegate: {reason}");
        ExitCode::from(status)
    };
    let mut options = match options(arguments) {
        Ok(options) => options,
        Err(reason) => return fail(exit::FAILED, &reason),
    };
    // Held until the end: dropping it stops what was started for the demo.
    let demo = match arguments.demo.then(Demo::start).transpose() {
        Ok(demo) => demo,
        Err(reason) => return fail(exit::FAILED, &reason),
    };
    if let Some(demo) = &demo {
        options.data = demo.folder().join("console");
        options.registry = Some(Secret::new(demo.registry()));
    }
    match console::run(&options, announce, stopped()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (StartError::InTheClear(_) | StartError::BasePath(_))) => fail(exit::USAGE, &error),
        Err(error) => fail(exit::FAILED, &error),
    }
}

/// A certificate file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", file.display())]
struct Unreadable {
    file: PathBuf,
    error: io::Error,
}

fn options(arguments: &Arguments) -> Result<Options, Unreadable> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|error| Unreadable {
            file: file.clone(),
            error,
        })
    };
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    Ok(Options {
        listen: arguments.listen,
        data: arguments.data.clone(),
        base_path: arguments.base_path.clone(),
        tls,
        hosts: arguments.host.clone(),
        insecure_http: arguments.insecure_http,
        registry: arguments
            .register
            .as_ref()
            .map(|file| Ok(Secret::new(String::from_utf8_lossy(&read(file)?).as_ref())))
            .transpose()?,
    })
}

fn announce(started: &Started) {
    let mut out = io::stdout();
    let _ = writeln!(out, "console: {}", started.url);
    if let Some(link) = &started.setup_url {
        let _ = writeln!(
            out,
            "There is no user yet. Make the first one with this link, which works once:\n{link}"
        );
    }
    let _ = out.flush();
}

/// Waits for SIGTERM or SIGINT.
async fn stopped() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9000));
