//! The eight alerts: fixed rules about what polls have found out, each with its own patience.
//!
//! [`watch`] holds the findings on the board against the rules once a second ([`judge`]), stores what begins
//! and what ends, and puts a message into the outbox for each. [`webhook`] sends the messages, in their
//! order, until the receiver has taken them. An alert about something that no longer answers stays as it is:
//! what is not known is neither good nor bad news.

mod judge;
mod message;
mod rules;
mod watch;
mod webhook;

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use judge::AlertVerdict;
pub(crate) use judge::Judge;
pub(crate) use rules::{Finding, Rule};
pub(crate) use watch::watch;
pub(crate) use webhook::{deliver, place_of, test};

/// The alerts, as the watch, the delivery and the API share them.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    pub(crate) judge: Mutex<Judge>,
    /// Beginnings and ends that are not stored yet.
    unstored: Mutex<VecDeque<AlertVerdict>>,
    pub(crate) delivery: Mutex<Delivery>,
    /// Notified when there is a message to send, or when the webhook was changed.
    pub(crate) news: Notify,
}

/// The state of the delivery since the console started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivery {
    /// When the receiver last took a message.
    pub(crate) taken_ms: Option<i64>,
    /// When and why it last did not.
    pub(crate) failed: Option<(i64, String)>,
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Messages that were given up.
    pub(crate) dropped: u64,
}
