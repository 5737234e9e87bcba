//! Compression of messages.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Returns a body compressed, and as it is the `room` before its message.
pub(crate) fn compressed(body: &[u8], room: usize) -> Vec<u8> {
    let (before, message) = body.split_at(room);
    let mut out = Vec::with_capacity(body.len() / 2);
    out.extend_from_slice(before);
    let mut encoder = GzEncoder::new(out, Compression::fast());
    let written = encoder.write_all(message).and_then(|()| encoder.finish());
    written.expect("a vector takes all that is written")
}

/// Returns a message as it was before it was compressed; `None` if it is damaged or longer than `most`.
pub(crate) fn decompressed(message: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = GzDecoder::new(message).take(most as u64 + 1);
    decoder.read_to_end(&mut out).ok()?;
    (out.len() <= most).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_it_was_and_one_that_unpacks_to_too_much_is_refused() {
        let body = [&[7; 5][..], &[b'a'; 1000]].concat();
        let packed = compressed(&body, 5);
        assert_eq!(packed[..5], [7; 5]);
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(decompressed(&packed[5..], 1000).unwrap(), body[5..]);
        assert_eq!(decompressed(&packed[5..], 999), None);
        assert_eq!(decompressed(&packed, 1000), None, "it begins elsewhere");
    }
}
