//! The topic for parked operations, which the brokers did not let the gateway have when it started: the
//! gateway asks for it again and again beside the delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use wire::guard::{self, Work};

use crate::queue::Group;
use crate::queue::parked::Parked;

/// A thread that asks, until it has the topic or this is dropped.
pub(super) struct ParkedTopicRequest {
    answers: mpsc::UnboundedReceiver<Option<Arc<Parked>>>,
    over: Arc<AtomicBool>,
}

impl ParkedTopicRequest {
    /// Starts to ask; `None` if the group has the topic.
    pub(super) fn begin(group: &Arc<Group>) -> Option<Self> {
        group.cannot_park()?;
        // The rate of asking bounds this channel.
        let (tell, answers) = mpsc::unbounded_channel();
        let over = Arc::new(AtomicBool::new(false));
        let (group, until) = (Arc::clone(group), Arc::clone(&over));
        let request = guard::thread("parked-topic", Work::Parked, move || ask(&group, &tell, &until));
        if let Err(error) = request {
            tracing::error!(%error, "nothing is parked before delivery starts anew");
        }
        Some(Self { answers, over })
    }
}

impl Drop for ParkedTopicRequest {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Waits for the next answer: the store of parked operations, if the gateway has it now.
pub(super) async fn told(request: &mut Option<ParkedTopicRequest>) -> Option<Arc<Parked>> {
    let told = match request {
        Some(request) => request.answers.recv().await,
        None => std::future::pending().await,
    };
    // The thread no longer asks.
    let Some(told) = told else {
        return std::future::pending().await;
    };
    told
}

fn ask(group: &Group, tell: &mpsc::UnboundedSender<Option<Arc<Parked>>>, over: &AtomicBool) {
    loop {
        for _ in 0..LOOKS {
            #[allow(clippy::disallowed_methods, reason = "this thread does nothing else")]
            std::thread::sleep(ASK_AGAIN / LOOKS);
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
        let parked = group.ask_to_park();
        let is_last = parked.is_some();
        if tell.send(parked).is_err() || is_last {
            return;
        }
    }
}

/// The interval between two questions to brokers that said no, or nothing.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The interval has this many looks at whether anybody still wants the answer.
const LOOKS: u32 = 50;
