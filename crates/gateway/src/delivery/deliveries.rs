//! Starts and stops the delivery thread of each queue and consumer group.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use wire::guard::{self, Pauses, Work};

use crate::delivery::thread::deliver;
use crate::delivery::unsettled::drop_unsettled;
use crate::live::GatewayState;
use crate::queue::{Group, LaneActivity, Phase};

/// The deliveries of a gateway. Deliveries that run stop when this is dropped, once their batches under way
/// are done.
#[derive(Debug)]
pub(crate) struct Deliveries {
    shared: Arc<GatewayState>,
    runs: Mutex<Runs>,
    /// A lock for each consumer group, held while the group is started or something is done to it that takes
    /// its time: other groups do not wait for that. Locked before `runs`.
    locks: Mutex<BTreeMap<Key, Arc<Mutex<()>>>>,
}

/// Queue and consumer group.
type Key = (Arc<str>, Arc<str>);
type Runs = BTreeMap<Key, Run>;

/// A delivery that runs.
#[derive(Debug)]
struct Run {
    stop: watch::Sender<bool>,
    #[allow(clippy::disallowed_types, reason = "no core waits for it: the process ends")]
    ended: mpsc::Receiver<()>,
}

// === impl Deliveries ===

impl Deliveries {
    /// Starts the deliveries of all groups that are enabled.
    pub(crate) fn start(shared: &Arc<GatewayState>) -> io::Result<Self> {
        let deliveries = Self {
            shared: Arc::clone(shared),
            runs: Mutex::default(),
            locks: Mutex::default(),
        };
        let queues = shared.queues.load_full();
        for group in queues.groups().iter().filter(|group| group.settings.enabled) {
            deliveries.start_one(group)?;
        }
        Ok(deliveries)
    }

    /// Starts the delivery of one group, unless it runs. One that is stopping begins anew once it has
    /// stopped.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if a reload has put another group in its place meanwhile; what the
    /// system says if there is no thread.
    pub(crate) fn start_one(&self, group: &Arc<Group>) -> io::Result<()> {
        let lock = self.lock_of(key(group));
        let _locked = lock.lock();
        if !self.is_in_force(group) {
            let why = "a reload has just changed this pipeline: try again";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let mut runs = self.runs();
        if group.begin_anew_when_stopped() || group.phase() != Phase::Stopped {
            return Ok(());
        }
        group.begins();
        let (stop, stopped) = watch::channel(false);
        let (done, ended) = mpsc::sync_channel(1);
        let (shared, running) = (Arc::clone(&self.shared), Arc::clone(group));
        let stops = stop.clone();
        // Idle buffers take no more than this. The memory of all deliveries bounds the batches of lanes.
        let buffer_bytes_max = shared.delivery_memory.bytes_max();
        group.set_phase(Phase::Running);
        let spawned = guard::thread("delivery", Work::Delivery, move || {
            loop {
                run(&shared, &running, &stopped, buffer_bytes_max);
                // Whoever stops it from here on says so first to the group, and then here.
                stops.send_replace(false);
                if !running.rest() {
                    break;
                }
                let (queue, pipeline) = (&*running.settings.queue, &*running.settings.pipeline);
                tracing::info!(queue, pipeline, "delivery has stopped, and begins anew");
                running.begins();
            }
            // Nobody waits for this unless the delivery is stopped.
            let _ = done.send(());
        });
        if let Err(error) = spawned {
            group.set_phase(Phase::Stopped);
            return Err(error);
        }
        runs.insert(key(group), Run { stop, ended });
        Ok(())
    }

    /// Stops the deliveries of these groups: lets their batches under way finish and commit, for as long as
    /// `within`; returns whether all have ended by then.
    pub(crate) fn stop_some(&self, groups: &[Arc<Group>], within: Duration) -> bool {
        for group in groups {
            if let Some(run) = self.runs().get(&key(group)) {
                group.stopping();
                run.stop.send_replace(true);
            }
        }
        let (ends, breaks_off) = (Instant::now() + within, Instant::now() + orderly(within));
        let have_ended = || groups.iter().all(|group| group.phase() == Phase::Stopped);
        while !have_ended() && Instant::now() < ends {
            if Instant::now() >= breaks_off {
                groups.iter().for_each(|group| group.break_off());
            }
            #[allow(clippy::disallowed_methods, reason = "no core calls this")]
            std::thread::sleep(LOOK_AGAIN);
        }
        have_ended()
    }

    /// Waits until nobody is about to start one of these groups. Those that others have been put in place of
    /// are not started any more from then on.
    pub(crate) fn let_starts_finish(&self, groups: &[Arc<Group>]) {
        for group in groups {
            drop(self.lock_of(key(group)).lock());
        }
    }

    /// Whether a group is one of the configuration in force.
    fn is_in_force(&self, group: &Arc<Group>) -> bool {
        let queues = self.shared.queues.load();
        let now = queues.group(&group.settings.queue, &group.settings.group);
        now.is_some_and(|now| Arc::ptr_eq(now, group))
    }

    /// Does something to a consumer group while nothing delivers for it; `None` if something does.
    pub(crate) fn while_stopped<T>(&self, queue: &str, group: &str, act: impl FnOnce() -> T) -> Option<T> {
        let lock = self.lock_of((queue.into(), group.into()));
        let _locked = lock.lock();
        let queues = self.shared.queues.load();
        let group = queues.group(queue, group);
        let stopped = group.is_none_or(|group| group.phase() == Phase::Stopped);
        if let (Some(group), true) = (group, stopped) {
            group.leave_in_doubt();
        }
        stopped.then(act)
    }

    /// Stops all deliveries: lets their batches under way finish, for as long as `within`; the others are
    /// delivered again after the next start.
    pub(crate) fn stop(&self, within: Duration) {
        let runs = self.runs();
        for group in self.shared.queues.load().groups() {
            group.stopping();
        }
        for run in runs.values() {
            run.stop.send_replace(true);
        }
        let begun = Instant::now();
        let ends_by = |run: &Run, time: Duration| {
            let left = (begun + time).saturating_duration_since(Instant::now());
            !matches!(run.ended.recv_timeout(left), Err(mpsc::RecvTimeoutError::Timeout))
        };
        if !runs.values().all(|run| ends_by(run, orderly(within))) {
            for group in self.shared.queues.load().groups() {
                group.break_off();
            }
        }
        for run in runs.values() {
            if !ends_by(run, within) {
                tracing::info!("a batch under way is given up; it is delivered again after the next start");
            }
        }
    }

    fn lock_of(&self, key: Key) -> Arc<Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock()
    }
}

