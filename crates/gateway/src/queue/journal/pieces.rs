//! Parts of a plan on their way into a journal: whole, and cut where a message has no room for them.

use bulk::{Ask, Gather, Part, Plan, RouteTable};

use crate::error::NotQueued;

/// Asserts that a part was gathered whole before it is accepted.
///
/// # Panics
///
/// If it was not: the client would be told that operations are durable which are not.
pub(super) fn assert_gathered(part: &Part, bytes: u64) {
    assert_eq!(
        bytes, part.bytes,
        "a part goes into the queue with all of its bytes"
    );
}

/// The progress of copying the parts of one lane together, which are one group of a record.
pub(super) struct GroupGather<'p> {
    /// The parts that are not copied yet.
    parts: &'p [&'p Part],
    gather: Gather,
    /// Bytes of the first of them that are copied.
    gathered: u64,
}

// === impl GroupGather ===

impl<'p> GroupGather<'p> {
    pub(super) fn new(parts: &'p [&'p Part]) -> Self {
        Self {
            parts,
            gather: Gather::default(),
            gathered: 0,
        }
    }

    /// Appends the group's next bytes to `out`, at most `most` of them, and returns how many; 0 at the end.
    pub(super) fn next(&mut self, plan: &Plan, body: &[u8], out: &mut Vec<u8>, most: usize) -> usize {
        while let [part, rest @ ..] = self.parts {
            let more = self.gather.next(plan, part, body, out, most);
            self.gathered += more as u64;
            if more > 0 {
                return more;
            }
            assert_gathered(part, self.gathered);
            *self = Self::new(rest);
        }
        0
    }

    /// Asserts that all parts were copied.
    ///
    /// # Panics
    ///
    /// If some were not, like [`assert_gathered`].
    pub(super) fn assert_whole(&self) {
        assert!(
            self.parts.is_empty(),
            "a group of a record has all parts of its lane"
        );
    }
}

/// Cuts a part between its operations, so that each piece has at most `most` bytes.
pub(super) fn cut(
    part: kafka::Part,
    most: usize,
    ask: &Ask<'_>,
    table: &RouteTable,
    out: &mut Vec<kafka::Part>,
) -> Result<(), NotQueued> {
    if part.bytes.len() <= most {
        out.push(part);
        return Ok(());
    }
    let too_large = |bytes: usize| kafka::AppendError::TooLarge {
        bytes: bytes as u64,
        most: most as u64,
    };
    let operations = bulk::operations(&part.bytes, ask, table);
    let operations = operations.filter(|operations| operations.len() == part.documents as usize);
    let Some(operations) = operations else {
        return Err(too_large(part.bytes.len()).into());
    };
    let (mut start, mut documents) = (0, 0);
    for (at, operation) in operations.iter().enumerate() {
        if operation.end - operation.start > most {
            return Err(too_large(operation.end - operation.start).into());
        }
        documents += 1;
        let next_end = operations.get(at + 1).map(|next| next.end);
        if next_end.is_none_or(|end| end - start > most) {
            out.push(kafka::Part {
                lane: part.lane,
                documents,
                bytes: part.bytes[start..operation.end].to_vec(),
            });
            (start, documents) = (operation.end, 0);
        }
    }
    assert_eq!(
        (start, documents),
        (part.bytes.len(), 0),
        "the pieces of a part have all of its operations"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulk::{Dialect, Flavour, Formula, IdMint, IndexRoute, NodeIx, NullId, Scratch, Verdict, Version};

    use super::*;

    fn part(documents: u32, bytes: &str) -> kafka::Part {
        kafka::Part {
            lane: 3,
            documents,
            bytes: bytes.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_part_that_is_too_large_for_a_message_is_cut_between_its_operations() {
        let table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1).build();
        let ask = Ask::default();
        let index = "{\"index\":{\"_index\":\"i\",\"_id\":\"1\"}}\n{\"n\":1}\n";
        let delete = "{\"delete\":{\"_index\":\"i\",\"_id\":\"1\"}}\n";
        let whole = format!("{index}{delete}{index}{delete}");
        let cut = |most: usize| {
            let mut out = Vec::new();
            super::cut(part(4, &whole), most, &ask, &table, &mut out).map(|()| out)
        };
        assert_eq!(cut(whole.len()).unwrap(), [part(4, &whole)]);
        let half = format!("{index}{delete}");
        assert_eq!(cut(whole.len() - 1).unwrap().len(), 2);
        assert_eq!(cut(half.len()).unwrap(), [part(2, &half), part(2, &half)]);
        let pieces = cut(index.len()).unwrap();
        assert_eq!(
            pieces,
            [part(1, index), part(1, delete), part(1, index), part(1, delete)]
        );
        let refused = cut(index.len() - 1).unwrap_err();
        let most = (index.len() - 1) as u64;
        let bytes = index.len() as u64;
        assert_eq!(refused, kafka::AppendError::TooLarge { bytes, most }.into());
    }

    #[test]
    #[should_panic(expected = "a part goes into the queue with all of its bytes")]
    fn no_part_is_accepted_that_was_not_gathered_whole() {
        let mut part = Part::default();
        (part.docs, part.bytes) = (1, 80);
        assert_gathered(&part, 80);
        assert_gathered(&part, 79);
    }

    #[test]
    fn a_group_has_all_parts_of_its_lane_one_after_another() {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, 3);
        let primaries: Vec<_> = (0..6).map(|shard| Some(NodeIx(shard % 3))).collect();
        table.index(Arc::new(IndexRoute::new("i", Formula::Modulo, primaries)));
        let ask = Ask {
            level: bulk::Level::Lane(2),
            null_id: NullId::Always,
            nodes_apart: true,
            ..Ask::default()
        };
        let source = "x".repeat(4_000);
        let line =
            |id| format!("{{\"index\":{{\"_index\":\"i\",\"_id\":\"{id}\"}}}}\n{{\"s\":\"{source}\"}}\n");
        let body: String = (0..60).map(line).collect();
        let (mut ids, mut scratch) = (IdMint::new(7), Scratch::default());
        let verdict = bulk::plan(body.as_bytes(), &ask, &table.build(), &mut ids, &mut scratch);
        let Verdict::Plan(plan) = verdict else {
            panic!("plain")
        };
        let mut groups = 0;
        for parts in plan.by_lane().chunk_by(|part, next| part.lane == next.lane) {
            assert_eq!(parts.len(), 3);
            let (mut group, mut out) = (GroupGather::new(parts), Vec::new());
            while group.next(&plan, body.as_bytes(), &mut out, 1_000) > 0 {}
            group.assert_whole();
            let mut expected = Vec::new();
            for part in parts {
                let mut gather = Gather::default();
                while gather.next(&plan, part, body.as_bytes(), &mut expected, usize::MAX) > 0 {}
            }
            assert!(out == expected);
            groups += 1;
        }
        assert_eq!(groups, 2);
    }

    #[test]
    #[should_panic(expected = "a group of a record has all parts of its lane")]
    fn no_group_is_accepted_that_lacks_a_part() {
        let part = Part::default();
        GroupGather::new(&[&part]).assert_whole();
    }
}
