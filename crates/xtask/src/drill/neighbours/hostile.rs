//! What hostile clients do: one table, to which a line is added for each new way to be a bad neighbour.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::place::{Fabric, Gateway};

/// A way to be a bad neighbour.
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    act: fn(&mut Scene<'_>) -> Result<()>,
    /// Where it is among what each run does.
    part: Part,
}

/// Which runs have it without being asked for it by name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// Fake clusters do not know it.
    Real,
    /// Good clients suffer from it still; docs/drill.md says so.
    None,
}

/// A hostile client: where it is and for how long.
pub(super) struct Scene<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) fabric: &'a Fabric,
    /// The last number of the address that it connects from.
    pub(super) from: u8,
    pub(super) until: Instant,
    pub(super) rng: Rng,
}

/// All of them.
pub(super) const TABLE: &[Behaviour] = &[
    all("declared-bodies", declared_bodies),
    all("many-bodies", many_bodies),
    all("trickled-heads", trickled_heads),
    all("trickled-admin", trickled_admin),
    all("broken-http", broken_http),
    all("broken-json", broken_json),
    all("large-bulks", large_bulks),
    all("large-searches", large_searches),
    all("large-dead-letters", large_dead_letters),
    all("new-indices", new_indices),
    part("alias-swaps", alias_swaps, Part::Real),
    part("many-keys", many_keys, Part::None),
    part("bad-parameters", bad_parameters, Part::None),
    part("vendor-types", vendor_types, Part::None),
    part("impossible-shards", impossible_shards, Part::None),
    part("blocked-index", blocked_index, Part::None),
    part("closed-index", closed_index, Part::None),
    part("alias-without-write-index", alias_without_write_index, Part::None),
    part("routing-required", routing_required, Part::None),
];

const fn all(name: &'static str, act: fn(&mut Scene<'_>) -> Result<()>) -> Behaviour {
    part(name, act, Part::All)
}

const fn part(name: &'static str, act: fn(&mut Scene<'_>) -> Result<()>, part: Part) -> Behaviour {
    Behaviour { name, act, part }
}

/// Those that a run has.
///
/// # Errors
/// When `only` is not in the table.
pub(super) fn wanted(only: Option<&str>, real: bool) -> Result<Vec<&'static Behaviour>> {
    let wanted: Vec<&Behaviour> = TABLE
        .iter()
        .filter(|one| match only {
            Some(name) => one.name == name,
            None => one.part == Part::All || real && one.part == Part::Real,
        })
        .collect();
    if wanted.is_empty() {
        let names: Vec<&str> = TABLE.iter().map(|one| one.name).collect();
        bail!("no such behaviour; there are {}", names.join(", "));
    }
    Ok(wanted)
}

impl Scene<'_> {
    /// Does one thing after another. What becomes of it is of no interest.
    pub(super) fn play(mut self, behaviours: &[&'static Behaviour], acts: &AtomicU64) {
        while Instant::now() < self.until {
            if let Some(behaviour) = self.rng.choice(behaviours) {
                let _ = (behaviour.act)(&mut self);
                acts.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(self.fabric.pause() * self.rng.u32(1..4));
        }
    }

    /// One of the two entries: before the queue, or straight to the cluster.
    fn entry(&mut self) -> SocketAddr {
        self.gateway.entry(self.rng.bool())
    }

    fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, self.from], 0)).into())?;
        socket.connect_timeout(&to.into(), Duration::from_secs(1))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(socket.into())
    }

    /// Sends a whole request; waits a moment for the answer's beginning.
    fn request(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<String> {
        let to = self.entry();
        let mut socket = self.connect(to)?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes())?;
        socket.write_all(body)?;
        let mut answer = vec![0; 4096];
        let count = socket.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
    }

    fn bulk(&mut self, path: &str, body: &str) -> Result<String> {
        self.request("POST", path, NDJSON, body.as_bytes())
    }

    /// Holds sockets for a while and sends a little on each now and then.
    fn hold(&mut self, mut sockets: Vec<TcpStream>, bit: &[u8], pause: Duration) {
        let brief = Duration::from_millis(self.rng.u64(20..400)) * self.fabric.slowness();
        let until = match self.rng.bool() {
            true => self.until,
            false => self.until.min(Instant::now() + brief),
        };
        while Instant::now() < until {
            sockets.retain_mut(|socket| socket.write_all(bit).is_ok());
            std::thread::sleep(pause);
        }
    }

    /// Changes something in the cluster, as an operator of the hostile client's would.
    fn cluster(&self, method: &str, path: &str, body: &Value) -> Result<()> {
        let client = self.fabric.client()?;
        match method {
            "PUT" => client.put(path, body)?,
            _ => client.post(path, body)?,
        };
        Ok(())
    }
}

