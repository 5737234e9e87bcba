//! Ids and routing values of every kind, and the many ways to write them in JSON.

use std::fmt::Write as _;

use fastrand::Rng;

/// Returns a different text for each `n`: ASCII, characters that JSON must escape, accents, CJK, astral
/// planes, long texts.
pub(crate) fn text(rng: &mut Rng, n: usize) -> String {
    let mut text = match n % 8 {
        0 => format!("doc-{n}"),
        1 => format!("{n}"),
        2 => format!("q\"b\\{n}\t/\u{8}\u{c}\u{1}"),
        3 => format!("é-ß-İ-{n}"),
        4 => format!("日本語-한국어-{n}"),
        5 => format!("🦀{n}𐍈"),
        6 => format!("{:016x}{:016x}-{n}", rng.u64(..), rng.u64(..)),
        _ => String::new(),
    };
    if text.is_empty() {
        let _ = write!(text, "{n}:");
        for _ in 0..rng.usize(1..30) {
            text.push(rng.char('!'..));
        }
    }
    text
}

/// Returns `text` as a JSON string, at random either raw where that is allowed, or with needless escapes.
pub(crate) fn json(rng: &mut Rng, text: &str) -> String {
    let eager = rng.u8(0..4);
    let mut out = String::from("\"");
    for c in text.chars() {
        let needless = eager == 0 && rng.bool();
        match c {
            '"' if !needless => out.push_str("\\\""),
            '\\' if !needless => out.push_str("\\\\"),
            '/' if needless => out.push_str("\\/"),
            '\t' if !needless => out.push_str("\\t"),
            c if needless || (c as u32) < 0x20 || c == '"' || c == '\\' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let upper = rng.bool();
                    let _ = if upper {
                        write!(out, "\\u{unit:04X}")
                    } else {
                        write!(out, "\\u{unit:04x}")
                    };
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
