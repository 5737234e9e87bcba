//! `gzip` and `deflate` bodies, decoded as they arrive into one buffer.
//!
//! A compression bomb costs no more than an honest body that is as large when it is decoded: the limit holds
//! for the decoded size, and memory is charged as the body grows. No ratio is too good to be honest (a dump
//! of equal documents reaches what a bomb does, 1,030).

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
    ended: bool,
    /// The number of gzip members so far.
    members: usize,
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
            ended: false,
            members: 1,
        })
    }

    /// Decodes as much of at most [`INPUT_STEP_BYTES`] of `input` as fits into the next [`STEP_BYTES`] of
    /// output; returns how much of the input was used.
    pub(crate) fn step(&mut self, input: &[u8], into: &mut Buffer) -> Result<usize, BodyError> {
        if self.ended {
            self.begin_member(into.len())?;
        }
        // Empty blocks are input that makes no output: without this bound, one step could take all of them.
        let input = &input[..input.len().min(INPUT_STEP_BYTES)];
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
        let status = status.map_err(|_| BodyError::Corrupt(self.name))?;
        self.ended = status == Status::StreamEnd;
        if used == 0 && made == 0 && !self.ended && !input.is_empty() {
            return Err(BodyError::Corrupt(self.name));
        }
        if into.len() > self.limit {
            return Err(BodyError::Inflated {
                limit: self.limit as u64,
            });
        }
        Ok(used)
    }

    /// Begins the next member: a gzip file may have several (RFC 1952). `made` is the output so far.
    fn begin_member(&mut self, made: usize) -> Result<(), BodyError> {
        let is_flood = self.members >= MEMBERS_FREE && made / self.members < MEMBER_BYTES_MIN;
        if self.name != "gzip" || is_flood {
            return Err(BodyError::Corrupt(self.name));
        }
        self.decoder = Decompress::new_gzip(15);
        self.ended = false;
        self.members += 1;
        Ok(())
    }

    /// Returns the work of a step that has used so much input and made so much output, as bytes of output
    /// that would be as much.
    pub(crate) fn work(&self, used: usize, made: usize) -> usize {
        made + used + if self.ended { MEMBER_WORK } else { 0 }
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
/// The input of one step.
const INPUT_STEP_BYTES: usize = 64 << 10;
/// The work of beginning a gzip member, whose window and tables are made anew.
const MEMBER_WORK: usize = 32 << 10;
/// Each member costs as much as many documents: beyond the first ones, the members of a body have to have
/// this many bytes each, on average.
const MEMBERS_FREE: usize = 1_024;
const MEMBER_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::{Budget, Pool};

    fn member(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    /// Decodes a body; returns its text, the steps and the work of the largest of them.
    fn inflate(body: &[u8]) -> Result<(Vec<u8>, usize, usize), BodyError> {
        let mut into = Pool::new(Arc::new(Budget::new(64 << 20))).take(0);
        let mut inflater = Inflater::new(Encoding::Gzip, 16 << 20)?;
        let (mut at, mut steps, mut most) = (0, 0, 0);
        loop {
            let before = into.len();
            let used = inflater.step(&body[at..], &mut into)?;
            at += used;
            steps += 1;
            most = most.max(inflater.work(used, into.len() - before));
            if at == body.len() && !inflater.has_more(&into, before) {
                inflater.finish()?;
                return Ok((into.to_vec(), steps, most));
            }
        }
    }

    #[test]
    fn members_are_one_text_unless_they_are_a_flood_of_next_to_nothing() {
        let lines: Vec<u8> = (0..5_000)
            .flat_map(|n| format!("line {n:>20}\n").into_bytes())
            .collect();
        let each: Vec<u8> = lines
            .split_inclusive(|byte| *byte == b'\n')
            .flat_map(member)
            .collect();
        assert_eq!(inflate(&each).unwrap().0, lines);
        let few = member(b"").repeat(1_000);
        assert_eq!(inflate(&few).unwrap().0, b"");
        let flood = member(b"").repeat(2_000);
        assert!(matches!(inflate(&flood), Err(BodyError::Corrupt("gzip"))));
    }

    #[test]
    fn no_step_takes_long_also_if_it_makes_nothing() {
        let whole = member(b"");
        let (head, tail) = whole.split_at(10);
        // Empty blocks that are stored, and not the last.
        let blocks = [0, 0, 0, 0xff, 0xff].repeat(200_000);
        let (text, steps, most) = inflate(&[head, &blocks, tail].concat()).unwrap();
        assert!(text.is_empty() && steps > 10, "{steps}");
        assert!(most <= STEP_BYTES, "{most}");
    }
}