fn begin_bulk(mut socket: TcpStream, declared: usize, sent: usize) -> Result<TcpStream> {
    let head = format!("POST /_bulk HTTP/1.1\r\nHost: x\r\n{NDJSON}Content-Length: {declared}\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(&vec![b' '; sent])?;
    Ok(socket)
}

fn lines(index: &str, docs: usize, bytes: usize, rng: &mut Rng) -> String {
    let padding = "x".repeat(bytes);
    let line = |_| {
        let id = rng.u32(..);
        format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"h{id}\"}}}}\n{{\"p\":\"{padding}\"}}\n")
    };
    (0..docs).map(line).collect()
}

fn declared_bodies(scene: &mut Scene<'_>) -> Result<()> {
    let mut sockets = Vec::new();
    for declared in [
        100_000_000,
        8_000_000,
        8_000_000,
        4_000_000,
        2_000_000,
        1_000_000,
        500_000,
        250_000,
    ] {
        let to = scene.entry();
        sockets.push(begin_bulk(
            scene.connect(to)?,
            declared,
            scene.rng.usize(..50_000),
        )?);
    }
    scene.hold(sockets, &[b' '; 40], Duration::from_millis(20));
    Ok(())
}

fn many_bodies(scene: &mut Scene<'_>) -> Result<()> {
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let to = scene.entry();
        sockets.push(begin_bulk(scene.connect(to)?, 8_000_000, 100_000)?);
    }
    scene.hold(sockets, &[b' '; 2_000], Duration::from_millis(10));
    Ok(())
}

fn trickled_heads(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.entry();
    trickle_heads(scene, to, 100)
}

fn trickled_admin(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.gateway.admin();
    trickle_heads(scene, to, 60)
}

fn trickle_heads(scene: &mut Scene<'_>, to: SocketAddr, count: usize) -> Result<()> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = scene.connect(to)?;
        socket.write_all(b"GET /health HTTP/1.1\r\nX-Slow: ")?;
        sockets.push(socket);
    }
    scene.hold(sockets, b"s", Duration::from_millis(50));
    Ok(())
}

fn broken_http(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.entry();
    let mut socket = scene.connect(to)?;
    let broken: [&[u8]; 4] = [
        b"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /_bulk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
    ];
    if let Some(broken) = scene.rng.choice(broken) {
        socket.write_all(broken)?;
    }
    let _ = socket.read(&mut [0; 512])?;
    Ok(())
}

fn broken_json(scene: &mut Scene<'_>) -> Result<()> {
    let broken = [
        "{\"index\":{\"_index\":\"hostile\"}}\n{\"t\":\"\\x\"}\n",
        "{\"index\":\n{}\n",
        "{\"index\":{\"_index\":\"hostile\"}}\n{\"a\":1}",
        "\0\0\0\n\n\n",
        "{\"index\":{\"_index\":\"Hostile/../x\"}}\n{}\n",
    ];
    let body = scene.rng.choice(broken).unwrap_or_default();
    scene.bulk("/_bulk", body)?;
    Ok(())
}

fn large_bulks(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile", 200, 10_000, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    Ok(())
}

fn large_searches(scene: &mut Scene<'_>) -> Result<()> {
    let body = format!(
        "{{\"query\":{{\"match_all\":{{}}}},\"_source\":[\"{}\"]}}",
        "x".repeat(500_000)
    );
    scene.request("POST", "/hostile/_search", JSON, body.as_bytes())?;
    Ok(())
}

/// Documents that the cluster will not take, whose letters are as large as they get.
fn large_dead_letters(scene: &mut Scene<'_>) -> Result<()> {
    let value = "\\u0000".repeat(6_000);
    let body = format!("{{\"index\":{{\"_index\":\"hostile\"}}}}\n{{\"n\":\"unfit{value}\"}}\n");
    let path = format!("/_bulk?routing={}", "r".repeat(scene.rng.usize(..15_000)));
    // Quotes, since each of them is two bytes in a letter.
    let quotes = "\"".repeat(scene.rng.usize(..12_000));
    let headers = format!("Content-Type: application/x-ndjson; x={quotes}\r\n");
    scene.request("POST", &path, &headers, body.as_bytes())?;
    Ok(())
}

