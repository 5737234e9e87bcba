//! Published guides, word for word except for hosts and ports: the gateway starts with their file, and their
//! load, with `_type` and lines of an access log, is accepted and delivered. Tests that need a real
//! Elasticsearch 7 are in `real_loadgen`.

use std::path::Path;

use serde_json::Value;
use testkit::fake::{FakeCluster, Flavour, Spec, User};

use crate::gateway::Gateway;
use crate::guide_files::{
    self, GATEWAY, SEARCH, SEARCH_BY_NAME, WALK, WALK_DIRECT, as_written, with_requests,
};

/// Makes a cluster with the guides' accounts: the gateway's and the load files', whose passwords differ.
fn cluster(password: &str) -> FakeCluster {
    let everything = ["index", "create", "update", "delete", "manage"];
    let user = User::new("elastic", password).may("*", &everything);
    let mut spec = Spec::default()
        .basic_auth("admin", "admin")
        .user(user)
        .tls()
        .storing();
    spec.flavour = Flavour::Elasticsearch7;
    for suffix in 10..=13 {
        spec = spec.index(&format!("test-{suffix}"), 6);
    }
    FakeCluster::start(spec).unwrap()
}

/// Starts the guide's gateway in the guide's way.
pub(crate) fn gateway(folder: &Path, cluster: &FakeCluster) -> Gateway {
    let mut text = GATEWAY.replace("binding: 0.0.0.0:8000", "binding: 127.0.0.1:0");
    for (at, url) in cluster.urls().iter().enumerate() {
        text = text.replace(&format!("https://127.0.0.1:922{}", at + 1), url);
    }
    assert!(!text.contains(":922"), "{text}");
    // The guide does not mention the admin port, and the default port may be taken.
    std::fs::write(folder.join("gateway.yml"), text + "admin.binding: 127.0.0.1:0\n").unwrap();
    let authority = folder.join("ca.pem");
    std::fs::write(&authority, cluster.ca_pem().unwrap()).unwrap();
    // The system's authorities, to which the guide's readers add their cluster's.
    let variables = [("SSL_CERT_FILE", authority.to_str().unwrap())];
    let gateway = Gateway::start_in(folder, &["-config", "gateway.yml"], &variables);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway
}

fn report(output: &std::process::Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn written(cluster: &FakeCluster) -> usize {
    (10..=13)
        .map(|suffix| cluster.docs(&format!("test-{suffix}")).len())
        .sum()
}

#[test]
fn the_walk_throughs_load_goes_through_the_gateway_of_its_guide() {
    let (cluster, folder) = (cluster("xxxx"), guide_files::folder().unwrap());
    let gateway = gateway(folder.path(), &cluster);
    let places = [("10.0.128.58:8000", gateway.address.to_string())];
    let places = places.each_ref().map(|(guides, tests)| (*guides, tests.as_str()));
    let how = ["-l", "2", "-c", "2", "--compress"];
    let output = guide_files::run(folder.path(), &as_written(WALK), &places, &how).unwrap();
    let report = report(&output);
    assert_eq!(report["documents"]["accepted"], 10_000, "{report}");
    let queue = drained(&gateway);
    assert_eq!(
        (&queue["indexed"], &queue["dead"]),
        (&15_000.into(), &0.into()),
        "with the warm-up's: {queue}"
    );
    assert_eq!(written(&cluster), 15_000);
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    assert!(
        metrics.contains("tidegate_bulk_queued_total 3\n"),
        "each is queued: {metrics}"
    );
    assert!(
        folder.path().join("data").is_dir(),
        "`path.data: data` is where it was started"
    );
}

#[test]
fn the_walk_throughs_loads_without_a_gateway_run_as_they_are_written() {
    for (load, documents) in WALK_DIRECT.iter().zip([10_000, 5_000]) {
        let mut spec = Spec::default().storing();
        spec.flavour = Flavour::Elasticsearch7;
        let cluster = FakeCluster::start(spec).unwrap();
        let folder = guide_files::folder().unwrap();
        let node = cluster.addresses()[0].to_string();
        let places = [("10.0.1.2:9200", node.as_str())];
        let how = ["-c", "100", "-l", "1"];
        let report = report(&guide_files::run(folder.path(), &as_written(load), &places, &how).unwrap());
        assert_eq!(report["documents"]["accepted"], documents, "{report}");
        assert_eq!(written(&cluster), 2 * documents, "the warm-up sends it once more");
    }
}

#[test]
fn a_body_with_a_page_s_escapes_is_refused_with_the_way_to_write_it() {
    let folder = guide_files::folder().unwrap();
    let output = guide_files::run(folder.path(), WALK, &[], &["-l", "1"]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("loadgen.yml:37:") && said.contains("copied from a page that escapes them"),
        "{said}"
    );
}

#[test]
fn the_first_searches_of_the_page_about_loadgen_run_through_the_gateway_of_the_guide() {
    let (cluster, folder) = (cluster("pass"), guide_files::folder().unwrap());
    cluster.create_index("medcl", 2);
    let gateway = gateway(folder.path(), &cluster);
    let address = gateway.address.to_string();
    for load in [SEARCH.to_owned(), with_requests(SEARCH, SEARCH_BY_NAME)] {
        let places = [("localhost:8000", address.as_str())];
        let how = ["-d", "30", "-c", "2", "-compress", "-r", "100", "-l", "10"];
        let report = report(&guide_files::run(folder.path(), &load, &places, &how).unwrap());
        assert_eq!(report["answers"], 10, "{report}");
        assert_eq!(report["statuses"]["200"], 10, "{report}");
    }
}

/// Returns the accounts of the queue's only group, once nothing is pending.
fn drained(gateway: &Gateway) -> Value {
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(90);
    loop {
        let queues = gateway.admin().get("/queue/stats").unwrap().json().unwrap();
        let queue = queues.as_object().unwrap().values().next().unwrap();
        let group = queue["groups"].as_object().unwrap().values().next().unwrap();
        if group["pending"] == 0 {
            return group.clone();
        }
        assert!(std::time::Instant::now() < ends, "{queues:#}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
