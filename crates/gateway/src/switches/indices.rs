//! The switches of single indices, by name or pattern. The last matching entry counts.

use super::setting::BadSwitch;

/// Patterns in the order in which they were given, each with its value. `None` undoes what an earlier pattern
/// set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Indices(Vec<(Box<str>, Option<bool>)>);

// === impl Indices ===

impl Indices {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the last pattern that matches an index.
    pub(crate) fn of(&self, index: &str) -> Option<bool> {
        let mut later_first = self.0.iter().rev();
        later_first
            .find(|(pattern, _)| fits(pattern, index))
            .and_then(|(_, on)| *on)
    }

    /// Returns all patterns in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<bool>)> {
        self.0.iter().map(|(pattern, on)| (&**pattern, *on))
    }

    /// Adds a pattern. Earlier entries that this pattern covers entirely are dropped.
    pub(crate) fn set(&mut self, pattern: &str, on: Option<bool>) -> Result<(), BadSwitch> {
        self.0.retain(|(before, _)| !covers(pattern, before));
        let undone = || self.0.iter().any(|(before, _)| may_meet(before, pattern));
        if on.is_some() || undone() {
            self.0.push((pattern.into(), on));
        }
        // At the front there is nothing to undo.
        let first = self.0.iter().position(|(_, on)| on.is_some());
        self.0.drain(..first.unwrap_or(self.0.len()));
        if self.0.len() > PATTERNS_MAX {
            return Err(BadSwitch(format!(
                "there are switches for {PATTERNS_MAX} indices and patterns, which is as many as are kept; reset some"
            )));
        }
        Ok(())
    }
}

/// Returns the names and patterns of an index expression in a path: names, patterns with `*`, lists of these,
/// and `_all`.
pub(crate) fn patterns(expression: &str) -> Result<Vec<Box<str>>, BadSwitch> {
    // Servers leave out empty words (`Strings.splitStringByCommaToArray`), and take an expression without any
    // other for all indices.
    let all = || expression.split(',');
    if all().all(str::is_empty) {
        return Ok(vec!["*".into()]);
    }
    let words = all().filter(|word| !word.is_empty()).map(|word| match word {
        "_all" => Ok("*".into()),
        _ if word.starts_with(['-', '+', '_', '<']) || word.contains([':', '"', '\\', '/', ' ', '|', '?', '#']) => {
            Err(BadSwitch(format!(
                "[{word}] cannot be switched: direct routing is switched for names, patterns with *, lists of them, and _all"
            )))
        }
        _ => Ok(word.into()),
    });
    words.collect()
}

/// Returns whether a pattern includes an index. As in the servers, a name that begins with a dot is matched
/// only by patterns that begin with a dot.
fn fits(pattern: &str, index: &str) -> bool {
    matches(pattern, index) && (index.starts_with('.') <= pattern.starts_with('.'))
}

/// Returns whether a text matches a pattern with `*`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns whether everything that matches `before` also matches `pattern`, or `false` where that is hard to
/// tell.
fn covers(pattern: &str, before: &str) -> bool {
    // A star stands for any text. A pattern that matches the text of `before`, stars included, also matches
    // every text that replaces these stars.
    fits(pattern, before)
}

/// Returns whether an index may match both.
fn may_meet(before: &str, pattern: &str) -> bool {
    match (before.contains('*'), pattern.contains('*')) {
        (true, true) => true,
        (true, false) => fits(before, pattern),
        _ => false,
    }
}

/// The most patterns kept for a cluster: the indices of each bulk are compared with all of them.
const PATTERNS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[(&str, Option<bool>)]) -> Indices {
        let mut indices = Indices::default();
        for (pattern, on) in steps {
            indices.set(pattern, *on).unwrap();
        }
        indices
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "a"),
            ("logs-*", "logs-"),
            ("l*s-*1", "logs-21"),
            ("*a*", "a"),
            ("a", "a"),
            ("a**b", "ab"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "ab"),
            ("a*", "ba"),
            ("*a", "ab"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_word_counts_and_undoing_a_name_leaves_the_pattern() {
        let indices = of(&[("logs-*", Some(true)), ("logs-1", Some(false))]);
        assert_eq!(
            (indices.of("logs-1"), indices.of("logs-2"), indices.of("x")),
            (Some(false), Some(true), None)
        );
        let indices = of(&[("logs-1", Some(false)), ("logs-*", Some(true))]);
        assert_eq!(indices.of("logs-1"), Some(true));
        assert_eq!(indices.iter().count(), 1, "what is covered is forgotten");
        let indices = of(&[("logs-*", Some(true)), ("logs-1", None)]);
        assert_eq!((indices.of("logs-1"), indices.of("logs-2")), (None, Some(true)));
        let indices = of(&[("logs-1", Some(true)), ("logs-1", None)]);
        assert!(indices.is_empty());
        let indices = of(&[("a", Some(true)), ("b*", Some(true)), ("*", None)]);
        assert!(indices.is_empty());
        let indices = of(&[("a*", Some(true)), ("*b", Some(true)), ("a*", None), ("*b", None)]);
        assert!(indices.is_empty(), "{indices:?}");
    }

    #[test]
    fn names_that_begin_with_a_dot_are_meant_only_by_patterns_that_do() {
        let indices = of(&[("*", Some(true))]);
        assert_eq!((indices.of("logs"), indices.of(".kibana")), (Some(true), None));
        assert_eq!(of(&[(".k*", Some(true))]).of(".kibana"), Some(true));
    }

    #[test]
    fn expressions_are_names_patterns_and_lists_and_nothing_else() {
        let words = |expression| patterns(expression).map(|words| words.join(" "));
        assert_eq!(words("a,b*,_all").as_deref(), Ok("a b* *"));
        assert_eq!((words("").as_deref(), words(",").as_deref()), (Ok("*"), Ok("*")));
        assert_eq!(
            words("mine,").as_deref(),
            Ok("mine"),
            "and no more than the cluster asks about"
        );
        assert_eq!(words(",,a,,b").as_deref(), Ok("a b"));
        for odd in ["a,-b", "<logs-{now/d}>", "other:logs", "_nodes", "a b"] {
            assert!(words(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn no_more_patterns_are_kept_than_can_be_looked_through() {
        let mut indices = Indices::default();
        for n in 0..PATTERNS_MAX {
            indices.set(&format!("i{n}"), Some(true)).unwrap();
        }
        assert!(indices.set("more", Some(true)).is_err());
    }
}
