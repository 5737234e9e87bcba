//! Whether a consumer group delivers, and what comes after a stop.

use std::sync::atomic::Ordering;

use crate::queue::queues::Group;

/// Whether a consumer group delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Stopped,
    Running,
    /// Delivery was told to stop, and its batches under way are not done.
    Stopping,
}

/// What happens once a delivery that is stopping has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WhenStopped {
    #[default]
    Rests,
    /// It begins anew: what it was stopped for did not come about.
    BeginsAnew,
}

impl Group {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.lock().0
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        *self.phase.lock() = (phase, WhenStopped::Rests);
    }

    /// Records that delivery was told to stop.
    pub(crate) fn stopping(&self) {
        let mut phase = self.phase.lock();
        if phase.0 == Phase::Running {
            phase.0 = Phase::Stopping;
        }
        phase.1 = WhenStopped::Rests;
        self.breaks_off.store(false, Ordering::Relaxed);
    }

    /// Has a delivery that was told to stop break off what it has under way, between two requests. What it
    /// has done of a batch is done once more after the next start.
    pub(crate) fn break_off(&self) {
        self.breaks_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn breaks_off(&self) -> bool {
        self.breaks_off.load(Ordering::Relaxed)
    }

    /// Has a delivery that is stopping begin anew once it has stopped; returns whether it is stopping.
    pub(crate) fn begin_anew_when_stopped(&self) -> bool {
        let mut phase = self.phase.lock();
        let is_stopping = phase.0 == Phase::Stopping;
        if is_stopping {
            phase.1 = WhenStopped::BeginsAnew;
        }
        is_stopping
    }

    /// Whether it delivers, and goes on unless somebody stops it.
    pub(crate) fn goes_on(&self) -> bool {
        let phase = *self.phase.lock();
        phase.0 == Phase::Running || phase == (Phase::Stopping, WhenStopped::BeginsAnew)
    }

    /// Records that delivery has ended, and no lane does anything; returns whether it begins anew.
    pub(crate) fn rest(&self) -> bool {
        self.rest_lanes();
        let mut phase = self.phase.lock();
        let anew = *phase == (Phase::Stopping, WhenStopped::BeginsAnew);
        let next = if anew { Phase::Running } else { Phase::Stopped };
        *phase = (next, WhenStopped::Rests);
        anew
    }
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Phase::Stopped => "stopped",
            Phase::Running => "running",
            Phase::Stopping => "stopping",
        }
    }
}
