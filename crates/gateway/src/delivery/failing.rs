//! What a lane does when the gateway fails on one of its records. Nobody knows which record of the batch it
//! was, so the records are delivered one by one. The record on which the gateway fails again is halved
//! ([`super::bisect`]) down to the operation that is to blame, which becomes a dead letter, with the reason,
//! and the lane goes on. Each failure in a row makes the pause before the next try longer: a fault that no
//! record causes (for example an answer that every node gives) must not drain a queue into dead letters.

use std::rc::Rc;

use wire::guard::{Panicked, Work, caught, guarded};

use crate::delivery::lane::{Lane, stopped};
use crate::delivery::pauses::backoff;
use crate::delivery::unsettled::{StoreEnds, drop_unsettled_of_lane};
use crate::queue::LaneActivity;

// === impl Lane ===

impl Lane {
    /// Delivers until told to stop, whatever a record of the lane does to the gateway.
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
        if self.suspect.is_under_way() {
            self.route.group.leave_in_doubt();
        }
    }

    /// Takes the lane back to its committed position. `None` if the gateway stops meanwhile.
    async fn go_back(&mut self, mut panicked: Panicked) -> Option<()> {
        let group = Rc::clone(&self.route);
        let group = &group.group;
        loop {
            let why = format!("the gateway failed on a record, which is a bug of its own: {panicked}");
            group.set(self.number, LaneActivity::Retrying, Some(&why));
            let pause = backoff(group.settings.retry.delay, self.suspect.failures());
            self.rest(pause).await?;
            self.batch_landed().await?;
            let went = caught(Work::Lane, || {
                let dropped = drop_unsettled_of_lane(group, self.number, StoreEnds::default());
                dropped.map_err(|error| error.to_string())?;
                // The old reader forgets the records that it has read.
                let reader = group.consumer.reader(self.number);
                self.reader = reader.map_err(|error| error.to_string())?;
                Ok::<_, String>(())
            });
            match went {
                Ok(Ok(())) => return Some(()),
                Ok(Err(why)) => group.set(self.number, LaneActivity::Paused, Some(&why)),
                Err(again) => {
                    again.report(Work::Lane, "the lane tries again to go on");
                    panicked = again;
                }
            }
            self.suspect.failed_again();
        }
    }

    /// Waits for requests of the batch that are under way without the lane: they could be executed after what
    /// is sent again, which nothing parked holds back then. `None` if the gateway stops meanwhile.
    async fn batch_landed(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            () = self.route.flights.landed_of_batch(self.number) => Some(()),
        }
    }
}
