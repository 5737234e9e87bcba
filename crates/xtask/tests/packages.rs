//! Checks what `./dev dist` packs where nothing else is installed: in a Debian of 2021, into which dpkg and
//! rpm install it, scripts included; and in the image, which runc runs as its own user. The packages need a
//! program for other machines, which takes minutes to build: `./dev test` builds one and names it in
//! `TIDEGATE_TEST_PROGRAM`.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// A Debian with glibc 2.31, of 2020, and without OpenSSL 3.
const DEBIAN: &str = "bullseye";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

/// The packages of the program, and the root of a machine without Tidegate.
struct Fresh {
    folder: tempfile::TempDir,
}

impl Fresh {
    /// Prepares everything once for all tests; each test has a copy of the root.
    fn get() -> &'static Self {
        static FRESH: OnceLock<Fresh> = OnceLock::new();
        FRESH.get_or_init(|| {
            let program = std::env::var_os("TIDEGATE_TEST_PROGRAM");
            let program = program.expect("TIDEGATE_TEST_PROGRAM names a program for other machines");
            // The folder is not below a home, which the unit would hide.
            let folder = tempfile::Builder::new()
                .prefix("tidegate-packages")
                .tempdir_in("/tmp")
                .unwrap();
            let mut dist = Command::new(env!("CARGO_BIN_EXE_xtask"));
            dist.args(["dist", "--compression", "none", "--program"])
                .arg(program);
            good(dist.arg("--to").arg(folder.path().join("dist")));
            let mut debian = Command::new("mmdebstrap");
            debian.args(["--quiet", "--variant=essential", "--include=systemd,curl", DEBIAN]);
            good(debian.arg(folder.path().join("root.tar")));
            Self { folder }
        })
    }

    fn file(&self, end: &str) -> PathBuf {
        let files = std::fs::read_dir(self.folder.path().join("dist")).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        files.find(|file| file.to_str().unwrap().ends_with(end)).unwrap()
    }

    /// Returns a new machine. Its calls of systemctl are written to a file, as if systemd ran.
    fn machine(&self, name: &str) -> Machine {
        let root = self.folder.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let mut unpack = Command::new("tar");
        unpack
            .arg("--extract")
            .arg("--file")
            .arg(self.folder.path().join("root.tar"));
        good(unpack.args(["--exclude=./dev/*", "--directory"]).arg(&root));
        std::fs::write(root.join("dev/null"), "").unwrap();
        std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        // This replaces the machine's own systemctl: rpm looks nowhere else.
        let systemctl = root.join("bin/systemctl");
        std::fs::remove_file(&systemctl).unwrap();
        std::fs::write(&systemctl, "#!/bin/sh\necho \"$@\" >> /told\n").unwrap();
        std::fs::set_permissions(&systemctl, PermissionsExt::from_mode(0o755)).unwrap();
        Machine { root }
    }
}

struct Machine {
    root: PathBuf,
}

impl Machine {
    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Returns a command for a program in a namespace of its own, in which the machine has the `/proc` that
    /// systemd's tools read. Both end together.
    fn apart(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command.arg(format!("--mount-proc={}", self.path("proc").display()));
        command.arg(program);
        command
    }

