//! `WRITTEN`: how far a log that is not synced at once was written, and in which run of the system.
//!
//! Bytes that a process has written outlive it in the page cache, as long as the system runs. So bytes before
//! this place that do not check are damage, in the same run of the system, and not the end of a write that a
//! crash cut short. The file is written where no sync comes before the acknowledgement: once for all records
//! that are acknowledged together, and before they are.

use std::io;
use std::sync::Arc;

use crate::disk::File;
use crate::format::bytes::{Take, put_u64};
use crate::format::folder::{Folder, WRITTEN};
use crate::format::slots::Slots;
use crate::write::watermark::Watermark;

/// The file `WRITTEN`, made when it is first needed.
#[derive(Default)]
pub(crate) struct WrittenFile {
    open: Option<(Arc<dyn File>, u64)>,
    /// Whether the file could not be made or written; only the distinction between damage and a torn end
    /// depends on it.
    failed: bool,
    boot: Option<u128>,
}

impl WrittenFile {
    /// Returns how far the log was written in this run of the system; none if the file is of another run.
    pub(crate) fn read(folder: &Folder) -> io::Result<Option<Watermark>> {
        let file = match folder.disk.open(&folder.path.join(WRITTEN)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let Some((_, body)) = slots(folder).read(&*file)? else {
            return Ok(None);
        };
        let mut take = Take(&body);
        let mut next = || take.u64().unwrap_or(0);
        let boot = u128::from(next()) << 64 | u128::from(next());
        let written = Watermark {
            synced: next(),
            records: next(),
            documents: next(),
        };
        Ok((folder.disk.boot() == Some(boot)).then_some(written))
    }

    /// Records how far the log is written.
    pub(crate) fn write(&mut self, folder: &Folder, mark: &Watermark) {
        if self.failed {
            return;
        }
        if self.open.is_none() {
            self.open = self.begin(folder, mark);
            self.failed = self.open.is_none();
        }
        if let (Some((file, sequence)), Some(boot)) = (&mut self.open, self.boot) {
            *sequence += 1;
            self.failed = slots(folder)
                .write(&**file, *sequence, &encode(boot, mark))
                .is_err();
        }
    }

    fn begin(&mut self, folder: &Folder, mark: &Watermark) -> Option<(Arc<dyn File>, u64)> {
        self.boot = folder.disk.boot();
        let boot = self.boot?;
        let body = encode(boot, mark);
        // A new file each time the log is opened: an earlier run's file says nothing about this one.
        let made = folder.replace(WRITTEN, |file| {
            slots(folder).write(file, 1, &body)?;
            slots(folder).write(file, 2, &body)
        });
        made.ok().map(|file| (file, 2))
    }
}

fn encode(boot: u128, mark: &Watermark) -> Vec<u8> {
    let mut body = Vec::with_capacity(BODY_BYTES);
    let boot = [(boot >> 64) as u64, boot as u64];
    for number in boot
        .into_iter()
        .chain([mark.synced, mark.records, mark.documents])
    {
        put_u64(&mut body, number);
    }
    body
}

fn slots(folder: &Folder) -> Slots {
    Slots::new(b"TGWRT", folder.key, BODY_BYTES)
}

const BODY_BYTES: usize = 40;
