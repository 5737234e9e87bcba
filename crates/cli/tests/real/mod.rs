//! What the proofs on real clusters share: an independent HTTP client, the clusters, index sets, random
//! bulks.
//!
//! `http` is a client that shares no code with the product. `world` makes an index set under a prefix, so
//! that two sets of one cluster can be compared. `bulks` invents bulk requests from a seed, and `singles`
//! invents writes of single documents. `compare` says whether two answers, or two index sets, are the same.
#![allow(dead_code, reason = "each test program uses its own part of this")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the proofs say what they measured"
)]

pub(crate) mod bulks;
pub(crate) mod compare;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod ids;
pub(crate) mod relay;
pub(crate) mod server;
pub(crate) mod singles;
pub(crate) mod table;
pub(crate) mod world;

/// Returns the seeds of a proof: `SEED=n` replays one, `SEEDS=n` tries the first n; by default there are
/// `usual` of them.
pub(crate) fn seeds(usual: u64) -> anyhow::Result<Vec<u64>> {
    seeds_from(1, usual)
}

/// Returns the seeds of a proof like [`seeds`]; by default they begin with `first`, so that clusters which
/// share the time of a run do not repeat each other's.
pub(crate) fn seeds_from(first: u64, usual: u64) -> anyhow::Result<Vec<u64>> {
    if let Ok(seed) = std::env::var("SEED") {
        return Ok(vec![seed.parse()?]);
    }
    Ok(match std::env::var("SEEDS") {
        Ok(count) => (1..=count.parse()?).collect(),
        Err(_) => (first..first + usual).collect(),
    })
}
