//! The header and footer of a segment on disk.

use std::io::{self, IoSlice};

use crate::disk::File;
use crate::format::bytes::{Take, put_magic, put_u32, put_u64, set_u32};
use crate::format::checksum::Key;
use crate::format::index::{GroupEntry, Index, LaneTotal, Totals};

/// A segment's description of itself and of everything before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) first: u64,
    pub(crate) time_ms: u64,
    pub(crate) totals: Totals,
    /// Bytes that the file had from its former, used-up segment; 0 if it was made for this one. They may lie
    /// behind the last record as long as there is no footer.
    pub(crate) stale: u64,
}

/// A full segment's index without the entries themselves.
#[derive(Debug)]
pub(crate) struct Footer {
    /// The totals at the segment's end.
    pub(crate) totals: Totals,
    lanes: Vec<LaneTable>,
    /// Bytes from the file's start to the first entry.
    entries_at: u64,
    /// Bytes from the file's start to the footer: where records end.
    pub(crate) at: u64,
}

#[derive(Clone, Copy, Debug)]
struct LaneTable {
    first: u32,
    count: u32,
    crc: u32,
}

/// Returns the name of the segment whose first byte has this position.
pub(crate) fn name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Returns the position in a segment's name.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    position_in(name, SUFFIX)
}

/// Returns the position in the name of a file with this suffix.
pub(crate) fn position_in(name: &str, ending: &str) -> Option<u64> {
    let digits = name.strip_suffix(ending)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

// === impl Header ===

impl Header {
    pub(crate) fn bytes(lanes: u32) -> u64 {
        FIXED_BYTES as u64 + u64::from(lanes) * 16
    }

    pub(crate) fn write(&self, file: &dyn File, key: Key) -> io::Result<()> {
        file.write_at(&mut [IoSlice::new(&self.encode(key))], 0)
    }

    fn encode(&self, key: Key) -> Vec<u8> {
        let mut out = Vec::new();
        put_magic(&mut out, b"TGSEG");
        put_u32(&mut out, 0);
        put_u32(&mut out, self.totals.lanes.len() as u32);
        for number in [
            self.first,
            self.time_ms,
            self.totals.records,
            self.totals.documents,
            self.stale,
            0,
        ] {
            put_u64(&mut out, number);
        }
        for lane in &self.totals.lanes {
            put_u64(&mut out, lane.documents);
            put_u64(&mut out, lane.bytes);
        }
        let crc = key.of(&out[12..]);
        set_u32(&mut out, 8, crc);
        out
    }

    /// Reads a header; none if it does not check.
    pub(crate) fn read(file: &dyn File, first: u64, lanes: u32, key: Key) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; Self::bytes(lanes) as usize];
        let read = file.read_at(&mut bytes, 0)?;
        Ok((read == bytes.len())
            .then(|| Self::parse(&bytes, lanes, key))
            .flatten()
            .filter(|header| header.first == first))
    }

    fn parse(bytes: &[u8], lanes: u32, key: Key) -> Option<Self> {
        let mut take = Take(bytes);
        take.magic(b"TGSEG")?;
        if take.u32()? != key.of(take.0) || take.u32()? != lanes {
            return None;
        }
        let (first, time_ms, records, documents) = (take.u64()?, take.u64()?, take.u64()?, take.u64()?);
        let stale = take.u64()?;
        take.bytes(8)?;
        let mut totals = Totals {
            lanes: Vec::with_capacity(lanes as usize),
            records,
            documents,
        };
        for _ in 0..lanes {
            totals.lanes.push(LaneTotal {
                documents: take.u64()?,
                bytes: take.u64()?,
            });
        }
        Some(Self {
            first,
            time_ms,
            totals,
            stale,
        })
    }
}

// === impl Footer ===

impl Footer {
    /// Returns the bytes of a footer.
    pub(crate) fn bytes(lanes: u32, entries: usize) -> u64 {
        u64::from(lanes) * LANE_BYTES as u64 + (entries * GROUP_ENTRY_BYTES) as u64 + TRAILER_BYTES as u64
    }

