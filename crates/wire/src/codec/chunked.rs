//! The chunked transfer coding, decoded strictly and in place.

/// Decodes a chunked body, in whatever pieces it arrives.
#[derive(Debug, Clone, Default)]
pub struct ChunkDecoder {
    state: Progress,
    extension_bytes: usize,
    trailer_bytes: usize,
    trailer_lines: usize,
}

/// The result of looking at the next bytes: `skip` bytes of framing, then `data` bytes of body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStep {
    /// Bytes of framing before the data.
    pub skip: usize,
    /// Bytes of data after that.
    pub data: usize,
    /// Whether the body is over; the bytes that follow belong to the next message.
    pub ended: bool,
}

/// The reason why a chunked body can't be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// A size line or chunk end is malformed, or an extension is too long.
    #[error("malformed chunk")]
    Chunk,
    /// The trailers are malformed or too large.
    #[error("malformed or too large trailers")]
    Trailer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    SizeStart,
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Ended,
}

// === impl ChunkDecoder ===

impl ChunkDecoder {
    /// Looks at the next bytes of the connection. The caller takes `data` bytes after `skip`, and calls again
    /// with what follows. When neither data nor the end was found, all of `input` has been used up.
    pub fn step(&mut self, input: &[u8]) -> Result<ChunkStep, ChunkFault> {
        let mut at = 0;
        while at < input.len() {
            if let Progress::Data { left } = self.state {
                let data = left.min((input.len() - at) as u64) as usize;
                let left = left - data as u64;
                self.state = if left == 0 {
                    Progress::DataCr
                } else {
                    Progress::Data { left }
                };
                return Ok(ChunkStep {
                    skip: at,
                    data,
                    ended: false,
                });
            }
            self.state = self.after(input[at])?;
            at += 1;
            if self.state == Progress::Ended {
                return Ok(ChunkStep {
                    skip: at,
                    data: 0,
                    ended: true,
                });
            }
        }
        Ok(ChunkStep {
            skip: at,
            data: 0,
            ended: false,
        })
    }

    fn after(&mut self, byte: u8) -> Result<Progress, ChunkFault> {
        let bad = Err(ChunkFault::Chunk);
        Ok(match self.state {
            Progress::SizeStart => match hex(byte) {
                Some(digit) => Progress::Size {
                    size: digit,
                    digits: 1,
                },
                None => return bad,
            },
            Progress::Size { size, digits } => match (hex(byte), byte) {
                (Some(digit), _) if digits < SIZE_DIGITS_MAX => Progress::Size {
                    size: size << 4 | digit,
                    digits: digits + 1,
                },
                (None, b'\r') => Progress::SizeLf { size },
                (None, b';') => Progress::Extension { size },
                _ => return bad,
            },
            Progress::Extension { size } => match byte {
                b'\r' => Progress::SizeLf { size },
                b'\t' | b' '..=b'~' | 0x80.. if self.extension_bytes < EXTENSION_BYTES_MAX => {
                    // Counted over the whole body: many small extensions are no better than a long one.
                    self.extension_bytes += 1;
                    Progress::Extension { size }
                }
                _ => return bad,
            },
            Progress::SizeLf { size } => match (byte, size) {
                (b'\n', 0) => Progress::TrailerStart,
                (b'\n', left) => Progress::Data { left },
                _ => return bad,
            },
            Progress::DataCr if byte == b'\r' => Progress::DataLf,
            Progress::DataLf if byte == b'\n' => Progress::SizeStart,
            Progress::DataCr | Progress::DataLf => return bad,
            Progress::TrailerStart
            | Progress::TrailerName
            | Progress::TrailerValue
            | Progress::TrailerLf
            | Progress::EndLf => {
                return self.after_trailer(byte).ok_or(ChunkFault::Trailer);
            }
            Progress::Data { .. } | Progress::Ended => {
                unreachable!("left before bytes are looked at one by one")
            }
        })
    }

