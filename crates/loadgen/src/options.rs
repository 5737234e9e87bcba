//! Options of a run.

use std::path::PathBuf;
use std::time::Duration;

use wire::{ClientTls, ClientTlsConfig, Roots, TlsError};

use crate::schedule::Schedule;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of users, each with one request under way at a time.
    pub users: usize,
    /// Time after which no request is begun; none: only a limit ends the run.
    pub duration: Option<Duration>,
    /// Number of requests in all.
    pub requests_max: Option<u64>,
    /// Number of rounds over all requests, by all users together.
    pub rounds_max: Option<u64>,
    /// The schedule of requests; none: a user sends as soon as it is free.
    ///
    /// With a schedule, latency counts from the moment at which a request was to be sent, so that a server
    /// that stalls can't hide the requests that it kept from being sent.
    pub schedule: Option<Schedule>,
    /// Compression level (1 to 9) with which bodies are sent gzipped.
    pub gzip: Option<u32>,
    /// Time limit from the beginning of a request to the end of its answer.
    pub timeout: Duration,
    /// Time limit from the last byte of a request to the head of its answer; none: only `timeout` counts.
    pub read_timeout: Option<Duration>,
    /// Time limit while the server takes no byte of a request; none: `timeout`.
    pub write_timeout: Option<Duration>,
    /// Time limit for making a connection.
    pub dial_timeout: Duration,
    /// Note every document that is accepted, for [`verify`](crate::verify()).
    pub ledger: bool,
    /// Number of threads; 0: one for each core, but no more than users.
    pub cores: usize,
    /// Certificate authorities (PEM) against which servers' certificates are checked; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Do not check servers' certificates at all: only for one's own servers, on one's own network.
    pub insecure: bool,
}

// === impl Options ===

impl Default for Options {
    /// Returns options for one user for five seconds.
    fn default() -> Self {
        Options {
            users: 1,
            duration: Some(Duration::from_secs(5)),
            requests_max: None,
            rounds_max: None,
            schedule: None,
            gzip: None,
            timeout: Duration::from_secs(60),
            read_timeout: None,
            write_timeout: None,
            dial_timeout: Duration::from_secs(3),
            ledger: false,
            cores: 0,
            ca_file: None,
            insecure: false,
        }
    }
}

impl Options {
    pub(crate) fn tls(&self) -> Result<ClientTls, TlsError> {
        let roots = match &self.ca_file {
            Some(file) => Roots::File(file.clone()),
            None => Roots::Native,
        };
        ClientTls::new(&ClientTlsConfig {
            roots,
            insecure: self.insecure,
            ..ClientTlsConfig::default()
        })
    }
}