/// Returns how much of the time that a stop has is for batches to come to their end. In the rest, what takes
/// longer is broken off between two requests, so that the stop comes about.
fn orderly(within: Duration) -> Duration {
    within / 10 * 7
}

/// Delivers until told to stop; after a panic, begins once more from the committed positions.
fn run(
    shared: &Arc<GatewayState>,
    group: &Arc<Group>,
    stopped: &watch::Receiver<bool>,
    buffer_bytes_max: usize,
) {
    let mut pauses = Pauses::default();
    loop {
        let began = Instant::now();
        let ran = guard::caught(Work::Delivery, || {
            if !has_dropped_unsettled(group, stopped) {
                return Ok(Ok(()));
            }
            let (shared, group, stopped) = (Arc::clone(shared), Arc::clone(group), stopped.clone());
            wire::run_local(buffer_bytes_max, |worker| {
                guard::guarded(Work::Delivery, deliver(shared, group, worker, stopped))
            })
        });
        let panicked = match ran {
            Ok(Ok(Ok(()))) => return,
            Ok(Err(error)) => return tracing::error!(%error, "delivery could not start"),
            Ok(Ok(Err(panicked))) | Err(panicked) => panicked,
        };
        panicked.report(Work::Delivery, "delivery begins anew with what is committed");
        group.doubt_all();
        let why = format!("delivery begins anew, since the gateway failed: {panicked}");
        if !rest(group, stopped, &why, pauses.next(began.elapsed())) {
            return;
        }
    }
}

/// Pauses all lanes; `false` if delivery is to stop.
fn rest(group: &Group, stopped: &watch::Receiver<bool>, why: &str, pause: Duration) -> bool {
    for lane in 0..group.queue.log.lanes() {
        group.set(lane, LaneActivity::Paused, Some(why));
    }
    let again = Instant::now() + pause;
    while Instant::now() < again {
        if *stopped.borrow() {
            return false;
        }
        #[allow(clippy::disallowed_methods, reason = "this thread is the delivery's own")]
        std::thread::sleep(LOOK_AGAIN);
    }
    true
}

/// Drops the letters of batches that are delivered again, as soon as the disk has room for the catalog that
/// says so; `false` if delivery is to stop first.
fn has_dropped_unsettled(group: &Group, stopped: &watch::Receiver<bool>) -> bool {
    while let Err(why) = drop_unsettled(&group.queue, &group.settings.group) {
        if !rest(group, stopped, &format!("delivery waits: {why}"), TRY_AGAIN) {
            return false;
        }
    }
    true
}

fn key(group: &Group) -> Key {
    (
        Arc::clone(&group.settings.queue),
        Arc::clone(&group.settings.group),
    )
}

/// The interval between two checks whether deliveries have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The interval between two tries to write the catalog of the dead letters.
const TRY_AGAIN: Duration = Duration::from_millis(500);
