//! The plug-in's own calls, as they arrive at the gateway: `PUT _cluster/settings` and `PUT
//! {index}/_settings` with settings of the gateway, and the `GET`s that show these settings. All other
//! requests, and unusual forms of these, pass untouched.

use std::sync::Arc;

use bulk::{RouteTable, Target};
use bytes::Bytes;
use cluster::PickReason;
use http::request::Parts;
use http::{Method, Response, StatusCode, response};
use memchr::memmem;
use serde_json::{Map, Value};
use wire::{BodyError, Buffer, Collected, Outgoing};

use super::body::{self, GatewaySettings};
use super::filter_path::FilterPath;
use super::setting::{BadSwitch, INDEX_KEY};
use super::shown::{self, Shape};
use super::{ClusterSwitches, NotSwitched, SwitchChange, Switched, indices};
use crate::admission::rights;
use crate::admission::rights::Caller;
use crate::answer::with_head;
use crate::bulk_request::{decode, takes_json};
use crate::error::Fault;
use crate::nodes::{Body, Proxy};
use crate::own_thread::on_own_thread;
use crate::request_id::RequestId;
use crate::turns::AT_ONCE_BYTES;

/// The calls that a request may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `PUT _cluster/settings`.
    SetCluster,
    /// `GET _cluster/settings`.
    ShowCluster,
    /// `PUT {index}/_settings`.
    SetIndices {
        /// The index expression in the path; empty means all indices.
        indices: String,
    },
    /// `GET {index}/_settings/{name}`.
    ShowIndices {
        /// The settings that are asked for; `None` means all.
        name: Option<String>,
    },
}

/// The parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parameters {
    shape: Shape,
    preserve_existing: bool,
    /// Whether the cluster is to leave out indices that are not there.
    ignore_unavailable: bool,
    /// The query without `filter_path`.
    unfiltered: String,
}

// === impl Call ===

impl Call {
    /// Recognizes a call by its method and path only. Searching for one word rules out nearly all requests.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        memmem::find(path.as_bytes(), b"settings")?;
        // Servers read what is not escaped as Latin-1, which is another index.
        if !path.is_ascii() {
            return None;
        }
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let segments: Option<Vec<_>> = segments.map(|segment| decode(segment, false)).collect();
        let segments = segments?;
        let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
        let index = |name: &str| !name.starts_with('_') || name == "_all";
        match (method, segments.as_slice()) {
            (&Method::PUT, ["_cluster", "settings"]) => Some(Call::SetCluster),
            (&Method::GET, ["_cluster", "settings"]) => Some(Call::ShowCluster),
            (&Method::PUT, ["_settings"]) => Some(Call::SetIndices {
                indices: String::new(),
            }),
            (&Method::PUT, [name, "_settings"]) if index(name) => Some(Call::SetIndices {
                indices: (*name).to_owned(),
            }),
            (&Method::GET, ["_settings"]) => Some(Call::ShowIndices { name: None }),
            (&Method::GET, [name, "_settings"]) if index(name) => Some(Call::ShowIndices { name: None }),
            (&Method::GET, ["_settings", setting]) => Some(Call::ShowIndices {
                name: Some((*setting).to_owned()),
            }),
            (&Method::GET, [name, "_settings", setting]) if index(name) => Some(Call::ShowIndices {
                name: Some((*setting).to_owned()),
            }),
            _ => None,
        }
    }

    /// Answers a request that is this call.
    pub(crate) async fn answer(
        self,
        proxy: &Proxy,
        switches: &ClusterSwitches,
        head: Parts,
        body: Body,
    ) -> Result<Response<Outgoing>, Fault> {
        match (Parameters::of(&head), body) {
            (Some(parameters), Body::Streamed(incoming)) => match (self, incoming.length()) {
                (Call::ShowCluster, Some(0)) if switches.now().has_settings() => {
                    show_cluster(proxy, switches, head, &parameters).await
                }
                (Call::ShowIndices { name }, Some(0))
                    if !switches.now().indices.is_empty()
                        && name.as_deref().is_none_or(|name| asks_for(name, INDEX_KEY)) =>
                {
                    show_indices(proxy, switches, head, &parameters, name.as_deref()).await
                }
                (call @ (Call::SetCluster | Call::SetIndices { .. }), length)
                    if length.is_none_or(|length| (1..=BODY_BYTES_MAX).contains(&length)) =>
                {
                    set(call, proxy, switches, head, incoming, &parameters).await
                }
                _ => {
                    proxy
                        .forward(head, Body::Streamed(incoming), PickReason::Request)
                        .await
                }
            },
            (_, body) => proxy.forward(head, body, PickReason::Request).await,
        }
    }
}

