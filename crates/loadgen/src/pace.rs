//! Waits for a moment with microsecond precision. Tokio's timers have only milliseconds, which would make up
//! most of the latency of a fast server.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer of one user.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The reactor treats a timer like the end of a pipe: once its moment has come, eight bytes can be read
    /// from it.
    timer: Receiver,
}

// === impl Pace ===

impl Pace {
    /// Creates a timer in the runtime of this thread.
    pub(crate) fn new() -> io::Result<Pace> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Pace {
            timer: Receiver::from_owned_fd_unchecked(timer)?,
        })
    }

    /// Waits for this time.
    pub(crate) async fn wait(&self, time: Duration) -> io::Result<()> {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: time.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: i64::from(time.subsec_nanos().max(1)),
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        loop {
            self.timer.readable().await?;
            let mut expirations = [0; 8];
            match self.timer.try_read(&mut expirations) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn waits_end_soon_after_their_moment_and_never_before() {
        let pace = Pace::new().unwrap();
        let mut late = Vec::new();
        for _ in 0..20 {
            let moment = Instant::now() + Duration::from_micros(700);
            pace.wait(moment - Instant::now()).await.unwrap();
            let now = Instant::now();
            assert!(now >= moment);
            late.push(now - moment);
        }
        late.sort();
        // A busy machine may be late now and then, but not most of the time.
        assert!(late[10] < Duration::from_millis(20), "{late:?}");
    }
}
