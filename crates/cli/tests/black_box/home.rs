//! A gateway in asynchronous mode, with data that outlives it, and its accounts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::FakeCluster;

use crate::gateway::Gateway;

/// A folder with a configuration, and with data that outlives a gateway.
pub(crate) struct GatewayHome {
    folder: tempfile::TempDir,
    pub(crate) file: PathBuf,
}

impl GatewayHome {
    /// Makes a home with a queue before these clusters; clients see the first one.
    pub(crate) fn before(clusters: &[&FakeCluster], queue: &str) -> Self {
        let urls: Vec<String> = clusters.iter().map(|cluster| cluster.urls()[0].clone()).collect();
        Self::at(&urls, queue)
    }

    pub(crate) fn at(urls: &[String], queue: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.yml");
        let mut text = format!(
            "path.data: {}
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c0, mode: async, queue: {{name: q, lanes: 4, min_free: 1mb{queue}}}}}
      - elasticsearch: {{elasticsearch: c0}}
pipeline:
",
            folder.path().join("data").display()
        );
        for at in 0..urls.len() {
            text.push_str(&format!(
                "  - {{name: p{at}, retry_delay_in_ms: 20, processor: [{{bulk_indexing: {{elasticsearch: c{at}}}}}]}}\n"
            ));
        }
        text.push_str("elasticsearch:\n");
        for (at, url) in urls.iter().enumerate() {
            text.push_str(&format!("  - {{name: c{at}, endpoint: '{url}'}}\n"));
        }
        std::fs::write(&file, text).unwrap();
        Self { folder, file }
    }

    /// Adds sections to the configuration.
    pub(crate) fn append(&self, sections: &str) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        std::fs::write(&self.file, text + sections).unwrap();
    }

    /// Has the groups wait this long before they try again.
    pub(crate) fn retries_after_ms(&self, ms: u64) {
        self.replace("retry_delay_in_ms: 20", &format!("retry_delay_in_ms: {ms}"));
    }

    /// Has the configuration say something else.
    pub(crate) fn replace(&self, text: &str, with: &str) {
        let all = std::fs::read_to_string(&self.file).unwrap();
        assert!(all.contains(text), "{all}");
        std::fs::write(&self.file, all.replace(text, with)).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn start(&self) -> Gateway {
        let gateway = Gateway::start(&["--config", self.file.to_str().unwrap()]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }
}

pub(crate) fn queue(gateway: &Gateway) -> Value {
    let queues = gateway
        .admin()
        .get("/queue/stats")
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    queues["q"].clone()
}

/// Checks the accounts of a queue and returns those of a consumer group.
pub(crate) fn account(queue: &Value, group: &str) -> Value {
    let one = &queue["groups"][group];
    let states = [
        "indexed", "dead", "parked", "replayed", "purged", "skipped", "lost", "pending",
    ];
    let sum: u64 = states
        .iter()
        .map(|state| one[state].as_u64().unwrap_or_else(|| panic!("{queue:#}")))
        .sum();
    let to_account_for = [&queue["accepted"], &one["rewound"]].map(|number| number.as_u64().unwrap());
    assert_eq!(to_account_for[0] + to_account_for[1], sum, "accounts: {queue:#}");
    one.clone()
}

/// Waits until nothing is pending or parked, with the accounts right all the while.
pub(crate) fn drained(gateway: &Gateway, group: &str) -> Value {
    wait(gateway, group, |one| one["pending"] == 0 && one["parked"] == 0)
}

/// The time limit for delivery, since the machine may be busy.
const LONG: Duration = Duration::from_secs(120);

pub(crate) fn wait(gateway: &Gateway, group: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let queue = queue(gateway);
        let one = account(&queue, group);
        if holds(&one) {
            return one;
        }
        assert!(
            began.elapsed() < LONG,
            "not so in {LONG:?}: {queue:#}\n{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
