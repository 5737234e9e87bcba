//! Replaces the running program with another one, without failing a request: an upgrade.
//!
//! The process stays, so a supervisor that watches it notices nothing; only its program changes (`execve`).
//! First the new program is tried beside the old one, which goes on working. Then the old program leaves: it
//! accepts no more connections, answers the requests under way, and releases its queues. The listening
//! sockets stay open in the process, and connections wait in them until the new program has opened the
//! queues, learnt the topologies and starts to accept. If the new program cannot do that, it puts the old one
//! back.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use gateway::Sockets;
use rustix::io::{FdFlags, fcntl_setfd};

/// The program that this process runs, and the file from which it was started.
pub(crate) struct Program {
    path: PathBuf,
    started_as: Option<Metadata>,
}

/// The inheritance of a program that takes over from an earlier one.
pub(crate) struct Left {
    pub(crate) sockets: Sockets,
    /// The earlier program, to be put back; none if this program is the one that was put back.
    before: Option<OwnedFd>,
    /// Duplicates of the sockets, for the earlier program.
    again: Sockets,
    /// The text of the configuration that was in force in the program that handed over last.
    in_force: Option<OwnedFd>,
}

// === impl Program ===

impl Program {
    /// Returns the program that runs now. Must be called at the start: once the file is replaced, the system
    /// gives another name. If it was put back, the file that is installed now has failed, and does not count
    /// as another one until it is replaced, too.
    pub(crate) fn running(put_back: bool) -> io::Result<Self> {
        let path = std::env::current_exe()?;
        // The file of a program that was put back may have been deleted.
        let name = path.to_string_lossy();
        let path = PathBuf::from(name.strip_suffix(DELETED).unwrap_or(&name));
        let started_as = match put_back {
            true => fs::metadata(&path),
            false => fs::metadata(RUNNING),
        };
        Ok(Self {
            path,
            started_as: started_as.ok(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program's file has been replaced since the program was started.
    pub(crate) fn was_replaced(&self) -> bool {
        let identity = |of: &Metadata| (of.dev(), of.ino(), of.mtime(), of.size());
        match (&self.started_as, fs::metadata(&self.path)) {
            (Some(started_as), Ok(now)) => identity(started_as) != identity(&now),
            _ => false,
        }
    }

    /// Runs the program that is installed now, and lets it check the configuration as it would at its start.
    ///
    /// # Errors
    /// The reason why the new program cannot take over, in its own words.
    pub(crate) fn try_beside(&self) -> Result<()> {
        let mut trial = Command::new(&self.path)
            .args(arguments())
            .arg(TRIAL)
            .env_remove(LEFT)
            .env_remove(IN_FORCE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be run", self.path.display()))?;
        // It must not wait for somebody to read its errors.
        let errors = trial.stderr.take();
        let told = std::thread::spawn(move || read_some(errors));
        let deadline = Instant::now() + TRIAL_TIME;
        let status = loop {
            if let Some(status) = trial.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = trial.kill();
                let _ = trial.wait();
                bail!(
                    "it has not checked the configuration within {} s",
                    TRIAL_TIME.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if status.success() {
            return Ok(());
        }
        let told = told.join().unwrap_or_default();
        bail!("its trial beside this one ended with {status}: {}", told.trim())
    }

    /// Opens the running program's file, which stays usable when its name is gone.
    pub(crate) fn keep() -> io::Result<OwnedFd> {
        File::open(RUNNING).map(OwnedFd::from)
    }

    /// Replaces this program with the one that is installed now. Returns only on failure: if the new program
    /// cannot be run, this one starts anew, and the method returns if that fails too.
    ///
    /// `in_force` are texts of the configuration: if this program is put back, it begins with the first one
    /// with which it can start, and with the file only then, since that may be why the new program could not.
    pub(crate) fn give_way(&self, sockets: &Sockets, running: &OwnedFd, in_force: &[&str]) -> anyhow::Error {
        let kept = keep_texts(in_force);
        let kept = kept.as_ref();
        let error = become_program(&self.path, sockets, Some(running), kept);
        let program = self.path.display();
        tracing::error!(%error, %program, "the new program cannot be run; the previous one starts again");
        become_program(Path::new(RUNNING), sockets, None, kept)
    }
}

/// Returns the beginning of what a trial complains of, and reads the rest, so that it comes to its end.
fn read_some(errors: Option<std::process::ChildStderr>) -> String {
    let Some(mut errors) = errors else {
        return String::new();
    };
    let mut told = Vec::new();
    let _ = errors.by_ref().take(TOLD_BYTES_MAX).read_to_end(&mut told);
    let _ = io::copy(&mut errors, &mut io::sink());
    String::from_utf8_lossy(&told).into_owned()
}

// === impl Left ===

impl Left {
    /// Finds what an earlier program in this process has left; returns none if this program is the first.
    /// Must be called once, before anything else opens files.
    ///
    /// # Errors
    /// If the variable does not describe what such a program leaves.
    pub(crate) fn find() -> Result<Option<Self>> {
        let Ok(text) = std::env::var(LEFT) else {
            return Ok(None);
        };
        let mut left = Self {
            sockets: Sockets::default(),
            before: None,
            again: Sockets::default(),
            in_force: None,
        };
        let mut parts = text.split(' ');
        // Another process may have inherited the variable in its environment; its descriptor numbers mean
        // nothing here.
        if parts.next() != Some(&std::process::id().to_string()) {
            return Ok(None);
        }
        for part in parts {
            let (name, number) = part.rsplit_once('=').ok_or_else(|| anyhow!("{LEFT}: {part}"))?;
            let number: RawFd = number.parse().with_context(|| format!("{LEFT}: {part}"))?;
            if fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_err() {
                bail!("{LEFT}: {number} is not open");
            }
            // SAFETY: The earlier program has left the descriptor open in this process, under this number,
            // for us alone; it is open, and nothing has been opened or closed here before.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
            let address = |text: &str| {
                text.parse::<SocketAddr>()
                    .with_context(|| format!("{LEFT}: {part}"))
            };
            match name.split_at_checked(1) {
                Some(("e", text)) => {
                    let address = address(text)?;
                    left.again.entries.push((address, descriptor.try_clone()?));
                    left.sockets.entries.push((address, descriptor));
                }
                Some(("a", text)) => {
                    let address = address(text)?;
                    left.again.admin = Some((address, descriptor.try_clone()?));
                    left.sockets.admin = Some((address, descriptor));
                }
                Some(("p", "")) => left.before = Some(descriptor),
                _ => bail!("{LEFT}: {part}"),
            }
        }
        left.sockets.put_back = left.before.is_none();
        left.in_force = kept_text()?;
        Ok(Some(left))
    }

    /// Returns the text of the configuration to begin with, if this program is put back.
    pub(crate) fn text(&self) -> Option<String> {
        self.texts().into_iter().next()
    }

    fn texts(&self) -> Vec<String> {
        let kept = self.in_force.as_ref().filter(|_| self.before.is_none());
        let read = |kept: &OwnedFd| -> Result<Vec<String>> {
            let mut file = File::from(kept.try_clone()?);
            file.rewind()?;
            Ok(serde_json::from_reader(file)?)
        };
        // Without them, it begins with the file.
        kept.and_then(|kept| read(kept).ok()).unwrap_or_default()
    }

    /// Replaces this program, which cannot start, with the earlier one. If this is the earlier one, starts it
    /// anew with the next configuration that may be why. Returns only if there is neither, or if that fails.
    pub(crate) fn go_back(&self) -> Option<anyhow::Error> {
        let Some(before) = self.before.as_ref() else {
            let texts = self.texts();
            let (_, others) = texts.split_first()?;
            let kept = keep_texts(others);
            return Some(become_program(
                Path::new(RUNNING),
                &self.again,
                None,
                kept.as_ref(),
            ));
        };
        let path = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
        Some(become_program(&path, &self.again, None, self.in_force.as_ref()))
    }
}

/// Keeps texts of a configuration, secrets included, in memory that only the next program of this process can
/// read. `None` if there are none, or no memory: the file is read then.
fn keep_texts<T: serde::Serialize>(texts: &[T]) -> Option<OwnedFd> {
    let keep = || -> Result<OwnedFd> {
        let kept = rustix::fs::memfd_create("tidegate-config", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = File::from(kept.try_clone()?);
        file.write_all(&serde_json::to_vec(texts)?)?;
        Ok(kept)
    };
    let kept = (!texts.is_empty()).then(keep)?;
    kept.inspect_err(|error| tracing::warn!(%error, "the configuration in force cannot be kept"))
        .ok()
}

/// Returns the text that an earlier program has kept. Programs that know nothing of it ignore its variable.
fn kept_text() -> Result<Option<OwnedFd>> {
    let Ok(text) = std::env::var(IN_FORCE) else {
        return Ok(None);
    };
    let Some((process, number)) = text.split_once(' ') else {
        bail!("{IN_FORCE}: {text}");
    };
    let number: RawFd = number.parse().with_context(|| format!("{IN_FORCE}: {text}"))?;
    if process != std::process::id().to_string()
        || fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_err()
    {
        return Ok(None);
    }
    // SAFETY: As for the sockets: the earlier program has left the descriptor open under this number, for us
    // alone.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
    Ok(Some(descriptor))
}

/// Runs the program at `path` in this one's place, and leaves it the sockets and, if it may fail, this
/// program's file; also the text of the configuration in force.
fn become_program(
    path: &Path,
    sockets: &Sockets,
    running: Option<&OwnedFd>,
    in_force: Option<&OwnedFd>,
) -> anyhow::Error {
    let mut text = std::process::id().to_string();
    let mut leave = |name: String, descriptor: BorrowedFd<'_>| {
        text.push_str(&format!(" {name}={}", descriptor.as_raw_fd()));
        fcntl_setfd(descriptor, FdFlags::empty())
    };
    let entries = sockets
        .entries
        .iter()
        .map(|(address, socket)| (format!("e{address}"), socket));
    let admin = sockets
        .admin
        .iter()
        .map(|(address, socket)| (format!("a{address}"), socket));
    let program = running.into_iter().map(|file| ("p".to_owned(), file));
    for (name, descriptor) in entries.chain(admin).chain(program) {
        if let Err(error) = leave(name, descriptor.as_fd()) {
            return anyhow!(error).context("a socket cannot be passed to the next program");
        }
    }
    let name = std::env::args_os().next().unwrap_or_else(|| "tidegate".into());
    let mut next = Command::new(path);
    next.arg0(name).args(arguments()).env(LEFT, text);
    match in_force.map(|kept| (kept, fcntl_setfd(kept, FdFlags::empty()))) {
        Some((kept, Ok(()))) => {
            let text = format!("{} {}", std::process::id(), kept.as_raw_fd());
            next.env(IN_FORCE, text);
        }
        _ => drop(next.env_remove(IN_FORCE)),
    }
    anyhow!(next.exec())
}

/// Sets the signals for the moment between two programs: a request for another upgrade or a reload is
/// ignored, and a request to end ends the process. `execve` resets signal handlers, but keeps ignored signals
/// ignored.
pub(crate) fn let_go_of_signals() {
    let ignored = [libc::SIGUSR2, libc::SIGHUP].map(|signal| (signal, libc::SIG_IGN));
    let deadly = [libc::SIGTERM, libc::SIGINT].map(|signal| (signal, libc::SIG_DFL));
    for (signal, action) in ignored.into_iter().chain(deadly) {
        // SAFETY: No handler is installed, so no code of ours can run in one.
        unsafe { libc::signal(signal, action) };
    }
}

/// The arguments of this program.
fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(1)
}

/// The variable that names what was left: the process id, and names with file descriptors.
const LEFT: &str = "TIDEGATE_LEFT";

/// The variable that names the kept configuration: the process id and a file descriptor.
const IN_FORCE: &str = "TIDEGATE_IN_FORCE";

/// The flag that makes a program check the configuration and end.
const TRIAL: &str = "--trial";

/// The program that a process runs, whatever has happened to its file.
const RUNNING: &str = "/proc/self/exe";

/// The suffix that the system adds to the name of a program whose file is gone.
const DELETED: &str = " (deleted)";

/// The most bytes of a trial's complaints that are passed on.
const TOLD_BYTES_MAX: u64 = 64 << 10;

/// Time limit for a trial, which only reads files and waits for nothing.
const TRIAL_TIME: Duration = Duration::from_secs(30);
