//! Answers that wait in memory until their clients read them.
//!
//! An answer that was made as a whole stays in memory until its last byte is sent, and its memory counts like
//! that of bodies: clients that read slowly would keep others out for hours. So while a large answer waits
//! for its client, it is known to [`relief`](crate::relief) as a body that arrives is, with the bytes that
//! the client has taken in place of those that have come. The system's own buffer takes megabytes at once and
//! then nothing for many seconds, so what counts is what the client's system has acknowledged.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::claim::{Claim, ClaimVerdict};
use crate::connection::Connection;
use crate::transmit::Transmitter;

/// The claim of one answer on its memory.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    claim: Option<Claim>,
    held: usize,
    alarm: Alarm,
}

/// Answers that hold less are nobody's burden: that much is in the system's buffers as well.
const HELD_MIN: usize = 256 << 10;

/// How often it is asked what the client has taken.
const ASKED_EVERY: Duration = Duration::from_millis(200);

// === impl Unread ===

impl Unread {
    /// Notes that an answer waits for its client. Ready when it has to make room for others.
    pub(crate) fn poll_waits(
        &mut self,
        connection: &Connection,
        transmitter: &Transmitter,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let held = transmitter.held();
        if self.claim.is_none() && held < HELD_MIN {
            return Poll::Pending;
        }
        let unsent = connection.io.borrow().stream.unsent() as u64;
        let read = transmitter.written.saturating_sub(unsent) as usize;
        let claim = self.claim.get_or_insert_with(|| {
            let claim = connection.claim();
            claim.leaves(read);
            claim
        });
        claim.arrived(read);
        match held.checked_sub(self.held) {
            Some(0) => {}
            Some(more) => claim.has(more),
            None => claim.give_back(self.held - held),
        }
        self.held = held;
        // An answer is never told to give back a part: it has none to spare.
        if let Poll::Ready(ClaimVerdict::Slow | ClaimVerdict::OverShare) = claim.poll_verdict(cx) {
            return Poll::Ready(());
        }
        self.alarm.set(Instant::now() + ASKED_EVERY);
        // It wakes the task, which then asks anew.
        let _ = self.alarm.poll(cx);
        Poll::Pending
    }
}
