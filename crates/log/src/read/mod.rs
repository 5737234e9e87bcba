//! Reading lane by lane at each consumer's own pace, and what a consumer has done: its cursor.

pub(crate) mod browse;
pub(crate) mod consumer;
pub(crate) mod cursor;
pub(crate) mod extent;
pub(crate) mod places;
pub(crate) mod reader;
