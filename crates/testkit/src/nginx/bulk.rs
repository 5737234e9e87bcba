//! Bulk bodies made of generated lines.

use super::{Nginx, push};

/// A recipe for `_bulk` bodies.
///
/// ```
/// use testkit::nginx::{Bulk, Ids};
/// let body = Bulk { ids: Ids::None, ..Bulk::new("logs", 2) }.body(1);
/// assert!(body.starts_with(b"{\"index\":{\"_index\":\"logs\"}}\n{"));
/// ```
#[derive(Debug, Clone)]
pub struct Bulk {
    /// The index that each action names; `None` leaves it to the URL.
    pub index: Option<String>,
    /// How many operations.
    pub docs: usize,
    /// Whether the operations carry ids.
    pub ids: Ids,
    /// Which operation all of them are.
    pub operation: Operation,
    /// What the sources are.
    pub documents: Documents,
}

/// Where the ids of a [`Bulk`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// None: the server makes them.
    None,
    /// 20 characters, of the URL-safe alphabet, different for every document of every seed.
    Given,
    /// The decimal numbers from this one on; bodies with the same numbers hit the same documents.
    From(u64),
}

/// The operation of a [`Bulk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `index`
    Index,
    /// `create`
    Create,
    /// `update` with `doc` and `doc_as_upsert`
    Update,
    /// `delete`: no source lines
    Delete,
}

/// The sources of a [`Bulk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Documents {
    /// Access-log lines of about 600 bytes.
    Nginx,
    /// Measurements of 200 bytes.
    Short,
}

// === impl Bulk ===

impl Bulk {
    /// `docs` access-log lines, to `index` by name, with ids.
    pub fn new(index: &str, docs: usize) -> Bulk {
        Bulk {
            index: Some(index.to_owned()),
            docs,
            ids: Ids::Given,
            operation: Operation::Index,
            documents: Documents::Nginx,
        }
    }

    /// The body for this seed, with its last newline.
    pub fn body(&self, seed: u64) -> Vec<u8> {
        let mut lines = Nginx::new(seed);
        let mut ids = fastrand::Rng::with_seed(seed ^ 0x1d5);
        let per_doc = if self.documents == Documents::Short {
            290
        } else {
            700
        };
        let mut out = Vec::with_capacity(self.docs * per_doc);
        for at in 0..self.docs {
            self.write_action(&mut out, at, &mut ids);
            match self.operation {
                Operation::Delete => {}
                Operation::Update => {
                    out.extend_from_slice(b"{\"doc\":");
                    self.write_source(&mut out, &mut lines);
                    out.extend_from_slice(b",\"doc_as_upsert\":true}\n");
                }
                Operation::Index | Operation::Create => {
                    self.write_source(&mut out, &mut lines);
                    out.push(b'\n');
                }
            }
        }
        out
    }

    fn write_action(&self, out: &mut Vec<u8>, at: usize, ids: &mut fastrand::Rng) {
        let name = match self.operation {
            Operation::Index => "index",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        push(out, format_args!("{{\"{name}\":{{"));
        if let Some(index) = &self.index {
            push(out, format_args!("\"_index\":\"{index}\""));
        }
        if self.index.is_some() && self.ids != Ids::None {
            out.push(b',');
        }
        match self.ids {
            Ids::None => {}
            Ids::From(first) => push(out, format_args!("\"_id\":\"{}\"", first + at as u64)),
            Ids::Given => {
                out.extend_from_slice(b"\"_id\":\"");
                write_id(out, ids);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b"}}\n");
    }

    fn write_source(&self, out: &mut Vec<u8>, lines: &mut Nginx) {
        match self.documents {
            Documents::Nginx => lines.write_source(out),
            Documents::Short => write_short(out, &mut lines.rng),
        }
    }
}

fn write_id(out: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = rng.u128(..);
    for _ in 0..20 {
        out.push(ALPHABET[(bits & 63) as usize]);
        bits >>= 6;
    }
}

/// A sensor's reading, padded to 200 bytes by its note.
fn write_short(out: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    let start = out.len();
    push(
        out,
        format_args!(
            "{{\"@timestamp\":{},\"sensor\":\"s-{:05}\",",
            1_772_323_200_000_u64 + rng.u64(0..86_400_000),
            rng.u32(0..50_000)
        ),
    );
    push(
        out,
        format_args!(
            "\"temperature\":{:.2},\"humidity\":{:.1},\"battery\":{}",
            rng.f32() * 40.0,
            rng.f32() * 100.0,
            rng.u8(0..=100)
        ),
    );
    out.extend_from_slice(b",\"note\":\"");
    while out.len() - start < 198 {
        out.push(rng.lowercase() as u8);
    }
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &[u8]) -> Vec<serde_json::Value> {
        assert_eq!(body.last(), Some(&b'\n'));
        body.split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn ids_are_given_and_differ() {
        let body = lines(&Bulk::new("logs", 500).body(1));
        let ids: std::collections::HashSet<_> = body
            .iter()
            .step_by(2)
            .map(|action| action["index"]["_id"].to_string())
            .collect();
        assert_eq!((body.len(), ids.len()), (1000, 500));
    }

    #[test]
    fn without_index_and_ids_the_action_is_empty() {
        let bulk = Bulk {
            index: None,
            ids: Ids::None,
            operation: Operation::Create,
            ..Bulk::new("", 1)
        };
        assert!(bulk.body(1).starts_with(b"{\"create\":{}}\n"));
    }

    #[test]
    fn updates_carry_a_doc_and_deletes_nothing() {
        let update = Bulk {
            operation: Operation::Update,
            ids: Ids::From(7),
            ..Bulk::new("logs", 2)
        };
        assert_eq!(lines(&update.body(1))[3]["doc_as_upsert"], true);
        let delete = Bulk {
            operation: Operation::Delete,
            ..update
        };
        assert_eq!(delete.body(1), b"{\"delete\":{\"_index\":\"logs\",\"_id\":\"7\"}}\n{\"delete\":{\"_index\":\"logs\",\"_id\":\"8\"}}\n");
    }

    #[test]
    fn short_documents_have_200_bytes() {
        let body = Bulk {
            documents: Documents::Short,
            ..Bulk::new("logs", 50)
        }
        .body(9);
        assert!(
            body.split(|&byte| byte == b'\n')
                .skip(1)
                .step_by(2)
                .all(|line| line.is_empty() || line.len() == 200)
        );
        assert_eq!(lines(&body).len(), 100);
    }
}
