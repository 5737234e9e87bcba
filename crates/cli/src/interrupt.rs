//! Ctrl-C.

use std::io::{self, Write};

use loadgen::Stop;

/// The first SIGINT or SIGTERM ends the run in good order, the second one at once.
pub(crate) fn stop_at_interrupt(stop: &Stop, saying: &'static str) {
    let stop = stop.clone();
    let watch = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            stop.stop();
            let _ = writeln!(io::stderr(), "{saying}; again to stop at once");
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::process::exit(130);
        })
    };
    // Without it the signal ends the process at once, which is no harm.
    let _ = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || -> io::Result<()> { watch() });
}
