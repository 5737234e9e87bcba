//! The last failure of a question that several requests wait for.

use std::fmt::Display;

use tokio::time::Instant;

/// When the last question ended without an answer, and why. Requests that waited for it share the failure, or
/// each would wait for a question of its own, one after the other.
#[derive(Debug, Default)]
pub(super) struct LastFailure(Option<(Instant, String)>);

impl LastFailure {
    pub(super) fn of(why: &impl Display) -> Self {
        Self(Some((Instant::now(), why.to_string())))
    }

    /// Returns why a question has failed while a request that came at `came` waited.
    pub(super) fn since(&self, came: Instant) -> Option<&str> {
        let (at, why) = self.0.as_ref()?;
        (*at >= came).then_some(why)
    }

    /// Returns why the last question has failed.
    pub(super) fn why(&self) -> Option<&str> {
        self.0.as_ref().map(|(_, why)| &**why)
    }
}
