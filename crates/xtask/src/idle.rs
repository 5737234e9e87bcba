//! Building in whatever time nobody else wants of the processors: tests wait much.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::interrupt;
use crate::steps::bound_to_us;
use crate::terminal::say;

/// Something being built.
pub(crate) struct Building {
    cargo: Child,
    log: PathBuf,
}

/// A program that gets next to nothing while anything else wants to run (`SCHED_IDLE`), so that nobody's
/// waiting gets longer.
pub(crate) fn command(program: &str) -> Command {
    let mut command = bound_to_us("chrt");
    command.args(["--idle", "0", program]);
    command
}

impl Building {
    /// Starts; what cargo says is kept for [`Building::finish`] in a file of this name.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(mut command: Command, log: &str) -> Result<Self> {
        let log = crate::target().join(log);
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let cargo = command
            .current_dir(crate::root())
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("cannot run chrt, which util-linux has")?;
        interrupt::watch(&cargo);
        Ok(Self { cargo, log })
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When it does not compile; what cargo said is printed.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.cargo.wait()?;
        interrupt::unwatch(&self.cargo);
        if !status.success() {
            say(&fs::read_to_string(&self.log).unwrap_or_default());
            bail!("it does not compile: {status}");
        }
        Ok(())
    }
}
