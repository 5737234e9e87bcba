//! The behaviours of hostile clients: one table, which gets a line for each new way to be a bad neighbour.

mod conditions;
mod requests;
mod sockets;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use socket2::{Domain, Socket, Type};

use super::setup::{Fabric, Gateway};
use conditions::{
    alias_swaps, alias_without_write_index, blocked_index, closed_index, impossible_shards, rollovers,
    routing_required,
};
use requests::{
    admin_lists, bad_parameters, broken_json, contested_updates, echoed_updates, large_bulks,
    large_dead_letters, large_searches, many_keys, new_indices, refused_as_a_whole, spelled_paths,
    unqueued_writes, vendor_types, wide_bulks,
};
use sockets::{broken_http, declared_bodies, many_bodies, trickled_admin, trickled_heads};

/// A way to be a bad neighbour.
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    act: fn(&mut Scene<'_>) -> Result<()>,
}

/// A hostile client: where it is, and for how long.
pub(super) struct Scene<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) fabric: &'a Fabric,
    /// The last number of the address that the client connects from.
    pub(super) from: u8,
    pub(super) until: Instant,
    pub(super) rng: Rng,
    /// Answers to this client that contain what good clients wrote.
    pub(super) leaks: Vec<String>,
}

/// All behaviours.
pub(super) const TABLE: &[Behaviour] = &[
    one("declared-bodies", declared_bodies),
    one("many-bodies", many_bodies),
    one("trickled-heads", trickled_heads),
    one("trickled-admin", trickled_admin),
    one("broken-http", broken_http),
    one("broken-json", broken_json),
    one("large-bulks", large_bulks),
    one("wide-bulks", wide_bulks),
    one("echoed-updates", echoed_updates),
    one("contested-updates", contested_updates),
    one("large-searches", large_searches),
    one("large-dead-letters", large_dead_letters),
    one("new-indices", new_indices),
    one("many-keys", many_keys),
    one("bad-parameters", bad_parameters),
    one("vendor-types", vendor_types),
    one("refused-as-a-whole", refused_as_a_whole),
    one("unqueued-writes", unqueued_writes),
    one("spelled-paths", spelled_paths),
    one("admin-lists", admin_lists),
    one("impossible-shards", impossible_shards),
    one("blocked-index", blocked_index),
    one("closed-index", closed_index),
    one("alias-without-write-index", alias_without_write_index),
    one("alias-swaps", alias_swaps),
    one("rollovers", rollovers),
    one("routing-required", routing_required),
];

const fn one(name: &'static str, act: fn(&mut Scene<'_>) -> Result<()>) -> Behaviour {
    Behaviour { name, act }
}

/// Returns the behaviours of a run.
///
/// # Errors
/// If `only` is not in the table.
pub(super) fn wanted(only: Option<&str>) -> Result<Vec<&'static Behaviour>> {
    let is_wanted = |behaviour: &&Behaviour| only.is_none_or(|name| behaviour.name == name);
    let wanted: Vec<&Behaviour> = TABLE.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = TABLE.iter().map(|one| one.name).collect();
        bail!("no such behaviour; there are {}", names.join(", "));
    }
    Ok(wanted)
}

impl Scene<'_> {
    /// Runs one behaviour after another, and returns what the client was told about others' documents. Any
    /// other outcome does not matter.
    pub(super) fn play(mut self, behaviours: &[&'static Behaviour], acts: &AtomicU64) -> Vec<String> {
        while Instant::now() < self.until {
            if let Some(behaviour) = self.rng.choice(behaviours) {
                let _ = (behaviour.act)(&mut self);
                acts.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(self.fabric.pause() * self.rng.u32(1..4));
        }
        self.leaks
    }

    /// Returns one of the two entries: before the queue, or straight to the cluster.
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

    /// Sends a whole request, and waits a moment for the beginning of the answer.
    fn request(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<()> {
        let to = self.entry();
        self.request_to(to, method, path, headers, body)
    }

    fn request_to(
        &mut self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Result<()> {
        let mut socket = self.connect(to)?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes())?;
        socket.write_all(body)?;
        let mut answer = vec![0; 4096];
        let count = socket.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..count]);
        if answer.contains(OF_GOOD_ONES) {
            self.leaks.push(format!("{method} {path:.80}: {answer:.600}"));
        }
        Ok(())
    }

    fn bulk(&mut self, path: &str, body: &str) -> Result<()> {
        self.request("POST", path, NDJSON, body.as_bytes())
    }

    fn json(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        self.request(method, path, JSON, body.as_bytes())
    }

    /// Holds sockets for a while, and sends a little on each now and then.
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
}

fn lines(index: &str, docs: usize, bytes: usize, rng: &mut Rng) -> String {
    let padding = "x".repeat(bytes);
    let line = |_| {
        let id = rng.u32(..);
        format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"h{id}\"}}}}\n{{\"p\":\"{padding}\"}}\n")
    };
    (0..docs).map(line).collect()
}

const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// The field that only documents of good clients have; perhaps quoted.
const OF_GOOD_ONES: &str = "of_a_good_client";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_one_can_be_asked_for_by_its_own() {
        for one in TABLE {
            let found = wanted(Some(one.name)).expect("it is there");
            assert_eq!(found.len(), 1, "{}", one.name);
        }
        assert!(wanted(Some("kindness")).is_err());
        assert_eq!(wanted(None).expect("all").len(), TABLE.len());
    }
}
