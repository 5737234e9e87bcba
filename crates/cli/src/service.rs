//! `tidegate service`: runs a gateway as a systemd service.

mod unit;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use ::config::Config;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;

use crate::exit;
use crate::output::why;
use unit::Unit;

/// Run a gateway as a service of systemd
///
///     tidegate service install --config /etc/tidegate/tidegate.yml --cpus 0-3
///     tidegate service start
///     tidegate service status
///
/// `install` checks the file, writes the unit, and enables it at boot. `start`,
/// `stop` and `status` are systemctl's. `uninstall` stops the service, removes the
/// unit, and keeps configuration and data. With --user, the service belongs to
/// this user, and root is not needed.
///
/// Exit status: 0 done (status: it runs), 1 the file can't be used (status: it
/// does not run), 2 wrong usage, 3 it could not be done.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the unit, and enable it at boot
    Install(Install),
    /// Start the service
    Start(Which),
    /// Stop the service, after it has finished the requests in flight
    Stop(Which),
    /// Show whether the service runs, and its last log lines
    Status(Which),
    /// Stop the service and remove its unit
    Uninstall(Which),
}

#[derive(clap::Args)]
struct Which {
    /// Use the service of the current user, not of the machine
    #[arg(long)]
    user: bool,
    /// Name of the service
    #[arg(long, value_name = "NAME", default_value = "tidegate", value_parser = name)]
    name: String,
}

#[derive(clap::Args)]
struct Install {
    /// Configuration file (YAML)
    #[arg(
        long,
        short,
        value_name = "FILE",
        default_value = "/etc/tidegate/tidegate.yml"
    )]
    config: PathBuf,
    /// CPUs that the gateway may use, as in 0-3 or 0,2,4-7; it runs one thread on each
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<String>,
    /// Memory that the gateway may use, as in 2gb; systemd restarts it above that
    #[arg(long, value_name = "BYTES", value_parser = crate::diff::bytes)]
    memory: Option<u64>,
    /// User to run as [default: one that systemd makes]
    #[arg(long, value_name = "USER", conflicts_with = "user", value_parser = name)]
    run_as: Option<String>,
    /// Print the unit, and change nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        Command::Install(install) => install.run(),
        Command::Start(which) => which.systemctl(&["start", &which.unit()]).map(|()| true),
        Command::Stop(which) => which.systemctl(&["stop", &which.unit()]).map(|()| true),
        Command::Status(which) => which.status(),
        Command::Uninstall(which) => which.uninstall(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::NO),
        Err(error) => {
            let _ = writeln!(io::stderr(), "tidegate: {}", why(&error));
            ExitCode::from(exit::FAILED)
        }
    }
}

// === impl Install ===

impl Install {
    fn run(&self) -> Result<bool> {
        let loaded = match Config::load(&self.config) {
            Ok(loaded) => loaded,
            Err(rejected) => {
                let _ = writeln!(
                    io::stderr(),
                    "tidegate: the configuration can't be used:\n{rejected}"
                );
                return Ok(false);
            }
        };
        let unit = self.unit(&loaded.config)?;
        if self.print {
            io::stdout().write_all(unit.text().as_bytes())?;
            return Ok(true);
        }
        self.data_is_there(&unit)?;
        let file = self.which.file()?;
        let folder = file.parent().context("a unit's file has a folder")?;
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&file, unit.text()).with_context(|| file.display().to_string())?;
        self.which.systemctl(&["daemon-reload"])?;
        self.which.systemctl(&["enable", &self.which.unit()])?;
        let user = if self.which.user { " --user" } else { "" };
        writeln!(
            io::stdout(),
            "{} is written; `tidegate service start{user}` starts it now",
            file.display()
        )?;
        Ok(true)
    }

    /// Refuses a data folder that is not there: systemd cannot let the gateway write to it, and starts
    /// nothing. It is not made here, because a disk may only have to be mounted.
    fn data_is_there(&self, unit: &Unit) -> Result<()> {
        let (Some(data), Some(user)) = (&unit.data, &self.run_as) else {
            return Ok(());
        };
        let shown = data.display();
        ensure!(
            data.is_dir(),
            "the folder of `path.data`, {shown}, does not exist: mount its disk, or run install -d -m 700 -o {user} {shown}"
        );
        Ok(())
    }

    fn unit(&self, config: &Config) -> Result<Unit> {
        let data = config.paths.data.is_absolute().then(|| config.paths.data.clone());
        let own = Path::new("/var/lib").join(&self.which.name);
        let data = data.filter(|data| !data.starts_with(&own));
        if let Some(data) = data
            .as_ref()
            .filter(|_| !self.which.user && self.run_as.is_none())
        {
            bail!(
                "the file's `path.data` is {}: say with --run-as USER whose it is, or leave `path.data` out, and it is {}",
                data.display(),
                own.display()
            );
        }
        let low = |port: u16| port != 0 && port < 1024;
        let program = std::env::current_exe().context("this program's own path is not known")?;
        Ok(Unit {
            program,
            config: std::fs::canonicalize(&self.config).with_context(|| self.config.display().to_string())?,
            of_user: self.which.user,
            run_as: self.run_as.clone(),
            data,
            low_port: config.entries.iter().any(|entry| low(entry.binding.port())),
            cpus: self.cpus.clone(),
            memory_bytes: self.memory,
            name: self.which.name.clone(),
        })
    }
}

