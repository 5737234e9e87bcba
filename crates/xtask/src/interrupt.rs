//! Handles Ctrl-C and SIGTERM: stops everything that was started before this process ends.

use std::process::{Child, exit};

use parking_lot::Mutex;
use testkit::real::RealCluster;
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal;

/// Process ids of children to stop with this process.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// From now on an interrupt stops registered children and held clusters, and exits with 130.
pub(crate) fn install() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let (Ok(mut int), Ok(mut term)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
            terminal::say("\ninterrupted; stopping what was started ...");
            stop_children();
            RealCluster::release_all();
            exit(130);
        });
    });
}

/// Stops this child, too, on an interrupt.
pub(crate) fn watch(child: &Child) {
    CHILDREN.lock().push(child.id());
}

/// Forgets a child that has been waited for; its id may belong to another process from now on.
pub(crate) fn unwatch(child: &Child) {
    CHILDREN.lock().retain(|id| *id != child.id());
}

fn stop_children() {
    for id in CHILDREN.lock().drain(..) {
        if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
            // The process may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}
