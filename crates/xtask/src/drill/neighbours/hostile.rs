//! The behaviours of hostile clients: one table, which gets a line for each new way to be a bad neighbour.

mod conditions;
mod requests;
mod sockets;
mod users;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

use super::setup::{Fabric, Gateway};
use conditions::{
    alias_swaps, alias_without_write_index, blocked_index, closed_index, impossible_shards, rollovers,
    routing_required,
};
use requests::{
    admin_lists, bad_parameters, broken_json, contested_updates, echoed_updates, forbidden_indices,
    large_bulks, large_dead_letters, large_searches, many_keys, new_indices, refused_as_a_whole,
    spelled_paths, unqueued_writes, vendor_types, wide_bulks, without_ids,
};
use sockets::{broken_http, declared_bodies, many_bodies, trickled_admin, trickled_heads};
use users::{narrowed_switches, readers, renewed_tokens, strangers};

/// A way to be a bad neighbour.
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    /// Whether it means nothing where everybody may do everything.
    pub(super) needs_users: bool,
    act: fn(&mut Scene<'_>) -> Result<()>,
}

/// The behaviours of a run, one after another, so that each has its turn as often as any other. Their order
/// follows from the seed.
pub(super) struct BehaviourOrder {
    behaviours: Vec<&'static Behaviour>,
    next: Mutex<(Rng, Vec<&'static Behaviour>)>,
    acts: Mutex<Acts>,
}

/// How often each behaviour was shown to the gateway as a whole.
pub(super) type Acts = BTreeMap<&'static str, u64>;

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
    one("forbidden-indices", forbidden_indices),
    one("without-ids", without_ids),
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
    with_users("readers", readers),
    with_users("strangers", strangers),
    with_users("renewed-tokens", renewed_tokens),
    with_users("narrowed-switches", narrowed_switches),
];

const fn one(name: &'static str, act: fn(&mut Scene<'_>) -> Result<()>) -> Behaviour {
    Behaviour {
        name,
        needs_users: false,
        act,
    }
}

const fn with_users(name: &'static str, act: fn(&mut Scene<'_>) -> Result<()>) -> Behaviour {
    Behaviour {
        name,
        needs_users: true,
        act,
    }
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

/// Checks that hostile clients did something, and all of it if the runs were long enough for that.
///
/// # Errors
/// Says what did not happen.
pub(super) fn check_acts(behaviours: &[&'static Behaviour], acts: &Acts) -> Result<()> {
    let all: u64 = acts.values().sum();
    if all == 0 {
        bail!("nothing happened");
    }
    let missing = behaviours.iter().find(|one| !acts.contains_key(one.name));
    match missing {
        Some(one) if all >= ACTS_ENOUGH * behaviours.len() as u64 => {
            bail!("of {all} hostile acts, none was `{}`", one.name)
        }
        _ => Ok(()),
    }
}

// === impl BehaviourOrder ===

impl BehaviourOrder {
    pub(super) fn of(behaviours: impl Iterator<Item = &'static Behaviour>, seed: u64) -> Self {
        Self {
            behaviours: behaviours.collect(),
            next: Mutex::new((Rng::with_seed(seed), Vec::new())),
            acts: Mutex::default(),
        }
    }

    fn next(&self) -> Option<&'static Behaviour> {
        let (rng, next) = &mut *self.next.lock();
        if next.is_empty() {
            next.clone_from(&self.behaviours);
            rng.shuffle(next);
        }
        next.pop()
    }

    pub(super) fn into_acts(self) -> Acts {
        self.acts.into_inner()
    }
}

// === impl Scene ===

impl Scene<'_> {
    /// Runs one behaviour after another, and returns what the client was told about others' documents. The
    /// answers do not matter otherwise.
    pub(super) fn play(mut self, turns: &BehaviourOrder) -> Vec<String> {
        while Instant::now() < self.until {
            if let Some(behaviour) = turns.next()
                && (behaviour.act)(&mut self).is_ok()
            {
                *turns.acts.lock().entry(behaviour.name).or_default() += 1;
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
        let account = match self.fabric.is_secured() && !headers.contains("Authorization") {
            true => "Authorization: Bearer hostile\r\n",
            false => "",
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{account}{headers}Content-Length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes())?;
        socket.write_all(body)?;
        let mut answer = vec![0; 4096];
        // Whoever gets no answer within the time was hostile all the same.
        let count = socket.read(&mut answer).unwrap_or_default();
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
/// How often each behaviour has had its turn on average when each should have come about.
const ACTS_ENOUGH: u64 = 3;
/// The index that hostile clients' requests name and forbid to create.
pub(super) const FORBIDDEN: &str = "hostile-forbidden";
/// The field that only documents of good clients have; perhaps quoted.
const OF_GOOD_ONES: &str = "of_a_good_client";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_behaviour_has_its_turn_before_any_has_another_in_an_order_of_the_seed() {
        let all = wanted(None).expect("all");
        let order = |seed| -> Vec<&str> {
            let turns = BehaviourOrder::of(all.iter().copied(), seed);
            let names = (0..2 * all.len()).filter_map(|_| Some(turns.next()?.name));
            names.collect()
        };
        let (first, second) = (order(1), order(2));
        assert_eq!((first.clone(), first != second), (order(1), true));
        for half in first.chunks(all.len()) {
            let mut half = half.to_vec();
            half.sort_unstable();
            half.dedup();
            assert_eq!(half.len(), all.len());
        }
    }

    #[test]
    fn a_behaviour_that_never_comes_about_in_a_long_drill_is_told() {
        let all = wanted(None).expect("all");
        let acts = |each: u64| -> Acts { TABLE.iter().map(|one| (one.name, each)).collect() };
        assert!(check_acts(&all, &acts(1)).is_ok());
        assert!(check_acts(&all, &Acts::new()).is_err(), "nothing happened");
        let mut without = acts(10);
        without.remove("alias-swaps");
        let told = check_acts(&all, &without)
            .expect_err("one is missing")
            .to_string();
        assert!(told.contains("none was `alias-swaps`"), "{told}");
        let mut brief = acts(1);
        brief.remove("alias-swaps");
        assert!(check_acts(&all, &brief).is_ok(), "too short for all");
    }

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
