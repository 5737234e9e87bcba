//! Users who send from several addresses in synchronous mode: each has one share of the memory for bodies, as
//! the cluster says who it is.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use testkit::real::RealCluster;

use crate::gateway::Gateway;

/// Checks that the user `writer` cannot hold more than a share from several addresses, whatever headers it
/// sends beside its credentials, and that `indexer` is served meanwhile. Of 64 MiB, 48 are for bodies, and 24
/// for a user.
pub(crate) fn hold_over_several_addresses(cluster: &RealCluster, password: &str) -> Result<()> {
    let nodes = cluster.client()?;
    let index = format!("rights-{}", cluster.fresh_name("shares"));
    let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    nodes.put(&format!("/{index}"), &one_shard)?.ok()?;
    let (gateway, _folder) = in_sync_mode(cluster)?;
    let sender = |user: &str| Sender {
        port: gateway.address.port(),
        authorization: format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
    };
    let (greedy, modest) = (sender("writer"), sender("indexer"));
    for sender in [&greedy, &modest] {
        let told = sender.sends(2, "", &bulk_of(&index, 40_000))?;
        ensure!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    // Until the cluster has said who it is, its addresses are all that count.
    let began = Instant::now();
    while !greedy
        .beside(&modest, &index, (4, ""))?
        .starts_with("HTTP/1.1 429 ")
    {
        let log = gateway.log();
        ensure!(began.elapsed() < PATIENCE, "nobody has said who it is\n{log}");
        greedy.sends(2, "", &bulk_of(&index, 40_000))?;
    }
    let ignored = "X-Proxy-User: somebody\r\nX-Proxy-Roles: else\r\n";
    let told = greedy.beside(&modest, &index, (5, ignored))?;
    ensure!(told.starts_with("HTTP/1.1 429 "), "{told}");
    drop(gateway);
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// Sends a little of a body again and again, so fast that it need not make room.
fn trickle(mut socket: TcpStream, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) && socket.write_all(&[b' '; 6_000]).is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tells a thread to stop when its scope ends, however it ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A user, before a gateway.
struct Sender {
    port: u16,
    authorization: String,
}

impl Sender {
    /// Holds 14 MiB from one address and wants 12 from another, with these headers, while `other` sends 1 and
    /// then 16 MiB. Returns what the second body is told.
    fn beside(&self, other: &Sender, index: &str, (last, headers): (u8, &str)) -> Result<String> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _at_end = StopAtEnd(&stop);
            let held = self.begins(3, "", 14 * MIB)?;
            scope.spawn(|| trickle(held, &stop));
            let told = other.sends(6, "", &bulk_of(index, MIB))?;
            ensure!(told.starts_with("HTTP/1.1 200 "), "it is there, too: {told}");
            let told = answer(&mut self.begins(last, headers, 12 * MIB)?)?;
            let others = other.sends(7, "", &bulk_of(index, 16 * MIB))?;
            ensure!(
                others.starts_with("HTTP/1.1 200 "),
                "there is room for it: {others}"
            );
            Ok(told)
        })
    }

    /// Declares a bulk of this many bytes, from an address of this machine, and sends the first of them.
    fn begins(&self, last: u8, headers: &str, declared: usize) -> Result<TcpStream> {
        let mut socket = self.connects(last, headers, declared)?;
        socket.write_all(&[b' '; 100_000])?;
        Ok(socket)
    }

    /// Sends a bulk and returns the answer.
    fn sends(&self, last: u8, headers: &str, body: &str) -> Result<String> {
        let mut socket = self.connects(last, headers, body.len())?;
        // The gateway may refuse it before it has read it.
        let _ = socket.write_all(body.as_bytes());
        answer(&mut socket)
    }

    fn connects(&self, last: u8, headers: &str, length: usize) -> Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into())?;
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).into())?;
        let mut socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE))?;
        let authorization = &self.authorization;
        write!(
            socket,
            "POST /_bulk HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n{headers}\
             Content-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\r\n"
        )?;
        Ok(socket)
    }
}

/// Returns the beginning of an answer.
fn answer(socket: &mut TcpStream) -> Result<String> {
    let mut told = [0; 4096];
    let read = socket.read(&mut told)?;
    Ok(String::from_utf8_lossy(&told[..read]).into_owned())
}

/// Returns a bulk of about this many bytes.
fn bulk_of(index: &str, bytes: usize) -> String {
    let padding = "x".repeat(100_000.min(bytes / 2));
    let mut text = String::with_capacity(bytes + 2 * padding.len());
    for id in 0.. {
        if text.len() >= bytes {
            break;
        }
        let line = format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n");
        text.push_str(&line);
        let source = json!({"n": Value::from(id), "p": padding});
        text.push_str(&format!("{source}\n"));
    }
    text
}

fn in_sync_mode(cluster: &RealCluster) -> Result<(Gateway, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tidegate.yml");
    let (user, password) = cluster.credentials().context("a secure cluster")?;
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
worker: {{count: 2, body_memory: 64mb}}
entry: [{{name: e, router: r, max_request_body_size: 32mb, network: {{binding: '0.0.0.0:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}', basic_auth: {{username: {user}, password: '{password}'}}, tls: {{ca_file: '{}'}}}}]
",
        folder.path().join("data").display(),
        cluster.urls()[0],
        cluster.ca_path().context("a secure cluster")?.display(),
    );
    std::fs::write(&file, text)?;
    let gateway = Gateway::start(&["--config", file.to_str().context("a plain path")?]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    Ok((gateway, folder))
}

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
