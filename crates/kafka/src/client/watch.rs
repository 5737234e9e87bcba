//! Watches a topic: looks up the length of its partitions and the progress of its groups at intervals, and
//! checks that the lanes have not changed. After a broker has refused a message for its size, it reads again
//! how large messages may be.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::doubt::explained;
use super::group::listen;
use super::threads::{self, caught};
use super::topic::{ASK_TIMEOUT, Inner};

/// Starts to watch the topic, until it is closed.
pub(crate) fn start(topic: &Arc<Inner>) -> io::Result<()> {
    let topic = Arc::downgrade(topic);
    threads::spawn("kafka-watch", move || run(&topic)).map(drop)
}

fn run(topic: &Weak<Inner>) {
    let (mut at, mut told) = (0, None);
    loop {
        {
            let Some(topic) = topic.upgrade().filter(|topic| !topic.is_closed()) else {
                return;
            };
            if topic.producing.limit.is_doubted() {
                caught("a topic is asked again for its largest message", || {
                    topic.ask_for_size();
                });
            }
            if at % LOOKS == 0 {
                caught("a topic is looked at again in a moment", || look(&topic));
                caught("a broker is refused, and nobody is told why", || {
                    explain(&topic, &mut told);
                });
            }
            if at % (LOOKS * SETTINGS_EVERY) == LOOKS / 2 {
                caught("a topic's settings are looked at again in a minute", || {
                    topic.look_at_compression();
                });
            }
        }
        at += 1;
        thread::sleep(LOOK_EVERY / LOOKS);
    }
}

fn look(topic: &Inner) {
    let groups = topic.groups.lock().clone();
    // What nobody hears stays in memory.
    groups.iter().for_each(|group| listen(&group.inner.probe));
    listen(&topic.probe);
    let name = &topic.options.topic;
    if let Ok(metadata) = topic.probe.fetch_metadata(Some(name), ASK_TIMEOUT) {
        let found = metadata.topics().iter().find(|topic| topic.name() == name);
        let has = found.map_or(0, |topic| topic.partitions().len());
        let was = topic.lanes;
        if has != 0 && has != was as usize {
            let why = format!(
                "topic {name} has {has} partitions now and had {was}: documents would be in other partitions than before, and overtake each other"
            );
            topic.poison().set(&why);
        }
    }
    topic.ends.begin_look();
    for lane in 0..topic.lanes {
        let Ok((low, high)) = topic.probe.fetch_watermarks(name, lane as i32, ASK_TIMEOUT) else {
            return;
        };
        topic
            .ends
            .found(lane, (low.max(0) as u64, high.max(low).max(0) as u64));
    }
    for group in groups {
        if let Err(error) = group.inner.refresh() {
            tracing::debug!(group = group.inner.id, %error, "cannot be asked about");
            return;
        }
    }
    topic.looks.fetch_add(1, Ordering::Release);
}

/// Says why a broker is refused: the library's own words do not.
fn explain(topic: &Inner, last: &mut Option<Instant>) {
    let is_soon = last.is_some_and(|last| last.elapsed() < EXPLAIN_AGAIN);
    let Some(line) = topic.probe.context().take_refusal().filter(|_| !is_soon) else {
        return;
    };
    if let Some(why) = explained(&topic.options, &line) {
        *last = Some(Instant::now());
        tracing::error!(topic = topic.options.topic, "the brokers cannot be used: {why}");
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The number of steps per interval: a close is noticed within one step.
const LOOKS: u32 = 20;
/// The looks from one look at the topic's settings to the next.
const SETTINGS_EVERY: u32 = 30;
/// How often it is said why a broker is refused.
const EXPLAIN_AGAIN: Duration = Duration::from_secs(60);
