//! Which flows a request takes: a router's rules, compiled.
//!
//! | pattern | matches |
//! |---|---|
//! | `/_bulk` | just that |
//! | `/{index}/_bulk` | one segment, not empty, then `/_bulk` |
//! | `/*/_search`, `/logs-*/_bulk` | any characters within a segment; a segment that is `*` alone isn't empty |
//! | `/{year:\d+}/_bulk` | one segment that the expression matches as a whole |
//! | `/_cat/*`, `/{any:*}` | the rest of the path, slashes included |
//!
//! Slashes at a path's end are as good as none, as for the cluster itself.

use std::sync::Arc;

use http::Method;
use regex::Regex;

/// A router, compiled. Matching allocates nothing (but for `regexp` segments) and takes time linear in the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Its name.
    pub name: Arc<str>,
    default_flow: [Arc<str>; 1],
    rules: Vec<Rule>,
}

/// One rule: its methods, patterns and flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    methods: Option<Box<[Method]>>,
    patterns: Box<[Pattern]>,
    flows: Box<[Arc<str>]>,
}

/// A path pattern, compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    segments: Box<[Segment]>,
    /// After the segments: a slash and anything.
    rest: bool,
}

#[derive(Clone, Debug)]
enum Segment {
    /// Just this.
    Literal(Box<str>),
    /// Anything but nothing.
    One,
    /// These pieces in order.
    Glob(Box<[Piece]>),
    /// What the expression matches as a whole.
    Regex(Regex),
}

#[derive(Clone, Debug)]
enum Piece {
    Text(Box<str>),
    /// At least so many characters (0 for `*`, 1 for `{name}`).
    Any(usize),
    Regex(Box<str>),
}

// === impl Router ===

impl Router {
    /// A router of `rules`, tried in order.
    pub fn new(name: Arc<str>, default_flow: Arc<str>, rules: Vec<Rule>) -> Self {
        Self {
            name,
            default_flow: [default_flow],
            rules,
        }
    }

    /// Every flow that a request may take.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<str>> {
        self.default_flow
            .iter()
            .chain(self.rules.iter().flat_map(|rule| &rule.flows))
    }

    /// The names of the flows that a request for `path` (as sent, without the query) takes, in order; all are
    /// keys of [`crate::config::Config::flows`]. The first rule that matches wins.
    pub fn route(&self, method: &Method, path: &str) -> &[Arc<str>] {
        self.rules
            .iter()
            .find(|rule| rule.matches(method, path))
            .map_or(&self.default_flow, |rule| &rule.flows)
    }
}

// === impl Rule ===

impl Rule {
    /// A rule for `methods` (none: any).
    pub fn new(methods: Option<Vec<Method>>, patterns: Vec<Pattern>, flows: Vec<Arc<str>>) -> Self {
        Self {
            methods: methods.map(Vec::into_boxed_slice),
            patterns: patterns.into(),
            flows: flows.into(),
        }
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.contains(method))
            && self.patterns.iter().any(|pattern| pattern.matches(path))
    }
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
    /// A sentence that says what is wrong with it.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        if is_stars(text) {
            return Ok(Self {
                text: text.into(),
                segments: Box::default(),
                rest: true,
            });
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err("must begin with `/`".to_owned());
        };
        if path.contains('?') && !path.contains('{') {
            return Err("is a path, without a query".to_owned());
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
            return Err("has `{name:*}` before its end".to_owned());
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

    /// Whether the pattern matches the whole of `path`.
    pub fn matches(&self, path: &str) -> bool {
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
        for segment in &self.segments {
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
            if !segment.matches(part) {
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
fn split_segments(path: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1).ok_or("has a `}` without `{`")?,
            b'/' if depth == 0 => {
                parts.push(&path[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("has a `{` without `}`".to_owned());
    }
    parts.push(&path[start..]);
    Ok(parts)
}

// === impl Segment ===

impl Segment {
    fn compile(part: &str) -> Result<Self, String> {
        let pieces = pieces(part)?;
        Ok(match pieces.as_slice() {
            [] => Self::Literal("".into()),
            [Piece::Text(text)] => Self::Literal(text.clone()),
            [Piece::Any(_)] => Self::One,
            all if all.iter().any(|piece| matches!(piece, Piece::Regex(_))) => Self::Regex(whole_regex(all)?),
            _ => Self::Glob(pieces.into()),
        })
    }

    fn matches(&self, part: &str) -> bool {
        match self {
            Self::Literal(text) => part == &**text,
            Self::One => !part.is_empty(),
            Self::Glob(pieces) => glob(pieces, part),
            Self::Regex(regex) => regex.is_match(part),
        }
    }
}

/// The pieces of a segment's pattern.
fn pieces(part: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while !rest.is_empty() {
        let special = rest.find(['*', '{']).unwrap_or(rest.len());
        if special > 0 {
            pieces.push(Piece::Text(rest[..special].into()));
            rest = &rest[special..];
        } else if let Some(after) = rest.strip_prefix('*') {
            // Two stars are as good as one.
            if !matches!(pieces.last(), Some(Piece::Any(0))) {
                pieces.push(Piece::Any(0));
            }
            rest = after;
        } else {
            let end = closing_brace(rest).ok_or("has a `{` without `}`")?;
            let (name, regex) = match rest[1..end].split_once(':') {
                Some((name, regex)) => (name, Some(regex)),
                None => (&rest[1..end], None),
            };
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
                return Err("has braces without a name in them".to_owned());
            }
            pieces.push(match regex {
                Some("*") => return Err("has `{name:*}` that isn't the whole last segment".to_owned()),
                Some(regex) => Piece::Regex(regex.into()),
                None => Piece::Any(1),
            });
            rest = &rest[end + 1..];
        }
    }
    Ok(pieces)
}

/// Where the brace that `text` begins with closes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.bytes().position(|byte| {
        depth += i32::from(byte == b'{') - i32::from(byte == b'}');
        depth == 0
    })
}

fn whole_regex(pieces: &[Piece]) -> Result<Regex, String> {
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
    compile_regex(&(text + ")$"))
}

/// A regular expression of bounded size; matching is linear in the text whatever the expression.
pub(crate) fn compile_regex(text: &str) -> Result<Regex, String> {
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
            format!("holds an invalid regular expression: {reason}")
        })
}

/// Whether the pieces match all of `part`: greedy from the left, backing up to the last star only, which is
/// enough for stars. `{name}` (one character at least) is a star after one character.
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

const PATTERN_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            let error = Pattern::compile(pattern).unwrap_err();
            assert!(error.contains(message), "{pattern}: {error}");
        }
    }

    #[test]
    fn the_first_rule_that_takes_method_and_path_wins() {
        let rule = |methods: Option<Vec<Method>>, pattern: &str, flow: &str| {
            Rule::new(
                methods,
                vec![Pattern::compile(pattern).unwrap()],
                vec![flow.into()],
            )
        };
        let router = Router::new(
            "r".into(),
            "default".into(),
            vec![
                rule(Some(vec![Method::POST]), "/_bulk", "post"),
                rule(None, "/_bulk", "any"),
                rule(None, "/{index}/_bulk", "index"),
            ],
        );
        let flow = |method, path| router.route(&method, path)[0].to_string();
        assert_eq!(flow(Method::POST, "/_bulk"), "post");
        assert_eq!(flow(Method::PUT, "/_bulk"), "any");
        assert_eq!(flow(Method::PUT, "/logs/_bulk"), "index");
        assert_eq!(flow(Method::GET, "/_search"), "default");
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