// === impl Which ===

impl Which {
    fn unit(&self) -> String {
        format!("{}.service", self.name)
    }

    /// The path of the service's unit file.
    fn file(&self) -> Result<PathBuf> {
        let folder = match self.user {
            false => PathBuf::from("/etc/systemd/system"),
            true => {
                let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
                let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
                let config = config.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")));
                config.context("HOME is not set")?.join("systemd/user")
            }
        };
        Ok(folder.join(self.unit()))
    }

    fn command(&self, words: &[&str]) -> process::Command {
        let mut command = process::Command::new("systemctl");
        command.args(self.user.then_some("--user")).args(words);
        command
    }

    fn systemctl(&self, words: &[&str]) -> Result<()> {
        let output = self.command(words).output().map_err(no_systemd)?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "systemctl {} failed: {}",
            words.join(" "),
            told.trim()
        );
        Ok(())
    }

    fn status(&self) -> Result<bool> {
        let unit = self.unit();
        let status = self
            .command(&["status", "--no-pager", "--lines=10", &unit])
            .status();
        let status = status.map_err(no_systemd)?;
        // 3: the service does not run; 4: there is no such unit.
        match status.code() {
            Some(0) => Ok(true),
            Some(3 | 4) => Ok(false),
            _ => bail!("systemctl status failed: {status}"),
        }
    }

    fn uninstall(&self) -> Result<bool> {
        let file = self.file()?;
        if !file.exists() {
            writeln!(io::stderr(), "tidegate: there is no {}", file.display())?;
            return Ok(false);
        }
        self.systemctl(&["disable", "--now", &self.unit()])?;
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
        self.systemctl(&["daemon-reload"])?;
        writeln!(
            io::stdout(),
            "{} is removed; configuration and data stay as they are",
            file.display()
        )?;
        Ok(true)
    }
}

fn no_systemd(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow::anyhow!("there is no systemctl: this machine does not use systemd")
        }
        _ => anyhow::anyhow!("systemctl: {error}"),
    }
}

/// A value that would have another meaning in a unit file.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum BadValue {
    #[error("write at most 64 letters, digits, `-` and `_`")]
    Name,
    #[error("write numbers and ranges with commas, as in 0-3,6")]
    Cpus,
}

/// Parses the name of a unit or a user; it must contain nothing that has a meaning in a unit file.
fn name(text: &str) -> Result<String, BadValue> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !text.is_empty() && text.len() <= 64 && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(BadValue::Name),
    }
}

/// Parses numbers and ranges, separated by commas.
fn cpus(text: &str) -> Result<String, BadValue> {
    let number = |text: &str| text.parse::<u16>().ok();
    let part = |part: &str| match part.split_once('-') {
        Some((from, to)) => number(from).zip(number(to)).is_some_and(|(from, to)| from <= to),
        None => number(part).is_some(),
    };
    match text.split(',').all(part) {
        true => Ok(text.to_owned()),
        false => Err(BadValue::Cpus),
    }
}
