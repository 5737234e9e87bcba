//! All limits of a server, in one place. Each is configurable, and nothing is unlimited.

use std::time::Duration;

/// The limits of one listener's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of request line and headers together; more is answered with 431.
    pub head_bytes_max: usize,
    /// The most header lines; more is answered with 431.
    pub header_count_max: usize,
    /// The most bytes of a request target; more is answered with 414.
    pub target_bytes_max: usize,
    /// The most bytes of a body as it comes over the wire; more is answered with 413 (at once when declared).
    pub body_bytes_max: u64,
    /// The longest time from the first byte of a head to its end (slow clients), and for a TLS handshake.
    pub head_timeout: Duration,
    /// The longest time without a single body byte.
    pub body_idle_timeout: Duration,
    /// The least rate of a client that is tolerated, in bytes per second, in each `body_idle_timeout` of
    /// waiting for its body and each `write_timeout` of waiting for it to take our reply; 0 allows any rate.
    pub body_rate_min: u64,
    /// The longest time without a request on a kept connection.
    pub keep_alive_timeout: Duration,
    /// The longest time without the client taking a byte of our reply.
    pub write_timeout: Duration,
    /// The longest time that a body waits for room under the byte budget before it is refused as over budget.
    pub budget_wait: Duration,
    /// The most connections at a time over all cores; beyond that new ones are closed on arrival.
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
