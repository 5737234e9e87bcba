//! Checks what variables promise, for any parameters.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use loadgen::{Load, Sampler};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns `count` values of the last of these variables, one value per line.
fn drawn(variables: &Value, count: usize, seed: u64, now: SystemTime) -> Vec<String> {
    let last = variables
        .as_array()
        .and_then(|list| list.last())
        .expect("there is one");
    let name = last["name"].as_str().expect("it has a name");
    let request = json!({
        "method": "POST", "url": "http://a/", "body": format!("$[[{name}]]"), "body_repeat_times": count,
    });
    let file = json!({"variables": variables, "requests": [{"request": request}]}).to_string();
    let loaded = Load::parse(&file, None, Path::new(""), &|_| None);
    let load = Arc::new(loaded.unwrap_or_else(|rejected| panic!("{rejected}")).load);
    let mut out = Vec::new();
    Sampler::new(&load, seed).body(0, now, &mut out);
    let text = String::from_utf8(out).expect("values are text");
    text.lines().map(str::to_owned).collect()
}

fn values() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-zé\\\\\"{}$ ]{1,8}", 1..6)
        .prop_map(|values| values.into_iter().map(|value| value.replace("$", "S")).collect())
}

/// Returns the numbers of a Roaring bitmap of array containers.
fn numbers_of(bitmap: &[u8]) -> Vec<u32> {
    let word = |at: usize| u32::from(bitmap[at]) | u32::from(bitmap[at + 1]) << 8;
    let long = |at: usize| word(at) | word(at + 2) << 16;
    assert_eq!(long(0), 12_346, "the cookie of a bitmap without runs");
    let containers = long(4) as usize;
    let mut numbers = Vec::new();
    for container in 0..containers {
        let (key, count) = (word(8 + 4 * container), word(10 + 4 * container) + 1);
        let start = long(8 + 4 * containers + 4 * container) as usize;
        numbers.extend((0..count as usize).map(|at| key << 16 | word(start + 2 * at)));
    }
    numbers
}

proptest! {
    #[test]
    fn a_list_gives_its_own_values_and_in_time_each_of_them(data in values(), seed in any::<u64>()) {
        let drawn = drawn(&json!([{"name": "v", "type": "list", "data": data}]), 300, seed, SystemTime::now());
        let (drawn, data): (BTreeSet<_>, BTreeSet<_>) = (drawn.into_iter().collect(), data.into_iter().collect());
        prop_assert_eq!(drawn, data);
    }

    #[test]
    fn a_range_gives_numbers_within_it_its_ends_included(from in -50_i64..50, span in 0_i64..8, seed in any::<u64>()) {
        let variable = json!([{"name": "v", "type": "range", "from": from, "to": from + span}]);
        let numbers: BTreeSet<i64> = drawn(&variable, 300, seed, SystemTime::now())
            .iter().map(|number| number.parse().expect("a number")).collect();
        prop_assert_eq!(numbers, (from..=from + span).collect());
    }

    #[test]
    fn an_array_is_json_with_so_many_values_of_its_variable(
        size in 0_usize..9, text in any::<bool>(), data in prop::collection::vec(0_u32..1000, 1..5), seed in any::<u64>(),
    ) {
        let kind = if text { "string" } else { "number" };
        let variables = json!([
            {"name": "one", "type": "list", "data": data},
            {"name": "v", "type": "random_array", "variable_key": "one", "variable_type": kind, "size": size},
        ]);
        for array in drawn(&variables, 20, seed, SystemTime::now()) {
            let array: Vec<Value> = serde_json::from_str(&array).expect("it is JSON");
            prop_assert_eq!(array.len(), size);
            for value in array {
                let number = if text { value.as_str().and_then(|text| text.parse().ok()) } else { value.as_u64() };
                prop_assert!(number.is_some_and(|number: u64| data.contains(&(number as u32))));
            }
        }
    }

    #[test]
    fn ids_have_20_characters_and_are_never_the_same_and_later_ones_sort_later(second in 0_u64..4_000_000_000, later in 1_u64..1000) {
        let variable = json!([{"name": "v", "type": "uuid"}]);
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let (first, then) = (drawn(&variable, 50, 1, at(second)), drawn(&variable, 50, 1, at(second + later)));
        let all: BTreeSet<&String> = first.iter().chain(&then).collect();
        prop_assert_eq!(all.len(), 100);
        prop_assert!(all.iter().all(|id| id.len() == 20 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'v'))));
        if second + later <= u64::from(u32::MAX) {
            prop_assert!(first.iter().max() < then.iter().min());
        }
    }

    #[test]
    fn a_bitmap_holds_numbers_within_its_bounds_in_order(
        from in 0_u32..200_000, span in 0_u32..300_000, size in 0_usize..200, seed in any::<u64>(),
    ) {
        let variable = json!([{"name": "v", "type": "int_array_bitmap", "from": from, "to": from + span, "size": size}]);
        for bitmap in drawn(&variable, 3, seed, SystemTime::now()) {
            let bytes = base64::engine::general_purpose::STANDARD.decode(&bitmap).expect("it is base 64");
            let numbers = numbers_of(&bytes);
            prop_assert!(numbers.len() <= size && numbers.is_empty() == (size == 0));
            prop_assert!(numbers.is_sorted_by(|one, two| one < two));
            prop_assert!(numbers.iter().all(|number| (from..=from + span).contains(number)));
        }
    }

    #[test]
    fn times_are_those_at_which_the_request_began(second in 0_u64..250_000_000_000, nano in 0_u32..1_000_000_000) {
        let now = SystemTime::UNIX_EPOCH + Duration::new(second, nano);
        let one = |kind: &str| drawn(&json!([{"name": "v", "type": kind}]), 1, 1, now).remove(0);
        let number = |kind: &str| one(kind).parse::<u128>().expect("a number");
        let since = Duration::new(second, nano);
        prop_assert_eq!(number("now_unix"), u128::from(since.as_secs()));
        prop_assert_eq!(number("now_unix_in_ms"), since.as_millis());
        prop_assert_eq!(number("now_unix_in_micro"), since.as_micros());
        prop_assert_eq!(number("now_unix_in_nano"), since.as_nanos());
        prop_assert_eq!(one("now_utc_lite").len(), "2026-11-21T09:03:04.123".len());
    }
}
