//! The largest message that the topic accepts, as far as this process knows. The setting may be lowered while
//! the process runs. Then the brokers refuse whole batches of messages, among them small ones that they would
//! accept alone. So the first refusal says nothing about a message: the setting is read again, and what is
//! sent again is judged by that.

use parking_lot::Mutex;

/// What is known of the setting.
#[derive(Debug)]
pub(crate) struct SizeLimit(Mutex<Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    bytes: u64,
    trust: Trust,
}

/// What a broker's refusal of a message for its size means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The setting may have been lowered since it was read.
    Read,
    /// A broker has refused a message, and the setting has not been read since.
    Doubted,
    /// Nothing better is to be had: the message is too large.
    Final,
}

// === impl SizeLimit ===

impl SizeLimit {
    pub(crate) fn new(bytes: u64, trust: Trust) -> Self {
        Self(Mutex::new(Known { bytes, trust }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Records that a broker has refused a message for its size; returns whether that is the last word.
    pub(crate) fn refused(&self) -> bool {
        let mut known = self.0.lock();
        if known.trust == Trust::Read {
            known.trust = Trust::Doubted;
        }
        known.trust == Trust::Final
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.0.lock().trust == Trust::Doubted
    }

    /// Lowers the limit to what was read; returns whether that is lower.
    pub(crate) fn lower(&self, bytes: u64) -> bool {
        let mut known = self.0.lock();
        let is_lower = bytes < known.bytes;
        known.bytes = known.bytes.min(bytes);
        is_lower
    }

    pub(crate) fn trust(&self, trust: Trust) {
        self.0.lock().trust = trust;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_only_once_the_setting_cannot_explain_it() {
        let limit = SizeLimit::new(1000, Trust::Read);
        assert!(!limit.is_doubted());
        assert!(!limit.refused() && limit.is_doubted());
        assert!(limit.lower(500) && !limit.lower(500) && !limit.lower(900));
        assert_eq!(limit.bytes(), 500);
        limit.trust(Trust::Read);
        assert!(!limit.is_doubted() && !limit.refused());
        limit.trust(Trust::Final);
        assert!(limit.refused() && !limit.is_doubted());
    }
}
