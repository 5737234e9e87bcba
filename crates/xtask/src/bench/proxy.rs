//! The processes of a bench: the measured proxies, and the two processes that load them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::load::Report;

use super::case::Case;
use super::gateway_file::gateway_file;
use super::machine::{OTHER_CORE, PROXY_CORE};
use crate::steps::bound_to_us;

/// The kind of proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProxyKind {
    /// The gateway of this checkout.
    Tidegate,
    /// The gateway that `--before` names.
    Before,
    Haproxy,
}

/// A program to measure.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    pub(super) kind: ProxyKind,
    program: PathBuf,
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(super) struct Process(Child);

/// A fake cluster in its own process.
pub(super) struct Nodes {
    _process: Process,
    pub(super) urls: Vec<String>,
}

/// A proxy that listens.
pub(super) struct Proxy {
    pub(super) kind: ProxyKind,
    process: Process,
    pub(super) address: SocketAddr,
}

/// Returns the proxies to measure: Tidegate, an earlier build if one is given, and HAProxy if it is installed
/// and wanted.
pub(super) fn chosen(before: Option<&Path>, haproxy: &str) -> Result<Vec<Contender>> {
    let there = Command::new("haproxy")
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    let mut contenders = vec![Contender::tidegate()];
    contenders.extend(before.map(Contender::before));
    match haproxy {
        "never" => {}
        "only" => {
            ensure!(there, "HAProxy is not installed");
            contenders = vec![Contender::haproxy()];
        }
        _ if there => contenders.push(Contender::haproxy()),
        _ => eprintln!(
            "HAProxy is not installed (apt-get install haproxy): its rows and the comparison with it are left out"
        ),
    }
    Ok(contenders)
}

// === impl Contender ===

impl Contender {
    /// The gateway of this checkout.
    pub(super) fn tidegate() -> Contender {
        Contender {
            kind: ProxyKind::Tidegate,
            program: binary("tidegate"),
        }
    }

    /// A gateway that was built elsewhere.
    pub(super) fn before(program: &Path) -> Contender {
        Contender {
            kind: ProxyKind::Before,
            program: program.to_owned(),
        }
    }

    pub(super) fn haproxy() -> Contender {
        Contender {
            kind: ProxyKind::Haproxy,
            program: "haproxy".into(),
        }
    }
}

// === impl Nodes ===

impl Nodes {
    pub(super) fn start(case: &Case, folder: &Path) -> Result<Nodes> {
        let mut command = Command::new(binary("fake-cluster"));
        command.args(["--core", &OTHER_CORE.to_string(), "--flavour", case.flavour()]);
        for index in case.index_names() {
            command.args(["--index", &format!("{index}:{}", case.shards)]);
        }
        if case.tls {
            command.arg("--tls").arg(certificate(folder));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the fake cluster")?;
        let stdout = child.stdout.take().context("its output is a pipe")?;
        let process = Process(child);
        let urls = BufReader::new(stdout)
            .lines()
            .take(3)
            .collect::<std::io::Result<Vec<_>>>()?;
        ensure!(urls.len() == 3, "the fake cluster did not start");
        Ok(Nodes {
            _process: process,
            urls,
        })
    }
}

// === impl Proxy ===

impl Proxy {
    /// Starts a proxy before the nodes, and waits until it answers.
    pub(super) fn start(contender: &Contender, case: &Case, nodes: &Nodes, folder: &Path) -> Result<Proxy> {
        let address = free_address()?;
        if contender.kind != ProxyKind::Haproxy {
            let text = tidegate_yml(case, nodes, address, free_address()?, folder);
            return Proxy::tidegate(contender, &text, case, address, folder);
        }
        let file = folder.join("haproxy.cfg");
        fs::write(&file, haproxy_cfg(case, nodes, address, folder)?)?;
        let mut command = on_its_core();
        command.arg(&contender.program).args(["-db", "-f"]).arg(&file);
        Proxy::run(command, contender.kind, case, address, folder)
    }

