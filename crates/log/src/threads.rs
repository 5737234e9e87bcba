//! The log's own threads: a writer, and a keeper of cursors and segments.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Event;
use crate::retention;
use crate::shared::OpenLog;
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
    shared.calls.lock().closing = true;
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
        let due = writer
            .lock()
            .sync_due_ms(&shared.folder, shared.adjustable().fsync);
        let closing = {
            let mut calls = shared.calls.lock();
            if !calls.records && !calls.closing {
                let wait = due.map_or(Duration::from_secs(3600), Duration::from_millis);
                shared.bell.wait_for(&mut calls, wait);
            }
            calls.records = false;
            calls.closing
        };
        let written = caught(|| writer.lock().turn(shared)).unwrap_or_else(|why| {
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
        let mut calls = shared.calls.lock();
        let until = std::time::Instant::now() + shared.options.cursor_interval;
        while !calls.closing {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            shared.keeper_bell.wait_for(&mut calls, left);
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
