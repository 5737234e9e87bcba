//! Shards as the servers choose them: `vectors.txt` holds the results of a plain reading of their rules
//! (`vectors.py`).

use std::num::Wrapping;

use bulk::{Formula, IndexRoute, NodeIx};

/// Makes the same documents as `vectors.py`.
fn document(kind: &str, number: u64) -> (String, Option<String>) {
    let spread = number * 2_654_435_761 % (1 << 32);
    let char_at = |base: u64, range: u64| char::from_u32((base + spread % range) as u32).expect("assigned");
    match kind {
        "number" => (number.to_string(), None),
        "ascii" => (format!("doc-{spread:x}-{number}"), None),
        "unicode" => {
            let text: String = [char_at(0x410, 32), char_at(0x4E00, 20000), char_at(0x1F300, 700)]
                .iter()
                .collect();
            (text.repeat(1 + number as usize % 3) + &number.to_string(), None)
        }
        "escaped" => (format!("a\"b\\{number}\n\t{}", char_at(1, 31)), None),
        "long" => ("x".repeat(number as usize % 500) + &number.to_string(), None),
        "routed" => (format!("id-{number}"), Some(format!("r{}é", spread % 97))),
        _ => panic!("{kind}"),
    }
}

#[test]
fn shards_of_750_000_documents_are_those_of_the_plain_rules() {
    for line in include_str!("vectors.txt").lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [shards, slots, partition, kind, checksum, first @ ..] = words.as_slice() else {
            panic!("{line}")
        };
        let formula = match *slots {
            "-" => Formula::Modulo,
            slots => Formula::Classic {
                routing_num_shards: slots.parse().expect("a number"),
            },
        };
        let primaries = vec![Some(NodeIx(0)); shards.parse().expect("a number")];
        let mut route = IndexRoute::new("index", formula, primaries);
        route.partition_size = partition.parse().expect("a number");
        let mut sum = Wrapping(0_u64);
        for number in 0..10_000 {
            let (id, routing) = document(kind, number);
            let shard = route.shard(&id, routing.as_deref());
            if let Some(expected) = first.get(number as usize) {
                assert_eq!(&shard.to_string(), expected, "{line}: {id}");
            }
            sum = sum * Wrapping(31) + Wrapping(u64::from(shard) + 1);
        }
        assert_eq!(&format!("{sum:016x}"), checksum, "{line}");
    }
}
