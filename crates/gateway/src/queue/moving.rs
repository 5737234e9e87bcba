//! A queue that moves from one host to another: its parts, and the marks of queues that a gateway must not
//! deliver.
//!
//! `tidegate queues export` and `import` copy the parts of a queue while no gateway has it. Two files keep a
//! gateway from a queue that is not its own: a mark beside a queue that is not there as a whole yet, and a
//! mark in a queue that somebody else delivers now.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file in the folder of a queue's log that says that the queue was exported to be delivered elsewhere.
pub const MOVED: &str = "MOVED";

/// Returns the parts of a queue below `path.data`, each with the name that an export gives to it. The log
/// comes first.
pub fn parts(data: &Path, queue: &str) -> [(&'static str, PathBuf); 6] {
    [
        ("queue", data.join("queue").join(queue)),
        ("dead_letters", data.join("dead_letters").join(queue)),
        ("parked", super::parked::folder_of(data, queue)),
        ("idempotency", data.join("idempotency").join(queue)),
        ("sent", data.join("sent").join(queue)),
        (
            "whereabouts.jsonl",
            data.join("whereabouts").join(format!("{queue}.jsonl")),
        ),
    ]
}

/// Returns the file that is there as long as a queue's import is not finished.
pub fn importing(data: &Path, queue: &str) -> PathBuf {
    data.join("importing").join(queue)
}

/// A mark of which it is not known whether it is there.
#[derive(Debug, thiserror::Error)]
#[error("whether it is this gateway's to deliver cannot be read in {}: {source}", .mark.display())]
pub(super) struct UnreadMark {
    mark: PathBuf,
    source: io::Error,
}

/// Returns why a gateway must not open a queue, if it must not. Only a mark that is certainly not there is
/// none: a queue that was moved would be delivered twice.
pub(super) fn why_not_ours(data: &Path, queue: &str) -> Result<Option<String>, UnreadMark> {
    let mark = importing(data, queue);
    if mark.try_exists().map_err(|source| unread(&mark, source))? {
        return Ok(Some(format!(
            "its import is not finished ({} says so): run `tidegate queues import` again",
            mark.display()
        )));
    }
    let mark = data.join("queue").join(queue).join(MOVED);
    let moved = match fs::read(&mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        moved => moved.map_err(|source| unread(&mark, source))?,
    };
    Ok(Some(format!(
        "{}: its documents would be delivered twice. Take the queue out of the configuration; or remove {}, if \
         nobody delivers the export",
        String::from_utf8_lossy(&moved).trim(),
        mark.display()
    )))
}

fn unread(mark: &Path, source: io::Error) -> UnreadMark {
    let mark = mark.to_owned();
    UnreadMark { mark, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mark_that_is_certainly_not_there_is_none() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        assert!(why_not_ours(data, "q").unwrap().is_none());
        let log = data.join("queue/q");
        fs::create_dir_all(&log).unwrap();
        fs::write(log.join(MOVED), b"moved to h\xf6st").unwrap();
        let why = why_not_ours(data, "q").unwrap().expect("a reason");
        assert!(
            why.contains("moved to h") && why.contains("delivered twice"),
            "{why}"
        );
        // What cannot be read: here, because it is no file.
        fs::remove_file(log.join(MOVED)).unwrap();
        fs::create_dir(log.join(MOVED)).unwrap();
        let error = why_not_ours(data, "q").unwrap_err().to_string();
        assert!(error.contains("queue/q/MOVED"), "{error}");
        // Here, because its folder is none.
        fs::remove_dir(log.join(MOVED)).unwrap();
        fs::write(data.join("importing"), b"").unwrap();
        assert!(why_not_ours(data, "q").is_err());
        fs::remove_file(data.join("importing")).unwrap();
        fs::create_dir(data.join("importing")).unwrap();
        fs::write(data.join("importing/q"), b"").unwrap();
        let why = why_not_ours(data, "q").unwrap().expect("a reason");
        assert!(why.contains("import is not finished"), "{why}");
    }
}
