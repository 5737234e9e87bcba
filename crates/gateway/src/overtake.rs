//! Writes that go straight to the cluster in asynchronous mode (a bulk that would not be split, a write of one document, an
//! update by query): with `queue.passing: wait` they wait until what is queued before them is delivered, so that they
//! overtake nothing.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use tokio::time::Instant;

use crate::error::Fault;
use crate::queue::{Group, Queue};

/// Waits, if the queue is to be waited for and this is a write; the answer if that takes too long: nothing of it was
/// executed then.
pub(crate) async fn wait(queue: &Queue, groups: &[Arc<Group>], head: &Parts) -> Option<Fault> {
    let within = queue.passing_waits()?;
    if !writes(&head.method, head.uri.path()) || caught_up(queue, groups, within).await {
        return None;
    }
    Some(Fault::would_overtake(&queue.name))
}

/// Whether a request may write documents.
fn writes(method: &Method, path: &str) -> bool {
    let apis = [
        "_bulk",
        "_doc",
        "_create",
        "_update",
        "_update_by_query",
        "_delete_by_query",
        "_reindex",
    ];
    !matches!(*method, Method::GET | Method::HEAD) && path.split('/').any(|segment| apis.contains(&segment))
}

/// Waits until what is in a queue now is delivered to the cluster that its clients see; whether it is by then.
async fn caught_up(queue: &Queue, groups: &[Arc<Group>], within: Duration) -> bool {
    let ours = |name: &str| {
        groups.iter().any(|group| {
            group.queue.name == queue.name
                && group.settings.cluster == queue.cluster
                && *group.settings.group == *name
        })
    };
    let until = Instant::now() + within;
    let mut goals: Option<Vec<Vec<u64>>> = None;
    let mut step = Duration::from_millis(1);
    loop {
        let (_, consumers) = queue.log.accounts();
        let lanes: Vec<_> = consumers
            .into_iter()
            .filter(|one| ours(&one.name))
            .map(|one| one.lanes)
            .collect();
        let goals = goals.get_or_insert_with(|| {
            let accepted = lanes
                .iter()
                .map(|lanes| lanes.iter().map(|lane| lane.accepted).collect());
            accepted.collect()
        });
        let mut behind = lanes
            .iter()
            .zip(&*goals)
            .flat_map(|(lanes, goals)| lanes.iter().zip(goals));
        if behind.all(|(lane, goal)| lane.done >= *goal) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(step).await;
        step = (step * 2).min(STEP_MAX);
    }
}

/// Between two looks.
const STEP_MAX: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_documents_is_told_from_what_reads_them() {
        for (method, path, expected) in [
            (Method::POST, "/_bulk", true),
            (Method::PUT, "/logs/_doc/1", true),
            (Method::DELETE, "/logs/_doc/1", true),
            (Method::POST, "/logs/_update/1", true),
            (Method::POST, "/logs/_delete_by_query", true),
            (Method::GET, "/logs/_doc/1", false),
            (Method::POST, "/logs/_search", false),
            (Method::PUT, "/logs", false),
            (Method::POST, "/logs/_refresh", false),
        ] {
            assert_eq!(writes(&method, path), expected, "{method} {path}");
        }
    }
}