async fn set(
    call: Call,
    proxy: &Proxy,
    switches: &ClusterSwitches,
    mut head: Parts,
    incoming: wire::Incoming,
    parameters: &Parameters,
) -> Result<Response<Outgoing>, Fault> {
    let collected = incoming.collect_with_original(BODY_BYTES_MAX as usize).await;
    let Collected { original, decoded } = collected.map_err(|error| proxy.unread(&error))?;
    let text = match &decoded {
        None => &original,
        Some(Ok(decoded)) => decoded,
        // The cluster answers what is wrong with this body.
        Some(Err(BodyError::Corrupt(_) | BodyError::UnsupportedEncoding)) => &original,
        Some(Err(error)) => return Err(proxy.unread(error)),
    };
    let parted = match &call {
        Call::SetIndices { .. } => body::of_index(text),
        _ => body::of_cluster(text),
    };
    let parted = match parted {
        Ok(Some(parted)) => parted,
        Ok(None) => {
            let body = Body::Held(original.freeze());
            return proxy.forward(head, body, PickReason::Request).await;
        }
        Err(error) => return Err(Fault::bad_switch(&error.0)),
    };
    drop((original, decoded));
    let change = match (parted.ours, &call) {
        (GatewaySettings::Cluster(change), _) => Ok(change),
        (GatewaySettings::Index(on), Call::SetIndices { indices }) => {
            let snapshot = proxy.cluster().snapshot();
            of_indices(indices, on, &snapshot.table, parameters)
        }
        (GatewaySettings::Index(_), _) => unreachable!("only the settings of indices are read as such"),
    };
    // The change is validated before anything is changed.
    let change = match change.and_then(|change| switches.now().with(&change).map(|_| change)) {
        Ok(change) => change,
        Err(error) => return Err(Fault::bad_switch(&error.0)),
    };
    // A 200 from the cluster covers only the indices that it did not leave out.
    may_all(proxy, &head, narrowed(&call, parameters)).await?;
    let target = target_of(&head);
    let theirs = Bytes::from(parted.theirs.to_string());
    let (answer, body) = proxy.fetch(&mut head, &target, theirs).await?;
    if answer.status != StatusCode::OK {
        return Ok(with_head(answer, &[], Outgoing::from(body)));
    }
    let request_id = RequestId::of(&head.extensions);
    let done = switches.change_off_core(change.clone()).await;
    if let Err(error) = done {
        tracing::error!(%request_id, cluster = &*switches.cluster, %error, "switches could not be kept: nothing is switched");
        return Err(match error {
            NotSwitched::Bad(bad) => Fault::bad_switch(&bad.0),
            NotSwitched::Unkept { .. } => Fault::not_kept(&error),
        });
    }
    tracing::info!(%request_id, cluster = &*switches.cluster, by = "entry", change = %change.to_text(), "switched");
    Ok(match call {
        Call::SetCluster => {
            let set = change.settings;
            let reword = move |all: &mut Map<String, Value>, shape: &Shape| shown::add_set(all, &set, shape);
            reworded(answer, body, &parameters.shape, reword).await
        }
        _ => with_head(answer, &[], Outgoing::from(body)),
    })
}

