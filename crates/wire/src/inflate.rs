//! `gzip` and `deflate` bodies, decoded as they arrive into one buffer, with bounds against compression
//! bombs.

use flate2::{Decompress, FlushDecompress, Status};

use crate::incoming::BodyError;
use crate::pool::Buffer;

/// The encoding of a body, according to its `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Unknown,
}

/// Decodes one body.
pub(crate) struct Inflater {
    decoder: Decompress,
    name: &'static str,
    limit: usize,
    taken: u64,
    ended: bool,
}

// === impl Encoding ===

impl Encoding {
    pub(crate) fn of(headers: &http::HeaderMap) -> Self {
        let mut values = headers.get_all(http::header::CONTENT_ENCODING).iter();
        let Some(value) = values.next() else {
            return Encoding::Identity;
        };
        let value = value.as_bytes().trim_ascii();
        let is = |name: &str| value.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if values.next().is_some() => Encoding::Unknown,
            () if is("gzip") || is("x-gzip") => Encoding::Gzip,
            () if is("deflate") => Encoding::Deflate,
            () if is("identity") || is("") => Encoding::Identity,
            () => Encoding::Unknown,
        }
    }
}

// === impl Inflater ===

impl Inflater {
    pub(crate) fn new(encoding: Encoding, limit: usize) -> Result<Self, BodyError> {
        let (decoder, name) = match encoding {
            Encoding::Gzip => (Decompress::new_gzip(15), "gzip"),
            Encoding::Deflate => (Decompress::new(true), "deflate"),
            Encoding::Identity | Encoding::Unknown => return Err(BodyError::UnsupportedEncoding),
        };
        Ok(Inflater {
            decoder,
            name,
            limit,
            taken: 0,
            ended: false,
        })
    }

    /// Decodes as much of `input` as fits into the next [`STEP_BYTES`] of output; returns how much of the
    /// input was used.
    pub(crate) fn step(&mut self, input: &[u8], into: &mut Buffer) -> Result<usize, BodyError> {
        if self.ended {
            if self.name != "gzip" {
                return Err(BodyError::Corrupt(self.name));
            }
            // RFC 1952: a gzip file may have several members.
            self.decoder = Decompress::new_gzip(15);
            self.ended = false;
        }
        if into.spare() == 0 {
            let size = (into.capacity() * 2).clamp(STEP_BYTES, self.limit.saturating_add(1).max(STEP_BYTES));
            into.try_grow(size.max(into.len() + 1))?;
        }
        let before = into.len();
        // One byte more than allowed distinguishes a body of exactly the limit from a larger one.
        let room = into.spare().min(STEP_BYTES).min(self.limit + 1 - before);
        let (taken, made) = (self.decoder.total_in(), self.decoder.total_out());
        let out = into.as_mut_vec();
        out.resize(before + room, 0);
        let status = self
            .decoder
            .decompress(input, &mut out[before..], FlushDecompress::None);
        let made = (self.decoder.total_out() - made) as usize;
        into.truncate(before + made);
        let used = (self.decoder.total_in() - taken) as usize;
        self.taken += used as u64;
        let status = status.map_err(|_| BodyError::Corrupt(self.name))?;
        self.ended = status == Status::StreamEnd;
        if used == 0 && made == 0 && !self.ended && !input.is_empty() {
            return Err(BodyError::Corrupt(self.name));
        }
        let bomb = into.len() > RATIO_FREE_BYTES && into.len() as u64 / RATIO_MAX > self.taken;
        if into.len() > self.limit || bomb {
            return Err(BodyError::Inflated {
                limit: self.limit as u64,
            });
        }
        Ok(used)
    }

    /// Returns whether there may be output for which there was no room yet.
    pub(crate) fn has_more(&self, into: &Buffer, before: usize) -> bool {
        !self.ended && into.len() - before > 0
    }

    /// Checks that the body may end here.
    pub(crate) fn finish(&self) -> Result<(), BodyError> {
        if self.ended {
            Ok(())
        } else {
            Err(BodyError::Corrupt(self.name))
        }
    }
}

/// The output of one step; the loop yields between steps, so that a large body does not hold up the core.
pub(crate) const STEP_BYTES: usize = 256 << 10;
/// No honest log compresses better than this; bombs reach 1,030.
const RATIO_MAX: u64 = 400;
/// Small bodies may have any ratio.
const RATIO_FREE_BYTES: usize = 8 << 20;
