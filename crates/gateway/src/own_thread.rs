//! Work that waits for the disk runs on a thread of its own, beside the thread that serves requests. If the
//! system cannot start a thread (their number is limited), only the request that needed the thread fails; the
//! runtime's own method would panic.

use std::io;

use tokio::sync::oneshot;
use wire::guard::{self, Work};

/// Runs `work` on a thread of its own.
///
/// # Errors
/// Fails if no thread can be started, or if the work broke off.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    let spawned = guard::thread("own-thread", Work::Other, move || {
        // The waiting task may be gone.
        let _ = tell.send(work());
    });
    spawned.map_err(|error| io::Error::new(error.kind(), format!("no thread to do it: {error}")))?;
    told.await.map_err(|_| io::Error::other("it broke off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_breaks_off_is_an_error_and_ends_nothing_else() {
        assert_eq!(on_own_thread(|| 7).await.unwrap(), 7);
        let broken = on_own_thread(|| assert!(std::hint::black_box(false), "planted")).await;
        assert!(broken.is_err());
        assert_eq!(on_own_thread(|| 8).await.unwrap(), 8);
    }
}
