//! A queue that moves from one host to another: its parts, and the marks of queues that a gateway must not
//! deliver.
//!
//! `tidegate queues export` and `import` copy the parts of a queue while no gateway has it. Two files keep a
//! gateway from a queue that is not its own: a mark beside a queue that is not there as a whole yet, and a
//! mark in a queue that somebody else delivers now.

use std::path::{Path, PathBuf};

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

/// Returns why a gateway must not open a queue, if it must not.
pub(super) fn why_not_ours(data: &Path, queue: &str) -> Option<String> {
    let mark = importing(data, queue);
    if mark.exists() {
        return Some(format!(
            "its import is not finished ({} says so): run `tidegate queues import` again",
            mark.display()
        ));
    }
    let mark = data.join("queue").join(queue).join(MOVED);
    let moved = std::fs::read_to_string(&mark).ok()?;
    Some(format!(
        "{}: its documents would be delivered twice. Take the queue out of the configuration; or remove {}, if \
         nobody delivers the export",
        moved.trim(),
        mark.display()
    ))
}
