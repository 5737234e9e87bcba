//! Layouts of times as Go writes them: the reference time `Mon Jan 2 15:04:05 MST 2006` in the desired
//! format. (Source: the documentation of Go's package `time`, "Constants".)

use std::io::Write as _;

use jiff::Zoned;

/// A compiled layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout(Vec<LayoutPart>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayoutPart {
    Text(char),
    /// A `strftime` format.
    Format(&'static str),
    /// The month without a leading zero.
    Month,
    Day,
    Hour12,
    Minute,
    Second,
    /// Fraction of a second: separator, digits, and whether trailing zeros are left out.
    Fraction(char, usize, bool),
    Offset(Offset),
}

/// How an offset from UTC is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offset {
    colon: bool,
    minutes: bool,
    /// Whether UTC is written as `Z`.
    zulu: bool,
}

/// The meaning of each text in a layout; if two match, the first one counts.
const TOKENS: [(&str, LayoutPart); 30] = [
    ("January", LayoutPart::Format("%B")),
    ("Jan", LayoutPart::Format("%b")),
    ("Monday", LayoutPart::Format("%A")),
    ("Mon", LayoutPart::Format("%a")),
    ("MST", LayoutPart::Format("%Z")),
    ("2006", LayoutPart::Format("%Y")),
    ("_2006", LayoutPart::Format("_%Y")),
    ("__2", LayoutPart::Format("%_3j")),
    ("_2", LayoutPart::Format("%e")),
    ("002", LayoutPart::Format("%j")),
    ("-07:00", offset(true, true, false)),
    ("-0700", offset(false, true, false)),
    ("-07", offset(false, false, false)),
    ("Z07:00", offset(true, true, true)),
    ("Z0700", offset(false, true, true)),
    ("Z07", offset(false, false, true)),
    ("01", LayoutPart::Format("%m")),
    ("02", LayoutPart::Format("%d")),
    ("03", LayoutPart::Format("%I")),
    ("04", LayoutPart::Format("%M")),
    ("05", LayoutPart::Format("%S")),
    ("06", LayoutPart::Format("%y")),
    ("15", LayoutPart::Format("%H")),
    ("PM", LayoutPart::Format("%p")),
    ("pm", LayoutPart::Format("%P")),
    ("1", LayoutPart::Month),
    ("2", LayoutPart::Day),
    ("3", LayoutPart::Hour12),
    ("4", LayoutPart::Minute),
    ("5", LayoutPart::Second),
];

const fn offset(colon: bool, minutes: bool, zulu: bool) -> LayoutPart {
    LayoutPart::Offset(Offset { colon, minutes, zulu })
}

// === impl Layout ===

impl Layout {
    /// Compiles a layout; a text that stands for nothing is kept as it is.
    pub(crate) fn new(layout: &str) -> Layout {
        let mut parts = Vec::new();
        let mut rest = layout;
        while let Some(first) = rest.chars().next() {
            let (part, length) = fraction(rest)
                .or_else(|| token(rest))
                .unwrap_or((LayoutPart::Text(first), first.len_utf8()));
            parts.push(part);
            rest = &rest[length..];
        }
        Layout(parts)
    }

    /// Appends a time in this layout.
    pub(crate) fn write(&self, time: &Zoned, out: &mut Vec<u8>) {
        for part in &self.0 {
            let written = match *part {
                LayoutPart::Text(text) => write!(out, "{text}"),
                LayoutPart::Format(format) => write!(out, "{}", time.strftime(format)),
                LayoutPart::Month => write!(out, "{}", time.month()),
                LayoutPart::Day => write!(out, "{}", time.day()),
                LayoutPart::Hour12 => write!(out, "{}", (time.hour() + 11) % 12 + 1),
                LayoutPart::Minute => write!(out, "{}", time.minute()),
                LayoutPart::Second => write!(out, "{}", time.second()),
                LayoutPart::Fraction(separator, digits, trimmed) => {
                    let nanos = format!("{:09}", time.subsec_nanosecond());
                    let digits = &nanos[..digits];
                    match digits.trim_end_matches('0') {
                        "" if trimmed => Ok(()),
                        short if trimmed => write!(out, "{separator}{short}"),
                        _ => write!(out, "{separator}{digits}"),
                    }
                }
                LayoutPart::Offset(offset) => {
                    let seconds = time.offset().seconds();
                    if offset.zulu && seconds == 0 {
                        write!(out, "Z")
                    } else {
                        let sign = if seconds < 0 { '-' } else { '+' };
                        let minutes = seconds.unsigned_abs() / 60;
                        let colon = if offset.colon { ":" } else { "" };
                        match offset.minutes {
                            true => write!(out, "{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60),
                            false => write!(out, "{sign}{:02}", minutes / 60),
                        }
                    }
                }
            };
            written.expect("a vector takes every write, and these formats are right");
        }
    }
}

/// Parses `.000` or `,999`, not followed by another digit.
fn fraction(text: &str) -> Option<(LayoutPart, usize)> {
    let separator = text.chars().next().filter(|first| matches!(first, '.' | ','))?;
    let digit = *text.as_bytes().get(1)?;
    let digits = text[1..].bytes().take_while(|byte| *byte == digit).count();
    let next = text.as_bytes().get(1 + digits);
    let fits = matches!(digit, b'0' | b'9') && digits <= 9 && next.is_none_or(|next| !next.is_ascii_digit());
    fits.then_some((LayoutPart::Fraction(separator, digits, digit == b'9'), 1 + digits))
}

fn token(text: &str) -> Option<(LayoutPart, usize)> {
    // `January` is a month, `Janus` is not.
    let is_word = |token: &str| matches!(token, "Jan" | "Mon");
    let goes_on = |token: &str| text[token.len()..].starts_with(|next: char| next.is_ascii_lowercase());
    TOKENS
        .iter()
        .find(|(token, _)| text.starts_with(token) && !(is_word(token) && goes_on(token)))
        .map(|(token, part)| (*part, token.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that Go 1.26 prints for the same layouts and times.
    #[test]
    fn layouts_print_what_go_prints() {
        let time: Zoned = "2026-03-05T04:07:09.012340000+05:30[Asia/Kolkata]"
            .parse()
            .unwrap();
        for (layout, wanted) in [
            ("2006-01-02T15:04:05-0700", "2026-03-05T04:07:09+0530"),
            ("2006-01-02T15:04:05.000Z07:00", "2026-03-05T04:07:09.012+05:30"),
            ("Mon Jan _2 15:04:05 2006", "Thu Mar  5 04:07:09 2026"),
            (
                "Monday, 02-Jan-06 15:04:05 MST",
                "Thursday, 05-Mar-26 04:07:09 IST",
            ),
            ("January 2, 2006 at 3:04:05pm", "March 5, 2026 at 4:07:09am"),
            ("1/2/06 3:4:5 PM", "3/5/26 4:7:9 AM"),
            ("05.999999999|05.999|05,000000", "09.01234|09.012|09,012340"),
            ("002 __2 Janus", "064  64 Janus"),
            ("-07 é", "+05 é"),
        ] {
            let mut out = Vec::new();
            Layout::new(layout).write(&time, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "{layout}");
        }
    }
}
