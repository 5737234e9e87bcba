//! Queues and pipelines of a new configuration: what a reload opens, changes and closes, and what it refuses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::Config;

use crate::delivery::Deliveries;
use crate::live::GatewayState;
use crate::queue::{Group, Phase, Queue, Queues};
use crate::start_error::StartError;

/// What is to become of queues and pipelines, with what can be opened before anything changes open. Dropping
/// it leaves all as it is.
pub(crate) struct Requeue {
    before: Arc<Queues>,
    queues: BTreeMap<Arc<str>, Arc<Queue>>,
    deliveries: Vec<config::Delivery>,
    adjusted: Vec<(Arc<Queue>, config::Queue)>,
    gone: Vec<Arc<Queue>>,
    opened: Vec<Arc<Queue>>,
    /// Consumer groups that do not go on as they are.
    halted: Vec<Arc<Group>>,
    /// Those of them that ran.
    ran: Vec<Arc<Group>>,
    in_force: bool,
}

impl Requeue {
    /// Opens queues that are new.
    ///
    /// # Errors
    /// What needs a restart, or somebody's hand; nothing has changed then.
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
            in_force: false,
        };
        for queue in before.all().filter(|queue| !new.queues.contains_key(&queue.name)) {
            may_go(queue)?;
            requeue.gone.push(Arc::clone(queue));
        }
        for (name, settings) in &new.queues {
            let queue = match (before.get(name), old.queues.get(name)) {
                (Some(queue), Some(was)) => {
                    if was != settings {
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

    /// The queues that the new configuration's filters fill.
    pub(crate) fn queues(&self) -> &BTreeMap<Arc<str>, Arc<Queue>> {
        &self.queues
    }

    /// Whether there is nothing to do.
    fn is_nothing(&self) -> bool {
        let same = self.deliveries.len() == self.before.groups().len();
        same && self.adjusted.is_empty()
            && self.gone.is_empty()
            && self.opened.is_empty()
            && self.halted.is_empty()
    }

    /// Stops the pipelines that change, and shows everybody the new queues; before the configuration that has
    /// them is in force. If that fails then all the same, [`Requeue::back`] undoes it.
    ///
    /// # Errors
    /// When batches under way are not done in time, or a consumer group cannot be made; all is as it was
    /// then.
    pub(crate) fn put_in_force(
        &mut self,
        shared: &GatewayState,
        deliveries: &Deliveries,
    ) -> Result<(), StartError> {
        if self.is_nothing() {
            return Ok(());
        }
        let running = |group: &&Arc<Group>| group.phase() == Phase::Running;
        self.ran = self.halted.iter().filter(running).cloned().collect();
        let next = match deliveries.stop_some(&self.halted, HALT_WITHIN) {
            true => self.next(),
            false => Err(StartError::QueuesDiffer {
                key: "pipeline",
                why: "a pipeline that changes did not stop: its batches under way are not done; try again"
                    .to_owned(),
            }),
        };
        match next {
            Ok(next) => {
                shared.queues.store(Arc::new(next));
                self.in_force = true;
                Ok(())
            }
            Err(error) => {
                self.go_on(deliveries);
                Err(error)
            }
        }
    }

    /// Everything as it will be; consumer groups that stay as they are are the same ones.
    fn next(&self) -> Result<Queues, StartError> {
        let before = self.before.groups();
        let groups = self.deliveries.iter().map(|settings| {
            let same = before.iter().find(|group| group.settings == *settings);
            match same {
                Some(group) => Ok(Arc::clone(group)),
                None => Group::open(settings, &self.queues[&settings.queue]).map(Arc::new),
            }
        });
        Ok(Queues::of(self.queues.clone(), groups.collect::<Result<_, _>>()?))
    }

    /// Undoes what [`Requeue::put_in_force`] did.
    pub(crate) fn back(&mut self, shared: &GatewayState, deliveries: &Deliveries) {
        if std::mem::take(&mut self.in_force) {
            shared.queues.store(Arc::clone(&self.before));
            self.go_on(deliveries);
        }
    }

    fn go_on(&self, deliveries: &Deliveries) {
        for group in &self.ran {
            // One that is still stopping is stopped then, and says so; somebody can start it.
            if let Err(error) = deliveries.start_one(group) {
                tracing::error!(pipeline = &*group.settings.pipeline, %error, "pipeline not started again");
            }
        }
    }

    /// The new configuration is in force: quotas count, new pipelines start, queues that are gone are closed.
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
                // Stopped by hand it stays so, unless the file has a new word on it.
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
        for queue in &self.gone {
            queue.close();
            // A request that was under way may have come in between.
            let late = pending(queue);
            if late > 0 {
                let queue = &*queue.name;
                tracing::error!(
                    queue,
                    documents = late,
                    "documents came into a queue while it was removed; they are delivered once it is configured again"
                );
            }
        }
    }
}

impl Drop for Requeue {
    fn drop(&mut self) {
        // Nobody has seen them.
        for queue in self.opened.drain(..) {
            queue.close();
        }
    }
}

/// Documents that somebody has yet to deliver.
fn pending(queue: &Arc<Queue>) -> u64 {
    let account = queue.account();
    account
        .groups
        .iter()
        .map(|group| group.pending + group.parked)
        .max()
        .unwrap_or(0)
}

/// Whether a queue may be removed: nothing in it waits for anybody.
fn may_go(queue: &Arc<Queue>) -> Result<(), StartError> {
    let refused = |why: String| Err(StartError::QueuesDiffer { key: "flow", why });
    let (name, pending) = (&queue.name, pending(queue));
    if pending > 0 {
        return refused(format!(
            "the queue `{name}` is gone from the file, and has {pending} documents that are not delivered; wait for them, or restart, which leaves them on the disk"
        ));
    }
    let dead = queue.account().dead_letters();
    if dead > 0 {
        return refused(format!(
            "the queue `{name}` is gone from the file, and has {dead} dead letters; replay or purge them, or restart, which leaves them on the disk"
        ));
    }
    Ok(())
}

/// Whether an open queue can be changed to this.
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

/// So long batches under way of a pipeline that changes may take.
const HALT_WITHIN: Duration = Duration::from_secs(10);
