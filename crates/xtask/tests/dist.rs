//! What `./dev dist` packs is installed, upgraded, removed and purged in a root of its own by dpkg.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program that the workspace's build has put beside this one.
fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("tidegate");
    assert!(
        program.exists(),
        "build the whole workspace first: there is no {}",
        program.display()
    );
    program
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// Packs the program; not compressed, since that is most of the time.
fn dist(to: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["dist", "--compression", "none", "--program"])
        .arg(program())
        .arg("--to")
        .arg(to);
    good(&mut command);
    std::fs::read_to_string(to.join("SHA256SUMS")).unwrap()
}

/// A folder that dpkg takes for a machine.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn new(root: PathBuf) -> Self {
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        Self { root }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The libraries that the package wants are not in this root, and its scripts run outside of it.
    fn dpkg(&self, what: &str, package: &Path) -> String {
        let mut command = Command::new("fakeroot");
        command.arg("dpkg").arg(format!("--root={}", self.root.display()));
        command
            .args(["--force-depends", "--force-script-chrootless", what])
            .arg(package);
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C");
        good(&mut command)
    }

    fn run(&self, arguments: &[&str]) -> String {
        good(Command::new(self.path("usr/bin/tidegate")).args(arguments))
    }
}

#[test]
fn the_package_is_installed_upgraded_removed_and_purged_and_made_alike_twice() {
    let folder = std::env::temp_dir().join(format!("tidegate-dist-test-{}", std::process::id()));
    let (first, second) = (folder.join("first"), folder.join("second"));
    let sums = dist(&first);
    assert_eq!(sums, dist(&second), "the same program, the same bytes");
    assert_eq!(sums.lines().count(), 2, "{sums}");
    let files = std::fs::read_dir(&first)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    let find = |end: &str| {
        files
            .iter()
            .find(|file| file.to_str().unwrap().ends_with(end))
            .unwrap()
    };
    let package = find(".deb");
    let field = |name: &str| good(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    assert!(field("Depends").contains("libc6"), "{}", field("Depends"));

    let machine = Machine::new(folder.join("root"));
    machine.dpkg("--install", package);
    assert!(machine.run(&["--version"]).starts_with("tidegate "));
    let config = machine.path("etc/tidegate/tidegate.yml");
    let checked = machine.run(&["check", config.to_str().unwrap()]);
    assert!(checked.contains(": good"), "{checked}");
    let users = std::fs::read_to_string(machine.path("etc/passwd")).unwrap();
    assert!(
        users.contains("\ntidegate:") || users.starts_with("tidegate:"),
        "{users}"
    );
    for file in [
        "usr/share/man/man1/tidegate.1.gz",
        "usr/share/man/man1/tidegate-gateway.1.gz",
        "usr/share/bash-completion/completions/tidegate",
        "usr/share/zsh/vendor-completions/_tidegate",
        "usr/share/fish/vendor_completions.d/tidegate.fish",
        "usr/share/doc/tidegate/copyright",
    ] {
        assert!(machine.path(file).exists(), "{file}");
    }
    let unit = machine.path("usr/lib/systemd/system/tidegate.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    for line in [
        "ExecStart=\"/usr/bin/tidegate\" gateway --config \"/etc/tidegate/tidegate.yml\"",
        "User=tidegate",
        "ProtectHome=yes",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let mut scored = Command::new("systemd-analyze");
    good(
        scored
            .args(["security", "--offline=true", "--no-pager", "--threshold=25"])
            .arg(&unit),
    );

    // An upgrade leaves the file as it was made.
    std::fs::write(&config, "# mine\n").unwrap();
    machine.dpkg("--install", &second.join(package.file_name().unwrap()));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine\n");
    let queue = machine.path("var/lib/tidegate/data");
    std::fs::create_dir_all(&queue).unwrap();
    machine.dpkg("--remove", Path::new("tidegate"));
    assert!(!machine.path("usr/bin/tidegate").exists() && config.exists());
    let told = machine.dpkg("--purge", Path::new("tidegate"));
    assert!(!config.exists() && queue.exists());
    assert!(told.contains("/var/lib/tidegate is left"), "{told}");

    let listed = good(Command::new("tar").arg("-tzf").arg(find(".tar.gz")));
    let name = listed.lines().next().unwrap().trim_end_matches('/').to_owned();
    assert!(name.starts_with("tidegate-"), "{listed}");
    assert!(listed.contains(&format!("{name}/usr/bin/tidegate\n")), "{listed}");
    assert!(!listed.contains("DEBIAN"), "{listed}");
    std::fs::remove_dir_all(&folder).unwrap();
}
