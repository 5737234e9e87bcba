//! The process of a trial.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wire::guard::{Work, thread};

use super::progress::Progress;
use super::{TrialLoad, TrialPlan};

/// A running `tidegate compare`.
pub(super) struct Process {
    child: Child,
    /// Closing it stops the process in good order.
    input: Option<ChildStdin>,
    output: oneshot::Receiver<Vec<u8>>,
    /// Told when standard error ends.
    told_all: oneshot::Receiver<()>,
    _certificates: Option<Certificates>,
}

/// How a process ended.
pub(super) struct Ended {
    status: Option<ExitStatus>,
    pub(super) figures: Option<Value>,
    is_late: bool,
}

/// A file with certificates to trust, removed when dropped.
struct Certificates(PathBuf);

// === impl Process ===

impl Process {
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        plan: &TrialPlan,
        progress: &Arc<Mutex<Progress>>,
    ) -> io::Result<Self> {
        let certificates = plan
            .ca_pem
            .as_deref()
            .map(|pem| Certificates::write(folder, &plan.indices, pem))
            .transpose()?;
        let mut command = command(program, plan);
        if let Some(Certificates(file)) = &certificates {
            command.arg("--ca").arg(file);
        }
        let mut child = command.spawn()?;
        let (sender, output) = oneshot::channel();
        let (telling, told_all) = oneshot::channel();
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        // From here on, an error drops `input`, and the process ends.
        let input = child.stdin.take();
        thread("trial-output", Work::Other, move || {
            let mut text = Vec::new();
            if let Some(out) = out {
                // What cannot be read is not parsed.
                let _ = out.take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
            }
            let _ = sender.send(text);
        })?;
        let progress = Arc::clone(progress);
        thread("trial-errors", Work::Other, move || {
            if let Some(errors) = errors {
                // What cannot be read is not told.
                let _ = each_line(BufReader::new(errors), |line| progress.lock().take(line));
            }
            let _ = telling.send(());
        })?;
        Ok(Self {
            child,
            input,
            output,
            told_all,
            _certificates: certificates,
        })
    }

    /// Waits until the process has ended. It is told to stop when `cancel` is notified and when its time is
    /// over, and is killed if it does not stop.
    pub(super) async fn until_it_ends(mut self, cancel: &Notify) -> Ended {
        let deadline = Instant::now() + TRIAL_WITHIN;
        let (mut kill_at, mut is_late) = (None, false);
        let status = loop {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => break Some(status),
                Err(error) => {
                    tracing::error!(%error, "the process of a trial is lost");
                    break None;
                }
            }
            tokio::select! {
                () = cancel.notified() => self.tell_to_stop(&mut kill_at),
                () = tokio::time::sleep(LOOK_PAUSE) => {}
            }
            let now = Instant::now();
            if now >= deadline && kill_at.is_none() {
                is_late = true;
                self.tell_to_stop(&mut kill_at);
            }
            if kill_at.is_some_and(|at| now >= at) {
                // It may have ended just now.
                let _ = self.child.kill();
            }
        };
        let _ = self.told_all.await;
        let output = self.output.await.unwrap_or_default();
        Ended {
            status,
            figures: figures(&output),
            is_late,
        }
    }

    fn tell_to_stop(&mut self, kill_at: &mut Option<Instant>) {
        self.input = None;
        kill_at.get_or_insert(Instant::now() + KILL_AFTER);
    }
}

/// Reads lines to the end. Of each it keeps more than a page shows, but not all: a cluster's words, of any
/// length, may be part of it.
fn each_line(mut from: impl io::BufRead, mut take: impl FnMut(&str)) -> io::Result<()> {
    let mut line = Vec::new();
    while from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
        if line.last() != Some(&b'\n') {
            from.skip_until(b'\n')?;
        }
        take(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
        line.clear();
    }
    Ok(())
}

