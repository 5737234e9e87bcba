//! A gateway for the demo and for measurements: the released binary as its own process.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testkit::client::Client;

use crate::interrupt;
use crate::steps::{bound_to_us, cargo, run};
use crate::terminal::{Look, paint, say};

pub(crate) struct Gateway {
    child: Child,
    url: String,
    admin: String,
}

/// Builds the binary.
///
/// # Errors
/// When it does not compile.
pub(crate) fn build() -> Result<()> {
    say(&paint(Look::Bold, "building tidegate (release) ..."));
    run(&mut cargo(&[
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "cli",
    ]))
}

impl Gateway {
    /// `tidegate gateway --cluster URL --listen 127.0.0.1:PORT`, ready when this returns.
    pub(crate) fn start(cluster: &str) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let arguments = ["--cluster", cluster, "--listen", &listen, "--admin", &admin];
        Self::run(&arguments, &listen, &admin)
    }

    /// With a file that makes small bulks of different clients travel together.
    pub(crate) fn combining(cluster: &str) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = crate::root().join("target/prove.yml");
        let text = format!(
            "admin: {{binding: '{admin}'}}
entry: [{{name: e, router: r, network: {{binding: '{listen}'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: true}}}}
      - elasticsearch: {{elasticsearch: c}}
elasticsearch: [{{name: c, endpoint: '{cluster}'}}]
"
        );
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Self::run(&["--config", &file.to_string_lossy()], &listen, &admin)
    }

    fn run(arguments: &[&str], listen: &str, admin: &str) -> Result<Self> {
        let mut command = bound_to_us(crate::root().join("target/release/tidegate"));
        command
            .arg("gateway")
            .args(arguments)
            .args(["--log-level", "warn"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start tidegate")?;
        interrupt::watch(&child);
        let mut gateway = Self {
            child,
            url: format!("http://{listen}"),
            admin: format!("http://{admin}"),
        };
        let client = Client::build(&gateway.url, None, Duration::from_secs(2))?;
        let until = Instant::now() + Duration::from_secs(20);
        while !client
            .get("/_cluster/health")
            .is_ok_and(|answer| answer.status == 200)
        {
            if let Some(status) = gateway.child.try_wait()? {
                bail!("tidegate ended: {status}");
            }
            if Instant::now() > until {
                bail!("tidegate does not pass a request to the cluster within 20 s");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(gateway)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Why bulks were sent on whole, and how many for each reason; as `/stats` has it.
    pub(crate) fn passed_because(&self) -> Result<String> {
        let stats = Client::new(&self.admin)?.get("/stats")?.ok()?.json()?;
        Ok(match stats["gateway"]["passed_because"].as_object() {
            Some(reasons) if !reasons.is_empty() => {
                format!(
                    "bulks that Tidegate sent on whole: {}",
                    stats["gateway"]["passed_because"]
                )
            }
            _ => "Tidegate split every bulk by node".to_owned(),
        })
    }

    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        testkit::real::cpu_seconds(self.child.id())
    }

    /// An orderly stop.
    pub(crate) fn stop(mut self) -> Result<()> {
        terminate(&self.child);
        let until = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                bail!("tidegate did not stop within 10 s of SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        interrupt::unwatch(&self.child);
        // Gone already is as good; stop() tells about a gateway that does not want to go.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
