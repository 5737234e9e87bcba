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

/// Starts both threads.
pub(crate) fn start(shared: &Arc<OpenLog>, writer: &Arc<Mutex<Writer>>) -> io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str, run: fn(&OpenLog, &Mutex<Writer>)| {
        let (shared, writer) = (Arc::clone(shared), Arc::clone(writer));
        spawn(name, move || run(&shared, &writer))
    };
    let writer = thread("log-writer", write)?;
    Ok(vec![writer, thread("log-keeper", keep)?])
}

/// Starts a thread. The thread must catch its own panics, since nothing else would notice them.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// The message of a panic.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Panicked(String);

/// Runs `run` and turns a panic into an error. The process's panic hook has already reported where it
/// happened.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload.downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Panicked(text.unwrap_or("a panic").to_owned())
    })
}

/// Tells the threads to end once everything handed over is written.
pub(crate) fn tell_to_stop(shared: &OpenLog) {
    shared.calls.lock().closing = true;
    shared.bell.notify_all();
    shared.keeper_bell.notify_all();
}

/// Tells the threads to end once everything handed over is written, and waits for them.
pub(crate) fn stop(shared: &OpenLog, threads: Vec<JoinHandle<()>>) {
    tell_to_stop(shared);
    for thread in threads {
        // The threads catch their panics, so a join has nothing to report.
        let _ = thread.join();
    }
}

fn write(shared: &OpenLog, writer: &Mutex<Writer>) {
    loop {
        let due = writer.lock().sync_due_ms(shared);
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
            // The writer's state may be half changed, and what is on disk is unknown: as after a failed sync,
            // the log takes nothing more until it is opened again. Dropping this turn's records tells those
            // who wait for them.
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
        // A round needs nothing from the one before, so the next round can run.
        if let Err(why) = caught(|| retention::turn(shared, writer)) {
            let why = format!("a round of the keeper failed, which is a bug: {why}");
            shared.tell(&Event::RetentionStuck { why });
        }
    }
}
