//! Patterns for one segment of a path.

use regex::Regex;

use super::names::overlap;
use super::pattern::BadPattern;

/// A pattern for one segment of a path.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any text that is not empty.
    One,
    /// These pieces in order.
    Glob(Box<[Piece]>),
    /// Text that the expression matches as a whole.
    Regex(Regex),
}

#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Box<str>),
    /// At least this many characters (0 for `*`, 1 for `{name}`).
    Any(usize),
    Regex(Box<str>),
}

// === impl Segment ===

impl Segment {
    pub(super) fn compile(part: &str) -> Result<Self, BadPattern> {
        let pieces = pieces(part)?;
        Ok(match pieces.as_slice() {
            [] => Self::Literal("".into()),
            [Piece::Text(text)] => Self::Literal(text.clone()),
            [Piece::Any(_)] => Self::One,
            all if all.iter().any(|piece| matches!(piece, Piece::Regex(_))) => Self::Regex(whole_regex(all)?),
            _ => Self::Glob(pieces.into()),
        })
    }

    pub(super) fn matches(&self, part: &str) -> bool {
        match self {
            Self::Literal(text) => part == &**text,
            Self::One => !part.is_empty(),
            Self::Glob(pieces) => glob(pieces, part),
            Self::Regex(regex) => regex.is_match(part),
        }
    }
}

impl Segment {
    /// Returns whether the segment is for certain indices, if it is where a path has its index.
    pub(super) fn binds_index(&self) -> bool {
        match self {
            Self::One => false,
            Self::Literal(text) => !text.is_empty() && !text.starts_with('_'),
            Self::Glob(pieces) => !matches!(pieces.first(), Some(Piece::Text(text)) if text.starts_with('_')),
            Self::Regex(_) => true,
        }
    }

    /// Returns the text, if the segment matches only one.
    pub(super) fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether some name that a pattern covers may match.
    pub(super) fn may_cover(&self, wildcard: &str) -> bool {
        match self {
            Self::One | Self::Regex(_) => true,
            Self::Literal(text) => overlap(text, wildcard),
            Self::Glob(pieces) => {
                let text: String = pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Text(text) => text,
                        Piece::Any(_) | Piece::Regex(_) => "*",
                    })
                    .collect();
                overlap(&text, wildcard)
            }
        }
    }
}

/// Parses the pieces of a segment's pattern.
fn pieces(part: &str) -> Result<Vec<Piece>, BadPattern> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while !rest.is_empty() {
        let special = rest.find(['*', '{']).unwrap_or(rest.len());
        if special > 0 {
            pieces.push(Piece::Text(rest[..special].into()));
            rest = &rest[special..];
        } else if let Some(after) = rest.strip_prefix('*') {
            // Two stars mean the same as one.
            if !matches!(pieces.last(), Some(Piece::Any(0))) {
                pieces.push(Piece::Any(0));
            }
            rest = after;
        } else {
            let end = closing_brace(rest).ok_or(BadPattern::Unclosed)?;
            let (name, regex) = match rest[1..end].split_once(':') {
                Some((name, regex)) => (name, Some(regex)),
                None => (&rest[1..end], None),
            };
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
                return Err(BadPattern::NoName);
            }
            pieces.push(match regex {
                Some("*") => return Err(BadPattern::RestWithinSegment),
                Some(regex) => Piece::Regex(regex.into()),
                None => Piece::Any(1),
            });
            rest = &rest[end + 1..];
        }
    }
    Ok(pieces)
}

/// Returns the place where the first brace of `text` closes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.bytes().position(|byte| {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        depth == 0
    })
}

fn whole_regex(pieces: &[Piece]) -> Result<Regex, BadPattern> {
    let mut text = String::from("^(?:");
    for piece in pieces {
        match piece {
            Piece::Text(literal) => text += &regex::escape(literal),
            Piece::Any(0) => text += ".*",
            Piece::Any(_) => text += ".+",
            Piece::Regex(regex) => {
                compile_regex(regex)?;
                text += &format!("(?:{regex})");
            }
        }
    }
    Ok(compile_regex(&(text + ")$"))?)
}

/// A regular expression that cannot be compiled, with the last line of the compiler's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds an invalid regular expression: {0}")]
pub struct BadRegex(String);

/// Compiles a regular expression of bounded size. Matching is linear in the text, whatever the expression.
pub(crate) fn compile_regex(text: &str) -> Result<Regex, BadRegex> {
    regex::RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| {
            let reason = error.to_string();
            let reason = reason
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            BadRegex(reason)
        })
}

/// Returns whether the pieces match all of `part`. The match is greedy from the left and backs up to the last
/// star only, which is enough for stars. `{name}` (at least one character) is a star after one character.
fn glob(pieces: &[Piece], part: &str) -> bool {
    let (mut piece, mut at) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    loop {
        let step = match pieces.get(piece) {
            None => (at == part.len()).then_some(at),
            Some(Piece::Text(text)) => part[at..].starts_with(&**text).then_some(at + text.len()),
            Some(Piece::Any(least)) => match part[at..]
                .char_indices()
                .map(|(i, _)| i)
                .chain([part[at..].len()])
                .nth(*least)
            {
                Some(skip) => {
                    last_star = Some((piece + 1, at + skip));
                    Some(at + skip)
                }
                None => None,
            },
            Some(Piece::Regex(_)) => None,
        };
        match (step, &mut last_star) {
            (Some(_), _) if piece == pieces.len() => return true,
            (Some(next), _) => {
                piece += 1;
                at = next;
            }
            (None, Some((after_star, star_at))) => {
                let Some(next) = part[*star_at..].chars().next() else {
                    return false;
                };
                *star_at += next.len_utf8();
                (piece, at) = (*after_star, *star_at);
            }
            (None, None) => return false,
        }
    }
}
