//! Says why documents of a queue do not move: the reason, since when, and when that is looked at again.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::queue::accounts::GroupAccount;
use crate::queue::at_nodes::tenths;
use crate::queue::phase::Phase;
use crate::queue::queues::{Group, LaneActivity, LaneState, Queue};

/// Returns the reason why a queue accepts nothing, if there is one.
pub(crate) fn of_queue(queue: &Queue) -> Value {
    match queue.log.refuses() {
        None => Value::Null,
        Some(why) => json!(why),
    }
}

/// Returns the reasons why a consumer group's documents wait, the worst first; empty while they move, or
/// there are none.
pub(crate) fn of_group(queue: &str, account: &GroupAccount, group: Option<&Group>) -> Value {
    let mut waits = Vec::new();
    let Some(group) = group else {
        if account.pending > 0 {
            let why = "no pipeline of the configuration delivers for this group: configure one, or forget the group";
            waits.push(json!({"reason": "no_pipeline", "why": why, "documents": account.pending}));
        }
        return Value::Array(waits);
    };
    let phase = group.phase();
    if phase != Phase::Running && account.pending > 0 {
        let name = &group.settings.pipeline;
        let (reason, why) = match phase {
            Phase::Stopping => (
                "stopping",
                match group.goes_on() {
                    true => {
                        format!("the pipeline {name} finishes its batches under way and then begins anew")
                    }
                    false => format!("the pipeline {name} finishes its batches under way and then stops"),
                },
            ),
            _ => (
                "stopped",
                format!("the pipeline {name} is stopped: `tidegate pipelines start {name}` starts it"),
            ),
        };
        waits.push(json!({"reason": reason, "why": why, "documents": account.pending}));
    }
    waits.extend(of_lanes(group));
    waits.extend(of_nodes(group));
    if let Some(cannot) = group.cannot_park() {
        let why = format!(
            "what concerns one index or document stops its lane: {}",
            cannot.why
        );
        waits.push(json!({"reason": "cannot_park", "why": why}));
    }
    if account.parked > 0 {
        let why = format!(
            "they wait apart from their lanes, for an index, a request or themselves: `tidegate queues parked {queue}` \
             lists what for"
        );
        waits.push(json!({"reason": "parked", "why": why, "documents": account.parked}));
    }
    Value::Array(waits)
}

/// Returns the reasons why lanes wait; lanes with the same reason are reported together.
fn of_lanes(group: &Group) -> Vec<Value> {
    let mut alike: Vec<(LaneState, Arc<str>, Vec<usize>)> = Vec::new();
    for (lane, state) in group.states().into_iter().enumerate() {
        let Some(why) = state.why.clone() else { continue };
        match alike
            .iter_mut()
            .find(|(known, said, _)| known.activity == state.activity && *said == why)
        {
            None => alike.push((state, why, vec![lane])),
            Some((known, _, lanes)) => {
                known.since_change = known.since_change.min(state.since_change);
                known.next_try = known.next_try.into_iter().chain(state.next_try).min();
                lanes.push(lane);
            }
        }
    }
    alike.sort_by_key(|(state, _, lanes)| (rank(state.activity), std::cmp::Reverse(lanes.len())));
    let now = Instant::now();
    let told = alike.into_iter().map(|(state, why, lanes)| {
        let since = state
            .since_change
            .map(|since| tenths(now.saturating_duration_since(since)));
        let next = state
            .next_try
            .map(|next| tenths(next.saturating_duration_since(now)));
        json!({
            "reason": reason(state.activity),
            "why": why,
            "cluster": group.settings.cluster,
            "lanes": lanes,
            "for_s": since,
            "next_try_s": next,
        })
    });
    told.collect()
}

/// Returns the nodes that have had lanes' documents for some time without an answer.
fn of_nodes(group: &Group) -> Vec<Value> {
    let now = Instant::now();
    let told = group.at_nodes.slow(now).into_iter().map(|slow| {
        let (name, limit) = (&slow.node.name, slow.node.health.limiter().limit());
        let requests = if limit == 1 { "request" } else { "requests" };
        json!({
            "reason": "slow_node",
            "why": format!("the node {name} has not answered; it is sent {limit} {requests} at once at present"),
            "node": name,
            "cluster": group.settings.cluster,
            "lanes": slow.lanes,
            "documents": slow.documents,
            "for_s": tenths(now.saturating_duration_since(slow.since)),
        })
    });
    told.collect()
}

fn reason(activity: LaneActivity) -> &'static str {
    match activity {
        LaneActivity::Paused => "paused",
        LaneActivity::Retrying => "retrying",
        // The lane waits for other lanes, or for the memory that they hold.
        LaneActivity::Delivering | LaneActivity::Idle => "waiting",
    }
}

fn rank(activity: LaneActivity) -> u8 {
    match activity {
        LaneActivity::Paused => 0,
        LaneActivity::Retrying => 1,
        LaneActivity::Delivering | LaneActivity::Idle => 2,
    }
}
