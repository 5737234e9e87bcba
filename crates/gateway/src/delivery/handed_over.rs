//! Lanes that Kafka gives to this gateway and takes from it again, as gateways come and go. All lanes are
//! given up at each change, and only when nothing of them is under way: so no two gateways ever send for one
//! lane at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kafka::Change;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use wire::guard::{Work, spawn_in};

use crate::delivery::lane::{Lane, Route, stopped};
use crate::delivery::suspect::Suspect;
use crate::queue::Doing;

/// Delivers what is given to this gateway, until it is told to stop; ends when it has given up all lanes.
pub(crate) async fn deliver_handed_over(
    route: &Rc<Route>,
    shared: &kafka::Group,
    mut stop: watch::Receiver<bool>,
) {
    while !take_part(route, shared, stop.clone()).await {
        let why = "the thread that takes lanes from Kafka has failed, which is a bug; it begins anew";
        route.group.set(0, Doing::Paused, Some(why));
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(START_AGAIN) => {}
        }
    }
}

/// `false` if that has ended before it was to.
async fn take_part(route: &Rc<Route>, shared: &kafka::Group, mut stop: watch::Receiver<bool>) -> bool {
    let group = &route.group;
    // Bounded by what Kafka says: one assignment and one revocation at a time.
    let (tell, mut changes) = mpsc::unbounded_channel();
    let running = loop {
        let tell = tell.clone();
        // Whoever listens is there until this has ended.
        match shared.start(move |change| drop(tell.send(change))) {
            Ok(running) => break running,
            Err(error) => group.set(0, Doing::Paused, Some(&error.to_string())),
        }
        tokio::select! {
            () = stopped(&mut stop) => return true,
            () = tokio::time::sleep(START_AGAIN) => {}
        }
    };
    drop(tell);
    let mut lanes = JoinSet::new();
    let (mut end, _) = watch::channel(false);
    let mut leaving = false;
    loop {
        let change = tokio::select! {
            biased;
            () = stopped(&mut stop), if !leaving => {
                leaving = true;
                running.stop();
                continue;
            }
            change = changes.recv() => change,
            ended = lanes.join_next(), if !lanes.is_empty() => {
                drop(ended);
                // As `keep_running: false` wants it: everything is delivered.
                if lanes.is_empty() && !group.settings.keep_running && !leaving {
                    leaving = true;
                    running.stop();
                }
                continue;
            }
        };
        let (queue, name) = (&*group.queue.name, &*group.settings.group);
        match change {
            None => break,
            Some(Change::Assigned(numbers)) => {
                tracing::info!(
                    queue,
                    group = name,
                    lanes = numbers.len(),
                    "lanes came from Kafka"
                );
                let ended;
                (end, ended) = watch::channel(false);
                for number in numbers {
                    match group.consumer.reader(number) {
                        Ok(reader) => {
                            let lane = Lane {
                                route: Rc::clone(route),
                                number,
                                reader,
                                batches: 0,
                                suspect: Suspect::default(),
                                stop: ended.clone(),
                            };
                            spawn_in(&mut lanes, Work::Lane, lane.run());
                        }
                        Err(error) => group.set(number, Doing::Paused, Some(&error.to_string())),
                    }
                }
            }
            Some(Change::Revoked(handed)) => {
                end.send_replace(true);
                while lanes.join_next().await.is_some() {}
                group.rest_lanes();
                drop(handed);
            }
            Some(Change::Gone) => {
                tracing::info!(queue, group = name, "lanes went back to Kafka");
                drop_unsettled(route);
            }
        }
    }
    end.send_replace(true);
    while lanes.join_next().await.is_some() {}
    running.join();
    leaving
}

/// What died in a batch that was not committed is delivered once more, here or elsewhere, and dies there
/// anew.
fn drop_unsettled(route: &Route) {
    let group = Arc::clone(&route.group);
    let letters = &group.queue.dead_letters;
    let dropped = letters.drop_unsettled(&group.settings.group, &group.queue.committed());
    if let Err(error) = dropped {
        tracing::warn!(%error, "dead letters of batches that were not committed stay: they may be told of twice");
    }
}

const START_AGAIN: Duration = Duration::from_secs(5);
