//! Operations that a cluster would not take: each with the reason, in a log of their own.

use std::collections::HashSet;

use log::{AppendError, Log};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The dead letters of one queue.
pub(crate) struct DeadLetters {
    log: Log,
}

/// Why an operation is dead, and where it came from. It stands in the record's parameters, in clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// The consumer group that gave it up.
    pub(crate) group: String,
    /// The cluster that would not take it.
    pub(crate) cluster: String,
    /// Status of the item.
    pub(crate) status: u16,
    /// `type` of its error.
    pub(crate) kind: String,
    /// `reason` of its error, cut to [`REASON_BYTES_MAX`].
    pub(crate) reason: String,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// When its client was answered, ms since 1970.
    pub(crate) accepted_ms: u64,
    /// Position of its request in the queue, as its client was told.
    pub(crate) position: u64,
    /// Lane, and place in the request's part of that lane: with the position it says which operation it is.
    pub(crate) lane: u32,
    pub(crate) place: u32,
    /// Path and query that it was sent to.
    pub(crate) target: String,
}

// === impl DeadLetters ===

impl DeadLetters {
    pub(crate) fn new(log: Log) -> Self {
        Self { log }
    }

    /// Puts an operation (its lines) there; durable when it returns.
    pub(crate) async fn put(&self, mut cause: Cause, operation: &[u8]) -> Result<(), AppendError> {
        if cause.reason.len() > REASON_BYTES_MAX {
            let cut = (0..=REASON_BYTES_MAX)
                .rev()
                .find(|at| cause.reason.is_char_boundary(*at));
            cause.reason.truncate(cut.unwrap_or(0));
        }
        // Params are bounded; a target can be longer than that only together with everything else.
        let params = serde_json::to_vec(&cause).unwrap_or_default();
        let mut record = self.log.record(0, &params);
        record.group(0, 1, |out| out.extend_from_slice(operation));
        self.log.append_async(record).await.map(drop)
    }

    /// How many there are. After a crash an operation can be there twice; [`DeadLetters::list`] shows it once.
    pub(crate) fn count(&self) -> u64 {
        self.log.status().documents
    }

    pub(crate) fn close(&self) {
        self.log.close();
    }

    /// At most `limit` of them from a position on, and the position to go on from, if there are more. Reads the disk.
    pub(crate) fn list(&self, from: u64, limit: usize) -> Result<Value, log::ReadError> {
        let mut browse = self.log.browse(from);
        let (mut letters, mut seen, mut next) = (Vec::new(), HashSet::new(), None);
        while let Some(record) = browse.read()? {
            if letters.len() >= limit {
                next = Some(record.receipt.position);
                break;
            }
            let Ok(cause) = serde_json::from_slice::<Cause>(&record.params) else {
                continue;
            };
            let origin = (cause.group.clone(), cause.position, cause.lane, cause.place);
            if !seen.insert(origin) {
                continue;
            }
            let bytes = record.groups.into_iter().next().and_then(|group| group.bytes);
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let mut lines = text.as_deref().unwrap_or_default().lines();
            let (action, source) = (lines.next(), lines.next());
            let as_json = |line: Option<&str>| {
                line.map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned())))
            };
            letters.push(json!({
                "at": record.receipt.position,
                "died_ms": record.time_ms,
                "action": as_json(action),
                "source": as_json(source),
                "status": cause.status,
                "type": cause.kind,
                "reason": cause.reason,
                "attempts": cause.attempts,
                "group": cause.group,
                "cluster": cause.cluster,
                "accepted_ms": cause.accepted_ms,
                "origin": {"position": cause.position, "lane": cause.lane, "place": cause.place, "target": cause.target},
            }));
        }
        Ok(json!({"dead_letters": letters, "next": next}))
    }
}

/// Longer reasons are cut: a record's parameters are bounded.
pub(crate) const REASON_BYTES_MAX: usize = 8 << 10;
