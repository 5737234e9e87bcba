//! Keeps keys on disk: in a log of their own, with a line for each, given up by the segment when all keys in
//! it are too old.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log::{Discard, Event, Fsync, Log, OpenError, Options, ReadError, RealDisk, Retention, WhyLost};
use serde::{Deserialize, Serialize};

use super::{Accepted, Keyed};

/// The log of keys.
pub(super) struct KeyLog {
    log: Log,
}

/// The contents of the log.
#[derive(Default)]
pub(super) struct KeyLogContents {
    pub(super) accepted: Vec<Accepted>,
    /// The place in the queue's log before which no key is missing here; `None` in a new log.
    pub(super) told_up_to: Option<u64>,
}

/// Why the keys of a queue cannot be known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Their log, or the queue's, cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A line of the log.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    keyed: Option<Keyed>,
    /// The position of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    told_up_to: u64,
}

// === impl KeyLog ===

impl KeyLog {
    /// Opens the log, or makes it; returns everything in it that is not too old.
    pub(super) fn open(
        folder: &Path,
        settings: &config::Idempotency,
        options: Options,
    ) -> Result<(Self, KeyLogContents), KeysError> {
        let on_event = Arc::clone(&options.on_event);
        let options = Options {
            lanes: 1,
            // A key that a power cut takes from here is still in the queue's log, whose segments stay for
            // longer.
            fsync: Fsync::Interval(Duration::from_secs(1)),
            segment_bytes: SEGMENT_BYTES,
            quota_bytes: 0,
            retention: Retention {
                discard: Some(Discard {
                    older_than: settings.window,
                    beyond_bytes: u64::MAX,
                }),
                ..Retention::default()
            },
            on_event: Arc::new(move |event| match event {
                Event::Lost(lost) if lost.why == WhyLost::Discarded => {}
                event => on_event(event),
            }),
            ..options
        };
        let log = Log::open(folder, options, RealDisk::default())?;
        let mut found = KeyLogContents::default();
        let read = log.browse(0).each(|record| {
            let lines = record.groups.iter().filter_map(|group| group.bytes.as_deref());
            for line in lines.filter_map(|bytes| serde_json::from_slice::<Line>(bytes).ok()) {
                found.told_up_to = found.told_up_to.max(Some(line.told_up_to));
                let accepted = line.keyed.zip(line.position);
                found
                    .accepted
                    .extend(accepted.map(|(keyed, position)| Accepted { keyed, position }));
            }
            ControlFlow::Continue(())
        });
        read?;
        Ok((Self { log }, found))
    }

    /// Writes a line without waiting; `then` is told whether the line is there.
    pub(super) fn put(
        &self,
        accepted: Option<Accepted>,
        told_up_to: u64,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let line = Line {
            keyed: accepted.map(|accepted| accepted.keyed),
            position: accepted.map(|accepted| accepted.position),
            told_up_to,
        };
        let line = serde_json::to_vec(&line).unwrap_or_default();
        let mut record = self.log.record(0, b"");
        record.group(0, 1, |out| out.extend_from_slice(&line));
        self.log.append(record, move |result| {
            if let Err(error) = &result {
                wire::rationed!(tracing::warn, %error, "an idempotency key is not kept by itself; it is in the queue");
            }
            then(result.is_ok());
        });
    }

    #[cfg(test)]
    pub(super) fn adjust(&self, options: &Options) {
        self.log.adjust(options).unwrap();
    }

    pub(super) fn close(&self) {
        self.log.close();
    }
}

/// Room for a few tens of thousands of keys.
const SEGMENT_BYTES: u64 = 8 << 20;
