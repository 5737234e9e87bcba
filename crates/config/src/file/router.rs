//! `router`: which requests take which flow.

use super::{Ignored, Names, OneOrMany, section};

section! {
    /// A router.
    #[schemars(extend("required" = ["name", "default_flow"]))]
    RouterFile {
        /// Its name.
        name: String = String::new(),
        /// The flow of requests that no rule takes.
        default_flow: String = String::new(),
        /// Tried in order; the first rule that matches method and path wins.
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
        /// Switch it on.
        enabled: bool = true,
        /// Methods; `*` is any.
        method: Names = OneOrMany(vec!["*".to_owned()]),
        /// Paths. `{name}` is one segment (or part of one), `{name:regexp}` one that the expression matches as
        /// a whole, `{name:*}` the rest of the path, `*` any characters within a segment, and a `*` that is the
        /// whole last segment the rest of the path.
        pattern: Names = OneOrMany(Vec::new()),
        /// Flows, run in order.
        flow: Names = OneOrMany(Vec::new()),
        /// A remark.
        description: Option<String> = None,
    }
}
