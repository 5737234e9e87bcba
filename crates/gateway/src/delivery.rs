//! Delivery: a thread for each queue and target cluster ([`crate::deliveries`]), a task for each lane of the queue. A lane reads what is next,
//! sends it until every operation is indexed or among the dead letters, commits, and goes on. It has one batch under
//! way, and never two operations on one document, so that nothing overtakes anything.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bulk::IdMint;
use log::{Commit, LaneReader, Mark, Next, ReadError};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use wire::Worker;

use crate::accept::Params;
use crate::batch::{Batch, Origin};
use crate::config;
use crate::dead_letters::REPLAYED;
use crate::lane::{Lane, Route, stopped};
use crate::live::Shared;
use crate::queue::{Doing, Group};

/// What a lane holds next.
enum Read {
    Batch(Box<Batch>),
    /// Documents that cannot be read any more; the log has said so.
    Lost(Mark),
    /// So many dead letters of another group, put back for it alone.
    NotOurs(Mark, u32),
}

/// Delivers until it is told to stop; ends when no lane has anything under way.
pub(crate) async fn deliver(
    shared: Arc<Shared>,
    group: Arc<Group>,
    worker: Worker,
    stop: watch::Receiver<bool>,
) {
    let lanes = group.queue.log.lanes();
    let route = Rc::new(Route {
        counters: shared.metrics.core(0),
        permits: Semaphore::new(group.settings.workers_max),
        outbound: RefCell::default(),
        ids: RefCell::new(IdMint::new(fastrand::u64(..))),
        scratch: RefCell::default(),
        shared,
        group,
        worker,
    });
    let mut running = JoinSet::new();
    for number in 0..lanes {
        match route.group.consumer.reader(number) {
            Ok(reader) => {
                let lane = Lane {
                    route: Rc::clone(&route),
                    number,
                    reader,
                    stop: stop.clone(),
                };
                running.spawn_local(lane.run());
            }
            Err(error) => route.group.set(number, Doing::Paused, Some(&error.to_string())),
        }
    }
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a lane failed; it goes on after a restart, with what it has not committed");
        }
    }
}

// === impl Lane ===

impl Lane {
    async fn run(mut self) {
        let group = Arc::clone(&self.route.group);
        loop {
            group.works_on(self.number, None);
            group.set(self.number, Doing::Idle, None);
            let ready = self.reader.ready();
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return,
                () = ready => {}
            }
            let mut dead = 0;
            let commit = match read(&mut self.reader, &group.settings) {
                Ok(Some(Read::Batch(batch))) => {
                    group.works_on(self.number, batch.origins.first().map(|origin| origin.time_ms));
                    group.set(self.number, Doing::Delivering, None);
                    match self.deliver(&batch).await {
                        Some(buried) => {
                            dead = buried;
                            batch.mark.done_with(buried)
                        }
                        None => return,
                    }
                }
                Ok(Some(Read::Lost(mark))) => mark.done(),
                Ok(Some(Read::NotOurs(mark, documents))) => mark.skipping(documents.into()),
                Ok(None) => continue,
                Err(error) => {
                    group.set(self.number, Doing::Paused, Some(&error.to_string()));
                    if self.rest(READ_AGAIN).await.is_none() {
                        return;
                    }
                    continue;
                }
            };
            if self.commit(commit).await.is_none() {
                return;
            }
            if dead > 0 {
                // Dead letters are durable: after a crash a batch that has some should not be delivered once more, and
                // perhaps with another outcome. A mark that is not written now is written soon.
                if group.consumer.flush().is_ok() {
                    let name = &*group.settings.group;
                    group.queue.dead_letters.committed(name, dead);
                }
            }
        }
    }

    /// Says that a batch is done. If that fails, somebody has moved the group: the lane goes on from where it is then.
    async fn commit(&mut self, commit: Commit) -> Option<()> {
        let consumer = &self.route.group.consumer;
        if let Err(error) = consumer.commit(&[commit]) {
            self.route
                .group
                .set(self.number, Doing::Paused, Some(&error.to_string()));
            self.rest(READ_AGAIN).await?;
            if let Ok(reader) = self.route.group.consumer.reader(self.number) {
                self.reader = reader;
            }
        }
        Some(())
    }
}

/// Reads what a lane holds next: groups of requests with the same parameters, up to a batch.
fn read(reader: &mut LaneReader, settings: &config::Delivery) -> Result<Option<Read>, ReadError> {
    let mut body = Vec::new();
    let mut batch: Option<Batch> = None;
    let mut documents = 0;
    loop {
        if batch.is_some() {
            let room = settings.batch_bytes_max.saturating_sub(body.len());
            match reader.peek()? {
                Some(next) if documents < settings.batch_docs_max && next as usize <= room => {}
                _ => break,
            }
        }
        let (before, start) = (reader.mark(), body.len());
        match (reader.next(&mut body)?, &mut batch) {
            (None, _) => break,
            (Some(Next::Lost { mark, .. }), None) => return Ok(Some(Read::Lost(mark))),
            (Some(Next::Lost { .. }), Some(_)) => {
                reader.rewind(before);
                break;
            }
            (Some(Next::Group(group)), None) if !is_for(settings, &group) => {
                return Ok(Some(Read::NotOurs(group.mark, group.documents)));
            }
            (Some(Next::Group(group)), Some(_)) if !is_for(settings, &group) => {
                body.truncate(start);
                reader.rewind(before);
                break;
            }
            (Some(Next::Group(group)), batch) => {
                let origin = Origin {
                    first: documents,
                    position: group.position,
                    time_ms: group.time_ms,
                };
                match batch {
                    Some(batch) if batch.raw_params == group.params => {
                        batch.origins.push(origin);
                        batch.mark = group.mark;
                    }
                    Some(batch) if batch.may_take(&group.params) => {
                        batch.origins.push(origin);
                        batch.mark = group.mark;
                        batch.take_minted(&group.params);
                    }
                    Some(_) => {
                        body.truncate(start);
                        reader.rewind(before);
                        break;
                    }
                    None => {
                        let params: Option<Params> = serde_json::from_slice(&group.params).ok();
                        *batch = Some(Batch::new(params, group.params, origin, group.mark));
                    }
                }
                documents += group.documents as usize;
            }
        }
    }
    Ok(batch.map(|mut batch| {
        batch.body = body;
        batch.documents = documents;
        Read::Batch(Box::new(batch))
    }))
}

/// Whether a group delivers these documents: all that clients sent, and its own dead letters.
fn is_for(settings: &config::Delivery, group: &log::Group) -> bool {
    group.kind != REPLAYED
        || serde_json::from_slice::<Params>(&group.params)
            .ok()
            .and_then(|params| params.replay)
            .is_none_or(|replay| replay.group == *settings.group)
}

/// The wait before a log that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(5);
