//! Runs the console until it is told to stop.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use config::{LogFormat, LogLevel, Logging, Secret};
use console::{Options, StartError, Started, TlsFiles};
use tokio::signal::unix::{SignalKind, signal};

use super::Arguments;
use super::demo::Demo;
use crate::exit;

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

/// A file that cannot be read.
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
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
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
        oidc: arguments
            .oidc
            .as_ref()
            .map(|file| Ok(Secret::new(String::from_utf8_lossy(&read(file)?).as_ref())))
            .transpose()?,
        // Where this program is not known, the page says that there are no trials.
        program: std::env::current_exe().ok(),
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
