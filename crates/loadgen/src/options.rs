//! How a load is run.

use std::path::PathBuf;
use std::time::Duration;

use wire::{ClientTls, ClientTlsConfig, Roots, TlsError};

use crate::schedule::Schedule;

/// How a load is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Users: each has one request under way at a time.
    pub users: usize,
    /// No request is begun after so long; none: only a limit ends the run.
    pub duration: Option<Duration>,
    /// Requests in all.
    pub requests_max: Option<u64>,
    /// Rounds over all requests, by all users together.
    pub rounds_max: Option<u64>,
    /// When requests are to be sent; none: as soon as a user is free.
    ///
    /// With a schedule latency counts from the moment at which a request was to be sent, so that a server
    /// which stalls can't hide the requests that it kept from being sent.
    pub schedule: Option<Schedule>,
    /// Bodies are sent gzipped, at this level (1 to 9).
    pub gzip: Option<u32>,
    /// From a request's begin to the end of its answer.
    pub timeout: Duration,
    /// From the last byte of a request to the head of its answer; none: only `timeout` counts.
    pub read_timeout: Option<Duration>,
    /// While the server takes no byte of a request; none: `timeout`.
    pub write_timeout: Option<Duration>,
    /// For a connection to be made.
    pub dial_timeout: Duration,
    /// Note every document that is accepted, for [`verify`](crate::verify()).
    pub ledger: bool,
    /// Threads; 0: one for each core, but no more than users.
    pub cores: usize,
    /// Authorities (PEM) that servers' certificates are checked against; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Servers' certificates are not checked at all: for servers of one's own, on a network of one's own.
    pub insecure: bool,
}

// === impl Options ===

impl Default for Options {
    /// One user for five seconds.
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
