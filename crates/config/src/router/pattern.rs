//! Patterns for whole paths.

use super::segment::{BadRegex, Segment};

/// A compiled path pattern.
///
/// | pattern | matches |
/// |---|---|
/// | `/_bulk` | exactly this path |
/// | `/{index}/_bulk` | one segment, not empty, then `/_bulk` |
/// | `/*/_search`, `/logs-*/_bulk` | any characters within a segment, at least one for a lone `*` |
/// | `/{year:\d+}/_bulk` | one segment that the expression matches as a whole |
/// | `/_cat/*`, `/{any:*}` | the rest of the path, slashes included |
///
/// Slashes at the end of a path are ignored, as in the cluster itself.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    segments: Box<[Segment]>,
    /// Whether a slash and anything else may follow the segments.
    rest: bool,
}

/// What is wrong with a pattern. The message follows the pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The pattern is too long.
    #[error("is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// The pattern is not a path.
    #[error("must begin with `/`")]
    NoSlash,
    /// The pattern has a query, which patterns are not compared with.
    #[error("is a path, without a query")]
    Query,
    /// The rest of a path is followed by something else.
    #[error("has `{{name:*}}` before its end")]
    RestBeforeEnd,
    /// The rest of a path within a segment.
    #[error("has `{{name:*}}` that isn't the whole last segment")]
    RestWithinSegment,
    /// A brace is not closed.
    #[error("has a `{{` without `}}`")]
    Unclosed,
    /// A brace is not opened.
    #[error("has a `}}` without `{{`")]
    Unopened,
    /// Braces do not contain a name.
    #[error("has braces without a name in them")]
    NoName,
    /// A regular expression that cannot be compiled.
    #[error(transparent)]
    Regex(#[from] BadRegex),
}

// === impl Pattern ===

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Returns what is wrong with the pattern.
    pub fn compile(text: &str) -> Result<Self, BadPattern> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(BadPattern::TooLong);
        }
        if is_stars(text) {
            return Ok(Self {
                text: text.into(),
                segments: Box::default(),
                rest: true,
            });
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err(BadPattern::NoSlash);
        };
        if path.contains('?') && !path.contains('{') {
            return Err(BadPattern::Query);
        }
        let mut parts = split_segments(path)?;
        let rest = parts.last().is_some_and(|last| is_rest(last));
        if rest {
            parts.pop();
        } else {
            while parts.last().is_some_and(|last| last.is_empty()) {
                parts.pop();
            }
        }
        if parts.iter().any(|part| is_rest(part) && !is_stars(part)) {
            return Err(BadPattern::RestBeforeEnd);
        }
        let segments = parts
            .into_iter()
            .map(Segment::compile)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.into(),
            segments,
            rest,
        })
    }

    /// Returns whether the pattern is for certain indices: its first segment is neither an arbitrary name nor
    /// the name of an API.
    pub(super) fn binds_index(&self) -> bool {
        self.segments.first().is_some_and(Segment::binds_index)
    }

    /// Returns whether the pattern names an API: its first segment is a text that begins with `_`.
    pub(super) fn names_api(&self) -> bool {
        let first = self.segments.first().and_then(Segment::literal);
        first.is_some_and(|name| name.starts_with('_'))
    }

    /// Returns the index that the pattern is for, if it is for exactly one.
    pub(super) fn index(&self) -> Option<&str> {
        let first = self.segments.first().filter(|segment| segment.binds_index());
        first.and_then(Segment::literal)
    }

    /// Returns whether the pattern matches `path` when its first segment is replaced by some name that
    /// `wildcard` covers.
    pub(super) fn may_cover(&self, path: &str, wildcard: &str) -> bool {
        self.binds_index()
            && self.walk(path, |at, segment, part| match at {
                0 => segment.may_cover(wildcard),
                _ => segment.matches(part),
            })
    }

    /// Returns whether the pattern matches the whole of `path`.
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, segment, part| segment.matches(part))
    }

    #[inline]
    fn walk(&self, path: &str, matches: impl Fn(usize, &Segment, &str) -> bool) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            // `*`, the target of an OPTIONS request.
            return self.rest && self.segments.is_empty();
        };
        let mut left = Some(if self.rest {
            path
        } else {
            path.trim_end_matches('/')
        });
        if !self.rest && left == Some("") {
            left = None;
        }
        for (at, segment) in self.segments.iter().enumerate() {
            let Some(path) = left else { return false };
            let part = match path.split_once('/') {
                Some((part, after)) => {
                    left = Some(after);
                    part
                }
                None => {
                    left = None;
                    path
                }
            };
            if !matches(at, segment, part) {
                return false;
            }
        }
        left.is_some() == self.rest
    }
}

