//! Measures how fast bodies are rendered on one core: `cargo bench -p loadgen`.
//!
//! The benchmark counts the CPU time of the thread, so other work on the machine does not matter. It renders
//! each case for a second, three times, into the same buffer, as a core of a run does; the fastest time
//! counts.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loadgen::{Load, Sampler};
use rustix::time::{ClockId, clock_gettime};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/loadgen");
    println!(
        "{:<44} {:>8} {:>14} {:>12}",
        "", "GB/s", "documents/s", "bytes/doc"
    );
    for (name, about) in [
        ("bulk.yml", "bulk.yml: 8 values a document"),
        ("sequence.yml", "sequence.yml: 3 values a document"),
    ] {
        let file = std::fs::read_to_string(folder.join(name)).expect("the example is there");
        let lines = |variable: &str| (variable == "LINES").then(|| LINES.to_string());
        let loaded = Load::parse(&file, Some(name), &folder, &lines).expect("the example is right");
        // sequence.yml sets its own number of lines.
        let lines = if name == "bulk.yml" { LINES } else { 1_000 };
        measure(about, &Arc::new(loaded.load), lines);
    }
}

fn measure(about: &str, load: &Arc<Load>, lines: usize) {
    let mut sampler = Sampler::new(load, 1);
    let mut body = Vec::new();
    let (mut best, mut length) = (0.0_f64, 0);
    for _ in 0..3 {
        let (begun, mut bytes) = (cpu(), 0);
        let mut took = Duration::ZERO;
        while took < Duration::from_secs(1) {
            for _ in 0..20 {
                body.clear();
                sampler.body(0, SystemTime::now(), &mut body);
                bytes += body.len();
            }
            took = cpu() - begun;
        }
        length = body.len() / lines;
        best = best.max(bytes as f64 / took.as_secs_f64());
    }
    println!(
        "{about:<44} {:>8.2} {:>14.0} {length:>12}",
        best / 1e9,
        best / length as f64
    );
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const LINES: usize = 5_000;
