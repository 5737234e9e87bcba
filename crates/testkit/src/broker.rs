//! A real Kafka broker for tests: the project's own server, from Maven, on the loopback address. It has three
//! listeners: one in plain text, one with TLS that requires an account, and one with TLS that requires a
//! certificate.
//!
//! ```no_run
//! let broker = testkit::broker::Broker::start()?;
//! println!("brokers: [{}]", broker.address());
//! # anyhow::Ok(())
//! ```
//!
//! [`Broker::cluster`] starts several brokers of one cluster.

mod leader;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::real::hold::root;

/// User name and password that a broker knows.
pub const ACCOUNT: (&str, &str) = ("tidegate", "between-the-tides");

/// A running broker. It ends when this value is dropped, and with the process, however the process ends.
#[derive(Debug)]
pub struct Broker {
    address: String,
    scram_port: u16,
    mutual_port: u16,
    certificates: PathBuf,
    child: Child,
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
}

impl Broker {
    /// Starts a broker on free ports, with empty storage. This takes some seconds, and the first time also
    /// the download.
    ///
    /// # Errors
    /// If the broker cannot be started: no JDK, no Maven; the error says which.
    pub fn start() -> Result<Self> {
        Self::cluster(1)
    }

    /// Starts this many brokers as one cluster. A topic may have as many replicas, and one of three brokers
    /// may be away.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn cluster(brokers: usize) -> Result<Self> {
        let mut child = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/kafka.py"))
            .arg("--dist")
            .arg(root()?.join("dist"))
            .args(["--brokers", &brokers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C at the terminal is ours; the launcher sees us end
            .spawn()
            .context("python3 is needed to start Kafka; `./dev test` installs it")?;
        let stdin = child.stdin.take().expect("asked for a pipe above");
        let mut out = BufReader::new(child.stdout.take().expect("asked for a pipe above"));
        let mut line = String::new();
        out.read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["ready", address, scram, mutual, certificates] = words.as_slice() else {
            let mut reason = String::new();
            if let Some(mut err) = child.stderr.take() {
                err.read_to_string(&mut reason)?;
            }
            child.wait()?;
            bail!("Kafka did not start (`./dev test` installs what it needs): {line}{reason}");
        };
        Ok(Self {
            address: address.to_owned(),
            scram_port: scram.parse()?,
            mutual_port: mutual.parse()?,
            certificates: certificates.into(),
            child,
            pipes: Mutex::new(Some((stdin, out))),
        })
    }

    /// `host:port`; for a cluster, the addresses of all brokers, separated by commas.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `host:port` of the listener with TLS that requires [`ACCOUNT`], with PLAIN, SCRAM-SHA-256 or
    /// SCRAM-SHA-512.
    #[must_use]
    pub fn scram_address(&self) -> String {
        format!("127.0.0.1:{}", self.scram_port)
    }

    /// `host:port` of the listener with TLS that requires a certificate, such as that of
    /// [`Broker::certificate`].
    #[must_use]
    pub fn mutual_address(&self) -> String {
        format!("127.0.0.1:{}", self.mutual_port)
    }

    /// The authority that signed the broker's certificate (PEM).
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.join("ca.pem")
    }

    /// A certificate signed by that authority, and its key (PEM).
    #[must_use]
    pub fn certificate(&self) -> (PathBuf, PathBuf) {
        (
            self.certificates.join("node.pem"),
            self.certificates.join("node.key"),
        )
    }

    /// Kills the broker (-9). Its stored data stays.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn kill(&self) -> Result<()> {
        self.command("kill")
    }

    /// Starts the broker again after [`Broker::kill`], at the same address.
    ///
    /// # Errors
    /// If the broker does not start.
    pub fn start_again(&self) -> Result<()> {
        self.command("start")
    }

    /// Kills some brokers of a cluster (-9), by their numbers from 1.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn kill_some(&self, numbers: &[usize]) -> Result<()> {
        self.command(&with_numbers("kill", numbers))
    }

    /// Starts some brokers of a cluster again, at the same addresses, and waits until all of them are there.
    /// One of three alone does not count as there.
    ///
    /// # Errors
    /// If they do not start.
    pub fn start_some(&self, numbers: &[usize]) -> Result<()> {
        self.command(&with_numbers("start", numbers))
    }

    /// Stops a broker for a while (SIGSTOP): its connections stay, and nobody answers.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn pause_one(&self, number: usize) -> Result<()> {
        self.command(&format!("pause {number}"))
    }

    /// Resumes a paused broker.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn resume_one(&self, number: usize) -> Result<()> {
        self.command(&format!("resume {number}"))
    }

    /// Returns the number of the broker that leads a partition; `None` if it has no leader now, or if no
    /// broker answers.
    #[must_use]
    pub fn leader_of(&self, topic: &str, partition: i32) -> Option<usize> {
        let mut addresses = self.address.split(',');
        addresses.find_map(|address| leader::ask(address, topic, partition).ok()?)
    }

    fn command(&self, command: &str) -> Result<()> {
        let mut pipes = self.pipes.lock();
        let (stdin, out) = pipes.as_mut().context("it is being stopped")?;
        writeln!(stdin, "{command}")?;
        let mut line = String::new();
        out.read_line(&mut line)?;
        let verb = command.split(' ').next().unwrap_or(command);
        if line.trim() != format!("done {verb}") {
            bail!("Kafka: {command}: {line}");
        }
        Ok(())
    }
}

fn with_numbers(command: &str, numbers: &[usize]) -> String {
    let numbers = numbers.iter().map(|number| format!(" {number}"));
    std::iter::once(command.to_owned()).chain(numbers).collect()
}

impl Drop for Broker {
    fn drop(&mut self) {
        // The launcher ends when its standard input ends.
        drop(self.pipes.lock().take());
        // Nothing can be done about an error here, and the launcher needs no help to end.
        let _ = self.child.wait();
    }
}