    /// Returns a command for a program of the machine, as this user.
    fn command(&self, user: &str, words: &[&str]) -> Command {
        let mut command = self.apart("chroot");
        command
            .arg(format!("--userspec={user}:{user}"))
            .arg(&self.root)
            .args(words);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn run(&self, words: &[&str]) -> String {
        good(&mut self.command("root", words))
    }

    /// Returns the calls of systemctl since the last time.
    fn told(&self) -> String {
        let told = std::fs::read_to_string(self.path("told")).unwrap_or_default();
        std::fs::write(self.path("told"), "").unwrap();
        told
    }

    /// Copies a file into the machine, and returns its path there.
    fn bring(&self, file: &Path) -> String {
        let name = file.file_name().unwrap().to_str().unwrap();
        std::fs::copy(file, self.path(name)).unwrap();
        format!("/{name}")
    }

    /// Runs the service as its unit starts it, until it reports that it is alive. It listens on another port
    /// than the package's configuration says, since other tests may use that port.
    fn serves(&self) {
        let unit = std::fs::read_to_string(self.path("usr/lib/systemd/system/tidegate.service")).unwrap();
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="))
            .unwrap();
        let words = line.replace('"', "");
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(words[0], "/usr/bin/tidegate");
        // The machine has nothing but what is essential, and an upgrade reloads.
        let reload = unit.lines().find_map(|line| line.strip_prefix("ExecReload=/"));
        let program = reload.and_then(|line| line.split(' ').next()).unwrap();
        assert!(
            self.path(program).exists(),
            "there is no /{program} to reload with"
        );
        let file = self.path("etc/tidegate/tidegate.yml");
        let (before, admin) = (std::fs::read_to_string(&file).unwrap(), free_address());
        let moved = before.replace("127.0.0.1:8000", &free_address());
        let moved = moved.replace("127.0.0.1:2900", &admin);
        assert!(moved.contains(&admin), "{moved}");
        std::fs::write(&file, moved).unwrap();
        let folder = self.path("var/lib/tidegate");
        std::fs::create_dir_all(&folder).unwrap();
        self.run(&["chown", "tidegate:", "/var/lib/tidegate"]);
        let _running = Running::start(&mut self.command("tidegate", &words));
        let admin = format!("http://{admin}");
        until_healthy(|| {
            self.command(
                "tidegate",
                &["/usr/bin/tidegate", "health", "--live", "--admin", &admin],
            )
        });
        std::fs::write(&file, before).unwrap();
    }
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn until_healthy(ask: impl Fn() -> Command) {
    let began = Instant::now();
    loop {
        let output = ask().output().unwrap();
        if output.status.success() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{}", said(&output));
        std::thread::sleep(Duration::from_millis(200));
    }
}

struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that changes its user while it starts no longer ends with its parent.
        let parent = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").args(["-s", "KILL", child]).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "./dev test builds the program that it packs"]
fn an_old_debian_installs_runs_upgrades_removes_and_purges_the_package() {
    let fresh = Fresh::get();
    let machine = fresh.machine("debian");
    let package = machine.bring(&fresh.file(".deb"));
    machine.run(&["dpkg", "--install", &package]);
    assert_eq!(machine.told(), "daemon-reload\n", "neither enabled nor started");
    assert!(machine.run(&["dpkg", "--verify", "tidegate"]).is_empty());
    machine.run(&["getent", "passwd", "tidegate"]);
    machine.serves();

    let config = machine.path("etc/tidegate/tidegate.yml");
    let mine = std::fs::read_to_string(&config).unwrap() + "# mine\n";
    std::fs::write(&config, &mine).unwrap();
    machine.run(&["dpkg", "--install", &package]);
    let told = machine.told();
    assert!(
        told.starts_with("daemon-reload\n") && told.contains("tidegate.service"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(&config).unwrap(), mine);
    machine.serves();

    machine.run(&["dpkg", "--remove", "tidegate"]);
    assert_eq!(machine.told(), "disable --now tidegate.service\ndaemon-reload\n");
    assert!(!machine.path("usr/bin/tidegate").exists() && config.exists());
    let told = machine.run(&["dpkg", "--purge", "tidegate"]);
    assert!(told.contains("/var/lib/tidegate is left"), "{told}");
    assert!(!config.exists() && machine.path("var/lib/tidegate").exists());
    assert_eq!(machine.run(&["find", "/usr", "/etc", "-name", "*tidegate*"]), "");
}

#[test]
#[ignore = "./dev test builds the program that it packs"]
fn rpm_installs_upgrades_and_removes_the_package_with_its_scripts() {
    let fresh = Fresh::get();
    let machine = fresh.machine("rpm");
    let package = fresh.file(".rpm");
    let rpm = |words: &[&str], what: &Path| {
        let mut command = machine.apart("rpm");
        // The machine's own packages belong to dpkg, so rpm does not know them.
        command
            .arg("--root")
            .arg(&machine.root)
            .arg("--nodeps")
            .args(words);
        command
            .arg(what)
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        good(&mut command)
    };
    rpm(&["--install"], &package);
    assert_eq!(machine.told(), "daemon-reload\n");
    machine.run(&["getent", "passwd", "tidegate"]);
    assert_eq!(rpm(&["--verify"], Path::new("tidegate")), "");
    machine.serves();
    rpm(&["--upgrade", "--force"], &package);
    let told = machine.told();
    assert!(
        told.contains("tidegate.service") && !told.contains("disable"),
        "{told}"
    );
    rpm(&["--erase"], Path::new("tidegate"));
    assert_eq!(machine.told(), "disable --now tidegate.service\ndaemon-reload\n");
    assert!(!machine.path("usr/bin/tidegate").exists());
    assert!(machine.path("var/lib/tidegate").exists());
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Returns a bundle that runc can run: the image's layers, unpacked, and the process from its configuration.
fn bundle(fresh: &Fresh) -> (PathBuf, Value) {
    let layout = fresh.folder.path().join("layout");
    let bundle = fresh.folder.path().join("bundle");
    std::fs::create_dir_all(bundle.join("rootfs")).unwrap();
    std::fs::create_dir_all(&layout).unwrap();
    good(
        Command::new("tar")
            .arg("-xf")
            .arg(fresh.file(".oci.tar"))
            .arg("-C")
            .arg(&layout),
    );
    let blob = |described: &Value| {
        let digest = described["digest"].as_str().unwrap().replace("sha256:", "");
        layout.join("blobs/sha256").join(digest)
    };
    let manifest = read(&blob(&read(&layout.join("index.json"))["manifests"][0]));
    for layer in manifest["layers"].as_array().unwrap() {
        let mut unpack = Command::new("tar");
        unpack
            .arg("-xpf")
            .arg(blob(layer))
            .arg("-C")
            .arg(bundle.join("rootfs"));
        good(&mut unpack);
    }
    (bundle, read(&blob(&manifest["config"]))["config"].clone())
}

#[test]
#[ignore = "./dev test builds the program that it packs"]
fn a_container_of_the_image_runs_as_its_user_on_a_root_that_cannot_be_written_and_is_healthy() {
    static ONE_CONTAINER: Mutex<()> = Mutex::new(());
    let _one = ONE_CONTAINER.lock();
    let (bundle, image) = bundle(Fresh::get());
    let text = |value: &Value| -> Vec<String> {
        let words = value.as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let (user, group) = image["User"].as_str().unwrap().split_once(':').unwrap();
    let ids: [u32; 2] = [user.parse().unwrap(), group.parse().unwrap()];
    assert_ne!(ids[0], 0);
    good(Command::new("runc").arg("spec").current_dir(&bundle));
    let mut container = read(&bundle.join("config.json"));
    container["process"]["terminal"] = json!(false);
    container["process"]["user"] = json!({"uid": ids[0], "gid": ids[1]});
    container["process"]["args"] = json!([text(&image["Entrypoint"]), text(&image["Cmd"])].concat());
    container["process"]["env"] = image["Env"].clone();
    container["process"]["cwd"] = image["WorkingDir"].clone();
    for kind in ["bounding", "effective", "permitted", "ambient"] {
        container["process"]["capabilities"][kind] = json!([]);
    }
    assert_eq!(container["root"]["readonly"], true);
    // The folder is like a volume: it has what the image has there, and belongs to the image's user.
    let volume = text(&Value::Array(
        image["Volumes"]
            .as_object()
            .unwrap()
            .keys()
            .map(|key| json!(key))
            .collect(),
    ));
    let mounts = container["mounts"].as_array_mut().unwrap();
    mounts.push(json!({
        "destination": volume[0], "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "nodev", format!("uid={user}"), format!("gid={group}"), "mode=700"],
    }));
    std::fs::write(bundle.join("config.json"), container.to_string()).unwrap();

    let name = format!("tidegate-test-{}", std::process::id());
    let state = bundle.join("state");
    let runc = |words: &[&str]| {
        let mut command = Command::new("runc");
        command.arg("--root").arg(&state).args(words).current_dir(&bundle);
        command
    };
    let _running = Running::start(&mut runc(&["run", &name]));
    let check = text(&image["Healthcheck"]["Test"]);
    assert_eq!(check[0], "CMD");
    // The cluster of the first configuration is not there: the gateway is alive, but not ready.
    let mut live: Vec<&str> = vec!["exec", &name];
    live.extend(check[1..].iter().map(String::as_str));
    let ready = live.clone();
    live.push("--live");
    until_healthy(|| runc(&live));
    let output = runc(&ready).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let written = runc(&["exec", &name, "/usr/bin/tidegate", "manual", "--to", "/usr/share"])
        .output()
        .unwrap();
    assert!(!written.status.success(), "{}", said(&written));
    good(&mut runc(&["kill", &name, "TERM"]));
    let began = Instant::now();
    while runc(&["state", &name]).output().unwrap().status.success() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not stop");
        std::thread::sleep(Duration::from_millis(200));
    }
}
