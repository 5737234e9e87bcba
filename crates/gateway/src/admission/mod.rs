//! Decides what may be queued. A client is answered before the cluster reads its documents, so the cluster is
//! asked beforehand whether the client may write there ([`rights`]), and whether it takes requests of this
//! form at all ([`form`]).

pub(crate) mod form;
pub(crate) mod rights;
