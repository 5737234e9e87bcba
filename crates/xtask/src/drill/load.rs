//! The load: clients that each send one request after another, and enter into the ledger what became of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde_json::Value;
use testkit::client::{Answer, Client};

use super::ledger::{Kind, Ledger, Request, Told, Write};
use super::schedule::Setup;
use super::world::UNFIT;

/// Writes until it is told to stop.
///
/// # Errors
/// When an answer is not what the API promises.
pub(crate) fn write_until(
    stop: &AtomicBool,
    ledger: &Ledger,
    setup: &Setup,
    (url, index): (&str, &str),
    mut rng: Rng,
) -> Result<()> {
    let (path, begun) = (format!("/{index}/_bulk"), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let age_ms = u64::try_from(begun.elapsed().as_millis())?;
        let fresh = format!("{index}-new-{}", age_ms / setup.index_ms);
        let mut writes = writes(ledger, setup, &fresh, &mut rng);
        let body = body(&writes, &mut rng);
        // A client for each request: a connection that broke while it was idle would make another kind of failure.
        let client = Client::build(url, None, ANSWER_MAX)?;
        let first = ledger.process();
        let sent = ledger.now();
        let answer = client.post_ndjson(&path, body.as_bytes());
        let ended = ledger.now();
        let told = match &answer {
            Err(_) => Told::Nothing,
            Ok(answer) => told(answer, &mut writes)?,
        };
        let is_good = matches!(told, Told::Queued(_));
        ledger.enter(Request {
            sent,
            ended,
            processes: (first, ledger.process()),
            told,
            writes,
        });
        let pause = rng.u64(..=setup.pause_ms) + if is_good { 0 } else { AFTER_FAILURE_MS };
        std::thread::sleep(Duration::from_millis(pause));
    }
    Ok(())
}

/// Reads an answer; ids that the gateway made are written down.
fn told(answer: &Answer, writes: &mut [Write]) -> Result<Told> {
    if answer.status != 200 {
        return Ok(Told::Refused(answer.status));
    }
    let Some(ack) = answer.header("x-tidegate-ack") else {
        return Ok(Told::Passed);
    };
    let position = ack
        .rsplit_once("position=")
        .and_then(|(_, position)| position.parse().ok());
    let position = position.with_context(|| format!("no position in {ack:?}"))?;
    let answer = answer.json()?;
    let items = answer["items"].as_array().context("items in an answer")?;
    anyhow::ensure!(
        answer["errors"] == false && items.len() == writes.len(),
        "{} items for {} operations, errors {}",
        items.len(),
        writes.len(),
        answer["errors"]
    );
    for (item, write) in items.iter().zip(writes) {
        let item = item.as_object().and_then(|item| item.values().next());
        let id = item
            .and_then(|item| item["_id"].as_str())
            .context("an id in an item")?;
        match &write.id {
            Some(sent) => anyhow::ensure!(sent == id, "the item of {sent} says {id}"),
            None => write.id = Some(id.to_owned()),
        }
    }
    Ok(Told::Queued(position))
}

/// The operations of a request: documents of its own, with and without ids, and documents that everybody writes to. One
/// of its own is always there and will be taken, so that what became of a request shows.
fn writes(ledger: &Ledger, setup: &Setup, fresh: &str, rng: &mut Rng) -> Vec<Write> {
    let count = rng.usize(1..=setup.docs_max);
    let mut deleted = Vec::new();
    let one = |number: usize| {
        let token = ledger.token();
        let is_own = number == 0 || rng.u32(..100) < 40;
        if is_own {
            let index = (rng.u32(..8) == 0).then(|| fresh.to_owned());
            return Write {
                id: rng.bool().then(|| format!("u{token}")),
                kind: Kind::Create,
                token,
                // A new index takes it for what its field is.
                unfit: number > 0 && setup.with_unfit() && index.is_none() && rng.u32(..40) == 0,
                only: true,
                index,
            };
        }
        let id = format!("s{}", rng.u64(..setup.shared_ids));
        let kind = match rng.u32(..10) {
            // At most one for a document: a dead letter of a delete names nothing but that.
            0 if !deleted.contains(&id) => Kind::Delete,
            1..=3 => Kind::Update,
            _ => Kind::Index,
        };
        if kind == Kind::Delete {
            deleted.push(id.clone());
        }
        Write {
            id: Some(id),
            kind,
            token,
            unfit: kind != Kind::Delete && setup.with_unfit() && rng.u32(..40) == 0,
            only: false,
            index: None,
        }
    };
    let mut writes: Vec<Write> = (0..count).map(one).collect();
    rng.shuffle(&mut writes);
    writes
}

fn body(writes: &[Write], rng: &mut Rng) -> String {
    let mut text = String::new();
    for write in writes {
        let operation = match write.kind {
            Kind::Create => "create",
            Kind::Index => "index",
            Kind::Update => "update",
            Kind::Delete => "delete",
        };
        let id = write.id.iter().map(|id| format!("\"_id\":\"{id}\""));
        let index = write.index.iter().map(|index| format!("\"_index\":\"{index}\""));
        let meta: Vec<String> = index.chain(id).collect();
        text.push_str(&format!("{{\"{operation}\":{{{}}}}}\n", meta.join(",")));
        if write.kind == Kind::Delete {
            continue;
        }
        let n = match write.unfit {
            true => Value::from(format!("{UNFIT}-{}", write.token)),
            false => Value::from(rng.u32(..)),
        };
        let padding = "x".repeat(rng.usize(..200));
        let source = format!("{{\"w\":{},\"n\":{n},\"p\":\"{padding}\"}}", write.token);
        match write.kind {
            Kind::Update => text.push_str(&format!("{{\"doc\":{source},\"doc_as_upsert\":true}}\n")),
            _ => text.push_str(&format!("{source}\n")),
        }
    }
    text
}

/// A client that waits longer than this has no answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Clients that failed wait a little.
const AFTER_FAILURE_MS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::schedule::Schedule;

    #[test]
    fn every_request_has_an_operation_of_its_own_that_will_be_taken_and_one_delete_a_document() {
        let (ledger, mut rng) = (Ledger::default(), Rng::with_seed(1));
        for seed in 0..50 {
            let setup = Schedule::fake(seed, false).setup;
            let writes = writes(&ledger, &setup, "new", &mut rng);
            assert!(writes.iter().any(|write| write.only && !write.unfit));
            let deletes = |id: &Option<String>| {
                writes
                    .iter()
                    .filter(|write| write.kind == Kind::Delete && write.id == *id)
                    .count()
            };
            assert!(writes.iter().all(|write| deletes(&write.id) <= 1));
            let lines = body(&writes, &mut rng);
            for line in lines.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
    }
}
