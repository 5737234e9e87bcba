//! Reading lane by lane, at each consumer's own pace.

pub(crate) mod browse;
pub(crate) mod consumer;
pub(crate) mod extent;
pub(crate) mod groups;
pub(crate) mod reader;
pub(crate) mod totals;
