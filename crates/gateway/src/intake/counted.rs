//! Counts what goes on whole: for the gateway, and for the flow of the filter.

use bulk::Why;

use crate::intake::filter::Intake;
use crate::why::{HeadWhy, SingleWhy};

impl Intake {
    /// Counts a bulk that goes on whole for a reason found in its body.
    pub(super) fn count_pass(&self, why: Why) {
        self.counters.pass(why);
        self.reshuffle.flow.pass(why);
    }

    /// Counts a bulk that goes on whole for a reason found in its head.
    pub(super) fn count_pass_by_head(&self, why: HeadWhy) {
        self.counters.pass_by_head(why);
        self.reshuffle.flow.pass_by_head(why);
    }

    /// Counts a single-document write that goes on as it came.
    pub(super) fn count_single(&self, why: SingleWhy) {
        self.counters.pass_single(why);
        self.reshuffle.flow.pass_single(why);
    }

    /// Counts a single-document write that goes on as it came for a reason that its plan found.
    pub(super) fn count_single_by_plan(&self, why: Why) {
        self.counters.pass_single_by_plan(why);
        self.reshuffle.flow.pass_single_by_plan(why);
    }
}
