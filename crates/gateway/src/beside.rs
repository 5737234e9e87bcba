//! Work that waits for the disk, on a thread of its own beside the one that serves requests. Where the system
//! gives no thread (a bound on their number), that is an error of the request that wanted it; the runtime's
//! own way would panic.

use std::io;

use tokio::sync::oneshot;
use wire::guard::{self, Work};

/// Runs it beside this thread.
///
/// # Errors
/// If there is no thread, or if the work broke off.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    let spawned = guard::thread("beside", Work::Other, move || {
        // Whoever waited may have gone.
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
        assert_eq!(beside(|| 7).await.unwrap(), 7);
        let broken = beside(|| assert!(std::hint::black_box(false), "planted")).await;
        assert!(broken.is_err());
        assert_eq!(beside(|| 8).await.unwrap(), 8);
    }
}
