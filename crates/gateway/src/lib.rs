//! The product: configuration, entry, router, flow of filters, synchronous ingest, proxy, admin, metrics.
//!
//! # The story
//!
//! A [`config::Config`] says everything. [`Gateway::start`] starts the workers (one thread a core), a
//! listener for each entry, a watch for each cluster, and the admin port. A request comes in on a core and
//! ends there: its entry's router names its flow, and the flow's filters take it in turn until one answers.
//!
//! # The wings
//!
//! Each folder is a part of the story, and its `mod.rs` tells it: `front` (a request finds its filters),
//! `reshuffle` (what a bulk is, and what is decided about it), `split` (its parts to their nodes and back) or
//! `queue` (its record, and what is known of it) and `delivery` (from the queue to a cluster), `gather` (what
//! waits for a busy node), `admission` (what may be queued), `nodes` (the way to the nodes). Beside them are
//! `admin` (the admin port) and `switches` (what is switched without a reload). The files are the ground
//! floor: what goes wrong becomes HTTP in one place (`error.rs`), `bulk_request.rs` tells bulk requests by
//! their heads, `metrics.rs` counts.
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
mod beside;
mod bulk_request;
mod delivery;
mod error;
mod front;
mod gateway;
mod gather;
mod live;
mod metrics;
mod nodes;
mod pretty;
mod print;
mod queue;
mod reloads;
mod replace;
mod request_id;
mod requeue;
mod reshuffle;
mod scratch;
mod split;
mod start_error;
mod switches;
mod turns;
mod upgrades;
mod why;

pub use admission::rights::{AccountRight, AccountRights, AccountUse, Verdict, account_rights};
pub use front::{ACCESS_LOG, Opened, Sockets, tls_problems};
pub use gateway::{Gateway, Reloaded};
pub use live::watch;
pub use queue::moving;
pub use start_error::StartError;
pub use upgrades::{NoUpgrade, UpgradeAsked};
