//! Exit statuses: each number means the same for every command. docs/operate.md has them as a table.

/// The answer is no: what was asked for is not there, differs, was declined, or some of it was refused.
pub(crate) const NO: u8 = 1;
/// The command was used wrongly.
pub(crate) const USAGE: u8 = 2;
/// The command could not do its work: a server can't be reached or won't answer, or a file can't be read.
pub(crate) const FAILED: u8 = 3;
/// A bug cost the gateway a thread that it needs, so it ended by itself. It has to be started again.
pub(crate) const BROKEN: u8 = 4;
/// Stopped by Ctrl-C.
pub(crate) const STOPPED: u8 = 130;