/// Returns the names and patterns of a call of which the cluster may leave out indices that the client has no
/// right for, and answer 200 for the others: patterns, and all names if what is not there is to be ignored.
/// To this client, an index that it has no right for is not there.
fn narrowed(call: &Call, parameters: &Parameters) -> Vec<Box<str>> {
    let Call::SetIndices { indices } = call else {
        return Vec::new();
    };
    let mut names = indices::patterns(indices).unwrap_or_default();
    names.retain(|name| parameters.ignore_unavailable || name.contains('*'));
    names
}

/// Checks that a client has the right for everything that these names and patterns cover, now and later.
/// Elasticsearch narrows a pattern to the indices that the client may see, and answers 200 for these; a
/// switch for the pattern would also apply to indices that only others see.
async fn may_all(proxy: &Proxy, head: &Parts, patterns: Vec<Box<str>>) -> Result<(), Fault> {
    if patterns.is_empty() {
        return Ok(());
    }
    let mut headers = head.headers.clone();
    proxy.fallback.fill(&mut headers);
    let caller = Caller {
        outbound: &proxy.outbound,
        snapshot: &proxy.cluster().snapshot(),
        headers: &headers,
        request_id: &RequestId::of(&head.extensions),
    };
    match rights::covers(caller, &patterns, SETTINGS_UPDATE).await {
        Ok(None | Some(true)) => Ok(()),
        Ok(Some(false)) => Err(Fault::not_covered(&patterns.join(","))),
        Err(why) => Err(Fault::unchecked(&why.to_string())),
    }
}

async fn show_cluster(
    proxy: &Proxy,
    switches: &ClusterSwitches,
    mut head: Parts,
    parameters: &Parameters,
) -> Result<Response<Outgoing>, Fault> {
    let target = target_of(&head);
    let (answer, body) = proxy.fetch(&mut head, &target, Bytes::new()).await?;
    let switched = Arc::clone(&switches.now());
    let reword = move |settings: &mut Map<String, Value>, shape: &Shape| {
        shown::add_all(settings, &switched, shape);
    };
    Ok(reworded(answer, body, &parameters.shape, reword).await)
}

/// Shows the settings of indices. The cluster names only the indices that have one of the requested settings.
/// Therefore, if settings are requested by name, the gateway also asks for a setting that every index has,
/// and it applies a requested filter itself.
async fn show_indices(
    proxy: &Proxy,
    switches: &ClusterSwitches,
    mut head: Parts,
    parameters: &Parameters,
    name: Option<&str>,
) -> Result<Response<Outgoing>, Fault> {
    let mut target = head.uri.path().trim_end_matches('/').to_owned();
    if name.is_some() {
        target.push(',');
        target.push_str(OF_EVERY_INDEX);
    }
    if !parameters.unfiltered.is_empty() {
        target.push('?');
        target.push_str(&parameters.unfiltered);
    }
    let (answer, body) = proxy.fetch(&mut head, &target, Bytes::new()).await?;
    let switched = Arc::clone(&switches.now());
    let leaves_out = name.is_some_and(|name| !asks_for(name, OF_EVERY_INDEX));
    let reword = move |indices: &mut Map<String, Value>, shape: &Shape| {
        shown::add_to_indices(indices, &switched, shape);
        if leaves_out {
            shown::leave_out(indices, OF_EVERY_INDEX);
        }
        *indices = shape.filter_path.apply(std::mem::take(indices));
    };
    Ok(reworded(answer, body, &parameters.shape, reword).await)
}

