//! The systemd unit of a gateway: what it starts, what it may use, and what it must not do.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The settings from which a unit is written.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The absolute path of the program.
    pub(crate) program: PathBuf,
    /// The absolute path of the configuration file.
    pub(crate) config: PathBuf,
    /// Whether the unit belongs to a user's own systemd, which can restrict less.
    pub(crate) of_user: bool,
    /// The user that the gateway runs as; none: a user that systemd makes for it.
    pub(crate) run_as: Option<String>,
    /// The data folder that the gateway writes to besides its state folder.
    pub(crate) data: Option<PathBuf>,
    /// Whether it listens on a port below 1024.
    pub(crate) low_port: bool,
    /// CPUs, as in `0-3,6`.
    pub(crate) cpus: Option<String>,
    /// The most memory that the gateway may use, in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// The folder below the state folder's root, and the name of the unit.
    pub(crate) name: String,
}

/// Restrictions for every unit: what no gateway needs.
const CLOSED: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077
";

/// Restrictions for a unit of the system: they need the rights of the system's manager.
const CLOSED_BY_THE_SYSTEM: &str = "\
DevicePolicy=closed
KeyringMode=private
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
";

// === impl Unit ===

impl Unit {
    /// The text of the unit file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text); // writing to a String cannot fail
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { name, .. } = self;
        writeln!(out, "# Written by `tidegate service install`.")?;
        writeln!(
            out,
            "[Unit]\nDescription=Tidegate, a write gateway for Elasticsearch and OpenSearch ({name})"
        )?;
        if !self.of_user {
            writeln!(out, "Wants=network-online.target\nAfter=network-online.target")?;
        }
        // systemd gives up for good after five restarts within ten seconds, which a full disk or an address
        // that is still taken outlasts.
        writeln!(out, "StartLimitIntervalSec=0")?;
        writeln!(out, "\n[Service]\nType=exec")?;
        let (program, config) = (quoted(&self.program), quoted(&self.config));
        writeln!(out, "ExecStart={program} gateway --config {config}")?;
        writeln!(
            out,
            "# Reads the file and certificates again; a newly installed program takes over."
        )?;
        // Not every system has a program `kill`: in Debian it comes with procps, which is not essential.
        writeln!(out, "ExecReload=/bin/sh -c \"kill -HUP ${{MAINPID}}\"")?;
        // A configuration that can't be used is no better after a restart.
        writeln!(
            out,
            "Restart=on-failure\nRestartSec=2\nRestartPreventExitStatus=1 2"
        )?;
        writeln!(out, "# Requests in flight are finished first.\nTimeoutStopSec=90")?;
        writeln!(out, "LimitNOFILE=1048576")?;
        if !self.of_user {
            writeln!(
                out,
                "# Secrets for `$[[env.NAME]]`, one line NAME=value each; readable by root only."
            )?;
            writeln!(out, "EnvironmentFile=-/etc/tidegate/environment")?;
        }
        writeln!(
            out,
            "StateDirectory={name}\nStateDirectoryMode=0700\nWorkingDirectory=%S/{name}"
        )?;
        self.write_account(out)?;
        self.write_share(out)?;
        writeln!(out, "\n# What a gateway does not need.")?;
        out.push_str(CLOSED);
        if !self.of_user {
            out.push_str(CLOSED_BY_THE_SYSTEM);
            writeln!(out, "ProtectHome={}", self.home())?;
            let capability = if self.low_port { "CAP_NET_BIND_SERVICE" } else { "" };
            writeln!(
                out,
                "CapabilityBoundingSet={capability}\nAmbientCapabilities={capability}"
            )?;
        }
        let target = if self.of_user {
            "default.target"
        } else {
            "multi-user.target"
        };
        writeln!(out, "\n[Install]\nWantedBy={target}")
    }

    fn write_account(&self, out: &mut String) -> std::fmt::Result {
        match &self.run_as {
            _ if self.of_user => {}
            Some(user) => writeln!(out, "User={user}")?,
            None => writeln!(out, "DynamicUser=yes")?,
        }
        match &self.data {
            Some(data) if !self.of_user => writeln!(out, "ReadWritePaths={}", quoted(data)),
            _ => Ok(()),
        }
    }

    fn write_share(&self, out: &mut String) -> std::fmt::Result {
        if let Some(cpus) = &self.cpus {
            writeln!(out, "CPUAffinity={cpus}")?;
        }
        if let Some(bytes) = self.memory_bytes {
            writeln!(out, "MemoryMax={bytes}")?;
        }
        Ok(())
    }

    /// Hides home folders, unless the program or its files are in one.
    fn home(&self) -> &'static str {
        let in_a_home = |path: &Path| {
            ["/home", "/root", "/run/user"]
                .iter()
                .any(|home| path.starts_with(home))
        };
        match &self.data {
            Some(data) if in_a_home(data) => "no",
            _ if in_a_home(&self.program) || in_a_home(&self.config) => "read-only",
            _ => "yes",
        }
    }
}

/// Quotes a path as unit files require; `%` and `$` are escaped.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('%', "%%").replace('$', "$$"))
}
