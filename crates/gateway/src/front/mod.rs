//! The way of a connection's request: the listener that accepted it, the router's rule that names its flow,
//! the filters of that flow in order, the lines of the access log, and the request's span (`traced`).
//!
//! [`Listeners`] opens, adjusts and closes the sockets of the entries, with the certificates that
//! `certificate` loads. Each connection gets a `Front` (`flow`), which is one core's view of the
//! configuration in force; its `call` takes a request from its head to its answer. The filters are described
//! in [`crate::intake`] and [`crate::nodes`].

mod access_log;
mod certificate;
mod flow;
mod listening;
mod traced;

pub use access_log::ACCESS_LOG;
pub use certificate::tls_problems;
pub(crate) use certificate::{CertificateChange, TlsIdentity};
pub(crate) use listening::{Close, Listeners};
pub use listening::{Opened, Sockets};