    /// Starts a Tidegate with a configuration that listens at `address`, and waits until it answers.
    pub(super) fn tidegate(
        contender: &Contender,
        config: &str,
        case: &Case,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Proxy> {
        let file = folder.join(format!("{:?}.yml", contender.kind));
        fs::write(&file, config)?;
        let mut command = on_its_core();
        command
            .arg(&contender.program)
            .arg("gateway")
            .arg("--config")
            .arg(&file);
        Proxy::run(command, contender.kind, case, address, folder)
    }

    fn run(
        mut command: Command,
        kind: ProxyKind,
        case: &Case,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Proxy> {
        let log = fs::File::create(folder.join(format!("{kind:?}.log")))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut proxy = Proxy {
            kind,
            process: Process(child),
            address,
        };
        proxy.wait(case, folder)?;
        Ok(proxy)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Ends the proxy at once, as `kill -9` does.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.0.kill()?;
        self.process.0.wait()?;
        Ok(())
    }

    /// Waits until a count reaches a node, which shows that everything is ready.
    fn wait(&mut self, case: &Case, folder: &Path) -> Result<()> {
        let begun = Instant::now();
        let client = client(&self.origin(case), case, folder)?;
        let count = format!("/{}/_count", case.index_names()[0]);
        loop {
            if TcpStream::connect(self.address).is_ok()
                && client.get(&count).is_ok_and(|answer| answer.status == 200)
            {
                return Ok(());
            }
            let ended = self.process.0.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_TIME_MAX {
                let log = fs::read_to_string(folder.join(format!("{:?}.log", self.kind))).unwrap_or_default();
                bail!("{:?} did not start: {}", self.kind, log.trim());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn origin(&self, case: &Case) -> String {
        format!("{}://{}", if case.tls { "https" } else { "http" }, self.address)
    }
}

/// Returns a client of a proxy or a node that trusts the case's certificate.
pub(super) fn client(origin: &str, case: &Case, folder: &Path) -> Result<testkit::client::Client> {
    if case.tls {
        testkit::client::Client::trusting(origin, &certificate(folder))
    } else {
        testkit::client::Client::new(origin)
    }
}

// === Load ===

/// A load source that is ready to send.
pub(super) struct Ready {
    process: Process,
    start: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Ready {
    pub(super) fn prepare(case: &Case, to: SocketAddr, docs: u64, folder: &Path) -> Result<Ready> {
        Self::until(case, to, ("--docs", docs), folder)
    }

    /// Prepares a load that ends after this many seconds.
    pub(super) fn for_seconds(case: &Case, to: SocketAddr, seconds: u64, folder: &Path) -> Result<Ready> {
        Self::until(case, to, ("--seconds", seconds), folder)
    }

    fn until(case: &Case, to: SocketAddr, end: (&str, u64), folder: &Path) -> Result<Ready> {
        let mut command = Command::new(binary("load-source"));
        command.args([
            "--to",
            &to.to_string(),
            end.0,
            &end.1.to_string(),
            "--bulk",
            &case.bulk.to_string(),
        ]);
        command.args([
            "--connections",
            &case.connections.to_string(),
            "--bodies",
            &case.bodies().to_string(),
        ]);
        command.args(["--core", &OTHER_CORE.to_string()]);
        command.args(["--style", case.style, "--indices", &case.indices.to_string()]);
        for (wanted, flag) in [
            (!case.ids, "--no-ids"),
            (case.short, "--short"),
            (case.gzip, "--gzip"),
            (case.fresh_ids, "--fresh-ids"),
            (case.creates(), "--create"),
        ] {
            if wanted {
                command.arg(flag);
            }
        }
        if case.tls {
            command.arg("--ca").arg(certificate(folder));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the load source")?;
        let start = child.stdin.take().context("its input is a pipe")?;
        let mut output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let process = Process(child);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "ready\n", "the load source is not ready");
        Ok(Ready {
            process,
            start,
            output,
        })
    }

    /// Sends everything and returns the report; failed requests are an error.
    pub(super) fn go(mut self) -> Result<Report> {
        self.start.write_all(b"go\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        self.process.0.wait()?;
        let report: Report =
            serde_json::from_str(&line).with_context(|| format!("the load source's report: {line}"))?;
        if report.failed > 0 {
            bail!(
                "{} requests failed, the first: {}",
                report.failed,
                report.failure.unwrap_or_default()
            );
        }
        Ok(report)
    }
}

/// Returns a command that runs on the proxy's core.
fn on_its_core() -> Command {
    let mut command = bound_to_us("taskset");
    command.args(["-c", &PROXY_CORE.to_string()]);
    command
}

// === Configuration files ===

fn tidegate_yml(case: &Case, nodes: &Nodes, address: SocketAddr, admin: SocketAddr, folder: &Path) -> String {
    let certificate = certificate(folder);
    let (entry_tls, cluster_tls) = if case.tls {
        (
            format!(
                "\n    tls: {{enabled: true, cert_file: {}, key_file: {}}}",
                certificate.display(),
                certificate.with_extension("key").display()
            ),
            format!("\n    tls.ca_file: {}", certificate.display()),
        )
    } else {
        Default::default()
    };
    let filters = format!(
        "      - bulk_reshuffle: {{elasticsearch: fake, mode: sync, level: node, combine: {{enabled: {combine}}}}}
      - elasticsearch: {{elasticsearch: fake}}",
        combine = case.combine,
    );
    let cluster = format!(
        "elasticsearch:
  - name: fake
    endpoints: [\"{endpoint}\"]{cluster_tls}
",
        endpoint = nodes.urls[0],
    );
    gateway_file(folder, address, admin, &entry_tls, &filters) + &cluster
}

/// Returns the configuration of a proxy that inspects nothing: each request goes to the next node in turn,
/// and connections are kept and shared.
fn haproxy_cfg(case: &Case, nodes: &Nodes, address: SocketAddr, folder: &Path) -> Result<String> {
    let certificate = certificate(folder);
    let (bind, server) = if case.tls {
        let both = folder.join("haproxy.pem");
        let text =
            fs::read_to_string(&certificate)? + &fs::read_to_string(certificate.with_extension("key"))?;
        fs::write(&both, text)?;
        (
            format!(" ssl crt {}", both.display()),
            format!(" ssl ca-file {}", certificate.display()),
        )
    } else {
        Default::default()
    };
    let mut text = format!(
        "global
  nbthread 1
  maxconn 5000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend es
  bind {address}{bind}
  default_backend nodes
backend nodes
  balance roundrobin
"
    );
    for (at, url) in nodes.urls.iter().enumerate() {
        let node = url.split("://").nth(1).context("a URL has a scheme")?;
        text += &format!("  server node{at} {node}{server}\n");
    }
    Ok(text)
}

/// The file where the fake cluster puts its certificate, which the proxies use too.
fn certificate(folder: &Path) -> PathBuf {
    folder.join("fake.pem")
}

fn binary(name: &str) -> PathBuf {
    crate::target().join("release").join(name)
}

pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const START_TIME_MAX: Duration = Duration::from_secs(20);
