//! `tidegate log` on sound, damaged and torn logs.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use log::{Log, Next, Options, RealDisk, StartAt};
use serde_json::Value;

/// Makes a log of some segments; `primary` has read all of it, in lane 0 only.
fn sample(folder: &Path) {
    let options = Options {
        lanes: 2,
        segment_bytes: 16 << 10,
        free_bytes_min: 0,
        ..Options::default()
    };
    let log = Log::open(folder, options, RealDisk::default()).unwrap();
    let primary = log.consumer("primary", StartAt::Oldest).unwrap();
    for number in 0..100 {
        let mut record = log.record(0, b"pipeline=nginx");
        record.group(number % 2, 3, |out| {
            out.extend_from_slice(format!("record {number}\n").repeat(40).as_bytes())
        });
        log.append_blocking(record).unwrap();
    }
    let (mut reader, mut bytes) = (primary.reader(0).unwrap(), Vec::new());
    while let Some(Next::Group(group)) = reader.next(&mut bytes).unwrap() {
        primary.commit(&[group.mark.done()]).unwrap();
    }
    log.close();
}

fn tidegate(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("log").args(arguments).arg(folder).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the segments' files, oldest first.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut segments: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "segment"))
        .collect();
    segments.sort();
    segments
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_sound_log_is_called_sound_and_its_numbers_add_up() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let spare = "00000000000000000000.spare";
    std::fs::write(folder.path().join(spare), "what was here").unwrap();
    let checked = tidegate(&["check", "--json"], folder.path());
    let report = json(&checked);
    assert!(checked.status.success(), "{report:#}");
    assert_eq!(
        report["spares"],
        serde_json::json!([{"name": spare, "bytes": 13}])
    );
    let segments = report["segments"].as_array().unwrap();
    assert!(segments.len() > 2, "{report:#}");
    let documents: u64 = segments
        .iter()
        .map(|segment| segment["documents"].as_u64().unwrap())
        .sum();
    assert_eq!(documents, 300);
    assert_eq!(report["consumers"][0]["done"], 150);

    let text = tidegate(&["check"], folder.path());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("sound: 2 lanes"), "{text}");
    assert!(text.contains("to be reused: 1, 13 bytes"), "{text}");
    let dumped = tidegate(&["dump", "--json", "--text", "--limit", "3"], folder.path());
    let lines: Vec<Value> = String::from_utf8(dumped.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["groups"][0]["lane"], 1);
    assert!(
        lines[1]["groups"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("record 1\n")
    );
    assert_eq!(lines[2]["params"], "pipeline=nginx");
}

#[test]
fn a_flipped_bit_is_found_and_repair_keeps_a_copy_but_cannot_undo_it() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    flip(&segments(folder.path())[0], 600);
    for _ in 0..2 {
        let checked = tidegate(&["check", "--json"], folder.path());
        assert_eq!(checked.status.code(), Some(1));
        assert_eq!(
            json(&checked)["segments"][0]["damaged"].as_array().unwrap().len(),
            1
        );
        let repaired = tidegate(&["repair"], folder.path());
        assert_eq!(repaired.status.code(), Some(1));
    }
}

#[test]
fn a_damaged_index_is_written_anew_and_a_torn_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let segments = segments(folder.path());
    let (first, last) = (&segments[0], &segments[segments.len() - 1]);
    flip(first, std::fs::metadata(first).unwrap().len() as usize - 60);
    let mut bytes = std::fs::read(last).unwrap();
    bytes.extend_from_slice(b"TGR1 half of a record");
    std::fs::write(last, bytes).unwrap();

    let checked = tidegate(&["check", "--json"], folder.path());
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(json(&checked)["segments"][0]["index"], false);
    assert!(json(&checked)["torn"].is_object());

    let repaired = json(&tidegate(&["repair", "--json"], folder.path()));
    assert_eq!(repaired["indexes_written"][0], 0);
    assert!(
        repaired["found"][0]
            .as_str()
            .unwrap()
            .starts_with("torn end cut off"),
        "{repaired:#}"
    );
    let checked = tidegate(&["check"], folder.path());
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}

#[test]
fn cursors_that_cannot_be_read_are_set_aside_so_that_the_log_opens() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let cursor = folder.path().join("primary.cursor");
    std::fs::write(&cursor, [0; 8192]).unwrap();
    assert!(Log::open(folder.path(), Options::default(), RealDisk::default()).is_err());
    assert_eq!(tidegate(&["check"], folder.path()).status.code(), Some(1));
    let repaired = tidegate(&["repair", "--json"], folder.path());
    assert!(repaired.status.success());
    assert_eq!(json(&repaired)["cursors_set_aside"][0], "primary");
    assert!(folder.path().join("quarantine/primary.cursor").exists());
    Log::open(folder.path(), Options::default(), RealDisk::default()).unwrap();
}

#[test]
fn a_folder_without_a_log_and_a_log_in_use_are_told_apart_from_damage() {
    let folder = tempfile::tempdir().unwrap();
    let none = tidegate(&["check"], folder.path());
    assert_eq!(none.status.code(), Some(3));
    assert!(!none.stderr.is_empty() && none.stdout.is_empty());
    sample(folder.path());
    let open = Log::open(folder.path(), Options::default(), RealDisk::default()).unwrap();
    let refused = tidegate(&["repair"], folder.path());
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("in use"));
    assert!(tidegate(&["check"], folder.path()).status.success());
    drop(open);
}
