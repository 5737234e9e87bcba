//! The connection test, step by step, so that the user sees which step fails.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use cluster::Address;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use wire::SendErrorKind;
use wire::guard::{Work, thread};

use crate::outbound::{Ask, AskError, Outbound};
use crate::poll::flavour_of;
use crate::target::{BadTarget, Target};

/// The result of a step.
#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    ok: bool,
    detail: String,
    took_ms: u64,
}

/// The kind of server that is expected to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Cluster,
    Gateway,
}

/// The steps so far, and the time when the current one began.
struct Steps {
    list: Vec<Step>,
    began: Instant,
}

impl Steps {
    fn note(&mut self, step: &'static str, ok: bool, detail: impl Into<String>) {
        let now = Instant::now();
        let took = now.duration_since(self.began);
        self.began = now;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.list.push(Step {
            step,
            ok,
            detail: detail.into(),
            took_ms,
        });
    }
}

/// Tests a cluster or a gateway. Returns the answer of the API.
pub(crate) async fn probe(outbound: &Outbound, kind: ServerKind, target: Result<Target, BadTarget>) -> Value {
    let mut steps = Steps {
        list: Vec::new(),
        began: Instant::now(),
    };
    let found = try_all(outbound, kind, target, &mut steps).await;
    let mut told =
        json!({"ok": steps.list.iter().all(|step| step.ok) && found.is_some(), "steps": steps.list});
    if let Some((found, clusters)) = found {
        told["found"] = found;
        if kind == ServerKind::Gateway {
            told["clusters"] = json!(clusters);
        }
    }
    told
}

async fn try_all(
    outbound: &Outbound,
    kind: ServerKind,
    target: Result<Target, BadTarget>,
    steps: &mut Steps,
) -> Option<(Value, Vec<String>)> {
    let target = match target {
        Ok(target) => Arc::new(target),
        Err(error) => {
            let step = match error {
                BadTarget::Tls(_) => "tls",
                _ => "address",
            };
            steps.note(step, false, error.to_string());
            return None;
        }
    };
    // The first address stands for all of them: they belong to one cluster.
    let address = target.addresses.first()?.clone();
    steps.note("address", true, address.to_string());
    reach(&address, steps).await?;
    let answer = outbound.send(&target, Ask::get("/", WITHIN)).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let (step, words) = named(&error);
            steps.note(step, false, words);
            return None;
        }
    };
    if address.tls {
        steps.note(
            "tls",
            true,
            "the certificate is trusted, or not checked as asked for",
        );
    }
    if matches!(answer.status.as_u16(), 401 | 403) {
        let with = if target.authorization.is_some() {
            "these credentials"
        } else {
            "no credentials"
        };
        steps.note("auth", false, format!("{} with {with}", answer.status));
        return None;
    }
    let root = match answer.json("/") {
        Ok(root) => root,
        Err(error) => {
            steps.note("version", false, error.to_string());
            return None;
        }
    };
    let as_whom = if target.authorization.is_some() {
        "accepted"
    } else {
        "none asked for"
    };
    steps.note("auth", true, as_whom);
    match kind {
        ServerKind::Cluster => cluster(outbound, &target, &root, steps)
            .await
            .map(|found| (found, Vec::new())),
        ServerKind::Gateway => gateway(outbound, &target, &root, steps).await,
    }
}

