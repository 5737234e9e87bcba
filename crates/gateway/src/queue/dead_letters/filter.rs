//! Says which letters are meant.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::facets::{field, like};
use super::letter::Letter;
use crate::queue::unconfirmed_letters::UnconfirmedLetters;

/// A selection of letters: those that fit everything that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LetterFilter {
    /// These letters and no others.
    pub(crate) ids: Option<BTreeSet<u64>>,
    /// Letters of this consumer group.
    pub(crate) group: Option<String>,
    /// Letters for this index, as their action or their URL names it.
    pub(crate) index: Option<String>,
    /// Letters with such a status.
    pub(crate) status: Option<RangeInclusive<u16>>,
    /// Letters with this type of error.
    pub(crate) kind: Option<String>,
    /// Letters with this text in the reason; case does not matter.
    pub(crate) reason: Option<String>,
    /// Letters with a reason like this one, as [`super::like`] makes it.
    pub(crate) like: Option<String>,
    /// Letters with a reason that is about this field.
    pub(crate) field: Option<String>,
    /// Letters given up at this time or later, in ms since 1970.
    pub(crate) since_ms: Option<u64>,
    /// Letters given up before this time, in ms since 1970.
    pub(crate) until_ms: Option<u64>,
    /// Letters with smaller ids: those that were there before a letter of this id could come.
    pub(crate) before: Option<u64>,
}

/// How far each consumer group has committed, lane by lane: letters from before that count as dead, except
/// those of operations in [`UnconfirmedLetters`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Committed {
    pub(crate) lanes: BTreeMap<String, Vec<u64>>,
    pub(crate) unconfirmed_letters: BTreeMap<String, Arc<UnconfirmedLetters>>,
}

// === impl LetterFilter ===

impl LetterFilter {
    pub(super) fn takes(&self, letter: &Letter) -> bool {
        let cause = &letter.cause;
        let is =
            |filter: &Option<String>, value: &str| filter.as_deref().is_none_or(|filter| filter == value);
        let reason = || {
            self.reason
                .as_ref()
                .is_none_or(|text| cause.reason.to_lowercase().contains(&text.to_lowercase()))
        };
        let index = || self.index.is_none() || letter.index().as_deref() == self.index.as_deref();
        self.ids.as_ref().is_none_or(|ids| ids.contains(&letter.id))
            && self.before.is_none_or(|before| letter.id < before)
            && is(&self.group, &cause.group)
            && is(&self.kind, &cause.kind)
            && self
                .status
                .as_ref()
                .is_none_or(|status| status.contains(&cause.status))
            && self.since_ms.is_none_or(|since| letter.died_ms >= since)
            && self.until_ms.is_none_or(|until| letter.died_ms < until)
            && reason()
            && self
                .like
                .as_ref()
                .is_none_or(|filter| like(&cause.reason) == *filter)
            && self
                .field
                .as_deref()
                .is_none_or(|filter| field(&cause.reason) == Some(filter))
            && index()
    }

    /// Reads a status as people write it: `400`, `4xx` or `400-404`.
    pub(crate) fn parse_status(text: &str) -> Option<RangeInclusive<u16>> {
        if let Some(class) = text.strip_suffix("xx") {
            let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
            return Some(class * 100..=class * 100 + 99);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| text.parse().ok().filter(|status| (100..600).contains(status));
        let (first, last) = (status(first)?, status(last)?);
        (first <= last).then_some(first..=last)
    }
}

// === impl Committed ===

impl Committed {
    /// Whether a letter counts as dead in its group's cursors. If not, its batch is still under way, or was
    /// cut off and will be delivered once more. All letters that were put before the position
    /// `settled_before` of the store count.
    pub(super) fn has(&self, letter: &Letter, settled_before: u64) -> bool {
        !self.is_unconfirmed(letter) && self.is_past(letter, settled_before)
    }

    /// Whether it is not known yet if the letter's operation, which was parked, counts as dead.
    pub(super) fn is_unconfirmed(&self, letter: &Letter) -> bool {
        let of_group = self.unconfirmed_letters.get(&letter.cause.group);
        of_group
            .zip(letter.cause.parked)
            .is_some_and(|(unconfirmed_letters, operation)| unconfirmed_letters.has(operation))
    }

