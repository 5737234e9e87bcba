//! Decides when to read the file again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::Loaded;

/// Watches a configuration file. Dropping it ends the watch.
#[derive(Debug)]
pub struct FileWatch {
    file: PathBuf,
    /// The file as it was last seen, whether valid or not.
    last: FileState,
    /// Whether the last content is in force, or can never be. Otherwise (if an address was taken, for
    /// example), the same content counts as a change once the file is touched.
    settled: bool,
    /// Whether something may have happened that has not been looked at yet. This is set at first, since the
    /// file may have been written between loading and watching.
    stirred: bool,
    changed: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

/// The file cannot be watched, since the system refuses to watch its directory.
#[derive(Debug, thiserror::Error)]
#[error("can't watch {directory}: {source}")]
pub struct WatchError {
    directory: PathBuf,
    source: notify::Error,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct FileState {
    text: Option<u64>,
    modified: Option<SystemTime>,
}

// === impl FileWatch ===

impl FileWatch {
    /// Watches `file`, whose content `loaded` is in force.
    ///
    /// The directory is watched, since editors and orchestrators replace files (and symbolic links) instead
    /// of writing to them.
    ///
    /// # Errors
    /// Fails if the system cannot watch the directory.
    pub fn new(file: &Path, loaded: &Loaded) -> Result<Self, WatchError> {
        let (tell, changed) = mpsc::channel(1);
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file must not wake this watch again.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // A full channel already shows that there is something to look at.
                let _ = tell.try_send(());
            }
        });
        let watcher = watcher.and_then(|mut watcher| {
            watcher.watch(&directory, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        Ok(Self {
            file: file.to_owned(),
            last: FileState {
                text: loaded.fingerprint(),
                ..FileState::of(file)
            },
            settled: true,
            stirred: true,
            changed,
            _watcher: watcher.map_err(|source| WatchError { directory, source })?,
        })
    }

    /// Waits until the content of the file changes. Must be called within a tokio runtime with time.
    /// Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            if !self.stirred {
                match self.changed.recv().await {
                    Some(()) => self.stirred = true,
                    None => return std::future::pending().await, // the watch has ended
                }
            }
            // The program that writes the file may need several writes.
            tokio::time::sleep(SETTLE).await;
            while self.changed.try_recv().is_ok() {}
            self.stirred = false;
            if self.look() {
                return;
            }
        }
    }

    /// Records whether the present content of the file is settled: in force, or rejected because of what it
    /// says. If it is not, the same text is tried again when the file is touched.
    pub fn settle(&mut self, settled: bool) {
        self.last = FileState::of(&self.file);
        self.settled = settled;
    }

    fn look(&mut self) -> bool {
        let now = FileState::of(&self.file);
        let news = match (now.text == self.last.text, self.settled) {
            _ if now.text.is_none() => false,
            (false, _) => true,
            (true, true) => false,
            (true, false) => now.modified != self.last.modified,
        };
        if news {
            self.last = now;
        }
        news
    }
}

// === impl FileState ===

impl FileState {
    fn of(file: &Path) -> Self {
        Self {
            text: std::fs::read_to_string(file).ok().map(|text| fingerprint(&text)),
            modified: std::fs::metadata(file).and_then(|file| file.modified()).ok(),
        }
    }
}

/// Returns a number that identifies a text. The text itself may contain secrets, so it is not kept.
pub fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

const SETTLE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const FILE: &str = "
entry:  [{name: e, router: r, network.binding: '127.0.0.1:8000'}]
router: [{name: r, default_flow: f}]
flow:   [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:9200'}]
";

    fn watch(file: &Path) -> FileWatch {
        std::fs::write(file, FILE).unwrap();
        FileWatch::new(file, &Config::load(file).unwrap()).unwrap()
    }

    async fn tells(watch: &mut FileWatch) -> bool {
        tokio::time::timeout(Duration::from_secs(20), watch.changed())
            .await
            .is_ok()
    }

    async fn is_silent(watch: &mut FileWatch) -> bool {
        tokio::time::timeout(Duration::from_millis(300), watch.changed())
            .await
            .is_err()
    }

    #[tokio::test]
    async fn another_text_is_news_and_the_same_again_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.yml");
        let mut watch = watch(&file);
        std::fs::write(&file, "two").unwrap();
        assert!(tells(&mut watch).await);
        // The file is replaced, as editors do it.
        let new = directory.path().join("new");
        std::fs::write(&new, "three").unwrap();
        std::fs::rename(&new, &file).unwrap();
        assert!(tells(&mut watch).await);
        std::fs::write(&file, "three").unwrap();
        assert!(is_silent(&mut watch).await);
        std::fs::remove_file(&file).unwrap();
        assert!(is_silent(&mut watch).await, "a file that is gone says nothing");
    }

    #[tokio::test]
    async fn a_change_is_told_though_the_wait_for_it_was_given_up_at_the_wrong_moment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.yml");
        let mut watch = watch(&file);
        assert!(is_silent(&mut watch).await);
        // A busy machine may look only when the change has settled.
        for change in 0..50 {
            std::fs::write(&file, format!("two {change}")).unwrap();
            let settling = tokio::time::timeout(SETTLE / 2, watch.changed());
            if settling.await.is_err() {
                assert!(tells(&mut watch).await);
                return;
            }
        }
        panic!("the wait was never given up in between");
    }

    #[tokio::test]
    async fn what_could_not_be_put_in_force_is_tried_again_when_the_file_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.yml");
        let mut watch = watch(&file);
        watch.settle(false);
        std::fs::write(directory.path().join("some.log"), "a line").unwrap();
        assert!(is_silent(&mut watch).await, "nobody touched the file itself");
        std::fs::write(&file, FILE).unwrap();
        assert!(tells(&mut watch).await);
    }

    #[tokio::test]
    async fn what_was_written_between_loading_and_watching_is_news() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gateway.yml");
        std::fs::write(&file, FILE).unwrap();
        let loaded = Config::load(&file).unwrap();
        std::fs::write(&file, "another").unwrap();
        assert!(tells(&mut FileWatch::new(&file, &loaded).unwrap()).await);
        std::fs::write(&file, FILE).unwrap();
        assert!(is_silent(&mut FileWatch::new(&file, &loaded).unwrap()).await);
    }
}
