//! Shippers as people run them, rsyslog and syslog-ng, before two gateways, with the configurations of
//! docs/shippers.md. Ignored unless asked for: `./dev` fetches them and names their folders in
//! `TIDEGATE_TEST_RSYSLOG` and `TIDEGATE_TEST_SYSLOG_NG`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::FakeCluster;

use crate::docs::blocks;
use crate::gateway::{Gateway, cluster, free_address};
use crate::home::GatewayHome;

const LINES: usize = 5_000;

/// A running shipper; dropping it ends it.
struct Shipper(Child);

impl Drop for Shipper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shipper that reads this folder's `app.log`, with the page's configuration.
type Start = fn(&Path, [SocketAddr; 2]) -> Shipper;

fn rsyslog(folder: &Path, gateways: [SocketAddr; 2]) -> Shipper {
    let home = home_of("TIDEGATE_TEST_RSYSLOG");
    let name = folder.display();
    let text = format!(
        "global(workDirectory=\"{name}\")
module(load=\"imfile\")
input(type=\"imfile\" file=\"{name}/app.log\" tag=\"app\")
{}",
        on_the_page("omelasticsearch", gateways)
    );
    let file = folder.join("rsyslog.conf");
    std::fs::write(&file, text).unwrap();
    let libraries = libraries(&home);
    let mut rsyslog = Command::new(home.join("usr/sbin/rsyslogd"));
    rsyslog.arg("-n").arg("-M").arg(libraries.join("rsyslog"));
    rsyslog.arg("-f").arg(file).arg("-i").arg(folder.join("pid"));
    Shipper(rsyslog.env("LD_LIBRARY_PATH", libraries).spawn().unwrap())
}

fn syslog_ng(folder: &Path, gateways: [SocketAddr; 2]) -> Shipper {
    let home = home_of("TIDEGATE_TEST_SYSLOG_NG");
    let destination = home.join("usr/share/syslog-ng/include/scl/elasticsearch/elastic-http.conf");
    let (name, destination) = (folder.display(), destination.display());
    let text = format!(
        "@version: 3.38
@include \"{destination}\"
source lines {{ file(\"{name}/app.log\" flags(no-parse) follow-freq(0.2)); }};
{}
log {{ source(lines); destination(tidegate); }};
",
        on_the_page("elasticsearch-http", gateways)
    );
    let file = folder.join("syslog-ng.conf");
    std::fs::write(&file, text).unwrap();
    let modules = home.join("usr/lib/syslog-ng");
    // Debian 12 has some libraries in /lib still, among them libpcre.
    let older = home.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    let found = std::env::join_paths([libraries(&home), older, modules.clone()]).unwrap();
    let mut syslog_ng = Command::new(home.join("usr/sbin/syslog-ng"));
    syslog_ng
        .arg("--foreground")
        .arg("--module-path")
        .arg(modules.join("3.38"));
    syslog_ng
        .arg("--cfgfile")
        .arg(file)
        .arg("--pidfile")
        .arg(folder.join("pid"));
    syslog_ng.arg("--persist-file").arg(folder.join("persist"));
    syslog_ng.arg("--control").arg(folder.join("control"));
    Shipper(syslog_ng.env("LD_LIBRARY_PATH", found).spawn().unwrap())
}

/// Returns the folder of a shipper, which `./dev` has unpacked.
fn home_of(variable: &str) -> PathBuf {
    let home = std::env::var_os(variable);
    PathBuf::from(home.unwrap_or_else(|| panic!("{variable} names the folder of the shipper")))
}

fn libraries(home: &Path) -> PathBuf {
    home.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}

/// Returns the block of docs/shippers.md that holds a word, with these gateways.
fn on_the_page(word: &str, gateways: [SocketAddr; 2]) -> String {
    let all = blocks();
    let mut page = all.iter().filter(|block| block.page == "docs/shippers.md");
    let block = page.find(|block| block.text.contains(word)).unwrap();
    let [first, second] = gateways.map(|address| address.to_string());
    block
        .text
        .replace("gateway1:8000", &first)
        .replace("gateway2:8000", &second)
}

/// Ships lines through the gateways, and checks that each is in the cluster once and as it was.
fn ships(start: Start, cluster: &FakeCluster, gateways: [SocketAddr; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let line = |n| format!("line {n}: \"quoted\" é \\ tab\tend");
    let lines: Vec<String> = (0..LINES).map(line).collect();
    std::fs::write(folder.path().join("app.log"), lines.join("\n") + "\n").unwrap();
    let _shipper = start(folder.path(), gateways);
    let began = Instant::now();
    while cluster.docs("logs").len() < LINES {
        let there = cluster.docs("logs").len();
        assert!(began.elapsed() < Duration::from_secs(60), "{there} of {LINES}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let docs = cluster.docs("logs");
    let message = |source: &str| {
        let source: Value = serde_json::from_str(source).unwrap();
        assert!(
            source["@timestamp"].is_string() && source["host"].is_string(),
            "{source}"
        );
        source["message"].as_str().unwrap().trim_start().to_owned()
    };
    let shipped: BTreeSet<String> = docs.values().map(|doc| message(&doc.source)).collect();
    assert_eq!((docs.len(), shipped), (LINES, lines.into_iter().collect()));
}

fn ships_while_the_cluster_answers(start: Start) {
    let cluster = cluster();
    let gateways = [Gateway::before(&cluster), Gateway::before(&cluster)];
    ships(
        start,
        &cluster,
        gateways.each_ref().map(|gateway| gateway.address),
    );
    let bulks: u64 = gateways
        .iter()
        .map(|gateway| gateway.counter("bulk_requests"))
        .sum();
    assert!(bulks > 1, "{bulks}");
}

fn ships_when_a_queue_answers(start: Start) {
    let cluster = cluster();
    let places = [
        GatewayHome::before(&[&cluster], ""),
        GatewayHome::before(&[&cluster], ""),
    ];
    let gateways = places.each_ref().map(GatewayHome::start);
    ships(
        start,
        &cluster,
        gateways.each_ref().map(|gateway| gateway.address),
    );
    let queued: u64 = gateways
        .iter()
        .map(|gateway| gateway.counter("docs_queued"))
        .sum();
    assert_eq!(queued, LINES as u64);
}

fn ships_past_a_gateway_that_is_away(start: Start) {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    ships(start, &cluster, [free_address(), gateway.address]);
    assert_eq!(gateway.counter("docs"), LINES as u64, "none was sent twice");
}

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_ships_each_line_once_while_the_cluster_answers() {
    ships_while_the_cluster_answers(rsyslog);
}

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_ships_each_line_once_when_a_queue_answers() {
    ships_when_a_queue_answers(rsyslog);
}

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_goes_to_the_other_gateway_when_one_is_away() {
    ships_past_a_gateway_that_is_away(rsyslog);
}

#[test]
#[ignore = "./dev test runs it: needs syslog-ng"]
fn syslog_ng_ships_each_line_once_while_the_cluster_answers() {
    ships_while_the_cluster_answers(syslog_ng);
}

#[test]
#[ignore = "./dev test runs it: needs syslog-ng"]
fn syslog_ng_ships_each_line_once_when_a_queue_answers() {
    ships_when_a_queue_answers(syslog_ng);
}

#[test]
#[ignore = "./dev test runs it: needs syslog-ng"]
fn syslog_ng_goes_to_the_other_gateway_when_one_is_away() {
    ships_past_a_gateway_that_is_away(syslog_ng);
}
