//! What `tidegate console --demo` shows: a fake cluster, a gateway in front of it, and load that rises and
//! falls.
//!
//! The cluster runs in this process; the gateway and the load are processes of their own, bound to this one.
//! Their files are in a folder that is removed when the demo ends.

use std::fs::DirBuilder;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sink::{FakeCluster, Spec};

/// The cluster, the gateway and the load of a demo; all of them stop when this value is dropped.
pub(super) struct Demo {
    folder: Folder,
    _cluster: FakeCluster,
    _children: [Running; 2],
    registry: String,
}

/// Why the demo could not start.
#[derive(Debug, thiserror::Error)]
#[error("the demo cannot start: {0}")]
pub(super) struct NoDemo(#[from] io::Error);

/// A folder of this run alone, removed when dropped.
struct Folder(PathBuf);

/// A process, killed when dropped.
struct Running(Child);

// === impl Demo ===

impl Demo {
    pub(super) fn start() -> Result<Self, NoDemo> {
        let folder = Folder::make()?;
        let cluster = FakeCluster::start(Spec {
            nodes: NODES,
            base_port: 0,
            indices: vec![("loadgen".to_owned(), SHARDS)],
            ..Spec::default()
        })?;
        let endpoint = cluster
            .urls()
            .first()
            .cloned()
            .ok_or_else(|| io::Error::other("the fake cluster has no node"))?;
        let (listen, admin) = (free_address()?, free_address()?);
        let mut gateway = tidegate()?;
        gateway
            .args(["gateway", "--log-level", "warn", "--cluster", &endpoint])
            .args(["--listen", &listen.to_string(), "--admin", &admin.to_string()])
            .current_dir(&folder.0);
        let mut gateway = Running(gateway.spawn()?);
        gateway.wait_for(listen)?;

        let file = folder.0.join("load.yml");
        std::fs::write(&file, LOAD)?;
        let mut load = tidegate()?;
        load.args(["loadgen", "--plain", "--log", "error", "-c", "4", "--stages"])
            .arg([WAVE; WAVES].join(","))
            .arg("--config")
            .arg(&file)
            .env("ES_ENDPOINT", format!("http://{listen}"))
            .env("LINES", "100")
            .stderr(Stdio::null())
            .current_dir(&folder.0);
        let load = Running(load.spawn()?);
        Ok(Self {
            folder,
            registry: format!(
                "clusters: [{{name: demo, endpoint: '{endpoint}', colour: '#2f7d5b'}}]\n\
                 gateways: [{{name: demo-gateway, url: 'http://{admin}'}}]\n"
            ),
            _cluster: cluster,
            _children: [gateway, load],
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The registry file that the console imports.
    pub(super) fn registry(&self) -> &str {
        &self.registry
    }
}

// === impl Folder ===

impl Folder {
    fn make() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        // A folder that exists already may belong to somebody else, so it is not used.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the system's own cleaning of its temporary folder removes it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// === impl Running ===

impl Running {
    /// Waits until the process listens at the address.
    fn wait_for(&mut self, address: SocketAddr) -> io::Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.0.try_wait()? {
                return Err(io::Error::other(format!("the gateway ended: {status}")));
            }
            if begun.elapsed() > READY_WITHIN {
                return Err(io::Error::other("the gateway does not listen within 20 s"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a command that runs this program. Where `setpriv` (util-linux) is installed, the kernel ends the
/// new process with this one, also after `kill -9`.
fn tidegate() -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let quiet = || (Stdio::null(), Stdio::null());
    let (out, errors) = quiet();
    let setpriv = Command::new("setpriv")
        .arg("--version")
        .stdout(out)
        .stderr(errors)
        .status();
    let mut command = if setpriv.is_ok_and(|status| status.success()) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// The example file that ships with Tidegate.
const LOAD: &str = include_str!("../../../../examples/loadgen/bulk.yml");
/// The schedule of bulks of 100 documents: the rate rises and falls so that charts have something to show.
const WAVE: &str = "5..40/40s,40/20s,40..5/40s,5/10s";
const WAVES: usize = 400;
const NODES: usize = 3;
const SHARDS: u32 = 6;
const READY_WITHIN: Duration = Duration::from_secs(20);
