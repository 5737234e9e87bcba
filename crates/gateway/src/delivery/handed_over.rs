//! Lanes that Kafka gives to this gateway and takes away again, as gateways come and go. All lanes are given
//! up at each change, and only when nothing of them is under way, so no two gateways ever send for one lane
//! at the same time. A lane's parked operations come and go with the lane.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kafka::{Handed, Rebalance, Running};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use wire::guard::{self, Work, fault, spawn_in};

use crate::backoff::backoff;
use crate::clock::now_ms;
use crate::delivery::former_lanes::FormerLanes;
use crate::delivery::lane::{Lane, Route, stopped};
use crate::delivery::parked_topic::{ParkedTopicRequest, told};
use crate::delivery::retry;
use crate::delivery::suspect::Suspect;
use crate::delivery::unsettled::{drop_letters, settle_letters};
use crate::queue::parked::{NameLed, Parked};
use crate::queue::{Group, LaneActivity};

/// How this gateway's part in the group has ended.
enum Ended {
    /// Delivery was told to stop, or everything is delivered.
    AsTold,
    /// Operations can be parked now, and could not before.
    ToPark,
    /// It has to begin anew, for this reason.
    Failed(&'static str),
}

/// Delivers the lanes that are given to this gateway, until told to stop; returns once it has given up all
/// lanes.
pub(crate) async fn deliver_handed_over(
    route: &Rc<Route>,
    shared: &dyn kafka::Group,
    mut stop: watch::Receiver<bool>,
) {
    let group = &route.group;
    let mut request = ParkedTopicRequest::begin(group);
    let mut former = FormerLanes::new(group);
    // Documents would become dead letters that can be parked once the brokers have said so.
    while let Some(cannot) = group.cannot_park().filter(|cannot| cannot.is_untold) {
        let why = format!("whether anything can be parked is not known yet: {}", cannot.why);
        group.set(0, LaneActivity::Paused, Some(&why));
        tokio::select! {
            () = stopped(&mut stop) => return,
            told = told(&mut request) => if let Some(parked) = told {
                group.parks_from_now_on(parked);
            },
        }
    }
    loop {
        let why = match take_part(route, shared, stop.clone(), (&mut request, &mut former)).await {
            Ended::AsTold => return,
            Ended::ToPark => continue,
            Ended::Failed(why) => why,
        };
        group.set(0, LaneActivity::Paused, Some(why));
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(START_AGAIN) => {}
        }
    }
}

async fn take_part(
    route: &Rc<Route>,
    shared: &dyn kafka::Group,
    mut stop: watch::Receiver<bool>,
    (request, former): (&mut Option<ParkedTopicRequest>, &mut FormerLanes),
) -> Ended {
    let group = &route.group;
    // Kafka bounds this channel: it makes one assignment and one revocation at a time.
    let (tell, mut changes) = mpsc::unbounded_channel();
    let Some(running) = start(group, shared, tell, &mut stop).await else {
        return Ended::AsTold;
    };
    let mut held = HeldLanes::new(route);
    let (mut leaving, mut to_park, mut failed) = (false, None, None);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        let change = tokio::select! {
            biased;
            // A lane that comes may have documents that its owner has sent to where a name leads now.
            _ = looks.tick() => {
                route.look(&route.outbound().cluster().snapshot().table);
                former.look();
                continue;
            }
            () = stopped(&mut stop), if !leaving => {
                leaving = true;
                running.stop();
                continue;
            }
            change = changes.recv() => change,
            led_to = found(&mut held.starting) => {
                if let Some(why) = held.searched(led_to) {
                    failed = Some(why);
                    running.stop();
                }
                continue;
            }
            told = told(request), if !leaving => {
                // Lanes begin with their parked operations, so they have to come anew.
                if told.is_some() {
                    (leaving, to_park) = (true, told);
                    running.stop();
                }
                continue;
            }
            ended = held.lanes.join_next(), if !held.lanes.is_empty() => {
                drop(ended);
                // `keep_running: false` ends delivery here: everything is delivered.
                if held.lanes.is_empty() && !group.settings.keep_running && !leaving {
                    leaving = true;
                    running.stop();
                }
                continue;
            }
        };
        let Some(change) = change else { break };
        held.change(change).await;
        former.changed();
    }
    held.end().await;
    running.join();
    match (to_park, leaving) {
        (Some(parked), _) => {
            group.parks_from_now_on(parked);
            Ended::ToPark
        }
        (None, true) => Ended::AsTold,
        (None, false) => Ended::Failed(failed.unwrap_or(TAKES_NO_LANES)),
    }
}

