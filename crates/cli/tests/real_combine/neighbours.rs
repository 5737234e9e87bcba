//! Clients whose bulks fail as a whole, or contain unparsable documents, beside other clients: nobody gets
//! another's error, or sees another's document.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::real::ClusterKind;

use crate::real::gateway::Gateway;
use crate::real::http::{Answer, Http, Request};
use crate::real::server::Server;
use crate::real::world::Prefixes;

const CLIENTS: usize = 10;
const ROUNDS: usize = 20;

/// Sends the bulks of all clients at the same moments; `bulk` makes each client's bulk from its number.
fn all_at_once(
    gateway: &Gateway,
    bulk: impl Fn(usize, usize) -> String + Sync,
) -> Result<Vec<(usize, Answer)>> {
    let together = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|who| {
                let (together, bulk) = (&together, &bulk);
                scope.spawn(move || {
                    let mut http = gateway.http();
                    let mut answers = Vec::new();
                    for round in 0..ROUNDS {
                        together.wait();
                        answers.push((who, send(&mut http, &bulk(who, round))));
                    }
                    answers
                })
            })
            .collect();
        let answers = clients
            .into_iter()
            .flat_map(|client| client.join().expect("no client panics"));
        answers.map(|(who, answer)| Ok((who, answer?))).collect()
    })
}

fn send(http: &mut Http, bulk: &str) -> Result<Answer> {
    http.send(&Request::new("POST", "/_bulk").ndjson(bulk.as_bytes().to_vec()))
}

fn statuses(answer: &Value) -> Vec<u64> {
    let items = answer["items"].as_array().into_iter().flatten();
    items
        .map(|item| item["index"]["status"].as_u64().unwrap_or(0))
        .collect()
}

fn line(index: &str, id: Option<&str>, source: &str) -> String {
    let id = id.map_or(String::new(), |id| format!(",\"_id\":\"{id}\""));
    format!("{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n{source}\n")
}

fn count(http: &mut Http, index: &str) -> Result<u64> {
    http.send(&Request::new("POST", &format!("/{index}/_refresh")))?;
    Ok(http.get(&format!("/{index}/_count"))?["count"]
        .as_u64()
        .unwrap_or(0))
}

pub(crate) fn proof(kind: ClusterKind) -> Result<()> {
    let server = Server::shared(kind)?;
    let prefix = Prefixes::fresh().direct;
    let mut http = server.http();
    let [plain, strict, one] = ["plain", "strict", "one"].map(|name| format!("{prefix}{name}"));
    for (index, shards, required) in [(&plain, 3, false), (&strict, 3, true), (&one, 1, false)] {
        http.put(
            &format!("/{index}"),
            &json!({
                "settings": {"number_of_shards": shards, "number_of_replicas": 0},
                "mappings": {"_routing": {"required": required}, "properties": {"n": {"type": "integer"}}}
            }),
        )?;
    }
    let mut gateway = Gateway::before(&server)?;
    gateway.wait_for_now(&mut http)?;
    refused_as_a_whole(&gateway, &mut http, &plain, &strict)?;
    quoted(&gateway, &plain)?;
    in_order(&gateway, &one)?;
    packed(&gateway, &mut http, &plain)?;
    long_heads(&gateway, &plain)?;
    for index in [&plain, &strict, &one] {
        http.send(&Request::new("DELETE", &format!("/{index}")))?;
    }
    Ok(())
}

/// Servers refuse headers that are too long, and then read nothing more on that connection. One of the
/// clients sends such headers.
fn long_heads(gateway: &Gateway, plain: &str) -> Result<()> {
    let act = |who: usize| -> Result<()> {
        let mut http = gateway.http();
        for round in 0..ROUNDS {
            let bulk = line(plain, Some(&format!("head-{who}-{round}")), "{}");
            let request = Request::new("POST", "/_bulk").ndjson(bulk.into_bytes());
            let (request, expected) = match who {
                0 => (request.header("x-long", &"h".repeat(17_000)), 400),
                _ => (request, 200),
            };
            let began = Instant::now();
            let status = http.send(&request)?.status;
            ensure!(
                status == expected && began.elapsed() < Duration::from_secs(20),
                "client {who}, round {round}: {status} after {:?}",
                began.elapsed()
            );
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let act = &act;
        let clients: Vec<_> = (0..CLIENTS).map(|who| scope.spawn(move || act(who))).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("no client panics"))
    })
}

