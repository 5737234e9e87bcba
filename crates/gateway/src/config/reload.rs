//! Reading the file again when it changes, or on `SIGHUP`. A file with an error changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::diff::{Changes, diff};
use super::{Config, Loaded, Rejected};

/// Watches a file. Dropping it ends the watch.
pub struct Reload {
    file: PathBuf,
    running: Arc<Config>,
    /// What was read last, good or bad: the same text again is no news.
    last: Option<String>,
    changed: mpsc::Receiver<()>,
    hangup: Signal,
    _watcher: RecommendedWatcher,
}

/// What became of a changed file.
#[derive(Debug)]
pub enum Reloaded {
    /// It is good: apply the changes. Whoever gets this owns the new configuration.
    Good {
        /// The new configuration, its warnings included.
        loaded: Box<Loaded>,
        /// How it differs from the one before.
        changes: Changes,
    },
    /// It is not used, and the configuration before stays in force.
    Bad(Rejected),
}

/// Why a file can't be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The system refuses to watch the file's directory.
    #[error("can't watch {directory}: {source}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why not.
        source: notify::Error,
    },
    /// The signal can't be caught.
    #[error("can't catch SIGHUP: {0}")]
    Signal(#[from] std::io::Error),
}

// === impl Reload ===

impl Reload {
    /// Watches `file`, from which `running` was loaded. Must be called within a tokio runtime with I/O and time.
    ///
    /// The directory is what is watched: editors and orchestrators replace files (and symbolic links) rather
    /// than write to them.
    ///
    /// # Errors
    /// The system has no watches or signals left.
    pub fn watch(file: &Path, running: Arc<Config>) -> Result<Self, WatchError> {
        let (tell, changed) = mpsc::channel(1);
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file must not wake us again.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // A full channel already says that there is something to look at.
                let _ = tell.try_send(());
            }
        })
        .map_err(|source| WatchError::Directory {
            directory: directory.clone(),
            source,
        })?;
        watcher
            .watch(&directory, RecursiveMode::NonRecursive)
            .map_err(|source| WatchError::Directory {
                directory: directory.clone(),
                source,
            })?;
        let hangup = signal(SignalKind::hangup())?;
        let last = std::fs::read_to_string(file).ok();
        Ok(Self {
            file: file.to_owned(),
            running,
            last,
            changed,
            hangup,
            _watcher: watcher,
        })
    }

    /// Waits for the file to change (if the running configuration says `configs.auto_reload`) or for `SIGHUP`,
    /// reads it and checks it. Cancel-safe.
    pub async fn next(&mut self) -> Reloaded {
        loop {
            let asked = tokio::select! {
                _ = self.hangup.recv() => true,
                Some(()) = self.changed.recv() => false,
            };
            if !asked {
                // Whoever writes the file may need several writes.
                tokio::time::sleep(SETTLE).await;
                while self.changed.try_recv().is_ok() {}
                if !self.running.auto_reload {
                    continue;
                }
            }
            let text = std::fs::read_to_string(&self.file).ok();
            if !asked && (text.is_none() || text == self.last) {
                continue;
            }
            self.last = text;
            return self.read();
        }
    }

    fn read(&mut self) -> Reloaded {
        match Config::load(&self.file) {
            Ok(loaded) => {
                let changes = diff(&self.running, &loaded.config);
                self.running = Arc::new(loaded.config.clone());
                Reloaded::Good {
                    loaded: Box::new(loaded),
                    changes,
                }
            }
            Err(rejected) => Reloaded::Bad(rejected),
        }
    }
}

const SETTLE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diff::{Change, EntryChange};

    const FILE: &str = "
entry:  [{name: e, router: r, network.binding: '127.0.0.1:8000'}]
router: [{name: r, default_flow: f}]
flow:   [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:9200'}]
";

    fn config(text: &str) -> Config {
        Config::parse(text, None, &|_| None).unwrap().config
    }

    #[tokio::test]
    async fn a_changed_file_is_read_and_a_broken_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.yml");
        std::fs::write(&file, FILE).unwrap();
        let mut reload = Reload::watch(&file, Arc::new(config(FILE))).unwrap();
        let limit = Duration::from_secs(20);

        std::fs::write(&file, FILE.replace("default_flow: f", "default_flow: g")).unwrap();
        let Reloaded::Bad(rejected) = tokio::time::timeout(limit, reload.next()).await.unwrap() else {
            panic!()
        };
        assert!(
            rejected.to_string().contains("there is no flow `g`"),
            "{rejected}"
        );

        // Replaced, as editors do it.
        let new = directory.path().join("new");
        std::fs::write(&new, FILE.replace(":8000", ":8001")).unwrap();
        std::fs::rename(&new, &file).unwrap();
        let Reloaded::Good { changes, loaded } = tokio::time::timeout(limit, reload.next()).await.unwrap()
        else {
            panic!()
        };
        assert_eq!(changes.to_string(), "entries: e moved");
        assert_eq!(loaded.config.entries[0].binding.port(), 8001);

        // The same again is no news, until asked for.
        std::fs::write(&file, FILE.replace(":8000", ":8001")).unwrap();
        assert!(
            tokio::time::timeout(Duration::from_millis(300), reload.next())
                .await
                .is_err()
        );
    }

    #[test]
    fn differences_are_named_with_what_needs_a_restart() {
        let old = config(FILE);
        assert!(diff(&old, &old).is_empty());
        let text =
            FILE.replace(
                "binding: '127.0.0.1:8000'",
                "binding: '127.0.0.1:8000', max_concurrency: 5",
            )
            .replace(
                "endpoint: 'http://127.0.0.1:9200'",
                "endpoint: 'http://127.0.0.1:9201'",
            ) + "worker.count: 1\nlogging.level: debug\n";
        let changes = diff(&old, &config(&text));
        assert_eq!(changes.entries["e"], EntryChange::Settings);
        assert_eq!(changes.clusters["c"], Change::Changed);
        assert!(changes.flows.is_empty() && changes.routers.is_empty() && changes.log_level);
        assert_eq!(changes.restart, ["worker.count"]);
        let renamed = diff(&old, &config(&FILE.replace("name: e,", "name: x,")));
        assert_eq!(renamed.entries["e"], EntryChange::Removed);
        assert_eq!(renamed.entries["x"], EntryChange::Added);
    }
}
