//! Which segments may go, and what becomes of their files.

pub(crate) mod ages;
pub(crate) mod retention;
pub(crate) mod spares;
