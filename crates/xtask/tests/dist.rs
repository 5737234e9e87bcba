//! Checks what `./dev dist` packs: dpkg installs, upgrades, removes and purges the Debian package in a root
//! of its own, rpm's tools inspect and unpack the RPM, the image is checked blob by blob and run, and the
//! bill of materials is read.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Returns the program that the workspace's build has put beside this one.
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

/// Packs the program uncompressed, since compression takes most of the time.
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

/// Everything packed twice, with the checksums of each time.
struct Packed {
    first: PathBuf,
    second: PathBuf,
    sums: [String; 2],
}

impl Packed {
    /// Packs once for all tests; the folder stays in `target` for inspection.
    fn get() -> &'static Self {
        static PACKED: OnceLock<Packed> = OnceLock::new();
        PACKED.get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dist");
            let _ = std::fs::remove_dir_all(&folder); // of the previous run
            let (first, second) = (folder.join("first"), folder.join("second"));
            let sums = [dist(&first), dist(&second)];
            Self { first, second, sums }
        })
    }

    fn file(&self, end: &str) -> PathBuf {
        let files = std::fs::read_dir(&self.first).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        files.find(|file| file.to_str().unwrap().ends_with(end)).unwrap()
    }

    /// Returns a new folder beside the packed ones.
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.first.with_file_name(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

/// A folder that dpkg treats as a machine.
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

    /// Runs dpkg. The libraries that the package depends on are not in this root, and its scripts run outside
    /// of it.
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
fn the_same_program_gives_the_same_bytes_and_each_file_has_its_checksum() {
    let packed = Packed::get();
    assert_eq!(packed.sums[0], packed.sums[1]);
    assert_eq!(packed.sums[0].lines().count(), 5, "{}", packed.sums[0]);
    good(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(&packed.first),
    );
}

#[test]
fn the_debian_package_is_installed_upgraded_removed_and_purged() {
    let packed = Packed::get();
    let package = &packed.file(".deb");
    let field = |name: &str| good(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    assert!(field("Depends").contains("libc6"), "{}", field("Depends"));

    let machine = Machine::new(packed.folder("debian"));
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
        "usr/share/doc/tidegate/docs/runbooks/disk-full.md",
        "usr/share/doc/tidegate/ops/prometheus/tidegate.rules.yml",
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

    // An upgrade leaves the changed file as it is.
    std::fs::write(&config, "# mine\n").unwrap();
    machine.dpkg("--install", &packed.second.join(package.file_name().unwrap()));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine\n");
    let queue = machine.path("var/lib/tidegate/data");
    std::fs::create_dir_all(&queue).unwrap();
    machine.dpkg("--remove", Path::new("tidegate"));
    assert!(!machine.path("usr/bin/tidegate").exists() && config.exists());
    let told = machine.dpkg("--purge", Path::new("tidegate"));
    assert!(!config.exists() && queue.exists());
    assert!(told.contains("/var/lib/tidegate is left"), "{told}");
}

#[test]
fn the_archive_has_the_same_below_one_folder() {
    let listed = good(Command::new("tar").arg("-tzf").arg(Packed::get().file(".tar.gz")));
    let name = listed.lines().next().unwrap().trim_end_matches('/').to_owned();
    assert!(name.starts_with("tidegate-"), "{listed}");
    assert!(listed.contains(&format!("{name}/usr/bin/tidegate\n")), "{listed}");
    assert!(!listed.contains("DEBIAN"), "{listed}");
}

#[test]
fn the_rpm_says_what_it_wants_and_has_and_unpacks_to_a_program_that_runs() {
    let packed = Packed::get();
    let package = packed.file(".rpm");
    let ask = |question: &[&str]| good(Command::new("rpm").arg("-qp").args(question).arg(&package));
    let listed = ask(&["--list"]);
    for file in [
        "/usr/bin/tidegate",
        "/usr/lib/systemd/system/tidegate.service",
        "/usr/lib/sysusers.d/tidegate.conf",
        "/usr/share/zsh/site-functions/_tidegate",
        "/usr/share/man/man1/tidegate.1.gz",
    ] {
        assert!(listed.lines().any(|found| found == file), "{file}: {listed}");
    }
    assert_eq!(ask(&["--configfiles"]).trim(), "/etc/tidegate/tidegate.yml");
    let wanted = ask(&["--requires"]);
    assert!(wanted.contains("libc.so.6(GLIBC_"), "{wanted}");
    let scripts = ask(&["--scripts"]);
    assert!(
        scripts.contains("systemd-sysusers tidegate.conf") && scripts.contains("try-reload-or-restart"),
        "{scripts}"
    );
    let owners = ask(&["--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]"]);
    assert!(owners.lines().all(|owner| owner == "root:root"), "{owners}");
    good(Command::new("rpm").args(["-K", "--nosignature"]).arg(&package));

    let root = packed.folder("rpm");
    let unpack = "rpm2archive - < \"$0\" | tar --extract --gzip --directory \"$1\"";
    good(Command::new("sh").args(["-c", unpack]).arg(&package).arg(&root));
    let program = root.join("usr/bin/tidegate");
    assert!(good(Command::new(&program).arg("--version")).starts_with("tidegate "));
    let config = root.join("etc/tidegate/tidegate.yml");
    let checked = good(Command::new(&program).arg("check").arg(config));
    assert!(checked.contains(": good"), "{checked}");
}

/// Returns a layout's blob, after checking its length and digest against its description.
fn blob(layout: &Path, described: &Value) -> PathBuf {
    let digest = described["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let file = layout.join("blobs/sha256").join(digest);
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert_eq!(bytes, described["size"].as_u64().unwrap(), "{described}");
    let sum = good(Command::new("sha256sum").arg(&file));
    assert_eq!(sum.split(' ').next(), Some(digest));
    file
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Returns a command that runs a program of an image: as the image's user where that is possible, and
/// otherwise with the image's own loader and libraries.
fn in_image(root: &Path, arguments: &[&str]) -> Command {
    let is_root = good(Command::new("id").arg("-u")).trim() == "0";
    let mut command = match is_root {
        true => {
            let mut command = Command::new("chroot");
            command
                .arg("--userspec=65532:65532")
                .arg(root)
                .arg("/usr/bin/tidegate");
            command
        }
        false => {
            let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
            command
                .arg("--library-path")
                .arg(root.join("lib/x86_64-linux-gnu"));
            command.arg(root.join("usr/bin/tidegate"));
            command
        }
    };
    command.args(arguments).env_remove("TIDEGATE_CLUSTER");
    command
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_image_is_what_its_digests_say_and_runs_with_nothing_of_this_machine() {
    let packed = Packed::get();
    let layout = packed.folder("layout");
    good(
        Command::new("tar")
            .arg("-xf")
            .arg(packed.file(".oci.tar"))
            .arg("-C")
            .arg(&layout),
    );
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&layout.join("index.json"));
    let manifest = json(&blob(&layout, &index["manifests"][0]));
    let config = json(&blob(&layout, &manifest["config"]));
    let layer = blob(&layout, &manifest["layers"][0]);
    assert_eq!(
        config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"],
        "not compressed here"
    );
    assert_eq!(config["config"]["User"], "65532:65532");
    let check = config["config"]["Healthcheck"]["Test"].as_array().unwrap();
    assert_eq!(
        (&check[1], &check[2]),
        (&"/usr/bin/tidegate".into(), &"health".into())
    );
    let docker = json(&layout.join("manifest.json"));
    // Docker, podman and containerd each read the name elsewhere.
    let (name, names) = (
        docker[0]["RepoTags"][0].as_str().unwrap(),
        &index["manifests"][0]["annotations"],
    );
    assert!(name.starts_with("tidegate:"), "{name}");
    assert_eq!(names["org.opencontainers.image.ref.name"], name);
    assert_eq!(
        names["io.containerd.image.name"],
        format!("docker.io/library/{name}")
    );
    let named = docker[0]["Layers"][0].as_str().unwrap();
    assert!(
        manifest["layers"][0]["digest"]
            .as_str()
            .unwrap()
            .ends_with(named.rsplit('/').next().unwrap())
    );

    let listed = good(Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(&layer));
    for line in listed.lines() {
        let owner = if line.contains("./var/lib/tidegate/") {
            " 65532/65532 "
        } else {
            " 0/0 "
        };
        assert!(line.contains(owner), "{line}");
    }
    let root = packed.folder("image");
    good(Command::new("tar").arg("-xf").arg(&layer).arg("-C").arg(&root));
    let version = good(&mut in_image(&root, &["--version"]));
    assert!(version.starts_with("tidegate "), "{version}");
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let admin = format!("127.0.0.1:{port}");
    let gateway = [
        "gateway",
        "--cluster",
        "http://127.0.0.1:9",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        &admin,
    ];
    let mut gateway = in_image(&root, &gateway);
    let _running = Running(
        gateway
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let admin = format!("http://{admin}");
    let began = Instant::now();
    let healthy = || {
        in_image(&root, &["health", "--live", "--admin", &admin])
            .output()
            .unwrap()
    };
    while !healthy().status.success() {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", said(&healthy()));
        std::thread::sleep(Duration::from_millis(100));
    }
    let ready = in_image(&root, &["health", "--admin", &admin]).output().unwrap();
    assert_eq!(
        ready.status.code(),
        Some(1),
        "there is no cluster: {}",
        said(&ready)
    );
}

#[test]
fn the_bill_of_materials_has_each_crate_of_the_program_once_and_no_other() {
    let bill = json(&Packed::get().file(".spdx.json"));
    assert_eq!(bill["spdxVersion"], "SPDX-2.3");
    let packages = bill["packages"].as_array().unwrap();
    let ids: BTreeSet<&str> = packages
        .iter()
        .map(|one| one["SPDXID"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), packages.len(), "each has an id of its own");
    let plain = |id: &str| {
        id.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    assert!(ids.iter().all(|id| plain(id)), "{ids:?}");
    let find = |name: &str| packages.iter().find(|one| one["name"] == name);
    for name in ["tidegate", "bulk", "tokio", "rustls"] {
        assert!(find(name).is_some(), "{name}");
    }
    for name in ["tempfile", "testkit", "xtask"] {
        assert!(find(name).is_none(), "only tests use {name}");
    }
    let tokio = find("tokio").unwrap();
    let purl = tokio["externalRefs"][0]["referenceLocator"].as_str().unwrap();
    assert!(purl.starts_with("pkg:cargo/tokio@1."), "{purl}");
    assert_eq!(tokio["checksums"][0]["checksumValue"].as_str().unwrap().len(), 64);
    let unlicensed: Vec<_> = packages
        .iter()
        .filter(|one| one["licenseDeclared"] == "NOASSERTION")
        .collect();
    assert!(unlicensed.is_empty(), "{unlicensed:?}");
    for relation in bill["relationships"].as_array().unwrap() {
        let known = |key: &str| ids.contains(relation[key].as_str().unwrap());
        assert!(known("relatedSpdxElement"), "{relation}");
        assert!(
            relation["relationshipType"] == "DESCRIBES" || known("spdxElementId"),
            "{relation}"
        );
    }
}
