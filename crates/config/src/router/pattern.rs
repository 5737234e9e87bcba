//! Patterns of whole paths.

use super::segment::{BadRegex, Segment};

/// A path pattern, compiled.
///
/// | pattern | matches |
/// |---|---|
/// | `/_bulk` | just that |
/// | `/{index}/_bulk` | one segment, not empty, then `/_bulk` |
/// | `/*/_search`, `/logs-*/_bulk` | any characters within a segment; a segment that is `*` alone isn't empty |
/// | `/{year:\d+}/_bulk` | one segment that the expression matches as a whole |
/// | `/_cat/*`, `/{any:*}` | the rest of the path, slashes included |
///
/// Slashes at a path's end are as good as none, as for the cluster itself.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    segments: Box<[Segment]>,
    /// After the segments: a slash and anything.
    rest: bool,
}

/// What is wrong with a pattern, in words that follow the pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is too long.
    #[error("is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// It is no path.
    #[error("must begin with `/`")]
    NoSlash,
    /// A query, which no pattern is compared with.
    #[error("is a path, without a query")]
    Query,
    /// The rest of a path, and something after it.
    #[error("has `{{name:*}}` before its end")]
    RestBeforeEnd,
    /// The rest of a path within a segment.
    #[error("has `{{name:*}}` that isn't the whole last segment")]
    RestWithinSegment,
    /// A brace that nothing closes.
    #[error("has a `{{` without `}}`")]
    Unclosed,
    /// A brace that nothing opens.
    #[error("has a `}}` without `{{`")]
    Unopened,
    /// Braces around no name.
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
    /// What is wrong with it.
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

    /// Whether the pattern is for certain indices: its first segment is neither any name nor the name of an
    /// API.
    pub(super) fn binds_index(&self) -> bool {
        self.segments.first().is_some_and(Segment::binds_index)
    }

    /// The index that it is for, if it is for one and no other.
    pub(super) fn index(&self) -> Option<&str> {
        let first = self.segments.first().filter(|segment| segment.binds_index());
        first.and_then(Segment::literal)
    }

    /// Whether it matches `path` with some name in place of its first segment that `wildcard` covers.
    pub(super) fn may_cover(&self, path: &str, wildcard: &str) -> bool {
        self.binds_index()
            && self.walk(path, |at, segment, part| match at {
                0 => segment.may_cover(wildcard),
                _ => segment.matches(part),
            })
    }

    /// Whether the pattern matches the whole of `path`.
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, segment, part| segment.matches(part))
    }

    #[inline]
    fn walk(&self, path: &str, matches: impl Fn(usize, &Segment, &str) -> bool) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            // `*` of an OPTIONS request.
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

/// The rest of the path, if it stands last.
fn is_rest(part: &str) -> bool {
    is_stars(part) || part.starts_with('{') && part.ends_with(":*}")
}

/// Several stars are as good as one.
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

    /// The same by one regular expression for the whole path.
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
