//! Group commit: records are handed over, gather in a queue, and one thread writes and syncs them together.

pub(crate) mod append;
pub(crate) mod watermark;
pub(crate) mod writer;
pub(crate) mod written;
