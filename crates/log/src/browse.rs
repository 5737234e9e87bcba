//! Records as they lie in the log, all lanes, for people.

use std::convert::Infallible;

use crate::{ReadError, Receipt};

/// Reads whole records in order, from [`crate::Log::browse`].
pub struct Browse {
    never: Infallible,
}

/// A record, as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// Where, how long, how many documents.
    pub receipt: Receipt,
    /// When it was appended, ms since 1970.
    pub time_ms: u64,
    /// Its kind.
    pub kind: u8,
    /// Its parameters.
    pub params: Vec<u8>,
    /// Its groups: lane, documents, bytes; the bytes are none where they are damaged.
    pub groups: Vec<(u32, u32, Option<Vec<u8>>)>,
}

impl Browse {
    /// The next record; none at the end. What cannot be read is left out here; [`crate::Event::Lost`] tells of it.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn read(&mut self) -> Result<Option<Browsed>, ReadError> {
        match self.never {}
    }
}
