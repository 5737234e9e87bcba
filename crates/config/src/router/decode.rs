//! Decodes paths and parameters as servers do.

use std::borrow::Cow;

/// Percent-decodes a text. In queries, `+` is a space (`RestUtils.decodeComponent`). Returns `None` if the
/// text is not UTF-8 or has a broken escape: the cluster then words its own rejection.
pub fn decode(text: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| b == b'%' || (plus_is_space && b == b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let sound = text.bytes().enumerate().all(|(at, byte)| {
        byte != b'%'
            || text
                .as_bytes()
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    if !sound {
        return None;
    }
    let text = match plus_is_space {
        true => text.replace('+', " "),
        false => text.to_owned(),
    };
    let decoded = percent_encoding::percent_decode_str(&text).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}
