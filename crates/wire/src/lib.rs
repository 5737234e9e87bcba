//! Sockets: a runtime per core, listeners, TLS, HTTP/1.1 in and out, connection pools, body buffers, codecs,
//! drain.
//!
//! # The story
//!
//! [`Workers`] are threads, each with its own tokio runtime, its own [`Pool`] of buffers and its own
//! [`Client`]s; nothing on the path of a request crosses threads. A [`Server`] accepts connections on a
//! thread of its own and gives each to the worker with the fewest. There the connection reads a head, refuses
//! ambiguous ones ([`Refusal`]), and calls the [`Service`] with an `http::Request<`[`Incoming`]`>`. The
//! service reads the body (streamed, or collected into one contiguous pooled buffer) and returns an
//! `http::Response<`[`Outgoing`]`>`. Meanwhile it may send requests of its own through the [`Client`], whose
//! errors say whether anything was sent ([`Fate`]). [`Server::adjust`] changes limits and TLS while the
//! server runs, and [`Server::drain`] ends it in an orderly way.
//!
//! ```no_run
//! use wire::{
//!     Incoming, Outgoing, Refusal, Refused, Server, ServerConfig, Service, Worker, Workers, WorkersConfig,
//! };
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     async fn call(&self, request: http::Request<Incoming>) -> http::Response<Outgoing> {
//!         match request.into_body().collect(1 << 20).await {
//!             Ok(body) => http::Response::new(body.into()),
//!             Err(error) => self.refuse(error.refusal().unwrap_or(Refusal::Failed), Refused::default()),
//!         }
//!     }
//!     fn refuse(&self, refusal: Refusal, _: Refused<'_>) -> http::Response<Outgoing> {
//!         let mut reply = http::Response::new(refusal.reason().into());
//!         *reply.status_mut() = refusal.status();
//!         reply
//!     }
//! }
//!
//! let workers = Workers::start(WorkersConfig::default())?;
//! let config = ServerConfig::on(([127, 0, 0, 1], 8000).into());
//! let server = Server::start(&workers, config, |_: &Worker| std::rc::Rc::new(Echo))?;
//! println!("listening on {}", server.local_addr());
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod accepted;
mod admission;
mod alarm;
mod budget;
mod claim;
mod client;
pub mod codec;
mod connection;
mod connections;
mod drain;
mod expected;
pub mod exposition;
pub mod guard;
mod handover;
mod heads;
mod holder;
mod incoming;
mod inflate;
mod limits;
mod listener;
mod outgoing;
mod own_bodies;
mod pace;
mod per_core;
mod place;
mod pool;
mod ration;
mod receive;
mod refusal;
mod relief;
mod runtime;
mod server;
pub mod shared;
mod stream;
mod tls;
mod transmit;
mod unread;
mod waiters;

pub use accepted::Accepted;
pub use admission::Fairness;
pub use budget::{BUDGET_BYTES_DEFAULT, Budget, Charge, OverBudget};
pub use client::{
    Client, ClientConfig, Deadlines, Duplex, Fate, Origin, Reply, ReplyBody, RequestHead, SendError,
    SendErrorKind, SlowSource, dial,
};
pub use drain::DrainReport;
pub use expected::AnswerRoom;
pub use holder::Principal;
pub use incoming::{BodyError, Collected, Incoming, Peer, Presence};
pub use limits::Limits;
pub use listener::Bound;
pub use outgoing::{CHUNK_BYTES, Chunk, Outgoing, Source, SourceError};
pub use per_core::{Apart, PerCore, VALUES_MAX};
pub use pool::{Buffer, Pool, PooledBytes};
pub use ration::{LINES_PER_WINDOW, Ration, WINDOW};
pub use refusal::Refusal;
pub use runtime::{Worker, Workers, WorkersConfig, raise_descriptor_limit, run_local};
pub use server::{Refused, Server, ServerConfig, ServerCounts, Service};
pub use tls::{
    ClientTls, ClientTlsConfig, Roots, ServerTls, ServerTlsConfig, TlsError, earliest_expiry,
    earliest_expiry_of_file, handshake_failure, why_refused,
};

/// Removes the headers that concern one connection only (RFC 9110, section 7.6.1), those that `Connection`
/// names included. Call it on heads that are passed on; `and` names what else must not go further. The rest
/// keeps its order, which [`http::HeaderMap::remove`] would not.
///
/// `Upgrade` goes as well, and `HTTP2-Settings` with it, named by `Connection` or not: a gateway that does
/// not speak the other protocol ignores the wish (RFC 9110, section 7.8), and a node that heard of it could
/// switch and take what follows on the connection, the next clients' requests, for that protocol.
pub fn strip_hop_by_hop(headers: &mut http::HeaderMap, and: &[http::HeaderName]) {
    codec::strip_hop_by_hop(headers, and);
}