    pub(crate) fn encode(first: u64, index: &Index, totals: &Totals, key: Key) -> Vec<u8> {
        let bytes = Self::bytes(index.lanes.len() as u32, index.entries);
        let mut entries = Vec::with_capacity(bytes as usize);
        let mut out = Vec::with_capacity(bytes as usize);
        let mut before = 0;
        for (lane, total) in index.lanes.iter().zip(&totals.lanes) {
            let start = entries.len();
            for place in lane {
                for number in [place.record, place.group, place.stored, place.documents] {
                    put_u32(&mut entries, number);
                }
            }
            for number in [before, lane.len() as u32, key.of(&entries[start..]), 0] {
                put_u32(&mut out, number);
            }
            put_u64(&mut out, total.documents);
            put_u64(&mut out, total.bytes);
            before += lane.len() as u32;
        }
        let table = out.len();
        let mut trailer = Vec::new();
        put_magic(&mut trailer, b"TGEND");
        put_u32(&mut trailer, 0);
        for number in [index.lanes.len() as u32, index.entries as u32, bytes as u32] {
            put_u32(&mut trailer, number);
        }
        for number in [first, totals.records, totals.documents] {
            put_u64(&mut trailer, number);
        }
        out.extend_from_slice(&trailer[12..]);
        let crc = key.of(&out);
        set_u32(&mut trailer, 8, crc);
        out.truncate(table);
        out.extend_from_slice(&entries);
        out.extend_from_slice(&trailer);
        out
    }

    /// Reads the footer at the end of a file; none if there is none that checks.
    pub(crate) fn read(file: &dyn File, first: u64, lanes: u32, key: Key) -> io::Result<Option<Self>> {
        let end = file.bytes()?;
        let Some(trailer_at) = end.checked_sub(TRAILER_BYTES as u64) else {
            return Ok(None);
        };
        let mut trailer = [0; TRAILER_BYTES];
        if file.read_at(&mut trailer, trailer_at)? < TRAILER_BYTES {
            return Ok(None);
        }
        let Some((bytes, crc)) = Self::parse_trailer(&trailer, first, lanes) else {
            return Ok(None);
        };
        let Some(at) = end.checked_sub(bytes).filter(|at| *at >= Header::bytes(lanes)) else {
            return Ok(None);
        };
        let mut table = vec![0; lanes as usize * LANE_BYTES];
        if file.read_at(&mut table, at)? < table.len() {
            return Ok(None);
        }
        let entries_at = at + table.len() as u64;
        table.extend_from_slice(&trailer[12..]);
        if key.of(&table) != crc {
            return Ok(None);
        }
        Ok(Self::parse_table(&table, lanes, at, entries_at))
    }

    /// Returns the footer's length and checksum.
    fn parse_trailer(trailer: &[u8], first: u64, lanes: u32) -> Option<(u64, u32)> {
        let mut take = Take(trailer);
        take.magic(b"TGEND")?;
        let crc = take.u32()?;
        let (lanes_here, entries, bytes) = (take.u32()?, take.u32()?, take.u32()?);
        let sound = lanes_here == lanes
            && u64::from(bytes) == Self::bytes(lanes, entries as usize)
            && take.u64()? == first;
        sound.then_some((u64::from(bytes), crc))
    }

    fn parse_table(table: &[u8], lanes: u32, at: u64, entries_at: u64) -> Option<Self> {
        let mut take = Take(table);
        let mut footer = Self {
            totals: Totals::new(lanes),
            lanes: Vec::with_capacity(lanes as usize),
            entries_at,
            at,
        };
        for total in &mut footer.totals.lanes {
            footer.lanes.push(LaneTable {
                first: take.u32()?,
                count: take.u32()?,
                crc: take.u32()?,
            });
            take.u32()?;
            total.documents = take.u64()?;
            total.bytes = take.u64()?;
        }
        take.bytes(20)?;
        footer.totals.records = take.u64()?;
        footer.totals.documents = take.u64()?;
        Some(footer)
    }

    /// Reads a lane's entries; none if they do not check, or do not ascend: readers of the lane rely on that.
    pub(crate) fn groups(&self, file: &dyn File, lane: u32, key: Key) -> io::Result<Option<Vec<GroupEntry>>> {
        let of_lane = self.lanes[lane as usize];
        let mut bytes = vec![0; of_lane.count as usize * GROUP_ENTRY_BYTES];
        let at = self.entries_at + u64::from(of_lane.first) * GROUP_ENTRY_BYTES as u64;
        if file.read_at(&mut bytes, at)? < bytes.len() || key.of(&bytes) != of_lane.crc {
            return Ok(None);
        }
        let (mut take, mut entries) = (Take(&bytes), Vec::with_capacity(of_lane.count as usize));
        while let (Some(record), Some(group), Some(stored), Some(documents)) =
            (take.u32(), take.u32(), take.u32(), take.u32())
        {
            entries.push(GroupEntry {
                record,
                group,
                stored,
                documents,
            });
        }
        Ok(ascend(&entries).then_some(entries))
    }
}

