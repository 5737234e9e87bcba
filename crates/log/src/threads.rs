//! The log's own threads: a writer, and a keeper of cursors and segments.

use std::io;
use std::sync::{Arc, Condvar, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::lock::lock;
use crate::retention;
use crate::shared::{Calls, Shared};

/// Starts both.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let thread = |name: &str, run: fn(&Shared)| {
        let shared = Arc::clone(shared);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared))
    };
    let writer = thread("log-writer", write)?;
    Ok(vec![writer, thread("log-keeper", keep)?])
}

/// Tells them to end, once everything handed over is written.
pub(crate) fn tell_to_stop(shared: &Shared) {
    lock(&shared.calls).closing = true;
    shared.bell.notify_all();
    shared.keeper_bell.notify_all();
}

/// Tells them to end, once everything handed over is written and waits.
pub(crate) fn stop(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    tell_to_stop(shared);
    for thread in threads {
        // A panic of theirs was printed when it happened; there is nothing left to wait for.
        let _ = thread.join();
    }
}

fn write(shared: &Shared) {
    loop {
        let due = lock(&shared.writer).sync_due_ms(&shared.folder, shared.adjustable().fsync);
        let closing = {
            let mut calls = lock(&shared.calls);
            if !calls.records && !calls.closing {
                let wait = due.map_or(Duration::from_secs(3600), Duration::from_millis);
                calls = wait_for(&shared.bell, calls, wait);
            }
            calls.records = false;
            calls.closing
        };
        if lock(&shared.writer).turn(shared) == 0 && closing {
            return;
        }
    }
}

fn keep(shared: &Shared) {
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
        retention::turn(shared);
    }
}

fn wait_for<'a>(bell: &Condvar, calls: MutexGuard<'a, Calls>, wait: Duration) -> MutexGuard<'a, Calls> {
    let waited = bell.wait_timeout(calls, wait);
    waited.map_or_else(|poisoned| poisoned.into_inner().0, |(calls, _)| calls)
}