    fn after_trailer(&mut self, byte: u8) -> Option<Progress> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return None;
        }
        match (self.state, byte) {
            (Progress::TrailerStart, b'\r') => Some(Progress::EndLf),
            (Progress::TrailerStart, byte) if is_token(byte) && self.trailer_lines < TRAILER_LINES_MAX => {
                self.trailer_lines += 1;
                Some(Progress::TrailerName)
            }
            (Progress::TrailerName, b':') => Some(Progress::TrailerValue),
            (Progress::TrailerName, byte) if is_token(byte) => Some(Progress::TrailerName),
            (Progress::TrailerValue, b'\r') => Some(Progress::TrailerLf),
            (Progress::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Some(Progress::TrailerValue),
            (Progress::TrailerLf, b'\n') => Some(Progress::TrailerStart),
            (Progress::EndLf, b'\n') => Some(Progress::Ended),
            _ => None,
        }
    }
}

fn hex(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}

/// Returns whether a byte may stand in a method or a header's name (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// 16 digits fill a `u64`; leading zeros count, since no honest sender needs more.
const SIZE_DIGITS_MAX: u8 = 16;
const EXTENSION_BYTES_MAX: usize = 4 << 10;
const TRAILER_BYTES_MAX: usize = 8 << 10;
const TRAILER_LINES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(input: &[u8], piece: usize) -> Result<(Vec<u8>, Option<usize>), ChunkFault> {
        let (mut decoder, mut out, mut at) = (ChunkDecoder::default(), Vec::new(), 0);
        while at < input.len() {
            let end = (at + piece).min(input.len());
            let step = decoder.step(&input[at..end])?;
            out.extend_from_slice(&input[at + step.skip..at + step.skip + step.data]);
            at += step.skip + step.data;
            if step.ended {
                return Ok((out, Some(at)));
            }
        }
        Ok((out, None))
    }

    #[test]
    fn chunks_extensions_and_trailers_are_understood() {
        let body = b"5\r\nhello\r\n6;a=\"b\"\r\n world\r\n0\r\nX: y\r\n\r\nNEXT";
        for piece in 1..body.len() {
            assert_eq!(
                decode(body, piece),
                Ok((b"hello world".to_vec(), Some(body.len() - 4)))
            );
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in [
            &b"\r\n"[..],
            b"5\nhello\r\n",
            b"5 \r\nhello",
            b" 5\r\nhello",
            b"+5\r\nhello",
            b"0x5\r\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\n0\r\n\r\n",
            b"11111111111111111\r\n",
            b"5;\x00\r\nhello",
            b"5;a\nhello",
            b"0\r\nbad trailer\r\n\r\n",
            b"0\r\n X: y\r\n\r\n",
            b"0\r\nX: y\n\r\n",
            b"-1\r\n",
        ] {
            assert!(
                decode(body, body.len()).is_err(),
                "{:?}",
                String::from_utf8_lossy(body)
            );
            assert!(decode(body, 1).is_err());
        }
    }

    #[test]
    fn endless_extensions_and_trailers_are_refused() {
        let extension = [b"1;".as_slice(), &[b'a'; EXTENSION_BYTES_MAX + 1]].concat();
        assert_eq!(decode(&extension, 4096), Err(ChunkFault::Chunk));
        let many = b"1;aaaaaaaa\r\nx\r\n".repeat(EXTENSION_BYTES_MAX / 8 + 1);
        assert_eq!(decode(&many, 4096), Err(ChunkFault::Chunk));
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(TRAILER_LINES_MAX + 1)].concat();
        assert_eq!(decode(&trailers, 4096), Err(ChunkFault::Trailer));
    }

    proptest! {
        #[test]
        fn any_chunking_decodes_to_the_same_body(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
            piece in 1usize..400,
        ) {
            let mut encoded = Vec::new();
            for part in &parts {
                encoded.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
                encoded.extend_from_slice(part);
                encoded.extend_from_slice(b"\r\n");
            }
            encoded.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(decode(&encoded, piece), Ok((parts.concat(), Some(encoded.len()))));
        }

        #[test]
        fn noise_never_panics_and_pieces_do_not_matter(
            noise in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'0'), Just(b';'), any::<u8>()], 0..40),
            piece in 1usize..8,
        ) {
            let whole = decode(&noise, noise.len().max(1));
            let pieces = decode(&noise, piece);
            prop_assert_eq!(whole.is_err(), pieces.is_err());
            if whole.is_ok() { prop_assert_eq!(whole, pieces); }
        }
    }
}
