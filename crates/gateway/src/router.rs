//! Which flows a request takes: a router's rules, compiled. [`Pattern`] says what a path may look like.

mod pattern;
mod segment;

pub use pattern::Pattern;
pub(crate) use segment::compile_regex;

use std::sync::Arc;

use http::Method;

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
