//! Bulks at a router with rules for certain indices: the path has chosen a flow, and no line may be for an
//! index that a rule sends to another flow.

use std::collections::HashSet;
use std::sync::Arc;

use config::router::Router;
use http::request::Parts;
use memchr::memmem;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::Fault;
use crate::intake::lines::actions;
use crate::turns::Turns;

/// The flows that a request takes, and the router that chose them. Stored in the extensions of the request's
/// head.
#[derive(Clone)]
pub(crate) struct ChosenFlows {
    /// This core's router.
    router: Arc<Router>,
    /// Copies: all cores share the names.
    flows: Arc<[Box<str>]>,
}

impl ChosenFlows {
    pub(crate) fn to(router: &Arc<Router>, flows: &[Arc<str>]) -> Self {
        Self {
            router: Arc::clone(router),
            flows: flows.iter().map(|flow| Box::from(&**flow)).collect(),
        }
    }

    /// Returns whether a request for this API with this index in its path would take the same flows.
    pub(crate) fn has(&self, head: &Parts, api: &str, index: &str) -> bool {
        let path = format!("/{}/{api}", utf8_percent_encode(index, NON_ALPHANUMERIC));
        let flows = self.router.decide(&head.method, &path, None);
        let names = |flows: &[Arc<str>]| {
            flows
                .iter()
                .map(|flow| &**flow)
                .eq(self.flows.iter().map(|flow| &**flow))
        };
        flows.is_ok_and(names)
    }
}

/// The mark of a bulk whose lines are all for the flows that its path has chosen, in the extensions of its
/// head.
#[derive(Clone)]
pub(crate) struct LinesChecked;

/// Returns the answer to a bulk that has a line for an index of another flow, an action that cannot be read,
/// or too many names.
pub(crate) async fn elsewhere(head: &Parts, body: &[u8]) -> Option<Fault> {
    let chosen_flows = head.extensions.get::<ChosenFlows>()?;
    // Servers also read UTF-16 and UTF-32, in which no name looks like this, and which have NUL bytes. JSON
    // in UTF-8 has none.
    let may_name = memmem::find(body, b"_index").or_else(|| memmem::find(body, b"\\u"));
    may_name.or_else(|| memmem::find(body, &[0]))?;
    let (mut seen, mut turns) = (HashSet::<String>::new(), Turns::begin());
    let mut last: Option<String> = None;
    for (number, action) in actions(body).enumerate() {
        if number.is_multiple_of(ACTIONS_A_TURN) {
            turns.pass().await;
        }
        let Some(action) = action else {
            return Some(Fault::names_unreadable());
        };
        let Some(index) = action.index() else { continue };
        if last.as_deref() == Some(index) || seen.contains(index) {
            continue;
        }
        if !chosen_flows.has(head, "_bulk", index) {
            return Some(Fault::belongs_elsewhere(index));
        }
        if seen.len() >= NAMES_MAX {
            return Some(Fault::names_unreadable());
        }
        seen.insert(index.to_owned());
        last = Some(index.to_owned());
    }
    None
}

/// The most names in one body: each is kept, and a flow is chosen for it.
pub(crate) const NAMES_MAX: usize = 10_000;
/// The actions that are read between two looks at the clock.
const ACTIONS_A_TURN: usize = 1_024;

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::turns::in_any_slices;
    use config::router::{Pattern, Rule};

    fn refused(path: &str, body: &str) -> bool {
        let pattern = Pattern::compile("/metrics-*/{any:*}").unwrap();
        let rule = Rule::new(None, vec![pattern], vec!["metrics".into()]);
        let router = Arc::new(Router::new("r".into(), "default".into(), vec![rule]));
        let flows = router.decide(&Method::POST, path, None).unwrap().to_vec();
        let mut request = http::Request::post(path).body(()).unwrap();
        request.extensions_mut().insert(ChosenFlows::to(&router, &flows));
        let head = request.into_parts().0;
        let found = elsewhere(&head, body.as_bytes());
        in_any_slices(found).is_some()
    }

    #[test]
    fn every_line_belongs_to_the_flow_that_the_path_has_chosen() {
        for (path, body, expected) in [
            ("/_bulk", "{\"index\":{\"_index\":\"logs\"}}\n{}\n", false),
            (
                "/_bulk",
                "{\"index\":{\"_index\":\"logs\"}}\n{}\n{\"delete\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n",
                true,
            ),
            (
                "/_bulk",
                "{\"index\":{\"\\u005findex\":\"metr\\u0069cs-a\"}}\n{}\n",
                true,
            ),
            (
                "/_bulk",
                "{\"create\":{\"_index\":\"<metrics-{now/d}>\"}}\n{}\n",
                true,
            ),
            ("/_bulk", "{\"index\":{}}\n{\"_index\":\"metrics-a\"}\n", false),
            (
                "/metrics-a/_bulk",
                "{\"index\":{\"_index\":\"metrics-b\"}}\n{}\n{\"index\":{}}\n{}\n",
                false,
            ),
            (
                "/metrics-a/_bulk",
                "{\"index\":{\"_index\":\"logs\"}}\n{}\n",
                true,
            ),
            (
                "/logs/_bulk",
                "{\"update\":{\"_index\":\"metrics-a\",\"_id\":\"1\"}}\n{\"doc\":{}}\n",
                true,
            ),
            ("/_bulk", " \n{\"index\":{\"_index\":\"metrics-a\"}}\n{}\n", true),
            ("/_bulk", "\r\n{\"index\":{\"_index\":\"metrics-a\"}}\n{}\n", true),
            (
                "/_bulk",
                "{\"index\":{\"_index\":\"logs\"}}\n\n{\"index\":{\"_index\":\"metrics-a\"}}\n{}\n",
                true,
            ),
            (
                "/_bulk",
                "{\"delete\":{\"_index\":7,\"_id\":\"x\"}}\n{\"index\":{\"_index\":\"metrics-a\"}}\n{}\n",
                true,
            ),
            (
                "/_bulk",
                "{\"index\":{\"_index\":\"logs\"},\"delete\":{}}\n{\"index\":{\"_index\":\"metrics-a\"}}\n",
                true,
            ),
            ("/_bulk", "{\"index\":{\"_index\":\"logs\"}}\n{}\n\n \n", false),
        ] {
            assert_eq!(refused(path, body), expected, "{path} {body}");
        }
    }

    #[test]
    fn a_bulk_in_an_encoding_in_which_only_servers_find_names_is_not_let_through() {
        let line = "{\"index\":{\"_index\":\"metrics-a\"}}";
        let wide: String = line.chars().flat_map(|one| ['\0', one]).collect();
        assert!(refused("/_bulk", &format!("{wide}\n{{}}\n")));
        assert!(!refused("/_bulk", "{\"index\":{}}\n{\"text\":\"\\\\0\"}\n"));
    }
}