/// Returns whether each group lies behind the one before it.
fn ascend(entries: &[GroupEntry]) -> bool {
    entries
        .windows(2)
        .all(|pair| pair[0].record <= pair[1].record && pair[0].group < pair[1].group)
}

const SUFFIX: &str = ".segment";
/// Bytes of a header before its lanes.
const FIXED_BYTES: usize = 64;
/// Bytes of a lane in a footer.
const LANE_BYTES: usize = 32;
/// Bytes of an entry in a footer.
const GROUP_ENTRY_BYTES: usize = 16;
/// Bytes of a footer's trailer.
const TRAILER_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk as _, RealDisk};

    #[test]
    fn names_are_sorted_as_positions_are_and_nothing_else_is_a_segment() {
        assert_eq!(name(256), "00000000000000000256.segment");
        assert_eq!(first_of(&name(u64::MAX)), Some(u64::MAX));
        for other in [
            "256.segment",
            "0000000000000000025x.segment",
            "00000000000000000256.segment.new",
            "LOG",
        ] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn header_and_footer_are_read_as_they_were_written_and_no_flipped_bit_goes_unseen() {
        let folder = tempfile::tempdir().unwrap();
        let file = RealDisk::default().create(&folder.path().join("x")).unwrap();
        let (key, mut totals, mut index) = (Key::new(3), Totals::new(3), Index::new(3));
        totals.add([(0, 2, 100), (2, 1, 50)].into_iter());
        let header = Header {
            first: 512,
            time_ms: 77,
            totals: totals.clone(),
            stale: 4096,
        };
        header.write(&*file, key).unwrap();
        index.push(0, 112, 200, 50, 2);
        index.push(2, 112, 250, 50, 1);
        let encoded = Footer::encode(512, &index, &totals, key);
        let at = Header::bytes(3) + 304;
        file.write_at(&mut [IoSlice::new(&encoded)], at).unwrap();

        assert_eq!(Header::read(&*file, 512, 3, key).unwrap(), Some(header));
        let footer = Footer::read(&*file, 512, 3, key).unwrap().unwrap();
        assert_eq!((footer.at, &footer.totals), (at, &totals));
        let entries = |lane| footer.groups(&*file, lane, key).unwrap();
        assert_eq!(entries(2), Some(index.lanes[2].clone()));
        assert_eq!(entries(1), Some(Vec::new()));

        let mut descending = index.clone();
        descending.push(2, 112, 240, 10, 1);
        let descending = Footer::encode(512, &descending, &totals, key);
        file.write_at(&mut [IoSlice::new(&descending)], at).unwrap();
        let footer = Footer::read(&*file, 512, 3, key).unwrap().unwrap();
        assert_eq!(
            footer.groups(&*file, 2, key).unwrap(),
            None,
            "groups that do not ascend"
        );
        assert!(footer.groups(&*file, 0, key).unwrap().is_some());
        let end = at + encoded.len() as u64;
        file.set_len(end).unwrap();

        for bit in 0..encoded.len() * 8 {
            let mut flipped = encoded.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            file.write_at(&mut [IoSlice::new(&flipped)], at).unwrap();
            let seen = Footer::read(&*file, 512, 3, key)
                .unwrap()
                .is_none_or(|footer| (0..3).any(|lane| footer.groups(&*file, lane, key).unwrap().is_none()));
            assert!(seen, "bit {bit}");
        }
        for byte in 0..Header::bytes(3) {
            let mut one = [0];
            file.read_at(&mut one, byte).unwrap();
            file.write_at(&mut [IoSlice::new(&[one[0] ^ 4])], byte).unwrap();
            assert_eq!(Header::read(&*file, 512, 3, key).unwrap(), None, "byte {byte}");
            file.write_at(&mut [IoSlice::new(&one)], byte).unwrap();
        }
    }
}
