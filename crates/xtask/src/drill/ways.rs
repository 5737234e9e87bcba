//! The ways in which a client sends its operations: as a bulk, as a write of one document, or in a form that
//! cannot be queued.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use testkit::driver::{self, Reply};

use super::ledger::{Told, Write};
use super::load::{position, told};

/// The way in which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Bulk,
    /// One operation, with the API for single documents.
    Single,
    /// A bulk that asks for an answer that only the cluster can give. It must be refused, since the second
    /// cluster would miss it.
    Unqueued,
}

impl Way {
    pub(super) fn any(rng: &mut Rng) -> Self {
        match rng.u32(..20) {
            0 => Way::Unqueued,
            1..=4 => Way::Single,
            _ => Way::Bulk,
        }
    }

    /// Keeps the operations of a request that can go this way. A single write is to a document of its own, so
    /// that it shows whether it was accepted.
    pub(super) fn choose(self, writes: &mut Vec<Write>) {
        if self == Way::Single {
            writes.retain(|write| write.only && !write.unfit);
            writes.truncate(1);
        }
    }

    /// Returns the request; `body` has the lines of a bulk.
    pub(super) fn request(
        self,
        address: SocketAddr,
        index: &str,
        writes: &[Write],
        body: &str,
    ) -> Result<Vec<u8>> {
        let bulk = ("POST", &*format!("/{index}/_bulk"));
        Ok(match self {
            Way::Bulk => driver::request(bulk, address, &[driver::NDJSON], body.as_bytes()),
            Way::Unqueued => {
                let headers = [driver::NDJSON, ("accept", "application/yaml")];
                driver::request(bulk, address, &headers, body.as_bytes())
            }
            Way::Single => {
                let write = writes.first().context("a request has an operation")?;
                let source = body.lines().nth(1).context("a created document has a source")?;
                let index = write.index.as_deref().unwrap_or(index);
                let (method, path) = match &write.id {
                    Some(id) => ("PUT", format!("/{index}/_create/{id}")),
                    None => ("POST", format!("/{index}/_doc")),
                };
                let headers = [("content-type", "application/json")];
                driver::request((method, &path), address, &headers, source.as_bytes())
            }
        })
    }

    /// Returns what the client knows from an answer, and records ids that the gateway made.
    pub(super) fn told(self, answer: &Reply<'_>, writes: &mut [Write]) -> Result<Told> {
        match (self, answer.status) {
            (Way::Single, 201) if answer.header("x-tidegate-ack").is_some() => {
                let said = answer.json()?;
                let id = said["_id"].as_str().context("an id in an answer")?.to_owned();
                anyhow::ensure!(said["result"] == "created", "a write was answered {said}");
                for write in writes {
                    anyhow::ensure!(write.id.as_ref().is_none_or(|sent| *sent == id), "{said}");
                    write.id = Some(id.clone());
                }
                Ok(Told::Queued(position(answer)?))
            }
            (Way::Single, 200 | 201) => Ok(Told::Passed),
            _ => told(answer, writes),
        }
    }
}