/// Two of the clients have documents without the required routing.
fn refused_as_a_whole(gateway: &Gateway, http: &mut Http, plain: &str, strict: &str) -> Result<()> {
    let bulk = |who: usize, round: usize| {
        let own: String = (0..5)
            .map(|n| {
                line(
                    plain,
                    Some(&format!("{who}-{round}-{n}"))
                        .filter(|_| who.is_multiple_of(2))
                        .map(|id| &**id),
                    "{}",
                )
            })
            .collect();
        if who < 2 {
            own + &line(strict, None, "{}")
        } else {
            own
        }
    };
    let alone = send(http, &bulk(0, 999))?;
    ensure!(
        alone.status == 500 && count(http, plain)? == 0,
        "{}",
        alone.text()
    );
    let mut seen: BTreeMap<(bool, u16), usize> = BTreeMap::new();
    for (who, answer) in all_at_once(gateway, bulk)? {
        *seen.entry((who < 2, answer.status)).or_default() += 1;
        if who < 2 {
            ensure!(answer.value()? == alone.value()?, "{}", answer.text());
        } else {
            ensure!(
                statuses(&answer.value()?) == [201; 5],
                "client {who}: {}",
                answer.text()
            );
        }
    }
    ensure!(seen.len() == 2, "{seen:?}");
    let there = count(http, plain)?;
    ensure!(there == ((CLIENTS - 2) * ROUNDS * 5) as u64, "{there} documents");
    // A number is out of range: nothing of the request is executed, whatever nodes its documents are for.
    let body = (0..9)
        .map(|n| line(plain, Some(&format!("range-{n}")), "{}"))
        .collect::<String>()
        + &format!(
            "{{\"update\":{{\"_index\":\"{plain}\",\"_id\":\"u\",\"retry_on_conflict\":99999999999}}}}\n{{\"doc\":{{}}}}\n"
        );
    let (direct, through) = (send(http, &body)?, send(&mut gateway.http(), &body)?);
    ensure!(
        direct.status == through.status && direct.status >= 400,
        "{}",
        through.text()
    );
    ensure!(count(http, plain)? == there, "something of it was executed");
    let counters = gateway.counters()?;
    ensure!(
        counters.is_null() || counters["combined_requests"] != json!(0),
        "{counters}"
    );
    Ok(())
}

/// Each client has unparsable documents; its answers show nobody else's documents.
fn quoted(gateway: &Gateway, plain: &str) -> Result<()> {
    let bulk = |who: usize, round: usize| {
        let fine = format!("{{\"t\":\"secret-of-{who}-\"}}");
        let mut lines: String = (0..3)
            .map(|n| line(plain, Some(&format!("q{who}-{round}-{n}")), &fine))
            .collect();
        for (n, bad) in [
            r#"{"t":"\x"}"#,
            r#"{"n":1,"n":2}"#,
            r#"{"n":{"a":1}}"#,
            r#"{"n":tru}"#,
        ]
        .iter()
        .enumerate()
        {
            let id = format!("q{who}-{round}-bad-{n}");
            lines.push_str(&line(
                plain,
                Some(&id).filter(|_| who.is_multiple_of(2)).map(|id| &**id),
                bad,
            ));
        }
        lines
    };
    for (who, answer) in all_at_once(gateway, bulk)? {
        let text = answer.text();
        for other in (0..CLIENTS).filter(|other| *other != who) {
            ensure!(
                !text.contains(&format!("secret-of-{other}-")),
                "client {who} sees {other}'s: {text}"
            );
        }
        let answer = answer.value()?;
        ensure!(statuses(&answer) == [201, 201, 201, 400, 400, 400, 400], "{text}");
        let causes = answer["items"].as_array().into_iter().flatten().skip(3);
        for item in causes {
            let cause = &item["index"]["error"]["caused_by"]["reason"];
            ensure!(
                cause.as_str().is_some_and(|cause| cause.contains("[Source: ")),
                "{item}"
            );
        }
    }
    Ok(())
}

/// A shard numbers the operations in the client's order.
fn in_order(gateway: &Gateway, one: &str) -> Result<()> {
    let mut http = gateway.http();
    for round in 0..10 {
        let body: String = (0..20)
            .map(|n| {
                line(
                    one,
                    Some(&format!("{round}-{n}"))
                        .filter(|_| n % 3 > 0)
                        .map(|id| &**id),
                    "{}",
                )
            })
            .collect();
        let answer = send(&mut http, &body)?.value()?;
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        let numbers: Vec<_> = items
            .iter()
            .map(|item| item["index"]["_seq_no"].as_u64())
            .collect();
        let expected: Vec<_> = (round * 20..(round + 1) * 20).map(Some).collect();
        ensure!(numbers == expected, "round {round}: {numbers:?}");
    }
    Ok(())
}

/// Answers are compressed as the cluster itself compresses them.
fn packed(gateway: &Gateway, http: &mut Http, plain: &str) -> Result<()> {
    let body: String = (0..50)
        .map(|n| line(plain, Some(&format!("p{n}")), "{}"))
        .collect();
    for accepts in ["gzip", "identity, gzip;q=0.1", "gzip;q=0", "GZIP"] {
        let ask = Request::new("POST", "/_bulk")
            .ndjson(body.clone().into_bytes())
            .header("Accept-Encoding", accepts);
        let (direct, through) = (http.send(&ask)?, gateway.http().send(&ask)?);
        let coding = |answer: &Answer| answer.header("content-encoding");
        ensure!(
            coding(&direct) == coding(&through),
            "{accepts}: {:?}",
            coding(&through)
        );
        ensure!(
            through.value()?["items"]
                .as_array()
                .is_some_and(|items| items.len() == 50)
        );
    }
    Ok(())
}

#[test]
fn neighbours_on_opensearch_3() -> Result<()> {
    proof(ClusterKind::OpenSearch)
}

#[test]
fn neighbours_on_elasticsearch_7() -> Result<()> {
    proof(ClusterKind::Elasticsearch7)
}