fn command(program: &Path, plan: &TrialPlan) -> Command {
    let TrialLoad {
        documents,
        batch,
        rounds,
        clients,
        shards,
        replicas,
        ids,
    } = plan.load;
    let numbers = [
        ("--docs", documents),
        ("--batch", batch),
        ("--rounds", rounds),
        ("--clients", clients),
        ("--shards", shards),
        ("--replicas", replicas),
        ("--warm-up", documents / 10),
        ("--pause", 1),
        ("--count-timeout", 60),
        ("--timeout", 30),
    ];
    let mut command = Command::new(program);
    command
        .args(["compare", "--json", "--stop-at-eof", "--index", &plan.indices])
        .args(["--direct", &plan.direct.join(","), "--gateway", &plan.gateway])
        .args(numbers.map(|(name, number)| format!("{name}={number}")))
        .arg(if ids { "--no-updates" } else { "--without-ids" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The console's own variables are not meant for the cluster.
        .env_remove("TIDEGATE_USER")
        .env_remove("TIDEGATE_PASSWORD");
    if let Some((user, password)) = &plan.account {
        command
            .env("TIDEGATE_USER", user)
            .env("TIDEGATE_PASSWORD", password.expose());
    }
    if plan.insecure {
        command.arg("--insecure");
    }
    command
}

/// Returns the figures of an outcome, and the product and version of the cluster, but no other words.
fn figures(output: &[u8]) -> Option<Value> {
    let told: Value = serde_json::from_slice(output).ok()?;
    let cluster: String = told["cluster"].as_str()?.chars().take(100).collect();
    let runs = told["runs"].as_array()?;
    let flawed = runs.iter().filter(|run| !run["flaw"].is_null()).count();
    Some(json!({"cluster": cluster, "phases": told["phases"], "runs": runs.len(), "flawed_runs": flawed}))
}

// === impl Ended ===

impl Ended {
    /// Returns the word for how it ended; `asked` is the word for how it was told to.
    pub(super) fn state(&self, asked: &'static str) -> &'static str {
        match (&self.figures, self.status.and_then(|status| status.code())) {
            (Some(_), Some(0)) => "compared",
            (Some(_), Some(1)) => "flawed",
            _ if asked != "running" => asked,
            _ => "failed",
        }
    }

    /// Returns why it failed, if it was not the process that said so.
    pub(super) fn why(&self) -> Option<String> {
        let minutes = TRIAL_WITHIN.as_secs() / 60;
        match (self.is_late, self.status) {
            (true, _) => Some(format!("it was not done within {minutes} minutes")),
            (false, Some(status)) if status.code().is_none() => Some(format!("its process ended: {status}")),
            _ => None,
        }
    }
}

// === impl Certificates ===

impl Certificates {
    fn write(folder: &Path, name: &str, pem: &str) -> io::Result<Self> {
        let file = folder.join(format!("{name}.pem"));
        let mut open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?;
        let written = Self(file);
        open.write_all(pem.as_bytes())?;
        Ok(written)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // It holds nothing secret.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A trial that takes longer is told to stop.
const TRIAL_WITHIN: Duration = Duration::from_secs(30 * 60);
/// A process that was told to stop has this long to remove its indices: each question may take half a minute.
const KILL_AFTER: Duration = Duration::from_secs(120);
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
const LINE_BYTES_MAX: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_without_end_its_beginning_is_kept_and_the_lines_behind_it_are_read() {
        let mut text = b"round 1\r\n".to_vec();
        text.resize(3 << 20, b'a');
        text.extend(b"\nnot \xff UTF-8\n");
        // Exactly as long as what is kept.
        text.resize(text.len() + LINE_BYTES_MAX as usize, b'b');
        text.extend(b"\n\nround 2");
        let mut lines = Vec::new();
        each_line(&*text, |line| lines.push(line.to_owned())).unwrap();
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [7, 4096, 13, 4096, 0, 7]);
        assert_eq!((&*lines[0], &*lines[5]), ("round 1", "round 2"));
        assert_eq!(lines[2], "not \u{fffd} UTF-8");
    }
}
