//! What waits for a target (a node, or a shard's node), and when it goes: while a request is under way, parts
//! for the same target gather. Pure decisions about weights and times; who sends is [`crate::split`] for
//! clients and [`crate::delivery`] for lanes.

mod slot;
mod slots;

pub(crate) use slot::{Asking, GROWTH_MAX, SlotAction, Target, Weight};
pub(crate) use slots::{Gathers, Slots};
