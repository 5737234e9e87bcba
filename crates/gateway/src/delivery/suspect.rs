//! What a lane does when the gateway fails on a record of it. Nobody knows which record of the batch it was,
//! so they are delivered one by one; the one that it happens with again is halved ([`super::apart`]) down to
//! the operation that is to blame, which becomes a dead letter, with the reason, and the lane goes on. Each
//! failure in a row makes the pause before the next try longer: a fault that is no record's (an answer that
//! every node gives, say) must not drain a queue into dead letters.

use std::rc::Rc;

use wire::guard::{Panicked, Work, caught, guarded};

use crate::delivery::batch::{Batch, backoff};
use crate::delivery::lane::Lane;
use crate::delivery::unsettled::{Since, drop_unsettled_of_lane};
use crate::queue::Doing;

/// What a lane knows of records that the gateway failed on.
#[derive(Debug, Default)]
pub(crate) struct Suspect {
    /// Positions of the first and the last record of the batch under way.
    under_way: Option<(u64, u64)>,
    /// Records up to this one are delivered one by one.
    through: Option<u64>,
    /// A record that was alone when the gateway failed, and how.
    condemned: Option<(u64, Panicked)>,
    /// In a row.
    failures: u32,
    /// What was accepted before may have been executed.
    doubtful_before: u64,
}

// === impl Suspect ===

impl Suspect {
    /// Whether records are delivered one by one now.
    pub(crate) fn is_alone(&self) -> bool {
        self.through.is_some()
    }

    pub(crate) fn doubtful_before(&self) -> u64 {
        self.doubtful_before
    }

    /// A batch is under way; how the gateway failed on it before, if it is not to be tried again.
    pub(super) fn begins(&mut self, batch: &Batch) -> Option<Panicked> {
        let position =
            |origin: Option<&crate::delivery::batch::Origin>| origin.map_or(0, |origin| origin.position);
        let (first, last) = (position(batch.origins.first()), position(batch.origins.last()));
        self.under_way = Some((first, last));
        if self.through.is_some_and(|through| first > through) {
            self.through = None;
        }
        let (condemned, panicked) = self.condemned.as_ref()?;
        (*condemned == first && first == last).then(|| panicked.clone())
    }

    /// An operation has died by itself of the gateway's failure; how many have in a row.
    pub(super) fn buried(&mut self) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// Some operations of a record that the gateway fails on as a whole went well.
    pub(super) fn went_well(&mut self) {
        self.failures = 0;
    }

    /// The batch under way is committed.
    pub(super) fn committed(&mut self) {
        let was_condemned = self.condemned.take().is_some();
        self.under_way = None;
        if !was_condemned {
            self.failures = 0;
        }
    }

    fn failed(&mut self, panicked: &Panicked) {
        self.failures = self.failures.saturating_add(1);
        let Some((first, last)) = self.under_way.take() else {
            // Nothing was read yet: it is read with less.
            self.through = self.through.max(Some(0));
            return;
        };
        if first == last && self.through.is_some() {
            self.condemned = Some((first, panicked.clone()));
        }
        self.through = self.through.max(Some(last));
        self.doubtful_before = self.doubtful_before.max(last + 1);
    }
}

// === impl Lane ===

impl Lane {
    /// Delivers until it is told to stop, whatever a record of it does to the gateway.
    pub(crate) async fn run(mut self) {
        while let Err(panicked) = Box::pin(guarded(Work::Lane, self.work())).await {
            panicked.report(
                Work::Lane,
                "the lane goes on with its records one by one; what is to blame becomes a dead letter",
            );
            self.suspect.failed(&panicked);
            if self.go_back(panicked).await.is_none() {
                self.route.group.leave_in_doubt();
                return;
            }
        }
        if self.suspect.under_way.is_some() {
            self.route.group.leave_in_doubt();
        }
    }

    /// Goes back to what is committed. `None` if the gateway stops meanwhile.
    async fn go_back(&mut self, mut panicked: Panicked) -> Option<()> {
        let group = Rc::clone(&self.route);
        let group = &group.group;
        loop {
            let why = format!("the gateway failed on a record, which is a bug of its own: {panicked}");
            group.set(self.number, Doing::Retrying, Some(&why));
            let pause = backoff(group.settings.retry.delay, self.suspect.failures, fastrand::f64());
            self.rest(pause).await?;
            let went = caught(Work::Lane, || {
                let dropped = drop_unsettled_of_lane(group, self.number, Since::default());
                dropped.map_err(|error| error.to_string())?;
                // What was read is forgotten with the reader.
                let reader = group.consumer.reader(self.number);
                self.reader = reader.map_err(|error| error.to_string())?;
                Ok::<_, String>(())
            });
            match went {
                Ok(Ok(())) => return Some(()),
                Ok(Err(why)) => group.set(self.number, Doing::Paused, Some(&why)),
                Err(again) => {
                    again.report(Work::Lane, "the lane tries again to go on");
                    panicked = again;
                }
            }
            self.suspect.failures = self.suspect.failures.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_condemned_when_it_was_alone_and_pauses_grow_until_a_batch_goes_through() {
        let batch = |positions: &[u64]| {
            let mut batch = Batch::empty();
            batch.origins = positions
                .iter()
                .map(|position| crate::delivery::batch::Origin {
                    first: 0,
                    place: 0,
                    position: *position,
                    time_ms: 0,
                })
                .collect();
            batch
        };
        let (mut suspect, panicked) = (Suspect::default(), Panicked::default());
        assert!(suspect.begins(&batch(&[10, 20, 30])).is_none());
        suspect.failed(&panicked);
        assert!(suspect.is_alone());
        assert_eq!(suspect.doubtful_before(), 31);
        assert!(suspect.begins(&batch(&[10])).is_none());
        suspect.committed();
        assert_eq!(suspect.failures, 0);
        assert!(suspect.begins(&batch(&[20])).is_none());
        suspect.failed(&panicked);
        assert!(suspect.begins(&batch(&[20])).is_some());
        suspect.committed();
        assert_eq!(suspect.failures, 1, "what dies of it is no success");
        assert!(suspect.begins(&batch(&[30])).is_none());
        assert!(suspect.is_alone());
        suspect.committed();
        assert!(suspect.begins(&batch(&[40, 50])).is_none());
        assert!(!suspect.is_alone());
    }
}