/// Joins the group; `None` if delivery is to stop.
async fn start(
    group: &Group,
    shared: &dyn kafka::Group,
    tell: mpsc::UnboundedSender<Rebalance>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Box<dyn Running>> {
    loop {
        let tell = tell.clone();
        // The receiver is there until this has ended.
        match shared.start(Box::new(move |change| drop(tell.send(change)))) {
            Ok(running) => return Some(running),
            Err(error) => group.set(0, LaneActivity::Paused, Some(&error.to_string())),
        }
        tokio::select! {
            () = stopped(stop) => return None,
            () = tokio::time::sleep(START_AGAIN) => {}
        }
    }
}

/// The lanes that this gateway has for now.
struct HeldLanes {
    route: Rc<Route>,
    lanes: JoinSet<()>,
    /// The task that tries the lanes' parked operations again.
    tending: Option<JoinHandle<()>>,
    end: watch::Sender<bool>,
    /// Lanes that came, while their parked operations are being looked for.
    starting: Option<StartingLanes>,
}

struct StartingLanes {
    numbers: Vec<u32>,
    /// Receives, once the parked operations are found, where names led when former owners sent operations.
    found: oneshot::Receiver<Vec<NameLed>>,
    cancelled: Arc<AtomicBool>,
}

// === impl StartingLanes ===

impl Drop for StartingLanes {
    /// Cancels the search: a search that still runs changes nothing that is known of lanes that come later.
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

// === impl HeldLanes ===

impl HeldLanes {
    fn new(route: &Rc<Route>) -> Self {
        Self {
            route: Rc::clone(route),
            lanes: JoinSet::new(),
            tending: None,
            end: watch::channel(false).0,
            starting: None,
        }
    }

    async fn change(&mut self, change: Rebalance) {
        let group = &self.route.group;
        let (queue, name) = (&*group.queue.name, &*group.settings.group);
        match change {
            Rebalance::Assigned(numbers) => {
                tracing::info!(
                    queue,
                    group = name,
                    lanes = numbers.len(),
                    "lanes came from Kafka"
                );
                fault("assigned", b"");
                self.take(numbers);
            }
            Rebalance::Revoked(handed) => self.give_up(handed).await,
            Rebalance::Gone => {
                tracing::info!(queue, group = name, "lanes went back to Kafka");
                drop_unsettled(&self.route);
            }
            // No lanes are there, so nothing is under way.
            Rebalance::Decided => match group.consumer.went_back() {
                true => keep_letters(group),
                false => drop_unsettled(&self.route),
            },
        }
    }

    /// Takes lanes that came. Before anything of them is delivered, their parked operations have to be known.
    fn take(&mut self, numbers: Vec<u32>) {
        let parked = self.route.group.parked().cloned();
        let Some(parked) = parked.filter(|parked| parked.is_handed_over()) else {
            return self.deliver(numbers);
        };
        let (tell, found) = oneshot::channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (group, lanes, until) = (
            Arc::clone(&self.route.group),
            numbers.clone(),
            Arc::clone(&cancelled),
        );
        let looking = guard::thread("parked-lanes", Work::Parked, move || {
            if let Some(led_to) = find_parked(&group, &parked, &lanes, &until) {
                // Nobody waits for this if the lanes have gone again.
                let _ = tell.send(led_to);
            }
        });
        if let Err(error) = looking {
            // The answer that will not come ends this gateway's part in the group for now.
            tracing::error!(%error, "what is parked of the lanes that came from Kafka cannot be looked for");
        }
        self.starting = Some(StartingLanes {
            numbers,
            found,
            cancelled,
        });
    }

    /// Begins to deliver the lanes whose parked operations are found. Returns why not, if nobody could look
    /// for these; the lanes are paused then.
    fn searched(&mut self, led_to: Option<Vec<NameLed>>) -> Option<&'static str> {
        if let Some(led_to) = led_to {
            self.route.led_to.borrow_mut().hear(led_to, now_ms());
            self.begin();
            return None;
        }
        for number in self.starting.take().iter().flat_map(|starting| &starting.numbers) {
            self.route
                .group
                .set(*number, LaneActivity::Paused, Some(NOT_LOOKED_FOR));
        }
        Some(NOT_LOOKED_FOR)
    }

    /// Begins to deliver the lanes: their parked operations are known.
    fn begin(&mut self) {
        let Some(mut starting) = self.starting.take() else {
            return;
        };
        self.deliver(std::mem::take(&mut starting.numbers));
        let (route, stop) = (Rc::clone(&self.route), self.end.subscribe());
        let tend = move || retry::tend(Rc::clone(&route), stop.clone(), || false);
        self.tending = Some(guard::spawn(Work::Parked, guard::restarted(Work::Parked, tend)));
    }

    fn deliver(&mut self, numbers: Vec<u32>) {
        let group = &self.route.group;
        self.end = watch::channel(false).0;
        let parked_elsewhere = match group.parked() {
            Some(_) => Vec::new(),
            None => group.consumer.parked_by_lane(),
        };
        for number in numbers {
            if parked_elsewhere
                .get(number as usize)
                .is_some_and(|parked| *parked > 0)
            {
                group.set(number, LaneActivity::Paused, Some(PARKED_UNKNOWN));
                continue;
            }
            match group.consumer.reader(number) {
                Ok(reader) => {
                    let lane = Lane {
                        route: Rc::clone(&self.route),
                        number,
                        reader,
                        suspect: Suspect::default(),
                        stop: self.end.subscribe(),
                    };
                    spawn_in(&mut self.lanes, Work::Lane, lane.run());
                }
                Err(error) => group.set(number, LaneActivity::Paused, Some(&error.to_string())),
            }
        }
    }

    /// Ends all that is under way, and hands the lanes over.
    async fn give_up(&mut self, handed: Handed) {
        self.end().await;
        self.route.group.rest_lanes();
        drop(handed);
    }

    async fn end(&mut self) {
        if let Some(mut starting) = self.starting.take() {
            starting.cancelled.store(true, Ordering::Relaxed);
            // The search ends within a few requests to the brokers.
            let _ = (&mut starting.found).await;
        }
        self.end.send_replace(true);
        while self.lanes.join_next().await.is_some() {}
        if let Some(tending) = self.tending.take() {
            let _ = tending.await;
        }
        // Requests that go on without their lanes are under way, too.
        retry::settle_landed(&self.route).await;
        if let Some(parked) = self.route.group.parked() {
            parked.let_go();
        }
    }
}

/// Makes all dead letters of a group count whose topic was made anew, or of which the brokers know nothing:
/// whether what they tell of is delivered once more does not follow from their places any more.
fn keep_letters(group: &Group) {
    let (queue, name) = (&*group.queue.name, &*group.settings.group);
    if let Err(error) = group.queue.dead_letters.settle(name) {
        tracing::error!(queue, group = name, %error, "some of the group's dead letters may be dropped as if their batches had not been committed");
    }
}

/// Waits until the parked operations of the lanes that came are known; `None` if the thread that looks for
/// them has ended without an answer.
async fn found(starting: &mut Option<StartingLanes>) -> Option<Vec<NameLed>> {
    match starting {
        Some(starting) => (&mut starting.found).await.ok(),
        None => std::future::pending().await,
    }
}

/// Finds the parked operations of lanes, however often it has to try; returns where names led when former
/// owners sent operations, or `None` if the lanes have gone before.
fn find_parked(
    group: &Group,
    parked: &Parked,
    lanes: &[u32],
    cancelled: &AtomicBool,
) -> Option<Vec<NameLed>> {
    // One search runs at a time, and a cancelled search never after another one: each search replaces the
    // knowledge of the one before.
    let _one = parked.taking_over.lock();
    fault("parked-lanes", b"");
    if cancelled.load(Ordering::Relaxed) {
        return None;
    }
    let (mut begun, mut failures) = (None, 0);
    let taken = loop {
        let why = match parked.take_over(lanes, &mut begun) {
            Ok(taken) => break taken,
            Err(why) => why,
        };
        let why = format!("what is parked of this lane cannot be read: {why}");
        for lane in lanes {
            group.set(*lane, LaneActivity::Paused, Some(&why));
        }
        // Each try may leave records in every lane's partition, which the next one reads.
        if !waits(
            backoff(FIND_AGAIN, failures, FIND_AGAIN_MAX, fastrand::f64()),
            cancelled,
        ) {
            return None;
        }
        failures += 1;
    };
    let (letters, name) = (&group.queue.dead_letters, &group.settings.group);
    let settled = settle_letters(letters, name, parked, &taken.ends);
    // Drops the letters of tries of an earlier process that did not come to their end: their operations are
    // still parked.
    let still_parked = |(number, op)| parked.holds(number, op);
    let dropped = settled.and_then(|()| drop_letters(letters, name, parked, still_parked));
    if let Err(error) = dropped {
        tracing::warn!(%error, "dead letters of operations that are still parked may be told of twice");
    }
    Some(taken.led_to)
}

/// Waits for a while; false as soon as that is cancelled.
#[allow(
    clippy::disallowed_methods,
    reason = "the thread that looks for parked operations does nothing else"
)]
fn waits(time: Duration, cancelled: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !cancelled.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(CANCELLED_WITHIN));
    }
    false
}

