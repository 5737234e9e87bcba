//! Renders requests without sending them: to look at them, or to measure rendering alone.

use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;

use crate::file::Load;
use crate::variable::Draws;

/// Renders the requests of a load file.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use std::time::SystemTime;
/// use loadgen::{Load, Sampler};
///
/// let file = r#"
/// variables: [{name: id, type: sequence}]
/// requests:
///   - request:
///       method: POST
///       url: "http://localhost:9200/_bulk"
///       body: '{"delete":{"_id":"$[[id]]"}}'
///       body_repeat_times: 2
/// "#;
/// let load = Arc::new(Load::parse(file, None, Path::new(""), &|_| None)?.load);
/// let mut body = Vec::new();
/// Sampler::new(&load, 1).body(0, SystemTime::now(), &mut body);
/// assert_eq!(body, b"{\"delete\":{\"_id\":\"1\"}}\n{\"delete\":{\"_id\":\"2\"}}\n");
/// # Ok::<(), settings::Rejected>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    load: Arc<Load>,
    draws: Draws,
}

// === impl Sampler ===

impl Sampler {
    /// Draws random values from `seed`: the same seed draws the same values. Sequences continue where the
    /// load's other requests have left them; ids of type `uuid` are never the same twice.
    pub fn new(load: &Arc<Load>, seed: u64) -> Sampler {
        Sampler {
            draws: Draws::new(Arc::clone(&load.variables), seed),
            load: Arc::clone(load),
        }
    }

    /// Appends the body of the request at this place in the file, as it would be sent at `now`. Appends
    /// nothing if the request has no body.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn body(&mut self, request: usize, now: SystemTime, out: &mut Vec<u8>) {
        let request = &self.load.requests[request];
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        self.draws.begin(now, &request.needs, &request.once);
        if let Some(body) = &request.body {
            body.render(&mut self.draws, out);
        }
    }
}