    /// Whether the letter's lane has come past its batch, or its group is gone and has no accounts. If not,
    /// the batch is delivered once more.
    pub(super) fn is_past(&self, letter: &Letter, settled_before: u64) -> bool {
        let cause = &letter.cause;
        let Some(lanes) = self.lanes.get(&cause.group) else {
            return true;
        };
        letter.id < settled_before
            || lanes
                .get(cause.lane as usize)
                .is_some_and(|position| cause.position < *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::dead_letters::letter::Cause;

    #[test]
    fn statuses_are_one_a_class_or_a_range() {
        assert_eq!(LetterFilter::parse_status("400"), Some(400..=400));
        assert_eq!(LetterFilter::parse_status("4xx"), Some(400..=499));
        assert_eq!(LetterFilter::parse_status("400-404"), Some(400..=404));
        for wrong in ["", "x", "9xx", "404-400", "4x"] {
            assert_eq!(LetterFilter::parse_status(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_letter_must_fit_all_that_is_said() {
        let letter = Letter {
            id: 9,
            at: 9,
            bytes: 8,
            died_ms: 1000,
            edited_ms: None,
            cause: Cause {
                group: "c0".to_owned(),
                status: 400,
                kind: "mapper_parsing_exception".to_owned(),
                reason: "Failed to parse field [n]".to_owned(),
                target: "/logs/_bulk".to_owned(),
                ..Cause::default()
            },
            lines: Some(b"{\"delete\":{}}\n".to_vec()),
            original: None,
        };
        let fits = LetterFilter {
            ids: Some([9].into()),
            group: Some("c0".to_owned()),
            index: Some("logs".to_owned()),
            status: Some(400..=499),
            kind: Some("mapper_parsing_exception".to_owned()),
            reason: Some("PARSE FIELD".to_owned()),
            like: Some("Failed to parse field [n]".to_owned()),
            field: Some("n".to_owned()),
            since_ms: Some(1000),
            until_ms: Some(1001),
            before: Some(10),
        };
        assert!(fits.takes(&letter) && LetterFilter::default().takes(&letter));
        let other = |change: fn(&mut LetterFilter)| {
            let mut filter = fits.clone();
            change(&mut filter);
            filter
        };
        for wrong in [
            other(|filter| filter.ids = Some([8].into())),
            other(|filter| filter.group = Some("c1".to_owned())),
            other(|filter| filter.index = Some("log".to_owned())),
            other(|filter| filter.status = Some(401..=499)),
            other(|filter| filter.kind = Some("mapper".to_owned())),
            other(|filter| filter.reason = Some("nothing".to_owned())),
            other(|filter| filter.like = Some("Failed to parse field [#]".to_owned())),
            other(|filter| filter.field = Some("m".to_owned())),
            other(|filter| filter.since_ms = Some(1001)),
            other(|filter| filter.until_ms = Some(1000)),
            other(|filter| filter.before = Some(9)),
        ] {
            assert!(!wrong.takes(&letter), "{wrong:?}");
        }
    }

    #[test]
    fn the_letter_of_a_parked_operation_is_neither_counted_nor_dropped_until_the_operations_end_is_known() {
        let unconfirmed = Arc::new(UnconfirmedLetters::default());
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![100])].into(),
            unconfirmed_letters: [("c0".to_owned(), Arc::clone(&unconfirmed))].into(),
        };
        let letter = Letter {
            id: 500,
            at: 500,
            bytes: 8,
            died_ms: 0,
            edited_ms: None,
            cause: Cause {
                group: "c0".to_owned(),
                position: 5,
                parked: Some((3, 1)),
                ..Cause::default()
            },
            lines: None,
            original: None,
        };
        assert!(committed.has(&letter, 0));
        unconfirmed.begin([(3, 1)], None);
        assert!(!committed.has(&letter, 0) && committed.is_past(&letter, 0));
        unconfirmed.end([(3, 1)]);
        assert!(committed.has(&letter, 0));
    }

    #[test]
    fn a_letter_counts_once_its_lane_is_past_it() {
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![100, 200])].into(),
            ..Committed::default()
        };
        let letter = |group: &str, lane, position| Letter {
            id: 500,
            at: 900,
            bytes: 8,
            died_ms: 0,
            edited_ms: None,
            cause: Cause {
                group: group.to_owned(),
                lane,
                position,
                ..Cause::default()
            },
            lines: None,
            original: None,
        };
        assert!(committed.has(&letter("c0", 1, 199), 0));
        assert!(
            !committed.has(&letter("c0", 0, 100), 0),
            "its lane has not come past it"
        );
        assert!(
            committed.has(&letter("c0", 0, 100), 501),
            "it counted before the lane was set back"
        );
        assert!(committed.has(&letter("gone", 0, 100), 0));
    }
}
