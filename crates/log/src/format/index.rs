//! The places of each lane's groups in one segment.

/// The place of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupEntry {
    /// Bytes from the segment's start to the record.
    pub(crate) record: u32,
    /// Bytes from the segment's start to the group.
    pub(crate) group: u32,
    /// The group's length in bytes, as stored.
    pub(crate) stored: u32,
    pub(crate) documents: u32,
}

/// The running totals of one lane, from the log's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneTotal {
    pub(crate) documents: u64,
    /// Uncompressed bytes.
    pub(crate) bytes: u64,
}

/// The running totals of the log, from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) lanes: Vec<LaneTotal>,
    pub(crate) records: u64,
    /// All accepted documents: more than the lanes' sum by the lost documents whose lane is unknown.
    pub(crate) documents: u64,
}

/// The groups of a segment, lane by lane, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(crate) lanes: Vec<Vec<GroupEntry>>,
    pub(crate) entries: usize,
}

// === impl Index ===

impl Index {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            lanes: vec![Vec::new(); lanes as usize],
            entries: 0,
        }
    }

    /// Adds a record that starts `at` bytes from the segment's start.
    pub(crate) fn add(&mut self, at: u32, parsed: &crate::format::head::Parsed<'_>) {
        for (range, entry) in parsed.groups() {
            self.push(
                entry.lane,
                at,
                at + range.start as u32,
                entry.stored,
                entry.documents,
            );
        }
    }

    pub(crate) fn push(&mut self, lane: u32, record: u32, group: u32, stored: u32, documents: u32) {
        self.lanes[lane as usize].push(GroupEntry {
            record,
            group,
            stored,
            documents,
        });
        self.entries += 1;
    }
}

// === impl Totals ===

impl Totals {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            lanes: vec![LaneTotal::default(); lanes as usize],
            ..Self::default()
        }
    }

    /// Counts a record with these groups, each given as lane, documents and uncompressed bytes.
    pub(crate) fn add(&mut self, groups: impl Iterator<Item = (u32, u32, u32)>) {
        self.records += 1;
        for (lane, documents, raw) in groups {
            let total = &mut self.lanes[lane as usize];
            total.documents += u64::from(documents);
            total.bytes += u64::from(raw);
            self.documents += u64::from(documents);
        }
    }

    /// Adds the next record; returns how many documents were lost before it, going by the record's own count.
    pub(crate) fn add_record(&mut self, parsed: &crate::format::head::Parsed<'_>) -> u64 {
        let lost = parsed.head.documents_before.saturating_sub(self.documents);
        self.documents += lost;
        self.records = self.records.max(parsed.head.number);
        let groups = parsed.directory.iter();
        self.add(groups.map(|group| (group.lane, group.documents, group.raw)));
        lost
    }

    /// Takes a record back out.
    pub(crate) fn subtract(&mut self, parsed: &crate::format::head::Parsed<'_>) {
        self.records = self.records.saturating_sub(1);
        for group in &parsed.directory {
            let (total, documents) = (&mut self.lanes[group.lane as usize], u64::from(group.documents));
            total.documents = total.documents.saturating_sub(documents);
            total.bytes = total.bytes.saturating_sub(u64::from(group.raw));
            self.documents = self.documents.saturating_sub(documents);
        }
    }

    /// Returns the documents that no lane counts.
    pub(crate) fn lost(&self) -> u64 {
        let laned: u64 = self.lanes.iter().map(|lane| lane.documents).sum();
        self.documents.saturating_sub(laned)
    }
}
