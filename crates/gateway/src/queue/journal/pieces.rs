//! Parts of a plan on their way into a journal: whole, and cut where a message has no room for them.

use bulk::{Ask, Part, RouteTable};

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
    use bulk::{Dialect, Flavour, Version};

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
}
