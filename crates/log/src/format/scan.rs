//! A scan of a segment: its records, one after the other, and the bytes between them.

use std::io;
use std::ops::{ControlFlow, Range};

use crate::disk::File;
use crate::format::checksum::Key;
use crate::format::head::{Head, MAGIC, Parsed};
use crate::format::record::{ALIGN, HEAD_BYTES};

/// What a scan finds; places are bytes from the file's start.
pub(crate) enum Scanned<'a> {
    /// A record whose head is right.
    Record {
        at: u64,
        parsed: Parsed<'a>,
        /// Whether the whole payload is there and right, as far as a check was asked for.
        whole: bool,
    },
    /// Bytes that are no record.
    Bad(Range<u64>),
}

/// A segment to scan.
pub(crate) struct Scan<'a> {
    pub(crate) file: &'a dyn File,
    /// The position of the file's first byte.
    pub(crate) first: u64,
    pub(crate) lanes: u32,
    pub(crate) key: Key,
    /// The payload of records that end beyond this position is checked.
    pub(crate) verify_beyond: u64,
}

/// Bytes of the file, read ahead in small amounts.
struct Window<'a> {
    file: &'a dyn File,
    bytes: Vec<u8>,
    at: u64,
    end: u64,
}

// === impl Scan ===

impl Scan<'_> {
    /// Calls `each` with everything between two places of the file, in order, until it breaks off.
    pub(crate) fn run(
        &self,
        within: Range<u64>,
        mut each: impl FnMut(Scanned<'_>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut window = Window {
            file: self.file,
            bytes: Vec::new(),
            at: 0,
            end: within.end,
        };
        let mut at = within.start;
        while at < within.end {
            let flow = if let Some((bytes, flow)) = self.record(&mut window, at, &mut each)? {
                at += bytes;
                flow
            } else {
                let next = self.search(&mut window, at + ALIGN)?;
                let bad = Scanned::Bad(at..next);
                at = next;
                each(bad)
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the range of a record that has begun at a place but is not whole, in a file that is being
    /// written again. If the record's first bytes are missing too, it cannot be distinguished from what the
    /// file held before.
    pub(crate) fn begun_at(&self, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
        let mut bytes = [0; HEAD_BYTES];
        let read = self.file.read_at(&mut bytes, at)?;
        let head = Head::read(&bytes[..read]).filter(|head| head.position == self.first + at);
        Ok(head.map(|head| at..at.saturating_add(head.record_bytes()).min(end)))
    }

    /// Returns the length of the record at a place, if there is one that fits, and whether to continue.
    fn record(
        &self,
        window: &mut Window<'_>,
        at: u64,
        each: &mut impl FnMut(Scanned<'_>) -> ControlFlow<()>,
    ) -> io::Result<Option<(u64, ControlFlow<()>)>> {
        let Some(head) = self.head(window, at)? else {
            return Ok(None);
        };
        let bytes = head.record_bytes();
        let whole =
            head.position + bytes <= self.verify_beyond || self.payload_is_right(window, at, &head)?;
        let Some(parsed) = self.parse(window, at, &head)? else {
            return Ok(None);
        };
        Ok(Some((bytes, each(Scanned::Record { at, parsed, whole }))))
    }

    /// Returns the head at a place, if it is right and its record fits.
    fn head(&self, window: &mut Window<'_>, at: u64) -> io::Result<Option<Head>> {
        let Some(head) = Head::read(window.get(at, HEAD_BYTES)?) else {
            return Ok(None);
        };
        let fits = at
            .checked_add(head.record_bytes())
            .is_some_and(|end| end <= window.end);
        Ok((fits && self.parse(window, at, &head)?.is_some()).then_some(head))
    }

    fn parse<'w>(&self, window: &'w mut Window<'_>, at: u64, head: &Head) -> io::Result<Option<Parsed<'w>>> {
        Ok(Head::parse(
            window.get(at, head.bytes())?,
            self.first + at,
            self.lanes,
            self.key,
        ))
    }

    fn payload_is_right(&self, window: &mut Window<'_>, at: u64, head: &Head) -> io::Result<bool> {
        let groups: Vec<_> = match self.parse(window, at, head)? {
            Some(parsed) => parsed.groups().collect(),
            None => return Ok(false),
        };
        for (range, entry) in groups {
            let mut hasher = crc32fast::Hasher::new();
            let (mut from, end) = (at + range.start as u64, at + range.end as u64);
            while from < end {
                let wanted = (end - from).min(WINDOW_BYTES as u64) as usize;
                let bytes = window.get(from, wanted)?;
                if bytes.len() < wanted {
                    return Ok(false);
                }
                hasher.update(&bytes[..wanted]);
                from += wanted as u64;
            }
            if hasher.finalize() != entry.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the next place with a record, or the end.
    fn search(&self, window: &mut Window<'_>, from: u64) -> io::Result<u64> {
        let mut at = from;
        while at < window.end {
            let bytes = window.get(at, ALIGN as usize)?;
            // Records start at multiples of 8, and so does every place looked at.
            let found = bytes
                .chunks_exact(ALIGN as usize)
                .position(|chunk| chunk.starts_with(MAGIC));
            let Some(found) = found else {
                at += (bytes.len() as u64).next_multiple_of(ALIGN).max(ALIGN);
                continue;
            };
            at += found as u64 * ALIGN;
            if self.head(window, at)?.is_some() {
                return Ok(at);
            }
            at += ALIGN;
        }
        Ok(window.end)
    }
}

// === impl Window ===

impl Window<'_> {
    /// Returns at least `count` bytes from `at`, unless the end is nearer.
    fn get(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let count = count.min(self.end.saturating_sub(at) as usize);
        let held = at >= self.at && at + count as u64 <= self.at + self.bytes.len() as u64;
        if !held {
            let wanted = count.max(WINDOW_BYTES).min(self.end.saturating_sub(at) as usize);
            self.bytes.resize(wanted, 0);
            let read = self.file.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(read);
            self.at = at;
        }
        Ok(&self.bytes[((at - self.at) as usize).min(self.bytes.len())..])
    }
}

const WINDOW_BYTES: usize = 64 << 10;
