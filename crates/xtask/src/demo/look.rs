//! `./dev demo --console`: runs load through the demo's gateway, and a console with everything registered,
//! until it is stopped.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::target::Target;
use crate::gateway::{Build, Gateway};
use crate::interrupt;
use crate::steps::bound_to_us;
use crate::terminal::say;

/// A process that is stopped with this one.
struct Running {
    what: &'static str,
    child: Child,
}

/// Runs until Ctrl-C, which ends this process and everything that it has started.
pub(super) fn run(target: &Target, gateway: &Gateway) -> Result<()> {
    // The index keeps whole documents, and would fill the disk if it grew for ever. So it starts small, and
    // the load is mild.
    target.create(INDEX, DOCS_EXPECTED)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("registry.yml");
    let endpoint = &target.urls()[0];
    let registry = json!({
        "clusters": [{"name": "demo", "endpoint": endpoint, "colour": "#2f7d5b"}],
        "gateways": [{"name": "demo-gateway", "url": gateway.admin()}],
    });
    // JSON is also valid YAML.
    std::fs::write(&file, registry.to_string())?;

    let mut load = program();
    load.args([
        "loadgen",
        "--plain",
        "--log",
        "error",
        "-c",
        "4",
        "-d",
        LASTS_S,
        "-r",
        BULKS_A_SECOND,
    ])
    .arg("--config")
    .arg(crate::root().join("examples/loadgen/bulk.yml"))
    .env("ES_ENDPOINT", gateway.url())
    .env("INDEX", INDEX)
    .env("LINES", "100")
    .stdout(Stdio::null())
    .stderr(Stdio::null());
    let load = Running::start("the load", load)?;
    let mut console = program();
    console
        .arg("console")
        .arg("--register")
        .arg(&file)
        .arg("--data")
        .arg(folder.path().join("console"));
    let console = Running::start("the console", console)?;
    say(&format!("load goes to the index {INDEX}; Ctrl-C ends all of it"));
    until_one_ends([console, load])
}

fn until_one_ends(mut all: [Running; 2]) -> Result<()> {
    loop {
        for one in &mut all {
            if let Some(status) = one.child.try_wait()? {
                bail!("{} ended: {status}", one.what);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn program() -> Command {
    bound_to_us(Build::DemoWithConsole.program())
}

// === impl Running ===

impl Running {
    fn start(what: &'static str, mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        interrupt::watch(&child);
        Ok(Self { what, child })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        interrupt::unwatch(&self.child);
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const INDEX: &str = "tidegate-demo";
const DOCS_EXPECTED: u32 = 100_000;
/// A thousand documents a second: enough to be seen, and two cores have time left for a browser.
const BULKS_A_SECOND: &str = "10";
/// Half a day.
const LASTS_S: &str = "43200";
