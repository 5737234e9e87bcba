//! Sends each request once before the run, to check that it is what was meant.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::Unanswered;
use crate::core::{Core, CoreInput, RunState, Transcript, User};
use crate::engine::RunError;
use crate::file::Load;
use crate::options::Options;

/// One request of the warm-up and its answer.
#[derive(Debug)]
pub struct WarmUp {
    /// Method and path as the file has them.
    pub name: String,
    /// Server and target as they were sent.
    pub target: String,
    /// The answer's status, or why there is none.
    pub outcome: Result<u16, Unanswered>,
    /// The complaint about the answer, if there was one.
    pub complaint: Option<String>,
    /// Time from the first byte sent to the last byte read.
    pub took: Duration,
    /// Bytes of the body, as transferred.
    pub sent_bytes: u64,
    /// Bytes of the answer's body, unpacked.
    pub received_bytes: u64,
    /// The first kibibyte of the answer's body, unpacked.
    pub answer: Vec<u8>,
    /// Whether to ask before going on: there was no answer, or it had an error status or failed documents.
    pub doubtful: bool,
}

/// Sends each request once, in order. `see` looks at each one and says whether to go on.
///
/// # Errors
/// If nothing can be sent at all.
pub fn warm_up(
    load: &Arc<Load>,
    options: &Options,
    mut see: impl FnMut(&WarmUp) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, RunError> {
    let tls = options.tls()?;
    let flow = wire::run_local(WARM_UP_BYTES, async |worker| {
        let part = CoreInput {
            load: Arc::clone(load),
            options: Arc::new(options.clone()),
            shared: Arc::new(RunState::default()),
            tls,
            users: 1,
            begun: Instant::now(),
            interval: Arc::default(),
        };
        let core = Rc::new(Core::new(&worker, part));
        let mut user = User::of(load);
        for (at, request) in load.requests.iter().enumerate() {
            let mut seen = Transcript::default();
            let exchanged = core.exchange(at, &mut user, None, Some(&mut seen)).await;
            let allowed = |status: &u16| load.runner.valid_status_codes_during_warmup.contains(status);
            let doubtful = match &exchanged.outcome {
                Ok(status) => exchanged.complaint.is_some() && !allowed(status),
                Err(_) => !allowed(&0),
            };
            see(&WarmUp {
                name: request.name.clone(),
                target: seen.target,
                outcome: exchanged.outcome,
                complaint: exchanged.complaint,
                took: exchanged.took,
                sent_bytes: seen.sent_bytes,
                received_bytes: seen.received_bytes,
                answer: seen.received,
                doubtful,
            })?;
        }
        ControlFlow::Continue(())
    })?;
    Ok(flow)
}

const WARM_UP_BYTES: usize = 1 << 30;
