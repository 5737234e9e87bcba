//! `router`: which requests take which flow.

use super::{Ignored, Names, OneOrMany, section};

section! {
    /// A router.
    #[schemars(extend("required" = ["name", "default_flow"]))]
    RouterFile {
        /// Name of the router.
        name: String = String::new(),
        /// Name of the flow for requests that no rule matches.
        default_flow: String = String::new(),
        /// Rules, tried in order. The first one that matches method and path wins.
        rules: Vec<RuleFile> = Vec::new(),
        /// Logging flow.
        #[schemars(extend("x-ignored" = "requests are logged and counted by the gateway itself; see `logging` and the admin port"))]
        tracing_flow: Ignored = Ignored,
        /// Switch for rules.
        #[schemars(extend("x-ignored" = "a rule's own `enabled` is always heeded"))]
        rule_toggle_enabled: Ignored = Ignored,
    }
}

section! {
    /// A rule.
    #[schemars(extend("required" = ["pattern", "flow"]))]
    RuleFile {
        /// Use this rule.
        enabled: bool = true,
        /// Methods. `*` matches any method.
        method: Names = OneOrMany(vec!["*".to_owned()]),
        /// Paths. `{name}` matches one segment (or part of one), `{name:regexp}` one that the expression
        /// matches as a whole, `{name:*}` the rest of the path, `*` any characters within a segment, and a
        /// `*` that is the whole last segment the rest of the path.
        pattern: Names = OneOrMany(Vec::new()),
        /// Names of flows, run in order.
        flow: Names = OneOrMany(Vec::new()),
        /// A comment for readers of the file.
        description: Option<String> = None,
    }
}