/// Changes the contents of a successful answer from the cluster. Other answers stay as they are. A long
/// answer (the settings of thousands of indices) is changed beside the thread that serves requests, since
/// JSON is read in one go.
async fn reworded(
    head: response::Parts,
    body: Buffer,
    shape: &Shape,
    reword: impl FnOnce(&mut Map<String, Value>, &Shape) + Send + 'static,
) -> Response<Outgoing> {
    if head.status != StatusCode::OK {
        return with_head(head, &[], Outgoing::from(body));
    }
    let text = match body.len() > AT_ONCE_BYTES {
        true => {
            let (copy, shape) = (body.to_vec(), shape.clone());
            // Without a thread, the answer stays as the cluster gave it.
            let worded = on_own_thread(move || worded(&copy, &shape, reword)).await;
            worded.unwrap_or_default()
        }
        false => worded(&body, shape, reword),
    };
    match text {
        Some(text) => with_head(head, &[], Outgoing::from(Bytes::from(text))),
        None => with_head(head, &[], Outgoing::from(body)),
    }
}

/// Returns an answer with other contents; `None` if it is no object.
fn worded(
    body: &[u8],
    shape: &Shape,
    reword: impl FnOnce(&mut Map<String, Value>, &Shape),
) -> Option<Vec<u8>> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else {
        return None;
    };
    reword(&mut object, shape);
    Some(shown::text(object, shape))
}

/// Returns the change for the indices of an expression. An alias or a data stream stands for the index that
/// it writes to.
fn of_indices(
    expression: &str,
    on: Option<bool>,
    table: &RouteTable,
    parameters: &Parameters,
) -> Result<SwitchChange, BadSwitch> {
    if parameters.preserve_existing {
        return Err(BadSwitch(format!("preserve_existing goes without {INDEX_KEY}")));
    }
    let patterns = indices::patterns(expression)?.into_iter();
    let indices = patterns.map(|pattern| match table.target(&pattern) {
        Some(Target::Alias { write, .. } | Target::DataStream { write }) => (write.name.clone(), on),
        _ => (pattern, on),
    });
    Ok(SwitchChange {
        settings: Vec::new(),
        indices: indices.collect(),
    })
}

/// Returns whether a list of names and patterns includes this setting.
fn asks_for(names: &str, key: &str) -> bool {
    names
        .split(',')
        .any(|name| name == "_all" || indices::matches(name, key))
}

fn target_of(head: &Parts) -> String {
    let target = head.uri.path_and_query();
    target.map_or("/", |target| target.as_str()).to_owned()
}

// === impl Parameters ===

impl Parameters {
    /// Returns `None` if the answer is wanted in another format than JSON, if the request is not JSON, or if
    /// what its parameters are is not certain.
    fn of(head: &Parts) -> Option<Self> {
        if !takes_json(&head.headers) {
            return None;
        }
        let mut parameters = Self::default();
        let query = head.uri.query().unwrap_or_default();
        // Some servers also separate parameters at semicolons (`RestUtils.decodeQueryString`).
        if query.contains(';') {
            return None;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name, true)?, decode(value, true)?);
            let on = matches!(&*value, "" | "true");
            if name != "filter_path" {
                let parted = if parameters.unfiltered.is_empty() { "" } else { "&" };
                parameters.unfiltered.push_str(parted);
                parameters.unfiltered.push_str(pair);
            }
            match &*name {
                "flat_settings" => parameters.shape.flat = on,
                "pretty" => parameters.shape.pretty = on,
                "filter_path" => parameters.shape.filter_path = FilterPath::within_bounds(&value)?,
                "preserve_existing" => parameters.preserve_existing = on,
                "ignore_unavailable" => parameters.ignore_unavailable = value != "false",
                "format" if value != "json" => return None,
                _ => {}
            }
        }
        Some(parameters)
    }
}

// === impl ClusterSwitches ===

impl ClusterSwitches {
    /// Runs [`ClusterSwitches::change`] on a thread that may wait for the disk.
    async fn change_off_core(&self, change: SwitchChange) -> Result<Arc<Switched>, NotSwitched> {
        let switches = self.clone();
        let file = self.all.file().to_owned();
        let changed = on_own_thread(move || switches.change(&change)).await;
        changed.unwrap_or_else(|source| Err(NotSwitched::Unkept { file, source }))
    }
}

