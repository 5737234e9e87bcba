//! `MARK`: how far the log is known to be durable.

use std::io;
use std::sync::Arc;

use crate::disk::File;
use crate::format::bytes::{Take, put_u64};
use crate::format::folder::{Folder, MARK};
use crate::format::slots::Slots;

/// How far the log was durable, with the counts at that position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) synced: u64,
    pub(crate) records: u64,
    pub(crate) documents: u64,
}

/// The file of the watermark.
pub(crate) struct WatermarkFile {
    file: Arc<dyn File>,
    slots: Slots,
    sequence: u64,
}

// === impl Watermark ===

impl Watermark {
    /// Returns this watermark, or `other` if it is further.
    pub(crate) fn or_further(self, other: Option<Self>) -> Self {
        other.filter(|other| other.synced > self.synced).unwrap_or(self)
    }

    /// Reads the watermark from the file; the beginning, if there is none that checks.
    pub(crate) fn read(folder: &Folder) -> io::Result<(Self, u64)> {
        let file = match folder.disk.open(&folder.path.join(MARK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Self::default(), 0)),
            file => file?,
        };
        let Some((sequence, body)) = slots(folder).read(&*file)? else {
            return Ok((Self::default(), 0));
        };
        let mut take = Take(&body);
        let mut next = || take.u64().unwrap_or(0);
        let mark = Self {
            synced: next(),
            records: next(),
            documents: next(),
        };
        Ok((mark, sequence))
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_BYTES);
        for number in [self.synced, self.records, self.documents] {
            put_u64(&mut body, number);
        }
        body
    }
}

// === impl WatermarkFile ===

impl WatermarkFile {
    /// Opens the file to continue with it; creates one only if there is none, since the disk may be full.
    pub(crate) fn open(folder: &Folder, mark: &Watermark, sequence: u64) -> io::Result<Self> {
        let slots = slots(folder);
        let file = match folder.disk.open_to_write(&folder.path.join(MARK)) {
            Ok(file) => Arc::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => folder.replace(MARK, |file| {
                // Write both slots: later writes then need no room on the disk.
                slots.write(file, sequence + 1, &mark.encode())?;
                slots.write(file, sequence + 2, &mark.encode())
            })?,
            Err(error) => return Err(error),
        };
        Ok(Self {
            file,
            slots,
            sequence: sequence + 2,
        })
    }

    /// Moves the mark. Losing it does no harm: the one before was true too, so nothing depends on success.
    pub(crate) fn write(&mut self, mark: &Watermark) {
        self.sequence += 1;
        let _ = self.slots.write(&*self.file, self.sequence, &mark.encode());
    }

    /// Makes the mark durable, when the log is closed.
    pub(crate) fn sync(&self) {
        let _ = self.file.sync();
    }
}

fn slots(folder: &Folder) -> Slots {
    Slots::new(b"TGMRK", folder.key, BODY_BYTES)
}

const BODY_BYTES: usize = 24;
