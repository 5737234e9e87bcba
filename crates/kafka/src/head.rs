//! The head of a message, which describes it in its headers.

use crate::HeadError;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The record's kind, which only the gateway interprets.
    pub kind: u8,
    /// The number of operations.
    pub documents: u32,
    /// The number of lanes that the message was planned for.
    pub lanes: u32,
    /// Whether a document's lane follows from its id; otherwise it follows from index and shard.
    pub by_id: bool,
}

impl Head {
    /// Returns the value of the header [`Head::NAME`].
    #[must_use]
    pub fn write(&self) -> String {
        let by = if self.by_id { BY_ID } else { "" };
        format!("{VERSION} {} {} {}{by}", self.kind, self.documents, self.lanes)
    }

    /// Reads the value of the header [`Head::NAME`].
    ///
    /// # Errors
    /// Returns what is wrong with the value.
    pub fn read(value: &[u8]) -> Result<Self, HeadError> {
        let text = std::str::from_utf8(value).map_err(|_| HeadError::NoText)?;
        let odd = || HeadError::Odd(text.to_owned());
        // Earlier versions read only as far as the number of lanes.
        let (text, by_id) = match text.strip_suffix(BY_ID) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u32>().ok();
        let (Some(version), rest) = (number(), [number(), number(), number()]) else {
            return Err(odd());
        };
        if version != VERSION {
            return Err(HeadError::Newer(version));
        }
        match rest {
            [Some(kind), Some(documents), Some(lanes)] if documents > 0 => Ok(Self {
                kind: u8::try_from(kind).map_err(|_| odd())?,
                documents,
                lanes,
                by_id,
            }),
            _ => Err(odd()),
        }
    }

    /// The name of the header with the head.
    pub const NAME: &'static str = "tidegate";
    /// The name of the header with the record's parameters.
    pub const PARAMS: &'static str = "tidegate-params";
}

const VERSION: u32 = 1;
const BY_ID: &str = " id";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_nothing_else_is() {
        let head = Head {
            kind: 1,
            documents: 12,
            lanes: 16,
            by_id: false,
        };
        assert_eq!(head.write(), "1 1 12 16");
        assert_eq!(Head::read(head.write().as_bytes()), Ok(head));
        let by_id = Head { by_id: true, ..head };
        assert_eq!(by_id.write(), "1 1 12 16 id");
        assert_eq!(Head::read(by_id.write().as_bytes()), Ok(by_id));
        for wrong in ["", "1", "1 0 0 16", "1 0 5", "1 300 5 16", "x 0 1 2", "1 0 -1 2"] {
            assert!(Head::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let newer = Head::read(b"2 0 1 16").unwrap_err();
        assert_eq!(newer, HeadError::Newer(2));
    }
}
