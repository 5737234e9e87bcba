//! Holds a cluster for as long as this process lives.
//!
//! The launcher's `hold` command runs beside this process and watches the pipe that is its standard input.
//! When this process ends, in whatever way, the pipe ends, and the last holder stops the cluster. So no nodes
//! can be left behind, not even after `kill -9`.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The running `hold`. Dropping it lets go, and waits until the cluster is stopped if nobody else holds it.
#[derive(Debug)]
pub(super) struct Hold {
    child: Child,
}

impl Hold {
    /// Starts or joins the cluster in `dir`; returns once it is green.
    pub(super) fn take(dir: &Path, options: &[String]) -> Result<Self> {
        let mut child = launcher()
            .args(["hold", "--dir"])
            .arg(dir)
            .arg("--dist")
            .arg(root()?.join("dist"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C at the terminal is ours; the launcher sees us end
            .spawn()
            .context("python3 is needed to start real clusters; `./dev test` installs it")?;
        let out = child.stdout.take().expect("asked for a pipe above");
        let mut heard = String::new();
        for line in BufReader::new(out).lines() {
            let line = line?;
            if line == "ready" {
                return Ok(Self { child });
            }
            heard.push_str(&line);
            heard.push('\n');
        }
        let mut reason = String::new();
        if let Some(mut err) = child.stderr.take() {
            err.read_to_string(&mut reason)?;
        }
        child.wait()?;
        bail!(
            "the cluster in {} did not start (`./dev test` installs what it needs):\n{heard}{reason}",
            dir.display()
        );
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Nothing can be done about an error here, and the launcher needs no help to end.
        let _ = self.child.wait();
    }
}

/// Runs one of the launcher's commands on the cluster in `dir`.
pub(super) fn command(dir: &Path, name: &str, args: &[impl AsRef<OsStr>]) -> Result<()> {
    let done = launcher()
        .arg(name)
        .arg("--dir")
        .arg(dir)
        .args(args)
        .output()
        .context("cannot run python3")?;
    if !done.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim_end());
    }
    Ok(())
}

/// Returns the folder of all clusters of this user: `TIDEGATE_CLUSTERS`, or a folder below the temporary
/// folder. (As root, the nodes run as `nobody`, who may not be allowed to enter the project's own folder.)
pub(crate) fn root() -> Result<PathBuf> {
    let root = match std::env::var_os("TIDEGATE_CLUSTERS") {
        Some(root) => PathBuf::from(root),
        None => std::env::temp_dir().join(format!(
            "tidegate-clusters-{}",
            rustix::process::getuid().as_raw()
        )),
    };
    std::fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&root, open).with_context(|| {
        format!(
            "{} is not ours; name another folder in TIDEGATE_CLUSTERS",
            root.display()
        )
    })?;
    Ok(root)
}

fn launcher() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/cluster.py"));
    command
}
