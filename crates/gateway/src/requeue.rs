//! Queues and pipelines of a new configuration: what a reload opens, changes, closes and refuses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;

use crate::delivery::Deliveries;
use crate::live::GatewayState;
use crate::queue::{Account, Group, Queue, Queues};
use crate::start_error::StartError;

/// The planned change of queues and pipelines. Everything that can be opened beforehand is already open.
/// Dropping the plan before it is in force leaves everything as it was.
pub(crate) struct Requeue {
    before: Arc<Queues>,
    queues: BTreeMap<Arc<str>, Arc<Queue>>,
    deliveries: Vec<config::Delivery>,
    adjusted: Vec<(Arc<Queue>, config::Queue)>,
    gone: Vec<Arc<Queue>>,
    opened: Vec<Arc<Queue>>,
    /// Consumer groups that the new configuration changes or removes.
    halted: Vec<Arc<Group>>,
    /// The halted groups that were running.
    ran: Vec<Arc<Group>>,
    /// Consumer groups that were not there before this change.
    created: Vec<(Arc<Queue>, Arc<str>)>,
    in_force: bool,
}

impl Requeue {
    /// Plans the change and opens the new queues.
    ///
    /// # Errors
    /// Returns what needs a restart or the operator's action. Nothing has changed then.
    pub(crate) fn prepare(before: &Arc<Queues>, old: &Config, new: &Config) -> Result<Self, StartError> {
        let mut requeue = Self {
            before: Arc::clone(before),
            queues: BTreeMap::new(),
            deliveries: new.deliveries.clone(),
            adjusted: Vec::new(),
            gone: Vec::new(),
            opened: Vec::new(),
            halted: Vec::new(),
            ran: Vec::new(),
            created: Vec::new(),
            in_force: false,
        };
        for queue in before.all().filter(|queue| !new.queues.contains_key(&queue.name)) {
            could_go(queue, before)?;
            requeue.gone.push(Arc::clone(queue));
        }
        for (name, settings) in &new.queues {
            let queue = match (before.get(name), old.queues.get(name)) {
                (Some(queue), Some(was)) => {
                    if was != settings {
                        // A start with another number of lanes leaves a queue with those it was made with.
                        let is_as_made = settings.lanes == queue.log.lanes();
                        let was = &config::Queue {
                            lanes: if is_as_made { settings.lanes } else { was.lanes },
                            ..was.clone()
                        };
                        may_change(was, settings)?;
                        requeue.adjusted.push((Arc::clone(queue), settings.clone()));
                    }
                    Arc::clone(queue)
                }
                _ => {
                    let queue = Arc::new(Queue::open(settings, &new.paths.data)?);
                    requeue.opened.push(Arc::clone(&queue));
                    queue
                }
            };
            requeue.queues.insert(Arc::clone(name), queue);
        }
        let changes = |group: &&Arc<Group>| !new.deliveries.contains(&group.settings);
        requeue.halted = before.groups().iter().filter(changes).cloned().collect();
        Ok(requeue)
    }

    /// Returns the queues that the filters of the new configuration fill.
    pub(crate) fn queues(&self) -> &BTreeMap<Arc<str>, Arc<Queue>> {
        &self.queues
    }

    /// Returns whether there is nothing to do.
    fn is_nothing(&self) -> bool {
        let same = self.deliveries.len() == self.before.groups().len();
        same && self.adjusted.is_empty()
            && self.gone.is_empty()
            && self.opened.is_empty()
            && self.halted.is_empty()
    }

    /// Stops the pipelines that change, lets removed queues run empty, and publishes the new queues, before
    /// the configuration that contains them is in force. If putting the configuration in force fails
    /// afterwards, [`Requeue::back`] undoes this step.
    ///
    /// # Errors
    /// Fails when batches under way are not done in time, when a removed queue does not run empty, or when a
    /// consumer group cannot be created. Everything is then as it was before.
    pub(crate) fn put_in_force(
        &mut self,
        shared: &GatewayState,
        deliveries: &Deliveries,
    ) -> Result<(), StartError> {
        if self.is_nothing() {
            return Ok(());
        }
        let goes_on = |group: &&Arc<Group>| group.goes_on();
        self.ran = self.halted.iter().filter(goes_on).cloned().collect();
        let changed = self.halt(deliveries).and_then(|()| self.next());
        let changed = changed.and_then(|next| {
            shared.queues.store(Arc::new(next));
            self.in_force = true;
            // Somebody may have started one of them by hand until now.
            deliveries.let_starts_finish(&self.halted);
            let started = self.halted.iter().filter(|group| group.goes_on());
            let started: Vec<_> = started.cloned().collect();
            self.ran.extend(started);
            match deliveries.stop_some(&self.halted, HALT_WITHIN) {
                true => Ok(()),
                false => Err(not_stopped()),
            }
        });
        if changed.is_err() {
            self.in_force = true;
            self.back(shared, deliveries);
        }
        changed
    }

