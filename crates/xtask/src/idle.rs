//! Builds in processor time that nothing else needs: tests spend much time waiting.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::interrupt;
use crate::steps::bound_to_us;
use crate::terminal::say;

/// A build under way.
pub(crate) struct Building {
    cargo: Child,
    log: PathBuf,
}

/// Returns a command for a program that gets next to no time while anything else wants to run (`SCHED_IDLE`),
/// so it delays nobody.
pub(crate) fn command(program: &str) -> Command {
    let mut command = bound_to_us("chrt");
    command.args(["--idle", "0", program]);
    command
}

impl Building {
    /// Starts the build; cargo's output is kept for [`Building::finish`] in a file of this name.
    ///
    /// # Errors
    /// If the build cannot be started.
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

    /// Waits for the end of a build that prints nothing but warnings (`--quiet`).
    ///
    /// # Errors
    /// If the code does not compile, or the compiler has warned; cargo's output is printed.
    pub(crate) fn finish_without_warnings(self) -> Result<()> {
        let log = self.log.clone();
        self.finish()?;
        let said = fs::read_to_string(log)?;
        if said.contains("warning") {
            say(&said);
            bail!("the compiler warns of something");
        }
        Ok(())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// If the code does not compile; cargo's output is printed.
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
