//! The machine, and the kernel's counters of a process.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

/// The proxy's core.
pub(super) const PROXY_CORE: usize = 0;
/// The core of the load source and the fake cluster.
pub(super) const OTHER_CORE: usize = 1;

pub(super) fn cores() -> Result<usize> {
    Ok(std::thread::available_parallelism()?.get())
}

/// Describes in one line the machine that the figures were taken on.
pub(super) fn describe(load_before: &str) -> String {
    format!(
        "{}; proxy on core {PROXY_CORE}, load source and fake cluster on core {OTHER_CORE}; \
         load average {load_before} before, {} after",
        processor(),
        load_average(),
    )
}

/// Returns the processor and the kernel.
pub(super) fn processor() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches([':', '\t', ' ']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {} cores, Linux {}",
        cores().unwrap_or_default(),
        kernel.trim()
    )
}

pub(super) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Returns the CPU seconds that the threads of a process have used so far. The scheduler counts them in
/// nanoseconds. Threads that have ended are not included, and no proxy here ends threads under load.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let mut total_ns = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the proxy has ended")? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            // The thread has ended since.
            Err(error) if is_gone(&error) => continue,
            text => text?,
        };
        total_ns += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(total_ns as f64 / 1e9)
}

/// Whether a file of a thread could not be read because the thread has ended: its folder is gone, or there is
/// no thread behind it any more.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Returns the CPU seconds of a process, including threads that have ended, in hundredths.
pub(super) fn process_cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // User and system time are the 12th and 13th words after the name, which may contain anything.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let words = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = words.map(|word| word.parse::<u64>().unwrap_or_default()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the peak resident memory of a process, in MiB.
pub(super) fn peak_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seconds_of_a_process_are_read_while_its_threads_end() {
        let pid = std::process::id();
        let ended = std::sync::atomic::AtomicBool::new(false);
        let is_ended = || ended.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_ended() {
                    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| ())).collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                }
            });
            let read: Result<Vec<_>> = (0..2_000).map(|_| cpu_seconds(pid)).collect();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(read.unwrap().iter().all(|seconds| *seconds > 0.0));
        });
    }
}
