//! A shipper as people run it, rsyslog, before two gateways, with the configuration of docs/shippers.md.
//! Ignored unless asked for: `./dev` fetches rsyslog and names its folder in `TIDEGATE_TEST_RSYSLOG`.

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

/// A running rsyslog; dropping it ends it.
struct Rsyslog(Child);

impl Rsyslog {
    /// Starts rsyslog with the page's configuration, which reads this folder's `app.log`.
    fn start(folder: &Path, gateways: [SocketAddr; 2]) -> Self {
        let home = std::env::var_os("TIDEGATE_TEST_RSYSLOG");
        let home = PathBuf::from(home.expect("TIDEGATE_TEST_RSYSLOG names the folder with rsyslog"));
        let all = blocks();
        let mut page = all.iter().filter(|block| block.page == "docs/shippers.md");
        let page = page.find(|block| block.text.contains("omelasticsearch")).unwrap();
        let folder_name = folder.display();
        let text = format!(
            "global(workDirectory=\"{folder_name}\")
module(load=\"imfile\")
input(type=\"imfile\" file=\"{folder_name}/app.log\" tag=\"app\")
{}",
            page.text
                .replace("gateway1:8000", &gateways[0].to_string())
                .replace("gateway2:8000", &gateways[1].to_string())
        );
        let file = folder.join("rsyslog.conf");
        std::fs::write(&file, text).unwrap();
        let libraries = home.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let mut rsyslog = Command::new(home.join("usr/sbin/rsyslogd"));
        rsyslog.arg("-n").arg("-M").arg(libraries.join("rsyslog"));
        rsyslog.arg("-f").arg(file).arg("-i").arg(folder.join("pid"));
        Self(rsyslog.env("LD_LIBRARY_PATH", libraries).spawn().unwrap())
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ships lines through the gateways, and checks that each is in the cluster once and as it was.
fn ships(cluster: &FakeCluster, gateways: [SocketAddr; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let line = |n| format!("line {n}: \"quoted\" é \\ tab\tend");
    let lines: Vec<String> = (0..LINES).map(line).collect();
    std::fs::write(folder.path().join("app.log"), lines.join("\n") + "\n").unwrap();
    let _rsyslog = Rsyslog::start(folder.path(), gateways);
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

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_ships_each_line_once_while_the_cluster_answers() {
    let cluster = cluster();
    let gateways = [Gateway::before(&cluster), Gateway::before(&cluster)];
    ships(&cluster, gateways.each_ref().map(|gateway| gateway.address));
    let bulks: u64 = gateways
        .iter()
        .map(|gateway| gateway.counter("bulk_requests"))
        .sum();
    assert!(bulks > 1, "{bulks}");
}

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_ships_each_line_once_when_a_queue_answers() {
    let cluster = cluster();
    let places = [
        GatewayHome::before(&[&cluster], ""),
        GatewayHome::before(&[&cluster], ""),
    ];
    let gateways = places.each_ref().map(GatewayHome::start);
    ships(&cluster, gateways.each_ref().map(|gateway| gateway.address));
    let queued: u64 = gateways
        .iter()
        .map(|gateway| gateway.counter("docs_queued"))
        .sum();
    assert_eq!(queued, LINES as u64);
}

#[test]
#[ignore = "./dev test runs it: needs rsyslog"]
fn rsyslog_goes_to_the_other_gateway_when_one_is_away() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    ships(&cluster, [free_address(), gateway.address]);
    assert_eq!(gateway.counter("docs"), LINES as u64, "none was sent twice");
}
