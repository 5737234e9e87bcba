//! Decides what may be queued. A client of an asynchronous entry is answered before the cluster reads its
//! documents, so whatever the cluster would refuse has to be known beforehand. The gateway has no rules of
//! its own for that: it asks the cluster, and remembers the answers.
//!
//! A bulk comes here twice. Before it is planned, its *form* is admitted ([`form`]): parameters, media types
//! and lengths, about which the cluster is asked once, with a bulk that changes nothing. Then its idempotency
//! *key*, if it has one, is claimed ([`keys`]), and if it is large, the cluster is asked who its client is,
//! and it waits for room for its plan ([`plan_room`]). After it has been planned, the *rights* of its client
//! are checked ([`rights`]): `ClusterRights` asks the cluster who the client is, with the client's own
//! credentials, which gives a `Client`; the `Client` is then authorized for each written name and kind of
//! operation. A form that is refused gets the cluster's own words; a bulk whose rights are denied passes to
//! the cluster, which refuses it.

pub(crate) mod form;
pub(crate) mod keys;
pub(crate) mod plan_room;
pub(crate) mod rights;
mod words;

pub(crate) use words::is_a_servers_error;
