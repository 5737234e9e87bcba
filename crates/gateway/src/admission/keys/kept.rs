//! Keeps keys on disk: in a log of their own, with a line for each, given up by the segment when all keys in
//! it are too old.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log::{
    AppendError, Discard, Event, Fsync, Log, OpenError, Options, ReadError, RealDisk, Record, Retention,
    WhyLost,
};
use serde::{Deserialize, Serialize};

use super::{Accepted, Keyed};

/// The log of keys.
pub(super) struct KeyLog {
    log: Log,
}

/// The contents of the log.
pub(super) struct KeyLogContents {
    pub(super) accepted: Vec<Accepted>,
    /// The place in the queue's log before which no key is missing here.
    pub(super) told_up_to: u64,
}

/// Why the keys of a queue cannot be known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Their log, or the queue's, cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Their log is new, and there is no room for its first line.
    #[error("the log of idempotency keys cannot be begun: {0}")]
    Begin(#[source] AppendError),
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

// === impl Line ===

impl Line {
    fn into_record(self, log: &Log) -> Record {
        let line = serde_json::to_vec(&self).unwrap_or_default();
        let mut record = log.record(0, b"");
        record.group(0, 1, |out| out.extend_from_slice(&line));
        record
    }
}

// === impl KeyLog ===

impl KeyLog {
    /// Opens the log, or makes it; returns everything in it that is not too old. A new log says that no key
    /// before `end` is missing.
    pub(super) fn open(
        folder: &Path,
        settings: &config::Idempotency,
        options: Options,
        end: u64,
    ) -> Result<(Self, KeyLogContents), KeysError> {
        let on_event = Arc::clone(&options.on_event);
        let options = Options {
            lanes: 1,
            fsync: Fsync::Always,
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
        let log = Log::open(folder, options.clone(), RealDisk::default())?;
        let (mut accepted, mut told_up_to) = (Vec::new(), None);
        let read = log.browse(0).each(|record| {
            let lines = record.groups.iter().filter_map(|group| group.bytes.as_deref());
            for line in lines.filter_map(|bytes| serde_json::from_slice::<Line>(bytes).ok()) {
                told_up_to = told_up_to.max(Some(line.told_up_to));
                let one = line.keyed.zip(line.position);
                accepted.extend(one.map(|(keyed, position)| Accepted { keyed, position }));
            }
            ControlFlow::Continue(())
        });
        read?;
        if told_up_to.is_none() {
            // Without this line, the next start would not know where to look for keys in the queue.
            let first = Line {
                keyed: None,
                position: None,
                told_up_to: end,
            };
            let first = first.into_record(&log);
            log.append_blocking(first).map_err(KeysError::Begin)?;
        }
        // A key that a power cut takes from here from now on is still in the queue's log, whose segments stay
        // for longer.
        let fsync = Fsync::Interval(Duration::from_secs(1));
        log.adjust(&Options { fsync, ..options })?;
        let told_up_to = told_up_to.unwrap_or(end);
        Ok((Self { log }, KeyLogContents { accepted, told_up_to }))
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
        self.log.append(line.into_record(&self.log), move |result| {
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
