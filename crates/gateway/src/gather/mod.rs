//! Gathers parts for a target (a node, or a shard's node), and decides when they go: while a request is under
//! way, parts for the same target wait together. The decisions are pure, from weights and times;
//! [`crate::split`] sends for clients, and [`crate::delivery`] for lanes.

mod slot;
mod slots;

pub(crate) use slot::{GROWTH_MAX, LeaveRequest, SlotAction, Target, Weight};
pub(crate) use slots::{Gathers, Slots};
