//! The gateway itself: configuration, entries, router, flows of filters, synchronous ingest, proxy, admin
//! port and metrics.
//!
//! # The story
//!
//! A [`config::Config`] holds every setting. [`Gateway::start`] starts the workers (one thread per core), a
//! listener for each entry, a watch for each cluster, and the admin port. A request is accepted on one core
//! and stays on that core until it is answered: the router of its entry chooses a flow, and the filters of
//! the flow are tried in order until one answers.
//!
//! # The folders
//!
//! Each folder is one part of the story, which its `mod.rs` tells: `front` (a request finds its filters),
//! `intake` (what a request for documents is, and which way it goes), `admission` (what may be queued) and
//! `reshuffle` (what goes where), then either `split` (a bulk's parts travel to their nodes and back) or
//! `queue` (its record, and what is known about the record) and `delivery` (from the queue to a cluster),
//! `gather` (what waits for a busy node) and `nodes` (the way to the nodes). Beside them are `admin` (the
//! admin port) and `switches` (settings that change without a reload). The files in this folder serve all of
//! them: `error.rs` is the only place where an error becomes HTTP for the clients of an entry (the admin port
//! has `admin::refusal`), `bulk_request.rs` recognizes bulk requests by their heads, and `metrics.rs` counts.
//!
//! ```no_run
//! use config::Config;
//! use gateway::Gateway;
//!
//! let loaded = Config::load("tidegate.yml".as_ref())?;
//! let gateway = Gateway::start(&loaded)?;
//! for (name, address) in gateway.entries() {
//!     println!("{name} listens on {address}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod admin;
mod admission;
mod answer;
mod applied;
mod backoff;
mod bulk_request;
mod clock;
mod delivery;
mod error;
mod fingerprint;
mod flow_counts;
mod front;
mod gateway;
mod gather;
mod heat;
mod intake;
mod live;
mod metrics;
mod nodes;
mod own_copy;
mod own_thread;
mod pretty;
mod queue;
mod recorder;
mod reloads;
mod replace;
mod request_id;
mod requeue;
mod reshuffle;
mod sample;
mod scratch;
mod split;
mod start_error;
mod switches;
mod turns;
mod upgrades;
mod why;

pub use admission::rights::{AccountRight, AccountRights, AccountUse, RightVerdict, account_rights};
pub use applied::{Applied, AppliedState, ConfigAsk, ConfigAsked, NotApplied};
pub use front::{ACCESS_LOG, Opened, Sockets, tls_problems};
pub use gateway::{Gateway, Reloaded};
pub use live::watch;
pub use queue::moving;
pub use start_error::{StartError, TlsOwner};
pub use upgrades::{NoUpgrade, UpgradeAsked};
