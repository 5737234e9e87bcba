//! The product: configuration, entry, router, flow of filters, synchronous ingest, proxy, admin, metrics.
//!
//! # The story
//!
//! A [`config::Config`] says everything. [`Gateway::start`] starts the workers (one thread a core), a listener for each
//! entry, a watch for each cluster, and the admin port. A request comes in on a core and ends there: its entry's router
//! names its flow, and the flow's filters take it in turn until one answers.
//!
//! `bulk_reshuffle` (`sync.rs`) takes bulk requests: head (`bulk_request.rs`), body into one buffer, plan
//! (`bulk::plan`), one part for each node (`part.rs`, over `outbound.rs`), and the answers merged. In asynchronous mode
//! (`accept.rs`) the request goes into a queue (`queue.rs`) instead and is answered once it is durable there; a thread for
//! each queue and target cluster (`delivery.rs`) sends it (`batch.rs`), what lanes have for one node together (`outlet.rs`), and what the cluster will not take is kept with the
//! reason (`dead_letters.rs`). With `rewrite_to_bulk` a write of one document (`single.rs`) goes the same way as a bulk of one.
//! Whatever it isn't sure of goes on whole to `elasticsearch` (`proxy.rs`), which streams any API through to a node that is well. What goes wrong becomes
//! HTTP in one place (`error.rs`). What can be switched without a reload is in `switches.rs`.
//!
//! ```no_run
//! use gateway::{Gateway, config::Config};
//!
//! let loaded = Config::load("tidegate.yml".as_ref())?;
//! let gateway = Gateway::start(&loaded)?;
//! for (name, address) in gateway.entries() {
//!     println!("{name} listens on {address}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod config;
pub mod router;
pub mod when;

mod accept;
mod access_log;
mod accounts;
mod admin;
mod answer;
mod attempt;
mod batch;
mod belongs;
mod beside;
mod bulk_request;
mod certificate;
mod combine;
mod credentials;
mod dead_letters;
mod deliveries;
mod delivery;
mod directed;
mod document_write;
mod error;
mod fence;
mod flow;
mod form;
mod gate;
mod gateway;
mod handed_over;
mod idempotency;
mod introduce;
mod journal;
mod lane;
mod lines;
mod listening;
mod live;
mod lookback;
mod metrics;
mod outbound;
mod outcome;
mod outlet;
mod packed;
mod parcel;
mod parked;
mod part;
mod passing;
mod pretty;
mod proxy;
mod queue;
mod queued_answer;
mod quote;
mod refusal;
mod relay;
mod reloads;
mod replace;
mod request_id;
mod requeue;
mod rights;
mod scratch;
mod sent_as;
mod single;
mod standstill;
mod start_error;
mod switches;
mod sync;
mod unquoted;
mod whereabouts;

pub use access_log::ACCESS_LOG;
pub use gateway::{Gateway, Reloaded};
pub use listening::Opened;
pub use live::watch;
pub use rights::{AccountRight, AccountRights, AccountUse, Verdict, account_rights};
pub use start_error::StartError;
