//! The log's own threads: a writer, and a keeper of cursors and segments.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Event;
use crate::lock::lock;
use crate::retention;
use crate::shared::{Calls, OpenLog};
use crate::write::writer::Writer;

/// Starts both.
pub(crate) fn start(shared: &Arc<OpenLog>, writer: &Arc<Mutex<Writer>>) -> io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str, run: fn(&OpenLog, &Mutex<Writer>)| {
        let (shared, writer) = (Arc::clone(shared), Arc::clone(writer));
        spawn(name, move || run(&shared, &writer))
    };
    let writer = thread("log-writer", write)?;
    Ok(vec![writer, thread("log-keeper", keep)?])
}

/// Starts a thread, whose panics are its own to catch: nobody else hears of them.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// A panic, and what it said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Panicked(String);

/// Runs it; what it says if it panics. The process's hook for panics has told where that was.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload.downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Panicked(text.unwrap_or("a panic").to_owned())
    })
}

/// Tells them to end, once everything handed over is written.
pub(crate) fn tell_to_stop(shared: &OpenLog) {
    lock(&shared.calls).closing = true;
    shared.bell.notify_all();
    shared.keeper_bell.notify_all();
}

/// Tells them to end, once everything handed over is written and waits.
pub(crate) fn stop(shared: &OpenLog, threads: Vec<JoinHandle<()>>) {
    tell_to_stop(shared);
    for thread in threads {
        // They catch their panics; there is nothing to be heard of it.
        let _ = thread.join();
    }
}

fn write(shared: &OpenLog, writer: &Mutex<Writer>) {
    loop {
        let due = lock(writer).sync_due_ms(&shared.folder, shared.adjustable().fsync);
        let closing = {
            let mut calls = lock(&shared.calls);
            if !calls.records && !calls.closing {
                let wait = due.map_or(Duration::from_secs(3600), Duration::from_millis);
                calls = wait_for(&shared.bell, calls, wait);
            }
            calls.records = false;
            calls.closing
        };
        let written = caught(|| lock(writer).turn(shared)).unwrap_or_else(|why| {
            // What the writer knows may be half changed, and what is on disk is known to nobody: as after a
            // failed sync, the log takes nothing more until it is opened again. Whoever waited for this
            // turn's records is told by their being dropped.
            shared.poison(&format!("the writer failed, which is a bug: {why}"));
            1
        });
        if written == 0 && closing {
            return;
        }
    }
}

fn keep(shared: &OpenLog, writer: &Mutex<Writer>) {
    loop {
        let mut calls = lock(&shared.calls);
        let until = std::time::Instant::now() + shared.options.cursor_interval;
        while !calls.closing {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            calls = wait_for(&shared.keeper_bell, calls, left);
        }
        let closing = calls.closing;
        drop(calls);
        if closing {
            return;
        }
        shared.pool.trim(std::time::Instant::now());
        // Nothing of a round is needed by the next one.
        if let Err(why) = caught(|| retention::turn(shared, writer)) {
            let why = format!("a round of the keeper failed, which is a bug: {why}");
            shared.tell(&Event::RetentionStuck { why });
        }
    }
}

fn wait_for<'a>(bell: &Condvar, calls: MutexGuard<'a, Calls>, wait: Duration) -> MutexGuard<'a, Calls> {
    let waited = bell.wait_timeout(calls, wait);
    waited.map_or_else(|poisoned| poisoned.into_inner().0, |(calls, _)| calls)
}
