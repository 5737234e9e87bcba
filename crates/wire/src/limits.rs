//! Everything a server bounds, in one place. All of it is configurable; nothing is unlimited.

use std::time::Duration;

/// Bounds for one listener's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Request line and headers together, bytes. More is 431.
    pub head_bytes_max: usize,
    /// Header lines. More is 431.
    pub header_count_max: usize,
    /// Request target, bytes. More is 414.
    pub target_bytes_max: usize,
    /// Body as it comes over the wire, bytes. More is 413 (at once when declared).
    pub body_bytes_max: u64,
    /// From the first byte of a head to its end (slow clients), and for a TLS handshake.
    pub head_timeout: Duration,
    /// Without a single body byte.
    pub body_idle_timeout: Duration,
    /// Slowest client that is tolerated, bytes per second, in each `body_idle_timeout` of waiting for its
    /// body and each `write_timeout` of waiting for it to take our reply; 0: any.
    pub body_rate_min: u64,
    /// Without a request on a kept connection.
    pub keep_alive_timeout: Duration,
    /// Without the client taking a byte of our reply.
    pub write_timeout: Duration,
    /// How long a body waits for room under the byte budget before it is refused as over budget.
    pub budget_wait: Duration,
    /// Connections at a time over all cores; beyond it new ones are closed as they come.
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 64 << 10,
            header_count_max: 100,
            target_bytes_max: 16 << 10,
            body_bytes_max: 100 << 20,
            head_timeout: Duration::from_secs(15),
            body_idle_timeout: Duration::from_secs(30),
            body_rate_min: 1 << 10,
            keep_alive_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
            budget_wait: Duration::from_secs(5),
            connections_max: 200_000,
        }
    }
}
