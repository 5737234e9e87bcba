//! Commands that root runs in the folders of another user, such as the gateway's: what they make there is
//! that user's, and links of that user lead them nowhere. Only root can try that; for others the tests prove
//! that the commands work in folders of their own.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use log::{Log, Options, RealDisk};

/// A user that exists on every machine and has nothing to do with the gateway.
const OTHER: u32 = 65_534;

/// The data folder of a gateway that has not run since, in a folder that only root can pass, as systemd has
/// it for the users that it makes.
struct Place {
    folder: tempfile::TempDir,
    owner: u32,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private/tidegate/data/queue/q");
        std::fs::create_dir_all(&path).unwrap();
        let options = Options {
            lanes: 2,
            free_bytes_min: 0,
            ..Options::default()
        };
        let log = Log::open(&path, options, RealDisk::default()).unwrap();
        let mut record = log.record(0, b"");
        record.group(0, 1, |out| out.extend_from_slice(b"a document\n"));
        log.append_blocking(record).unwrap();
        log.close();
        std::fs::remove_file(path.join("LOCK")).unwrap();
        let ours = std::fs::metadata(folder.path()).unwrap().uid();
        let owner = if ours == 0 { OTHER } else { ours };
        let place = Self { folder, owner };
        let private = place.path("private");
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
        for path in below(&private.join("tidegate")) {
            chown(&path, Some(owner), (ours == 0).then_some(owner)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("private/tidegate/data")
    }

    /// Makes a file that is nobody's but root's, and a link to it for the owner of the data.
    fn trap(&self, at: &Path) -> PathBuf {
        let victim = self.path("victim");
        std::fs::write(&victim, "kept").unwrap();
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        chown(at.parent().unwrap(), Some(self.owner), None).unwrap();
        symlink(&victim, at).unwrap();
        victim
    }

    fn export(&self, to: &str, more: &[&str]) -> Output {
        let mut command = tidegate(&["queues", "export", "q", "--data"]);
        command.arg(self.data()).arg("--to").arg(self.path(to)).args(more);
        command.output().unwrap()
    }

    fn import(&self, from: &str, name: &str) -> Output {
        let mut command = tidegate(&["queues", "import", "--as", name, "--data"]);
        command.arg(self.data()).arg(self.path(from)).output().unwrap()
    }

    /// Requires everything in the data folder to be its owner's.
    fn is_the_owners(&self) {
        for path in below(&self.data()) {
            let found = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!(found.uid(), self.owner, "{}", path.display());
        }
    }
}

fn tidegate(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(words);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

#[track_caller]
fn ended(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", said(output));
    assert!(!said(output).contains("/proc/self"), "{}", said(output));
    said(output)
}

/// Lists a folder and everything in it.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn kept(victim: &Path) {
    let ours = std::fs::metadata(victim.parent().unwrap()).unwrap().uid();
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "kept");
    assert_eq!(std::fs::metadata(victim).unwrap().uid(), ours);
}

#[test]
fn what_is_made_in_the_gateway_s_folder_is_the_gateway_s() {
    let place = Place::new();
    ended(&place.export("export", &[]), 0);
    ended(&place.import("export", "q2"), 0);
    let repaired = tidegate(&["log", "repair"])
        .arg(place.data().join("queue/q"))
        .output();
    ended(&repaired.unwrap(), 0);
    assert!(place.data().join("queue/q/LOCK").exists() && place.data().join("queue/q2/LOG").exists());
    place.is_the_owners();
}

#[test]
fn a_repair_s_quarantine_is_the_owner_s_too() {
    let place = Place::new();
    let log = place.data().join("queue/q");
    let cursor = log.join("c0.cursor");
    std::fs::write(&cursor, "damaged").unwrap();
    chown(&cursor, Some(place.owner), None).unwrap();
    let repaired = tidegate(&["log", "repair"]).arg(&log).output().unwrap();
    assert!(
        repaired.status.code().is_some_and(|code| code <= 1),
        "{}",
        said(&repaired)
    );
    assert!(log.join("quarantine").is_dir(), "{}", said(&repaired));
    place.is_the_owners();
}

