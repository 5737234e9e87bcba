//! `tidegate service`: the unit that is written, systemd's own opinion of it, and the calls of systemctl.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a configuration, and a `systemctl` that records its arguments.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = "\
entry: [{name: e, router: r, network.binding: '0.0.0.0:8000'}]
router: [{name: r, default_flow: f}]
flow: [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:9200'}]
";
        std::fs::write(folder.path().join("gateway.yml"), text).unwrap();
        let machine = Self { folder };
        std::fs::create_dir(machine.path("bin")).unwrap();
        machine.systemctl("exit 0");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets what `systemctl` does after it has recorded its arguments.
    fn systemctl(&self, then: &str) {
        let file = self.path("bin/systemctl");
        let told = self.path("told").display().to_string();
        std::fs::write(&file, format!("#!/bin/sh\necho \"$@\" >> '{told}'\n{then}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("service")
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .output()
            .unwrap()
    }

    /// Returns the arguments of `systemctl` since the last call.
    fn told(&self) -> Vec<String> {
        let told = std::fs::read_to_string(self.path("told")).unwrap_or_default();
        std::fs::write(self.path("told"), "").unwrap();
        told.lines().map(str::to_owned).collect()
    }

    /// Returns the unit of the machine's systemd, as it would be written.
    fn unit(&self, more: &[&str]) -> String {
        let arguments = [&["install", "--print", "--config", "gateway.yml"], more].concat();
        let output = self.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// Runs `systemd-analyze`, which must be installed for the tests.
fn analyze(arguments: &[&str], unit: &Path) -> Output {
    Command::new("systemd-analyze")
        .args(arguments)
        .arg(unit)
        // Needed for a user's units; nobody has to be logged in here.
        .env("XDG_RUNTIME_DIR", unit.parent().unwrap())
        .output()
        .unwrap()
}

#[test]
fn a_service_of_a_user_is_installed_started_stopped_and_uninstalled() {
    let machine = Machine::new();
    let unit = machine.path(".config/systemd/user/tidegate.service");
    let output = machine.run(&[
        "install",
        "--user",
        "--config",
        "gateway.yml",
        "--cpus",
        "0-3,6",
        "--memory",
        "2gb",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(
        machine.told(),
        ["--user daemon-reload", "--user enable tidegate.service"]
    );
    let text = std::fs::read_to_string(&unit).unwrap();
    for line in [
        "CPUAffinity=0-3,6",
        "MemoryMax=2147483648",
        "WantedBy=default.target",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let config = std::fs::canonicalize(machine.path("gateway.yml")).unwrap();
    assert!(
        text.contains(&format!("gateway --config \"{}\"", config.display())),
        "{text}"
    );
    let verified = analyze(&["verify", "--user"], &unit);
    assert!(verified.status.success(), "{}", said(&verified));
    for verb in ["start", "stop"] {
        assert_eq!(machine.run(&[verb, "--user"]).status.code(), Some(0));
        assert_eq!(machine.told(), [format!("--user {verb} tidegate.service")]);
    }
    assert_eq!(machine.run(&["status", "--user"]).status.code(), Some(0));
    machine.systemctl("exit 3");
    assert_eq!(
        machine.run(&["status", "--user"]).status.code(),
        Some(1),
        "it does not run"
    );
    machine.systemctl("exit 0");
    machine.told();
    let output = machine.run(&["uninstall", "--user"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(
        machine.told(),
        ["--user disable --now tidegate.service", "--user daemon-reload"]
    );
    assert!(!unit.exists() && machine.path("gateway.yml").exists());
    assert_eq!(
        machine.run(&["uninstall", "--user"]).status.code(),
        Some(1),
        "there is none"
    );
}

#[test]
fn systemd_takes_the_unit_of_the_machine_and_finds_it_closed() {
    let machine = Machine::new();
    let file = machine.path("tidegate.service");
    for more in [
        &[][..],
        &["--cpus", "0", "--memory", "512mb"],
        &["--run-as", "tide", "--name", "tidegate-2"],
    ] {
        std::fs::write(&file, machine.unit(more)).unwrap();
        let verified = analyze(&["verify"], &file);
        assert!(
            verified.status.success() && said(&verified).is_empty(),
            "{more:?}: {}",
            said(&verified)
        );
        // Tenths: 0 is closed, 100 is open. An empty unit has 96.
        let scored = analyze(
            &["security", "--offline=true", "--no-pager", "--threshold=25"],
            &file,
        );
        assert!(scored.status.success(), "{more:?}: {}", said(&scored));
    }
}

/// Runs the unit's reload as systemd does, for a process that says whether the signal has come.
#[test]
fn a_reload_needs_no_program_but_a_shell_and_reaches_the_process() {
    let unit = Machine::new().unit(&[]);
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecReload="));
    let script = line
        .and_then(|line| line.strip_prefix("/bin/sh -c \"")?.strip_suffix('"'))
        .unwrap_or_else(|| panic!("{unit}"));
    let waits = "trap 'exit 7' HUP; echo ready; while :; do /bin/sleep 0.05; done";
    // A shell cannot trap a signal that its parent ignores, as `nohup` does.
    let mut process = Command::new("/usr/bin/env")
        .args(["--default-signal=HUP", "/bin/sh", "-c", waits])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let script = script.replace("${MAINPID}", &process.id().to_string());
    let done = Command::new("/bin/sh")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", "")
        .status()
        .unwrap();
    if !done.success() {
        process.kill().unwrap();
    }
    assert_eq!(process.wait().unwrap().code(), Some(7), "{script}");
}

#[test]
fn a_low_port_a_folder_of_one_s_own_and_a_home_are_let_through_and_nothing_else_is() {
    let machine = Machine::new();
    assert!(machine.unit(&[]).contains("\nDynamicUser=yes\n"));
    assert!(machine.unit(&[]).contains("\nAmbientCapabilities=\n"));
    let text = std::fs::read_to_string(machine.path("gateway.yml")).unwrap();
    let text = text.replace(":8000", ":443") + "path.data: /srv/tidegate\n";
    std::fs::write(machine.path("gateway.yml"), text).unwrap();
    let unit = machine.unit(&["--run-as", "tide"]);
    for line in [
        "User=tide",
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        "ReadWritePaths=\"/srv/tidegate\"",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}: {unit}");
    }
    // A user that systemd makes has no folder of its own there.
    let output = machine.run(&["install", "--print", "--config", "gateway.yml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said(&output).contains("say with --run-as USER whose it is"),
        "{}",
        said(&output)
    );
}

/// systemd starts nothing whose `ReadWritePaths` is not there.
#[test]
fn a_data_folder_that_is_not_there_is_said_before_anything_is_written() {
    let machine = Machine::new();
    let data = machine.path("disk");
    let text = std::fs::read_to_string(machine.path("gateway.yml")).unwrap();
    let text = format!("{text}path.data: {}\n", data.display());
    std::fs::write(machine.path("gateway.yml"), text).unwrap();
    let name = "tidegate-of-a-test";
    let how = [
        "install",
        "--config",
        "gateway.yml",
        "--run-as",
        "tide",
        "--name",
        name,
    ];
    let output = machine.run(&how);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let told = format!("install -d -m 700 -o tide {}", data.display());
    assert!(said(&output).contains(&told), "{}", said(&output));
    assert!(machine.told().is_empty());
    assert!(
        !Path::new("/etc/systemd/system")
            .join(name)
            .with_extension("service")
            .exists()
    );
}

/// A disk that is full, or an address that is taken, may be so for longer than a few tries.
#[test]
fn the_service_is_tried_again_for_as_long_as_it_takes() {
    let unit = Machine::new().unit(&[]);
    let (of_unit, of_service) = unit.split_once("\n[Service]\n").unwrap();
    assert!(
        of_unit.lines().any(|line| line == "StartLimitIntervalSec=0"),
        "{unit}"
    );
    for line in [
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=1 2",
    ] {
        assert!(of_service.lines().any(|found| found == line), "{line}: {unit}");
    }
}

#[test]
fn what_cannot_be_installed_is_said_with_the_status_that_it_has_everywhere() {
    let machine = Machine::new();
    for (arguments, status, told) in [
        (
            &["install", "--user", "--config", "none.yml"][..],
            1,
            "can't be read",
        ),
        (
            &["install", "--user", "--cpus", "0-"],
            2,
            "write numbers and ranges",
        ),
        (&["install", "--user", "--memory", "much"], 2, "is not a size"),
        (&["install", "--user", "--name", "a b"], 2, "letters, digits"),
    ] {
        let output = machine.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(told), "{arguments:?}: {}", said(&output));
    }
    machine.systemctl("echo 'System has not been booted with systemd' >&2; exit 1");
    let output = machine.run(&["start"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said(&output).contains("not been booted with systemd"),
        "{}",
        said(&output)
    );
}