    /// Stops the groups that change. Those of queues that go deliver on until nothing is left there, with
    /// nothing coming in any more.
    fn halt(&self, deliveries: &Deliveries) -> Result<(), StartError> {
        let goes = |group: &&Arc<Group>| self.gone.iter().any(|queue| Arc::ptr_eq(queue, &group.queue));
        let (of_gone, others): (Vec<_>, Vec<_>) = self.halted.iter().partition(goes);
        let stop = |groups: Vec<&Arc<Group>>| {
            let groups: Vec<_> = groups.into_iter().cloned().collect();
            deliveries.stop_some(&groups, HALT_WITHIN)
        };
        if !stop(others) {
            return Err(not_stopped());
        }
        for queue in &self.gone {
            queue.entrance.close();
        }
        let until = Instant::now() + EMPTY_WITHIN;
        // Other gateways deliver from a topic, too.
        for queue in self.gone.iter().filter(|queue| queue.log.on_disk().is_some()) {
            while let Err(why) = is_empty(queue) {
                let delivers = |group: &&&Arc<Group>| Arc::ptr_eq(queue, &group.queue) && group.goes_on();
                if Instant::now() > until || of_gone.iter().filter(delivers).count() == 0 {
                    return Err(why);
                }
                #[allow(clippy::disallowed_methods, reason = "no core calls this")]
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        match stop(of_gone) {
            true => Ok(()),
            false => Err(not_stopped()),
        }
    }

    /// Returns all queues and groups of the new configuration. Consumer groups that do not change are kept.
    fn next(&mut self) -> Result<Queues, StartError> {
        let before = self.before.groups();
        let mut groups = Vec::with_capacity(self.deliveries.len());
        for settings in &self.deliveries {
            if let Some(same) = before.iter().find(|group| group.settings == *settings) {
                groups.push(Arc::clone(same));
                continue;
            }
            let queue = &self.queues[&settings.queue];
            if !queue.log.consumers().iter().any(|name| *name == *settings.group) {
                self.created
                    .push((Arc::clone(queue), Arc::clone(&settings.group)));
            }
            groups.push(Arc::new(Group::open(settings, queue)?));
        }
        Ok(Queues::of(self.queues.clone(), groups))
    }

    /// Undoes what [`Requeue::put_in_force`] did.
    pub(crate) fn back(&mut self, shared: &GatewayState, deliveries: &Deliveries) {
        if !std::mem::take(&mut self.in_force) {
            return;
        }
        let replaced = shared.queues.swap(Arc::clone(&self.before));
        let groups = self.before.groups();
        let is_new = |group: &&Arc<Group>| !groups.iter().any(|before| Arc::ptr_eq(before, group));
        let new: Vec<_> = replaced.groups().iter().filter(is_new).cloned().collect();
        // Somebody may have started one of them by hand.
        deliveries.let_starts_finish(&new);
        if !deliveries.stop_some(&new, HALT_WITHIN) {
            tracing::error!(
                "a pipeline that was started during a failed reload does not stop: restart the gateway"
            );
        }
        for queue in &self.gone {
            queue.entrance.open();
        }
        // A group for which nothing delivers would keep all that is queued from now on.
        for (queue, group) in self.created.drain(..) {
            if let Some(log) = queue.log.on_disk()
                && let Err(error) = log.remove_consumer(&group)
            {
                let queue = &*queue.name;
                tracing::error!(queue, %group, %error, "a consumer group of the failed reload is still there: remove it");
            }
            if queue.log.on_disk().is_some() {
                queue.parked.forget(&group);
            }
        }
        self.go_on(deliveries);
    }

    fn go_on(&self, deliveries: &Deliveries) {
        for group in &self.ran {
            // A group that is still stopping begins anew once its batches under way are done.
            if let Err(error) = deliveries.start_one(group) {
                tracing::error!(pipeline = &*group.settings.pipeline, %error, "pipeline not started again");
            }
        }
    }

    /// Completes the change once the new configuration is in force: quotas count, new pipelines start, and
    /// removed queues are closed.
    pub(crate) fn finish(mut self, shared: &GatewayState, deliveries: &Deliveries) {
        if !std::mem::take(&mut self.in_force) {
            return;
        }
        self.opened.clear();
        for (queue, settings) in &self.adjusted {
            if let Err(error) = queue.adjust(settings) {
                tracing::error!(queue = &*queue.name, %error, "a queue keeps its limits; a restart sets them");
            }
        }
        for group in shared.queues.load().groups() {
            let before = self.before.group(&group.settings.queue, &group.settings.group);
            let runs = match before {
                Some(same) if Arc::ptr_eq(same, group) => continue,
                // A pipeline that was stopped by hand stays stopped, unless the file now enables it anew.
                Some(was) => {
                    let ran = self.ran.iter().any(|ran| Arc::ptr_eq(ran, was));
                    group.settings.enabled && (ran || !was.settings.enabled)
                }
                None => group.settings.enabled,
            };
            if runs && let Err(error) = deliveries.start_one(group) {
                tracing::error!(pipeline = &*group.settings.pipeline, %error, "pipeline not started");
            }
        }
        for queue in self.gone.drain(..) {
            queue.close();
        }
    }
}

impl Drop for Requeue {
    fn drop(&mut self) {
        // After a panic, what was to go stays.
        for queue in &self.gone {
            queue.entrance.open();
        }
        // Nothing else has seen these queues yet.
        for queue in self.opened.drain(..) {
            queue.close();
        }
    }
}

/// Returns the number of documents that some consumer group has yet to deliver.
fn pending(account: &Account<'_>) -> u64 {
    account
        .groups
        .iter()
        .map(|group| group.pending + group.parked)
        .max()
        .unwrap_or(0)
}

/// Checks that a queue may be removed as soon as nothing comes in any more: pipelines keep up with it, and
/// none of its documents needs an operator. What is in Kafka comes from other gateways, too, and is known
/// only every few seconds: there, nothing may be waiting.
fn could_go(queue: &Arc<Queue>, queues: &Queues) -> Result<(), StartError> {
    let keeps_up = |group: &Arc<Group>| group.goes_on() && group.lag().is_none_or(|lag| lag < EMPTY_WITHIN);
    let mut groups = queues.groups().iter();
    let all_keep_up = groups.all(|group| !Arc::ptr_eq(&group.queue, queue) || keeps_up(group));
    let account = queue.account();
    let parked = account.groups.iter().any(|group| group.parked > 0);
    let is_ours = queue.log.on_disk().is_some();
    match is_ours && all_keep_up && !parked && account.dead_letters() == 0 {
        true => Ok(()),
        false => is_empty(queue),
    }
}

/// Checks that nothing in a queue is waiting, and that there are no dead letters.
fn is_empty(queue: &Arc<Queue>) -> Result<(), StartError> {
    let refused = |why: String| Err(StartError::QueuesDiffer { key: "flow", why });
    let name = &queue.name;
    // In this order: what is no longer on its way is among what is pending.
    let on_its_way = !queue.entrance.is_empty() || queue.log.status().waiting_bytes > 0;
    let account = queue.account();
    let (pending, dead) = (pending(&account), account.dead_letters());
    if pending > 0 {
        return refused(format!(
            "the queue `{name}` is gone from the file, and has {pending} documents that are not delivered; wait for them, or restart, which leaves them on the disk"
        ));
    }
    if dead > 0 {
        return refused(format!(
            "the queue `{name}` is gone from the file, and has {dead} dead letters; replay or purge them, or restart, which leaves them on the disk"
        ));
    }
    match on_its_way {
        true => refused(format!(
            "the queue `{name}` is gone from the file, and requests are on their way into it; try again"
        )),
        false => Ok(()),
    }
}

fn not_stopped() -> StartError {
    StartError::QueuesDiffer {
        key: "pipeline",
        why: "a pipeline that changes did not stop: its batches under way are not done; try again".to_owned(),
    }
}

/// Checks that an open queue can change to the new settings.
fn may_change(was: &config::Queue, now: &config::Queue) -> Result<(), StartError> {
    let name = &now.name;
    let adjusted = config::Queue {
        level: now.level,
        fsync: now.fsync,
        compression: now.compression,
        bytes_max: now.bytes_max,
        free_bytes_min: now.free_bytes_min,
        spare_bytes: now.spare_bytes,
        dead_letters_bytes_max: now.dead_letters_bytes_max,
        parked_bytes_max: now.parked_bytes_max,
        parked_age_max: now.parked_age_max,
        passing: now.passing,
        ..was.clone()
    };
    let why = if was.lanes != now.lanes {
        format!(
            "the lanes of the queue `{name}` are fixed when it is made, since a document must not change its lane; for {} lanes make another queue",
            now.lanes
        )
    } else if was.cluster != now.cluster {
        format!(
            "the lanes of the queue `{name}` follow from the shards of `{}`: another cluster needs a restart when all is delivered, or another queue",
            was.cluster
        )
    } else if was.idempotency != now.idempotency {
        format!("`idempotency` of the queue `{name}` needs a restart")
    } else if adjusted != *now {
        format!("where the queue `{name}` is, and the settings of its topic, need a restart")
    } else {
        return Ok(());
    };
    Err(StartError::QueuesDiffer { key: "flow", why })
}

/// How long a changing pipeline's batches under way may take to finish.
const HALT_WITHIN: Duration = Duration::from_secs(10);
/// How long a removed queue may take to run empty. Its clients are told to come again meanwhile.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);
/// The interval between two looks whether a removed queue is empty.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