/// Resolves the name and then connects, so that each step can fail by itself.
async fn reach(address: &Address, steps: &mut Steps) -> Option<()> {
    let resolved = timeout(WITHIN, look_up(address)).await;
    let found = match resolved {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            steps.note("dns", false, format!("{}: {error}", address.host));
            return None;
        }
        Err(_) => {
            steps.note(
                "dns",
                false,
                format!("{}: no answer in {} s", address.host, WITHIN.as_secs()),
            );
            return None;
        }
    };
    let Some(first) = found.first() else {
        steps.note("dns", false, format!("{} has no address", address.host));
        return None;
    };
    steps.note("dns", true, first.ip().to_string());
    match timeout(WITHIN, TcpStream::connect(found.as_slice())).await {
        Ok(Ok(_)) => {
            steps.note("tcp", true, format!("port {} is open", address.port));
            Some(())
        }
        Ok(Err(error)) => {
            steps.note("tcp", false, format!("{}: {error}", address.authority()));
            None
        }
        Err(_) => {
            steps.note(
                "tcp",
                false,
                format!("{}: no answer in {} s", address.authority(), WITHIN.as_secs()),
            );
            None
        }
    }
}

/// Asks the system's resolver, which blocks, on a thread of its own.
async fn look_up(address: &Address) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = oneshot::channel();
    let (host, port) = (address.host.clone(), address.port);
    thread("resolve", Work::Other, move || {
        // The caller may have given up.
        let _ = tell.send((&*host, port).to_socket_addrs().map(Iterator::collect));
    })?;
    told.await
        .map_err(|_| io::Error::other("looking up the name failed"))?
}

/// Returns the step at which an exchange failed.
fn named(error: &AskError) -> (&'static str, String) {
    let AskError::Send(send) = error else {
        return ("version", error.to_string());
    };
    // A server that is not content with the client's certificate says so after the handshake (TLS 1.3).
    if let SendErrorKind::Io(error) = &send.kind
        && let Some(words) = wire::handshake_failure(error)
    {
        return ("tls", words);
    }
    let step = match &send.kind {
        SendErrorKind::Tls(_) | SendErrorKind::SpeaksTls => "tls",
        SendErrorKind::Connect(_) | SendErrorKind::ConnectTimeout => "tcp",
        _ => "version",
    };
    (step, send.kind.to_string())
}

async fn cluster(
    outbound: &Outbound,
    target: &Arc<Target>,
    root: &Value,
    steps: &mut Steps,
) -> Option<Value> {
    let Some(version) = root["version"]["number"].as_str() else {
        let who = if root["name"] == "tidegate" {
            "this is the admin API of a gateway"
        } else {
            "no version is told"
        };
        steps.note("version", false, format!("{who}, so it is not a cluster"));
        return None;
    };
    let flavour = flavour_of(root);
    if version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok())
        .is_none()
    {
        steps.note("version", false, format!("`{version}` is not a version"));
        return None;
    }
    steps.note("version", true, format!("{flavour} {version}"));
    let health = outbound
        .get(target, "/_cluster/health?filter_path=number_of_nodes", WITHIN)
        .await;
    let nodes = health.ok().and_then(|health| health["number_of_nodes"].as_u64());
    Some(json!({
        "flavour": flavour, "version": version, "name": root["cluster_name"], "uuid": root["cluster_uuid"], "nodes": nodes,
    }))
}

async fn gateway(
    outbound: &Outbound,
    target: &Arc<Target>,
    root: &Value,
    steps: &mut Steps,
) -> Option<(Value, Vec<String>)> {
    let version = root["version"].as_str().filter(|_| root["name"] == "tidegate");
    let Some(version) = version else {
        let who = if root["version"].is_object() {
            "this is a cluster"
        } else {
            "it does not say that it is a gateway"
        };
        steps.note(
            "version",
            false,
            format!("{who}; the admin API of a gateway is wanted"),
        );
        return None;
    };
    steps.note("version", true, format!("tidegate {version}"));
    let clusters = outbound.get(target, "/elasticsearch", WITHIN).await;
    let names = clusters
        .ok()
        .and_then(|told| Some(told.as_object()?.keys().cloned().collect()));
    let found =
        json!({"flavour": "tidegate", "version": version, "name": "tidegate", "uuid": null, "nodes": null});
    Some((found, names.unwrap_or_default()))
}

/// Time limit for each step.
const WITHIN: Duration = Duration::from_secs(5);
