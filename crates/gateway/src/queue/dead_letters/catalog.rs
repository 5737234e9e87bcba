//! Records the fate of letters that are no longer among the dead letters: in one small file, replaced as a
//! whole, so that a letter and the number that counts it change together or not at all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The catalog of a queue's dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Catalog {
    version: u32,
    /// Records of the store that hold no letter any more.
    pub(super) gone: Ranges,
    /// Letters that are in another record than their id says, each with its place.
    pub(super) moved: BTreeMap<u64, u64>,
    /// The tallies of consumer groups.
    pub(super) tallies: BTreeMap<String, Tally>,
}

/// The numbers of a consumer group's letters that were replayed or purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Letters that were put back into the queue.
    pub(crate) replayed: u64,
    /// Letters that were thrown away.
    pub(crate) purged: u64,
    /// Every letter of the group before this position of the store counts as dead in the group's cursors.
    pub(super) settled_before: u64,
}

/// Byte ranges, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

// === impl Catalog ===

impl Catalog {
    /// Reads the catalog; empty if there is no file.
    pub(super) fn load(file: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::new()),
            text => text?,
        };
        let broken = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let (sum, body) = text.split_once('\n').ok_or_else(|| broken("it is cut off"))?;
        if sum != checksum(body) {
            return Err(broken("its checksum is wrong"));
        }
        let catalog: Self = serde_json::from_str(body).map_err(|error| broken(&error.to_string()))?;
        if catalog.version != VERSION {
            return Err(broken("another version has written it"));
        }
        Ok(catalog)
    }

    fn new() -> Self {
        Self {
            version: VERSION,
            ..Self::default()
        }
    }

    /// Writes the catalog beside the file, and then replaces the file: durable when this returns, and never
    /// half written.
    pub(super) fn save(&self, file: &Path) -> io::Result<()> {
        let body = serde_json::to_string(self)?;
        let next = file.with_extension("new");
        let mut out = File::create(&next)?;
        out.write_all(format!("{}\n{body}", checksum(&body)).as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&next, file)?;
        match file.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    pub(super) fn tally(&mut self, group: &str) -> &mut Tally {
        self.tallies.entry(group.to_owned()).or_default()
    }

    /// Records that a letter is in no record any more.
    pub(super) fn remove(&mut self, id: u64, at: u64, bytes: u64) {
        self.gone.insert(at, at + bytes);
        self.moved.remove(&id);
    }

    /// Whether the record at a place holds the letter of this id.
    pub(super) fn holds(&self, id: u64, at: u64) -> bool {
        !self.gone.has(at) && *self.moved.get(&id).unwrap_or(&id) == at
    }
}

fn checksum(body: &str) -> String {
    format!("{:08x}", crc32fast::hash(body.as_bytes()))
}

// === impl Ranges ===

impl Ranges {
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        // All ranges that this one touches become one with it.
        let touched: Vec<_> = self
            .0
            .range(..=end)
            .rev()
            .map(|(s, e)| (*s, *e))
            .take_while(|(_, e)| *e >= start)
            .collect();
        for (from, to) in touched {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Returns the end of the range that a place is in, if it is in one.
    pub(super) fn end_of(&self, at: u64) -> Option<u64> {
        let (_, end) = self.0.range(..=at).next_back()?;
        (at < *end).then_some(*end)
    }

    pub(super) fn has(&self, at: u64) -> bool {
        self.end_of(at).is_some()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Forgets the ranges before a place.
    pub(super) fn drop_before(&mut self, at: u64) {
        self.0.retain(|_, end| *end > at);
    }
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one_and_know_what_is_in_them() {
        let mut ranges = Ranges::default();
        let mut plain = std::collections::BTreeSet::new();
        fastrand::seed(7);
        for _ in 0..300 {
            let start = fastrand::u64(0..500);
            let end = start + fastrand::u64(1..20);
            ranges.insert(start, end);
            plain.extend(start..end);
            for at in 0..520 {
                assert_eq!(ranges.has(at), plain.contains(&at), "{at}");
            }
            assert_eq!(ranges.bytes(), plain.len() as u64);
            let apart = ranges.0.iter().zip(ranges.0.iter().skip(1));
            assert!(apart.into_iter().all(|((_, end), (start, _))| end < start));
        }
        ranges.drop_before(u64::MAX);
        assert_eq!(ranges, Ranges::default());
    }

    #[test]
    fn a_catalog_comes_back_as_it_was_saved_and_a_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("BOOKS");
        let mut catalog = Catalog::load(&file).unwrap();
        catalog.remove(64, 64, 100);
        catalog.moved.insert(1 << 60, 5);
        catalog.tally("c0").purged = 3;
        catalog.save(&file).unwrap();
        assert_eq!(Catalog::load(&file).unwrap(), catalog);
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(
            Catalog::load(&file).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