/// Drops the dead letters of batches that were not committed: their operations are delivered once more, here
/// or elsewhere, and die there again.
fn drop_unsettled(route: &Route) {
    let group = Arc::clone(&route.group);
    let letters = &group.queue.dead_letters;
    let (committed, for_good) = (group.queue.committed(), !group.consumer.is_in_doubt());
    let dropped = letters.drop_unsettled(&group.settings.group, &committed, for_good);
    if let Err(error) = dropped {
        tracing::warn!(%error, "dead letters of batches that were not committed stay: they may be told of twice");
    }
}

const START_AGAIN: Duration = Duration::from_secs(5);
/// The interval at which the gateway looks where names lead, whether it has lanes or not.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The wait after the first try to find parked operations, and the longest one.
const FIND_AGAIN: Duration = Duration::from_secs(1);
const FIND_AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long a search goes on to wait that nobody waits for any more.
const CANCELLED_WITHIN: Duration = Duration::from_millis(50);
/// Why lanes are not delivered after a thread has ended that the gateway needs for that.
const NOT_LOOKED_FOR: &str = "the thread that looks for what is parked of the lanes that came from Kafka could not be started, or has \
     failed, which is a bug; the gateway leaves the group, and joins it anew";
const TAKES_NO_LANES: &str =
    "the thread that takes lanes from Kafka has failed, which is a bug; it begins anew";
/// Why a lane waits if another gateway has parked some of its documents.
const PARKED_UNKNOWN: &str = "another gateway has parked documents of this lane, and the brokers do not let this one read them: \
     its account needs rights on the topic of parked documents";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_waits_until_its_next_try_or_until_it_is_cancelled() {
        let cancelled = AtomicBool::new(false);
        assert!(waits(Duration::from_millis(1), &cancelled));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits(Duration::from_secs(3600), &cancelled));
            cancelled.store(true, Ordering::Relaxed);
            assert!(!waiting.join().unwrap());
        });
    }
}
