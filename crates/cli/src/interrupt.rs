//! Ctrl-C, and SIGTERM, which means the same; and the end of standard input.

use std::io::{self, Read, Write};

use loadgen::Stop;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, caught from the moment that this value is made.
struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

/// Waits for SIGINT or SIGTERM.
pub(crate) fn wait() -> io::Result<()> {
    Signals::catch()?.next();
    Ok(())
}

/// Stops the run in good order at the first SIGINT or SIGTERM, and ends the process at the second one.
pub(crate) fn stop_at_interrupt(stop: &Stop, saying: &'static str) {
    let stop = stop.clone();
    let watch = move || -> io::Result<()> {
        let mut signals = Signals::catch()?;
        signals.next();
        stop.stop();
        let _ = writeln!(io::stderr(), "{saying}; again to stop at once");
        signals.next();
        std::process::exit(130);
    };
    // Without this thread the signal ends the process at once, which does no harm.
    let _ = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch);
}

/// Stops the run in good order when standard input ends. It does so when the process at its other end closes
/// it, and also when that process is killed.
pub(crate) fn stop_at_end_of_input(stop: &Stop) -> io::Result<()> {
    let stop = stop.clone();
    let watch = move || {
        let mut input = io::stdin().lock();
        let mut unused = [0; 512];
        loop {
            match input.read(&mut unused) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        stop.stop();
    };
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(watch)?;
    Ok(())
}

// === impl Signals ===

impl Signals {
    fn catch() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (interrupt, terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        Ok(Self {
            runtime,
            interrupt,
            terminate,
        })
    }

    fn next(&mut self) {
        let (interrupt, terminate) = (&mut self.interrupt, &mut self.terminate);
        self.runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
    }
}