/// Returns whether a part stands for the rest of the path, if it is the last part.
fn is_rest(part: &str) -> bool {
    is_stars(part) || part.starts_with('{') && part.ends_with(":*}")
}

/// Returns whether a part consists of stars; several stars mean the same as one.
fn is_stars(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte == b'*')
}

/// Splits at slashes that are not within braces.
fn split_segments(path: &str) -> Result<Vec<&str>, BadPattern> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1).ok_or(BadPattern::Unopened)?,
            b'/' if depth == 0 => {
                parts.push(&path[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(BadPattern::Unclosed);
    }
    parts.push(&path[start..]);
    Ok(parts)
}

const PATTERN_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::compile(pattern).unwrap().matches(path)
    }

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, path, expected) in [
            ("/_bulk", "/_bulk", true),
            ("/_bulk", "/_bulk/", true),
            ("/_bulk/", "/_bulk", true),
            ("/_bulk", "/x/_bulk", false),
            ("/_bulk", "/_bulky", false),
            ("/{index}/_bulk", "/logs/_bulk", true),
            ("/{index}/_bulk", "/logs%2F1/_bulk", true),
            ("/{index}/_bulk", "//_bulk", false),
            ("/{index}/_bulk", "/a/b/_bulk", false),
            ("/{index}/_bulk", "/_bulk", false),
            ("/*/_search", "/a,b*/_search", true),
            ("/*/_search", "/_search", false),
            ("/logs-*/_bulk", "/logs-/_bulk", true),
            ("/logs-*/_bulk", "/log/_bulk", false),
            ("/{a}-{b}/x", "/1-2-3/x", true),
            ("/{a}-{b}/x", "/-2/x", false),
            ("/{year:\\d{4}}/_bulk", "/2026/_bulk", true),
            ("/{year:\\d{4}}/_bulk", "/20261/_bulk", false),
            ("/{a:x|y}", "/xy", false),
            ("/_cat/*", "/_cat/", true),
            ("/_cat/*", "/_cat/indices/a", true),
            ("/_cat/*", "/_cat", false),
            ("/{any:*}", "/", true),
            ("/*", "/anything/at/all", true),
            ("*", "*", true),
            ("/", "/", true),
            ("/", "/x", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn broken_patterns_say_what_is_wrong() {
        for (pattern, message) in [
            ("_bulk", "must begin with `/`"),
            ("/{index", "`{` without `}`"),
            ("/index}", "`}` without `{`"),
            ("/{}/x", "without a name"),
            ("/{a:*}/x", "before its end"),
            ("/x{a:*}", "isn't the whole last segment"),
            ("/{a:(}", "invalid regular expression"),
            ("/_search?q=1", "without a query"),
        ] {
            let error = Pattern::compile(pattern).unwrap_err().to_string();
            assert!(error.contains(message), "{pattern}: {error}");
        }
    }

    /// Matches with a single regular expression for the whole path.
    fn naive(pattern: &str, path: &str) -> bool {
        let mut pattern = pattern.to_owned();
        while pattern.contains("**") {
            pattern = pattern.replace("**", "*");
        }
        let pattern = pattern.as_str();
        let (body, rest) = match pattern
            .strip_suffix("/*")
            .or_else(|| pattern.strip_suffix("/{r:*}"))
        {
            Some(body) => (body, "/(?s:.*)"),
            None => (pattern.trim_end_matches('/'), "/*"),
        };
        let mut regex = String::from("^");
        for part in body.split('/').skip(1) {
            regex += "/";
            regex += &match part {
                "*" => "[^/]+".to_owned(),
                _ => regex::escape(part)
                    .replace("\\*", "[^/]*")
                    .replace("\\{n\\}", "[^/]+"),
            };
        }
        Regex::new(&format!("{regex}{rest}$")).unwrap().is_match(path)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn compiled_patterns_agree_with_the_obvious_way(
            pattern in "(/(\\*|\\{n\\}|[ab*]{0,4}|a\\{n\\}b\\*|\\*a\\*\\{n\\})){1,4}(/\\*|/\\{r:\\*\\}|/)?",
            path in "(/[abü]{0,5}){1,5}/{0,2}",
        ) {
            let compiled = Pattern::compile(&pattern).unwrap();
            prop_assert_eq!(compiled.matches(&path), naive(&pattern, &path), "{} {}", pattern, path);
        }

        #[test]
        fn no_pattern_and_no_path_panics(pattern in ".{0,40}", path in ".{0,40}") {
            if let Ok(compiled) = Pattern::compile(&pattern) {
                compiled.matches(&path);
            }
        }
    }
}
