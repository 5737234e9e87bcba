//! The contents of an action line, as far as admission and routing need them.

use crate::Why;

/// An operation on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Index: create or replace.
    Index,
    /// Create: fails where the document exists.
    Create,
    /// Partial or scripted update.
    Update,
    /// Delete: the only operation without a source line.
    Delete,
}

/// A parsed action line. Strings are decoded UTF-8; none is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action<'a> {
    /// The effective operation: `index` with `op_type: create` is a create.
    pub(crate) op: Op,
    pub(crate) index: Option<&'a [u8]>,
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) routing: Option<&'a [u8]>,
    /// Whether the line has a key `routing` whose value is null: it then takes no second one.
    pub(crate) routing_null: bool,
    pub(crate) pipeline: Option<&'a [u8]>,
    /// Whether the line says `"_type":"_doc"`, which servers that know types treat as no type at all.
    pub(crate) typed: bool,
    /// The place of the type, if it is to be left out.
    pub(crate) type_at: Option<TypeAt>,
    /// Whether the index must be an alias, or a data stream, if the line says so.
    pub(crate) require_alias: Option<bool>,
    pub(crate) require_data_stream: Option<bool>,
    pub(crate) id_gap: IdGap,
    /// Whether `if_seq_no` and `if_primary_term` are given: an update must not carry an upsert then.
    pub(crate) compare_and_set: bool,
    /// Whether a version or a sequence number is given: executed a second time, the operation conflicts with
    /// itself.
    pub(crate) versioned: bool,
}

/// The place of a type in an action line, with the comma that goes with it. Offsets are from the line's
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeAt {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Whether the line has no other key.
    pub(crate) alone: bool,
}

/// The place where an id can be written into an action line that has none. Offsets are from the line's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdGap {
    /// The id goes here…
    pub(crate) at: u32,
    /// …in place of this many bytes (4 for a `null`, else 0)…
    pub(crate) cut: u32,
    /// …in this form.
    pub(crate) form: Form,
}

/// The text that gives an action line its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// `"_id":"…"`, into an empty object.
    Only,
    /// `"_id":"…",`, before the other keys.
    #[default]
    First,
    /// `"…"`, instead of a null.
    Value,
}

/// Longest id that servers accept, in bytes of UTF-8 (`IndexRequest.MAX_DOCUMENT_ID_LENGTH_IN_BYTES`).
pub(crate) const ID_BYTES_MAX: usize = 512;

// === impl Op ===

impl Op {
    /// Returns the action's name, as in requests and in reply items.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Index => "index",
            Op::Create => "create",
            Op::Update => "update",
            Op::Delete => "delete",
        }
    }

    pub(crate) fn parse(name: &[u8]) -> Option<Op> {
        match name {
            b"index" => Some(Op::Index),
            b"create" => Some(Op::Create),
            b"update" => Some(Op::Update),
            b"delete" => Some(Op::Delete),
            _ => None,
        }
    }
}

// === impl Action ===

impl Action<'_> {
    /// Decides whether the type is left out.
    pub(crate) fn settle_type(&mut self, left_out: bool) {
        match self.type_at {
            // No other key is left to put a comma before.
            Some(TypeAt { alone: true, .. }) if left_out => self.id_gap.form = Form::Only,
            Some(_) if !left_out => self.type_at = None,
            _ => {}
        }
    }

    /// Checks the rules that hold for fast and slow lines alike (`IndexRequest.validate`,
    /// `UpdateRequest.validate`, `DeleteRequest.validate`: a single violation makes the servers reject the
    /// whole request).
    pub(crate) fn admit(&self, allow_explicit_index: bool) -> Result<(), Why> {
        if self.index.is_some() && !allow_explicit_index {
            return Err(Why::ExplicitIndex);
        }
        match (self.op, self.id) {
            (Op::Update | Op::Delete, None) => Err(Why::NoId),
            (_, Some(id)) if id.len() > ID_BYTES_MAX => Err(Why::IdTooLong),
            _ => Ok(()),
        }
    }
}