fn new_indices(scene: &mut Scene<'_>) -> Result<()> {
    let index = format!("hostile-new-{}", scene.rng.u32(..10));
    let body = lines(&index, 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    Ok(())
}

fn many_keys(scene: &mut Scene<'_>) -> Result<()> {
    for _ in 0..30 {
        let headers = format!("{NDJSON}Idempotency-Key: h{}\r\n", scene.rng.u64(..));
        let body = lines("hostile", 1, 10, &mut scene.rng);
        scene.request("POST", "/_bulk", &headers, body.as_bytes())?;
    }
    Ok(())
}

fn bad_parameters(scene: &mut Scene<'_>) -> Result<()> {
    let parameters = [
        "refresh=banana",
        "timeout=banana",
        "nonsense=1",
        "pipeline=none-such",
    ];
    let parameter = scene.rng.choice(parameters).unwrap_or_default();
    let body = lines("hostile", 3, 10, &mut scene.rng);
    scene.bulk(&format!("/_bulk?{parameter}"), &body)?;
    Ok(())
}

fn vendor_types(scene: &mut Scene<'_>) -> Result<()> {
    let headers = "Content-Type: application/vnd.elasticsearch+x-ndjson; compatible-with=9\r\n\
                   Accept: application/vnd.elasticsearch+json; compatible-with=9\r\n";
    let body = lines("hostile", 3, 10, &mut scene.rng);
    scene.request("POST", "/_bulk", headers, body.as_bytes())?;
    Ok(())
}

fn impossible_shards(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk?wait_for_active_shards=99&timeout=1s", &body)?;
    Ok(())
}

fn blocked_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-blocked", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let blocked = scene.rng.bool();
    scene.cluster(
        "PUT",
        "/hostile-blocked/_settings",
        &json!({"index.blocks.write": blocked}),
    )
}

fn closed_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-closed", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let action = if scene.rng.bool() { "_close" } else { "_open" };
    scene.cluster("POST", &format!("/hostile-closed/{action}"), &Value::Null)
}

fn alias_without_write_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-unled", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let writes = scene.rng.bool();
    let add = |index: &str, writes: bool| json!({"add": {"index": index, "alias": "hostile-unled", "is_write_index": writes}});
    scene.cluster("PUT", "/hostile-a", &Value::Null)?;
    scene.cluster("PUT", "/hostile-b", &Value::Null)?;
    let actions = json!({"actions": [add("hostile-a", writes), add("hostile-b", false)]});
    scene.cluster("POST", "/_aliases", &actions)
}

fn alias_swaps(scene: &mut Scene<'_>) -> Result<()> {
    let (from, to) = if scene.rng.bool() { ("c", "d") } else { ("d", "c") };
    scene.cluster("PUT", "/hostile-c", &json!({}))?;
    scene.cluster("PUT", "/hostile-d", &json!({}))?;
    let actions = json!({"actions": [
        {"remove": {"index": format!("hostile-{from}"), "alias": "hostile-led", "must_exist": false}},
        {"add": {"index": format!("hostile-{to}"), "alias": "hostile-led"}},
    ]});
    scene.cluster("POST", "/_aliases", &actions)?;
    let body = lines("hostile-led", 20, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    Ok(())
}

fn routing_required(scene: &mut Scene<'_>) -> Result<()> {
    scene.cluster(
        "PUT",
        "/hostile-routed",
        &json!({"mappings": {"_routing": {"required": true}}}),
    )?;
    scene.bulk(
        "/_bulk",
        "{\"index\":{\"_index\":\"hostile-routed\"}}\n{\"a\":1}\n",
    )?;
    Ok(())
}

const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const ANSWER_MAX: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_one_can_be_asked_for_by_its_own() {
        for one in TABLE {
            let found = wanted(Some(one.name), false).expect("it is there");
            assert_eq!(found.len(), 1, "{}", one.name);
        }
        assert!(wanted(Some("kindness"), true).is_err());
        let (fake, real) = (wanted(None, false), wanted(None, true));
        assert!(fake.expect("some").len() < real.expect("more").len());
    }
}
