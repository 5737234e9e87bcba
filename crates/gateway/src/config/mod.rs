//! The configuration: a YAML file in the vocabulary that users know, checked as a whole before anything runs.

mod runtime;
mod secret;

pub use runtime::*;
pub use secret::{MASK, Secret};

use std::net::SocketAddr;
use std::path::Path;

/// A configuration and what there is to say about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to run.
    pub config: Config,
    /// Accepted, but worth a line in the log each: keys that mean nothing any more, risky settings.
    pub warnings: Vec<Problem>,
}

/// One thing that is wrong, or worth a warning, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What, in one sentence.
    pub message: String,
}

/// Everything that is wrong with a file. `Display` shows all of it, one problem a paragraph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problems:?}")]
pub struct Rejected {
    /// In the file's order; never empty.
    pub problems: Vec<Problem>,
}

/// What the command line says in a file's place.
#[derive(Clone, Debug)]
pub struct QuickStart {
    /// `--cluster`: URL of any node; may carry `user:password@`.
    pub cluster: String,
    /// `--listen`.
    pub listen: SocketAddr,
    /// Take any certificate of the cluster.
    pub insecure_skip_verify: bool,
    /// Authorities (PEM) in place of the system's.
    pub ca_file: Option<std::path::PathBuf>,
    /// Send requests without credentials with the account in `cluster`.
    pub anonymous: Anonymous,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it, with places.
    pub fn load(_file: &Path) -> Result<Loaded, Rejected> {
        Err(Rejected { problems: Vec::new() })
    }

    /// Without a file: one entry, one cluster, bulk requests split by node, everything else forwarded.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn quick_start(_from: &QuickStart) -> Result<Loaded, Rejected> {
        Err(Rejected { problems: Vec::new() })
    }
}
