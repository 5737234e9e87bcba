//! A run of named steps: each is announced, timed and remembered for the table at the end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::interrupt;
use crate::terminal::{Look, paint, say};

/// The steps of one run.
pub(crate) struct Steps {
    begun: Instant,
    done: Vec<Done>,
    remarks: Vec<String>,
}

struct Done {
    name: String,
    took: Duration,
    error: Option<String>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            done: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Runs one step. A failure is kept for the end, so that one run shows all failures.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> bool {
        say(&format!("\n{}", paint(Look::Bold, &format!("== {name}"))));
        let begun = Instant::now();
        let error = work().err().map(|error| format!("{error:#}"));
        let took = begun.elapsed();
        match &error {
            None => say(&paint(Look::Dim, &format!("== {name}: ok, {}", seconds(took)))),
            Some(error) => say(&paint(
                Look::Bad,
                &format!("== {name}: FAILED after {}: {error}", seconds(took)),
            )),
        }
        let good = error.is_none();
        self.done.push(Done {
            name: name.to_owned(),
            took,
            error,
        });
        good
    }

    /// Keeps a remark for the end that somebody has to see although no step failed.
    pub(crate) fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }

    /// Prints the table, followed by the errors of failed steps, since nobody searches a long log for them.
    ///
    /// # Errors
    /// If a step failed.
    pub(crate) fn finish(self) -> Result<()> {
        say("");
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        for Done { name, took, error } in &self.done {
            let verdict = match error {
                None => paint(Look::Good, "ok"),
                Some(error) => paint(
                    Look::Bad,
                    &format!("FAILED  {}", error.lines().next().unwrap_or_default()),
                ),
            };
            say(&format!("{name:width$}  {:>8}  {verdict}", seconds(*took)));
        }
        say(&format!(
            "{:width$}  {:>8}",
            "together",
            seconds(self.begun.elapsed())
        ));
        for text in &self.remarks {
            let (first, more) = text.split_once('\n').unwrap_or((text, ""));
            say(&format!("\n{}\n{more}", paint(Look::Bad, first)));
        }
        let failed: Vec<_> = self
            .done
            .iter()
            .filter_map(|step| Some((&step.name, step.error.as_ref()?)))
            .collect();
        for (name, error) in &failed {
            if let Some((_, more)) = error.split_once('\n') {
                say(&format!("\n{}\n{more}", paint(Look::Bad, &format!("== {name}"))));
            }
        }
        let failed = failed.len();
        if failed > 0 {
            bail!("{failed} of {} steps failed", self.done.len());
        }
        Ok(())
    }
}

/// Runs a program in the workspace's folder; its output goes where ours goes.
///
/// # Errors
/// If the program can't be run or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    lines(command, false, |_| ())
}

/// Runs a program like [`run`], and calls `seen` for each line of its standard output.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_watched(command: &mut Command, seen: impl FnMut(&str)) -> Result<()> {
    lines(command, true, seen)
}

fn lines(command: &mut Command, piped: bool, mut seen: impl FnMut(&str)) -> Result<()> {
    crate::terminal::flush();
    command.current_dir(crate::root()).stdin(Stdio::null());
    if piped {
        command.stdout(Stdio::piped());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    interrupt::watch(&child);
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            say(&line);
            seen(&line);
        }
    }
    let status = child.wait()?;
    interrupt::unwatch(&child);
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("`{name} {}`: {status}", args.join(" "));
    }
    Ok(())
}

/// Returns `cargo` with these arguments, from the toolchain that started this program.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Returns a command for a program that ends when the thread that started it does, even by `kill -9`:
/// `setpriv` (util-linux) asks the kernel for that and becomes the program. Without `setpriv`, only the
/// ordinary ways of ending work.
pub(crate) fn bound_to_us(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let there = SETPRIV.get_or_init(|| Command::new("setpriv").arg("--version").output().is_ok());
    if !there {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_bound_program_does_not_outlive_us() {
        let start = || bound_to_us("sleep").arg("60").spawn().expect("sleep is there");
        let mut child = std::thread::spawn(move || {
            let child = start();
            // The thread must not end before setpriv has become sleep; until then the child would have to be
            // stopped by hand.
            std::thread::sleep(Duration::from_millis(500));
            child
        })
        .join()
        .expect("no panic");
        let begun = Instant::now();
        let status = child.wait().expect("it is ours");
        assert_eq!(status.signal(), Some(15), "{status}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
