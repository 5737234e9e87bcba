//! A gateway for the demo and for measurements: the built binary as a process of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testkit::client::Client;
use testkit::real::RealCluster;

use crate::interrupt;
use crate::steps::{bound_to_us, cargo, run};
use crate::terminal::{Look, paint, say};

pub(crate) struct Gateway {
    child: Child,
    url: String,
    admin: String,
}

/// How documents get their ids in a measurement, and what the gateway does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documents {
    /// Clients choose the ids.
    WithIds,
    /// The cluster makes the ids.
    WithoutIds,
    /// Tidegate makes the ids, for shards in turn.
    Packed,
    /// The cluster makes the ids, and Tidegate adds a routing to shards in turn.
    Routed,
}

/// The build of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The profile `demo`, without librdkafka and the console: it compiles in a third of the time, and runs
    /// slower.
    Demo,
    /// The same with the console.
    DemoWithConsole,
    /// The released build, which is the one that is measured.
    Release,
}

impl Build {
    /// Compiles the program. For the demo the command is exactly the one that `./dev` has run already, so
    /// nothing is compiled twice.
    ///
    /// # Errors
    /// If the program does not compile.
    pub(crate) fn make(self) -> Result<()> {
        let demo = ["--profile", "demo", "--package", "xtask", "--no-default-features"];
        let arguments = match self {
            Self::Demo => demo.to_vec(),
            Self::DemoWithConsole => [demo.as_slice(), &["--features", "cli/console"]].concat(),
            Self::Release => vec!["--release"],
        };
        say(&paint(
            Look::Bold,
            &format!("building tidegate ({}) ...", self.folder()),
        ));
        run(cargo(&["build", "--locked", "--quiet", "--package", "cli"]).args(arguments))
    }

    /// The path where cargo puts the program.
    pub(crate) fn program(self) -> PathBuf {
        crate::target().join(self.folder()).join("tidegate")
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Demo | Self::DemoWithConsole => "demo",
            Self::Release => "release",
        }
    }
}

impl Documents {
    pub(crate) const ALL: [Self; 4] = [Self::WithIds, Self::WithoutIds, Self::Packed, Self::Routed];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WithIds => "ids",
            Self::WithoutIds => "no ids",
            Self::Packed => "no ids, mint-packed",
            Self::Routed => "no ids, routing",
        }
    }

    /// The settings of `bulk_reshuffle` for these documents.
    fn setting(self) -> &'static str {
        match self {
            Self::WithIds | Self::WithoutIds => "",
            Self::Packed => ", direct_routing: mint-packed",
            Self::Routed => ", direct_routing: routing",
        }
    }
}

impl Gateway {
    /// Starts the demo's gateway: `tidegate gateway --cluster URL --listen 127.0.0.1:PORT`. It is ready when
    /// this returns.
    pub(crate) fn start(cluster: &str) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let arguments = ["--cluster", cluster, "--listen", &listen, "--admin", &admin];
        let mut gateway = Self::launch(Build::Demo, &arguments, &listen, &admin)?;
        gateway.wait_until_it_watches()?;
        Ok(gateway)
    }

    /// Starts a gateway with a file that combines small bulks of different clients; it uses TLS towards
    /// clients if the cluster does.
    pub(crate) fn combining(cluster: &RealCluster, documents: Documents) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = crate::root().join("target/prove.yml");
        let (mut tls, mut account) = (String::new(), String::new());
        if let Some((user, password)) = cluster.credentials() {
            tls = ", tls: {enabled: true}".to_owned();
            account = format!(
                ", tls: {{insecure_skip_verify: true}}, basic_auth: {{username: '{user}', password: '{password}'}}"
            );
        }
        let text = format!(
            "admin: {{binding: '{admin}'}}
entry: [{{name: e, router: r, network: {{binding: '{listen}'}}{tls}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync{}, combine: {{enabled: true}}}}
      - elasticsearch: {{elasticsearch: c}}
elasticsearch: [{{name: c, endpoint: '{}'{account}}}]
",
            documents.setting(),
            cluster.url(1),
        );
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut gateway = Self::launch(
            Build::Release,
            &["--config", &file.to_string_lossy()],
            &listen,
            &admin,
        )?;
        if cluster.credentials().is_some() {
            gateway.url = format!("https://{listen}");
        }
        gateway.wait_until_it_watches()?;
        Ok(gateway)
    }

    /// Starts a gateway with a file. `text` writes the file for the addresses to listen on: the clients'
    /// first, the admin port's second.
    pub(crate) fn with_file(name: &str, text: &dyn Fn(&str, &str) -> String) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = crate::root().join("target").join(name);
        std::fs::write(&file, text(&listen, &admin))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut gateway = Self::launch(
            Build::Release,
            &["--config", &file.to_string_lossy()],
            &listen,
            &admin,
        )?;
        gateway.wait_until_it_watches()?;
        Ok(gateway)
    }

    fn launch(build: Build, arguments: &[&str], listen: &str, admin: &str) -> Result<Self> {
        let mut command = bound_to_us(build.program());
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
        Ok(Self {
            child,
            url: format!("http://{listen}"),
            admin: format!("http://{admin}"),
        })
    }

    fn wait_until_it_watches(&mut self) -> Result<()> {
        let admin = Client::build(&self.admin, None, Duration::from_secs(2))?;
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let seen = admin.get("/elasticsearch").and_then(|answer| answer.json());
            if seen.is_ok_and(|clusters| {
                clusters
                    .as_object()
                    .is_some_and(|all| !all.is_empty() && all.values().all(|one| one["state"] == "watching"))
            }) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("tidegate ended: {status}");
            }
            if Instant::now() > until {
                bail!("tidegate does not know the cluster's topology within 20 s");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// Returns the reasons why bulks were sent on whole, and how many for each reason, from `/stats`.
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

    /// Returns how many parts of bulks the requests with several parts carried on average; 0 if there was
    /// none.
    pub(crate) fn parts_a_request(&self) -> Result<f64> {
        let stats = Client::new(&self.admin)?.get("/stats")?.ok()?.json()?;
        let count = |name: &str| stats["gateway"][name].as_f64().unwrap_or_default();
        let requests = count("combined_requests");
        Ok(if requests > 0.0 {
            count("combined_parts") / requests
        } else {
            0.0
        })
    }

    /// Stops the gateway in good order.
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
        // The process may have ended already. stop() reports a gateway that does not end.
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