/// A setting that every index has.
const OF_EVERY_INDEX: &str = "index.uuid";

/// The name of the right to change an index's settings.
const SETTINGS_UPDATE: &str = "indices:admin/settings/update";

/// The largest body that is read. Settings are small.
const BODY_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, path: &str) -> Option<Call> {
        Call::of(&method.parse().unwrap(), path)
    }

    #[test]
    fn calls_are_told_by_method_and_path() {
        assert_eq!(call("PUT", "/_cluster/settings"), Some(Call::SetCluster));
        assert_eq!(call("PUT", "//_cluster/settings/"), Some(Call::SetCluster));
        assert_eq!(call("GET", "/_cluster/settings"), Some(Call::ShowCluster));
        let set = |indices: &str| {
            Some(Call::SetIndices {
                indices: indices.to_owned(),
            })
        };
        assert_eq!(call("PUT", "/_settings"), set(""));
        assert_eq!(call("PUT", "/_all/_settings"), set("_all"));
        assert_eq!(call("PUT", "/logs-%2A,caf%C3%A9/_settings"), set("logs-*,café"));
        assert_eq!(call("PUT", "/caf\u{e9}/_settings"), None);
        let show = |name: Option<&str>| {
            Some(Call::ShowIndices {
                name: name.map(str::to_owned),
            })
        };
        assert_eq!(call("GET", "/logs/_settings"), show(None));
        assert_eq!(call("GET", "/_settings/index.*"), show(Some("index.*")));
        assert_eq!(
            call("GET", "/logs/_settings/index.uuid"),
            show(Some("index.uuid"))
        );
        for (method, path) in [
            ("POST", "/_cluster/settings"),
            ("PUT", "/settings/_doc/1"),
            ("GET", "/settings/_search"),
            ("GET", "/_cluster/settings/more"),
            ("PUT", "/_nodes/_settings"),
            ("GET", "/_cluster/health"),
            ("HEAD", "/logs/_settings"),
            ("PUT", "/%zz/_settings"),
        ] {
            assert_eq!(call(method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn the_right_is_asked_for_whatever_the_cluster_may_leave_out() {
        let asked = |path: &str, query: &str| {
            let request = http::Request::put(format!("{path}?{query}")).body(()).unwrap();
            let parameters = Parameters::of(&request.into_parts().0).unwrap();
            narrowed(&call("PUT", path).unwrap(), &parameters).join(" ")
        };
        assert_eq!(asked("/a,b/_settings", ""), "");
        assert_eq!(asked("/a,b/_settings", "ignore_unavailable=false"), "");
        assert_eq!(asked("/a,b/_settings", "ignore_unavailable=true"), "a b");
        assert_eq!(asked("/a,b/_settings", "ignore_unavailable"), "a b");
        assert_eq!(asked("/a,b*/_settings", "allow_no_indices=true"), "b*");
        assert_eq!(asked("/_settings", ""), "*");
        assert_eq!(asked("/_cluster/settings", "ignore_unavailable=true"), "");
    }

    #[test]
    fn parameters_shape_the_answer_and_other_formats_pass() {
        let of = |query: &str, accept: Option<&str>| {
            let mut request = http::Request::get(format!("/_settings?{query}"));
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            Parameters::of(&head).map(|parameters| (parameters.shape, parameters.unfiltered))
        };
        let shape = Shape {
            flat: true,
            pretty: true,
            filter_path: FilterPath::new("*.settings"),
        };
        assert_eq!(
            of(
                "flat_settings=true&filter_path=*.settings&pretty&local=true",
                None
            ),
            Some((shape, "flat_settings=true&pretty&local=true".to_owned()))
        );
        assert_eq!(of("pretty=false", Some("*/*")).unwrap().0, Shape::default());
        assert_eq!(of("format=yaml", None), None);
        assert_eq!(of("", Some("application/yaml")), None);
    }
}
