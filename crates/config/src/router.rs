//! The choice of flows for a request: the rules of a router, compiled. [`Pattern`] describes paths.

mod decode;
mod names;
mod pattern;
mod segment;

pub use decode::decode;
pub use names::Undecided;
pub use pattern::{BadPattern, Pattern};
pub use segment::BadRegex;
pub(crate) use segment::compile_regex;

use std::sync::Arc;

use http::Method;

/// A compiled router. Matching allocates nothing (except for `regexp` segments) and takes time linear in the
/// length of the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// The name of the router.
    pub name: Arc<str>,
    default_flow: [Arc<str>; 1],
    rules: Vec<Rule>,
    /// Whether any rule is for certain indices.
    binds_indices: bool,
}

/// One rule: its methods, patterns and flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    methods: Option<Box<[Method]>>,
    patterns: Box<[Pattern]>,
    flows: Box<[Arc<str>]>,
}

// === impl Router ===

impl Router {
    /// Creates a router of `rules`, which are tried in order.
    pub fn new(name: Arc<str>, default_flow: Arc<str>, rules: Vec<Rule>) -> Self {
        let binds_indices = rules
            .iter()
            .flat_map(|rule| &rule.patterns)
            .any(Pattern::binds_index);
        Self {
            name,
            default_flow: [default_flow],
            rules,
            binds_indices,
        }
    }

    /// Returns every flow that a request may take.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<str>> {
        self.default_flow
            .iter()
            .chain(self.rules.iter().flat_map(|rule| &rule.flows))
    }

    /// Returns the indices that rules name exactly, for rules with at least one of these flows.
    pub fn indices(&self, flows: &dyn Fn(&str) -> bool) -> Vec<&str> {
        let rules = self.rules.iter();
        rules
            .filter(|rule| rule.flows.iter().any(|flow| flows(flow)))
            .flat_map(|rule| &rule.patterns)
            .filter_map(Pattern::index)
            .collect()
    }

    /// Returns the names of the flows for a request with this `path` and `query`, as sent. The path is read
    /// as servers read it.
    ///
    /// # Errors
    /// Fails if a rule is for certain indices, and it cannot be determined whether the request is for these.
    pub fn decide(&self, method: &Method, path: &str, query: Option<&str>) -> Result<&[Arc<str>], Undecided> {
        match (names::canonical(path), self.binds_indices) {
            (Some(read), true) => {
                let flows = names::decide(self, method, &read, query)?;
                // Whoever looks at the index may not read its name as it is read here.
                if !path.is_ascii() {
                    let latin1 = names::canonical_latin1(path).ok_or(Undecided::Unreadable)?;
                    if names::decide(self, method, &latin1, query)? != flows {
                        return Err(Undecided::Unreadable);
                    }
                }
                Ok(flows)
            }
            (Some(path), false) => Ok(self.route(method, &path)),
            (None, true) => Err(Undecided::Unreadable),
            (None, false) => Ok(self.route(method, path)),
        }
    }

    /// Returns whether any rule is for certain indices.
    pub fn binds_indices(&self) -> bool {
        self.binds_indices
    }

    /// Returns whether a rule for certain indices has other flows than these.
    fn has_indices_elsewhere(&self, flows: &[Arc<str>]) -> bool {
        let of_indices = self
            .rules
            .iter()
            .filter(|rule| rule.patterns.iter().any(Pattern::binds_index));
        of_indices.map(|rule| &*rule.flows).any(|others| others != flows)
    }

    /// Returns whether somebody has written where a request for an API belongs: the rule that it meets names
    /// the API, and does not just cover all paths.
    fn has_rule_for_api(&self, method: &Method, path: &str) -> bool {
        let rule = self.rules.iter().find(|rule| rule.matches(method, path));
        rule.is_some_and(|rule| {
            let mut patterns = rule.patterns.iter();
            patterns.any(|pattern| pattern.names_api() && pattern.matches(path))
        })
    }

    /// Returns the flows of the rules that may cover some of the indices of a pattern, which is the first
    /// segment of `path`.
    fn rules_that_may_cover(
        &self,
        method: &Method,
        path: &str,
        wildcard: &str,
    ) -> impl Iterator<Item = &[Arc<str>]> {
        self.rules
            .iter()
            .filter(move |rule| rule.takes(method))
            .filter(move |rule| {
                rule.patterns
                    .iter()
                    .any(|pattern| pattern.may_cover(path, wildcard))
            })
            .map(|rule| &*rule.flows)
    }

    /// Returns the names of the flows for a request with this `path` (decoded, without the query), in order.
    /// All are keys of [`crate::Config::flows`]. The first rule that matches wins.
    pub fn route(&self, method: &Method, path: &str) -> &[Arc<str>] {
        self.rules
            .iter()
            .find(|rule| rule.matches(method, path))
            .map_or(&self.default_flow, |rule| &rule.flows)
    }
}

// === impl Rule ===

impl Rule {
    /// Creates a rule for `methods`; `None` means any method.
    pub fn new(methods: Option<Vec<Method>>, patterns: Vec<Pattern>, flows: Vec<Arc<str>>) -> Self {
        Self {
            methods: methods.map(Vec::into_boxed_slice),
            patterns: patterns.into(),
            flows: flows.into(),
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.contains(method))
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.takes(method) && self.patterns.iter().any(|pattern| pattern.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