#[test]
fn links_of_the_gateway_s_user_lead_root_nowhere() {
    let place = Place::new();
    ended(&place.export("export", &[]), 0);
    // Names that the commands write by.
    let victim = place.trap(&place.data().join("importing/q2.part"));
    ended(&place.import("export", "q2"), 0);
    kept(&victim);
    let victim = place.trap(&place.data().join("queue/q/MOVED.part"));
    ended(&place.export("export2", &["--move"]), 0);
    kept(&victim);
    if place.owner != OTHER {
        return;
    }
    // A folder that leads to one of root's, in which everything would have a fitting name.
    let aside = place.path("aside");
    std::fs::create_dir(&aside).unwrap();
    symlink(&aside, place.data().join("parked/q3"))
        .or_else(|_| {
            std::fs::create_dir(place.data().join("parked"))?;
            symlink(&aside, place.data().join("parked/q3"))
        })
        .unwrap();
    symlink(&aside, place.data().join("queue/q4")).unwrap();
    let refused = ended(&place.import("export", "q4"), 1);
    assert!(refused.contains("exists already"), "{refused}");
    std::fs::remove_file(place.data().join("queue/q4")).unwrap();
    std::fs::remove_dir(place.data().join("importing")).unwrap();
    symlink(&aside, place.data().join("importing")).unwrap();
    let refused = ended(&place.import("export", "q4"), 3);
    assert!(refused.contains("ermission denied"), "{refused}");
    assert!(std::fs::read_dir(&aside).unwrap().next().is_none());
    // A data folder that is a link to one of root's.
    let elsewhere = place.path("private/tidegate/elsewhere");
    symlink(&aside, &elsewhere).unwrap();
    std::os::unix::fs::lchown(&elsewhere, Some(OTHER), None).unwrap();
    let mut command = tidegate(&["queues", "import", "--data"]);
    let output = command
        .arg(&elsewhere)
        .arg(place.path("export"))
        .output()
        .unwrap();
    let refused = ended(&output, 3);
    assert!(refused.contains("another user's link"), "{refused}");
    // A file of root's is not copied out of its reach.
    let secret = place.path("secret");
    std::fs::write(&secret, "of root").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::remove_file(place.data().join("queue/q/MOVED")).unwrap();
    symlink(&secret, place.data().join("queue/q/secret")).unwrap();
    ended(&place.export("export3", &[]), 3);
}

/// As `install -d -m 770 -g tidegate` makes it.
#[test]
fn a_folder_of_root_s_that_the_gateway_s_group_may_write_to_is_the_gateway_s_all_the_same() {
    let place = Place::new();
    if place.owner != OTHER {
        return;
    }
    chown(place.data(), Some(0), None).unwrap();
    std::fs::set_permissions(place.data(), PermissionsExt::from_mode(0o770)).unwrap();
    ended(&place.export("export", &[]), 0);
    ended(&place.import("export", "q2"), 0);
    for path in below(&place.data()).iter().skip(1) {
        assert_eq!(
            std::fs::metadata(path).unwrap().uid(),
            OTHER,
            "{}",
            path.display()
        );
    }
    // Nobody knows whose it is before there is a queue.
    let empty = place.path("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o770)).unwrap();
    let mut command = tidegate(&["queues", "import", "--data"]);
    let output = command.arg(&empty).arg(place.path("export")).output().unwrap();
    let refused = ended(&output, 3);
    assert!(refused.contains("give it to the gateway's user"), "{refused}");
}

#[test]
fn an_export_can_be_read_by_its_owner_alone() {
    let place = Place::new();
    ended(&place.export("export", &[]), 0);
    for path in below(&place.path("export")) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
    }
    // One that goes to a folder of the gateway's user is that user's.
    let own = place.path("private/tidegate/backup");
    ended(&place.export("private/tidegate/backup", &[]), 0);
    for path in below(&own) {
        assert_eq!(
            std::fs::metadata(&path).unwrap().uid(),
            place.owner,
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_queue_that_was_moved_is_not_exported_again_and_its_place_can_be_taken() {
    let place = Place::new();
    ended(&place.export("export", &["--move"]), 0);
    let mark = place.data().join("queue/q/MOVED");
    let told = std::fs::read_to_string(&mark).unwrap();
    let to = place.path("export").display().to_string();
    assert!(told.contains(&to), "{told}");
    for more in [&[][..], &["--move"]] {
        let refused = ended(&place.export("export2", more), 1);
        assert!(refused.contains(told.trim()), "{refused}");
        assert!(!place.path("export2").exists());
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), told);
    }
    // The one that marked it, and did not end, is completed.
    std::fs::write(place.path("export/EXPORTING"), "").unwrap();
    ended(&place.export("export", &["--move"]), 0);
    let refused = ended(&place.import("export", "q"), 1);
    let folder = place.data().join("queue/q").display().to_string();
    assert!(refused.contains(&folder) && refused.contains(&to), "{refused}");
    std::fs::rename(place.data().join("queue/q"), place.path("aside")).unwrap();
    ended(&place.import("export", "q"), 0);
}

#[test]
fn the_check_of_a_folder_writes_behind_no_link() {
    let place = Place::new();
    let text = format!(
        "entry: [{{name: e, router: r, network.binding: '127.0.0.1:0'}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q}}}}}}]}}]
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c, queue_selector.keys: [q]}}}}]}}]
elasticsearch: [{{name: c, endpoint: 'http://127.0.0.1:9'}}]
admin.binding: 127.0.0.1:0
path.data: {}
",
        place.data().display()
    );
    let file = place.path("gateway.yml");
    std::fs::write(&file, text).unwrap();
    let check = || {
        let output = tidegate(&["check", "--online"]).arg(&file).output().unwrap();
        said(&output)
    };
    let fine = check();
    assert!(fine.contains("can be written and has"), "{fine}");
    place.is_the_owners();
    if place.owner == OTHER {
        std::fs::set_permissions(place.data(), PermissionsExt::from_mode(0o500)).unwrap();
        let told = check();
        assert!(told.contains("cannot be written"), "{told}");
    }
}
