//! The end of a server in good order.

/// How a drain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were open when it began.
    pub open: u64,
    /// Connections that had to be cut at the deadline.
    pub cut: u64,
}
