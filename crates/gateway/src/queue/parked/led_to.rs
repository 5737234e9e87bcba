//! Where names led when an owner of a lane was about to send operations through them. The owner writes it
//! down first, so that the next owner knows in which indices an operation may be that was sent and not
//! committed, wherever the names lead by then. A queue on disk keeps this for all of its lanes at once
//! ([`crate::queue::whereabouts`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An index that a name led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameLed {
    pub(crate) name: String,
    pub(crate) index: String,
    /// When the owner wrote it down, in ms since 1970.
    pub(crate) since_ms: u64,
    /// The offset from which on the owner has sent nothing, if it is not the owner any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_before: Option<u64>,
}

/// The indices that the names of a lane's operations led to, the newest of each name last.
#[derive(Default)]
pub(super) struct LaneNames(BTreeMap<String, Vec<NameLed>>);

// === impl NameLed ===

impl NameLed {
    pub(super) fn now(name: &str, index: &str, now_ms: u64) -> Self {
        Self {
            name: name.to_owned(),
            index: index.to_owned(),
            since_ms: now_ms,
            sent_before: None,
        }
    }
}

// === impl LaneNames ===

impl LaneNames {
    pub(super) fn add(&mut self, led: NameLed) {
        if self.0.len() >= NAMES_MAX && !self.0.contains_key(&led.name) {
            return;
        }
        let indices = self.0.entry(led.name.clone()).or_default();
        let is_same = |known: &NameLed| (&known.index, known.since_ms) == (&led.index, led.since_ms);
        // The next owners of a lane write an index down once more: it displaces no other.
        let is_newest = |at: usize| at + 1 == indices.len() && indices[at].index == led.index;
        let at = (0..indices.len()).find(|at| is_same(&indices[*at]) || is_newest(*at));
        match at {
            Some(at) => indices[at].sent_before = led.sent_before,
            None => indices.push(led),
        }
        if indices.len() > INDICES_MAX {
            indices.remove(0);
        }
    }

    /// Records that the owner has gone, and has sent nothing from an offset on.
    pub(super) fn owner_gone(&mut self, sent_before: u64) {
        for led in self.0.values_mut().flatten() {
            led.sent_before.get_or_insert(sent_before);
        }
    }

    /// Takes out those that operations from an offset on may have been sent to; all, if earlier ones are
    /// parked.
    pub(super) fn take_from(&mut self, offset: u64, parked: bool) -> Vec<NameLed> {
        let led = std::mem::take(&mut self.0).into_values().flatten();
        let may_have = |led: &NameLed| parked || led.sent_before.is_none_or(|end| end > offset);
        led.filter(may_have).collect()
    }
}

/// Writes these as records of a bounded number of bytes; one alone may have more.
pub(super) fn in_records(all: &[NameLed], bytes_max: usize) -> Vec<Vec<u8>> {
    let bytes = |led: &NameLed| 6 * (led.name.len() + led.index.len()) + LED_BYTES;
    let (mut records, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = rest.iter().take_while(|led| {
            sum += bytes(led);
            sum <= bytes_max
        });
        let (some, more) = rest.split_at(fits.count().max(1));
        records.push(serde_json::to_vec(some).unwrap_or_default());
        rest = more;
    }
    records
}

/// The most names of a lane that are known, and indices of each.
pub(super) const NAMES_MAX: usize = 4096;
const INDICES_MAX: usize = 16;
/// The bytes of an entry besides its texts, at most.
const LED_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(all: &[(&str, &str, u64)]) -> LaneNames {
        let mut names = LaneNames::default();
        for (name, index, since_ms) in all {
            names.add(NameLed::now(name, index, *since_ms));
        }
        names
    }

    fn indices(all: &[NameLed]) -> Vec<&str> {
        all.iter().map(|led| &*led.index).collect()
    }

    #[test]
    fn what_an_owner_cannot_have_sent_to_is_not_handed_on_unless_something_is_parked() {
        let owned = || {
            let mut names = lane(&[("a", "i1", 1), ("a", "i2", 2), ("b", "j1", 3)]);
            names.owner_gone(100);
            names.add(NameLed::now("a", "i3", 4));
            names.owner_gone(200);
            names
        };
        assert_eq!(indices(&owned().take_from(99, false)), ["i1", "i2", "i3", "j1"]);
        assert_eq!(indices(&owned().take_from(100, false)), ["i3"]);
        assert_eq!(indices(&owned().take_from(200, false)), [""; 0]);
        assert_eq!(indices(&owned().take_from(200, true)), ["i1", "i2", "i3", "j1"]);
    }

    #[test]
    fn what_an_owner_hands_on_keeps_its_end_and_is_known_once() {
        let mut names = lane(&[("a", "i1", 1)]);
        names.owner_gone(100);
        let on = names.take_from(50, false);
        let mut names = lane(&[("a", "i1", 1), ("a", "i2", 2)]);
        on.into_iter().for_each(|led| names.add(led));
        names.owner_gone(300);
        let left = names.take_from(60, false);
        let ends: Vec<_> = left.iter().map(|led| led.sent_before).collect();
        assert_eq!(
            (indices(&left), ends),
            (vec!["i1", "i2"], vec![Some(100), Some(300)])
        );
    }

    #[test]
    fn owners_that_come_and_go_while_a_name_leads_to_one_index_displace_no_other() {
        let mut names = lane(&[("a", "i1", 1)]);
        for owner in 0..2 * INDICES_MAX as u64 {
            names.owner_gone(100 + owner);
            names.add(NameLed::now("a", "i2", 10 + owner));
        }
        let left = names.take_from(0, true);
        assert_eq!(indices(&left), ["i1", "i2"]);
        assert_eq!((left[1].since_ms, left[1].sent_before), (10, None));
    }

    #[test]
    fn the_indices_and_the_names_that_are_known_are_bounded() {
        let mut names = LaneNames::default();
        for number in 0..=INDICES_MAX as u64 {
            names.add(NameLed::now("a", &format!("i{number}"), number));
        }
        for number in 0..=NAMES_MAX {
            names.add(NameLed::now(&format!("n{number}"), "i", 1));
        }
        let left = names.take_from(0, false);
        assert_eq!(left[0].index, "i1");
        assert_eq!(left.len(), INDICES_MAX + NAMES_MAX - 1);
    }

    #[test]
    fn records_say_all_of_it_in_as_many_pieces_as_fit() {
        let all: Vec<_> = (0..10)
            .map(|number| NameLed::now("a", &format!("i{number}"), number))
            .collect();
        let records = in_records(&all, 3 * (LED_BYTES + 18));
        assert_eq!(records.len(), 4);
        let read = records.iter().flat_map(|record| {
            assert!(record.len() <= 3 * (LED_BYTES + 18));
            serde_json::from_slice::<Vec<NameLed>>(record).unwrap()
        });
        assert_eq!(read.collect::<Vec<_>>(), all);
        assert_eq!(in_records(&all, 1).len(), 10);
        assert!(in_records(&[], 1).is_empty());
    }
}
