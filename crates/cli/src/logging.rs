//! The log of `tidegate gateway`: lines on standard error, whose lowest level a reload can change.

use std::io::IsTerminal;

use config::{LogFormat, LogLevel, Logging};
use gateway::ACCESS_LOG;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// The lowest level that is logged.
pub(crate) struct Level {
    /// The level from the command line, which overrides the file's.
    pinned: Option<LevelFilter>,
    filter: Handle<Targets, Registry>,
}

/// Starts to log. `pinned` is a level that overrides the configuration's, also after a reload.
pub(crate) fn start(pinned: Option<&str>, logging: &Logging) -> Level {
    let pinned = pinned.and_then(|level| level.parse().ok());
    let (filter, handle) = reload::Layer::new(targets(pinned.unwrap_or_else(|| least(logging))));
    let terminal = std::io::stderr().is_terminal();
    let json = match logging.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
    let lines = match json {
        true => lines.json().flatten_event(true).boxed(),
        false => lines.with_target(false).boxed(),
    };
    // Only tests start a second subscriber in one process; the first one stays.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Level {
        pinned,
        filter: handle,
    }
}

// === impl Level ===

impl Level {
    /// Takes the level from a configuration that has just come into force.
    pub(crate) fn set(&self, logging: &Logging) {
        let level = self.pinned.unwrap_or_else(|| least(logging));
        if let Err(error) = self.filter.reload(targets(level)) {
            tracing::error!(%error, "the log's level could not be changed");
        }
    }
}

fn least(logging: &Logging) -> LevelFilter {
    match logging.level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

/// The access log has a switch of its own, so the level does not turn it off.
fn targets(least: LevelFilter) -> Targets {
    let access = least.max(LevelFilter::INFO);
    Targets::new().with_default(least).with_target(ACCESS_LOG, access)
}
