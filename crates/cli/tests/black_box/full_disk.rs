//! A full disk: full of the queue alone, or of another program's files. Mounting a small disk needs root;
//! without root, these tests say so and prove nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::gateway::{Gateway, PATIENCE, body};
use crate::home::{GatewayHome, account, drained, queue, wait};

/// A disk of a few megabytes, which is unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let size = format!("size={megabytes}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder)
            .output();
        if mount.is_ok_and(|done| done.status.success()) {
            return Some(Self(folder.to_owned()));
        }
        #[allow(clippy::print_stderr, reason = "what is not proven is said")]
        {
            eprintln!("not proven: a small disk cannot be mounted here");
        }
        None
    }

    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("ballast")).unwrap();
        for size in [64 << 10, 4 << 10, 1] {
            while file.write_all(&vec![b'b'; size]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Starts a gateway that uses its disk of 4 MB nearly to the last byte.
fn start_on_small_disk(place: &GatewayHome) -> Option<(SmallDisk, Gateway)> {
    let disk = SmallDisk::mount(&place.data(), 4)?;
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("min_free: 1mb", "min_free: 128kb")).unwrap();
    Some((disk, place.start()))
}

fn picky() -> FakeCluster {
    let behaviour = Behaviour {
        unfit: Some(Unfit {
            holds: "\"n\":\"".to_owned(),
            status: 400,
            error: r#"{"type":"mapper_parsing_exception","reason":"no number"}"#.to_owned(),
        }),
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 6).storing()).unwrap()
}

fn away(cluster: &FakeCluster) {
    let fault = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(fault).always());
}

/// Returns documents of which the first is unfit.
fn partly_unfit(number: usize) -> String {
    fit(number).replacen("\"n\":0}", "\"n\":\"x\"}", 1)
}

/// Returns a hundred documents, 50 kB in all.
fn fit(number: usize) -> String {
    let padding = "x".repeat(500);
    let text = body(100).replace("\"_id\":\"", &format!("\"_id\":\"{number}-"));
    text.replace("{\"n\":", &format!("{{\"p\":\"{padding}\",\"n\":"))
}

#[test]
fn dead_letters_find_room_on_a_disk_that_the_queue_has_filled() {
    let cluster = picky();
    away(&cluster);
    let place = GatewayHome::before(&[&cluster], "");
    let Some(_disk) = SmallDisk::mount(&place.data(), 4) else {
        return;
    };
    let gateway = place.start();
    let mut bulks = 0;
    while gateway.bulk(&partly_unfit(bulks)).status == 200 {
        bulks += 1;
        assert!(bulks < 100, "3 MB hold no more");
    }
    assert!(bulks > 20, "{bulks}");
    assert_eq!(gateway.bulk(&partly_unfit(bulks)).status, 429);
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["indexed"], &one["dead"]),
        (&json!(bulks * 99), &json!(bulks))
    );
    // Some clients are served again, with the space that was freed.
    let began = Instant::now();
    while gateway.bulk(&body(10)).status != 200 {
        assert!(began.elapsed() < PATIENCE, "{:#}", queue(&gateway));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_disk_that_is_full_to_the_last_byte_loses_nothing_and_keeps_nobody_from_starting() {
    let cluster = picky();
    let place = GatewayHome::before(&[&cluster], "");
    let Some((disk, gateway)) = start_on_small_disk(&place) else {
        return;
    };
    away(&cluster);
    for number in 0..9 {
        gateway.bulk(&fit(number)).ok().unwrap();
    }
    gateway.bulk(&partly_unfit(9)).ok().unwrap();
    disk.fill();
    let refused = gateway.bulk(&partly_unfit(10));
    assert!(matches!(refused.status, 429 | 503), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    crate::ops::shows(&gateway, "tidegate_queue_refuses{queue=\"q\",reason=\"disk\"} 1");
    // Stored documents are delivered meanwhile; documents that do not fit wait for room.
    cluster.behave();
    let began = Instant::now();
    while cluster.docs("logs").len() < 900 {
        assert!(began.elapsed() < PATIENCE, "{:#}", queue(&gateway));
        account(&queue(&gateway), "c0");
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway.signal("KILL");
    drop(gateway);
    // This is what a process leaves that was killed, or found no room, while it made a store of parked
    // operations.
    std::fs::create_dir_all(place.data().join("parked/q/c0")).unwrap();
    let gateway: Gateway = place.start();
    account(&queue(&gateway), "c0");
    disk.free();
    let one = drained(&gateway, "c0");
    assert_eq!(
        (&one["indexed"], &one["dead"], &one["lost"]),
        (&json!(999), &json!(1), &json!(0))
    );
    assert_eq!(cluster.docs("logs").len(), 999);
    gateway.bulk(&partly_unfit(11)).ok().unwrap();
    assert_eq!(drained(&gateway, "c0")["dead"], 2);
}

/// Nodes are asked once: the refusals are remembered until the disk takes the dead letters.
#[test]
fn what_was_refused_is_not_sent_again_while_the_disk_takes_no_dead_letters() {
    let cluster = picky();
    let place = GatewayHome::before(&[&cluster], "");
    let Some((disk, gateway)) = start_on_small_disk(&place) else {
        return;
    };
    away(&cluster);
    gateway.bulk(&partly_unfit(0)).ok().unwrap();
    disk.fill();
    cluster.behave();
    // Other lanes may come to their next try later.
    wait(&gateway, "c0", |one| {
        let refused = one["lanes"]
            .to_string()
            .contains("dead letters cannot be written");
        refused && cluster.docs("logs").len() == 99
    });
    let asked = cluster.counts().bulks;
    // The lane tries to write the letter every second.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(cluster.counts().bulks, asked, "the nodes were asked again");
    disk.free();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(99), &json!(1)));
    let letters = gateway.admin().get("/dead_letters?queue=q&limit=1").unwrap();
    assert!(letters.text().contains("no number"), "{}", letters.text());
}

/// An operation that was parked, and that the cluster then refuses for good, is not sent again either.
#[test]
fn what_was_parked_and_is_then_refused_is_not_sent_again_while_the_disk_takes_no_dead_letters() {
    let cluster = picky();
    let place = GatewayHome::before(&[&cluster], "");
    let Some((disk, gateway)) = start_on_small_disk(&place) else {
        return;
    };
    let blocked = r#"{"type":"cluster_block_exception","reason":"index [logs] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("logs", Some((403, blocked)));
    let unfit = "{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"n\":\"x\"}\n";
    gateway.bulk(unfit).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    disk.fill();
    cluster.refuse_writes("logs", None);
    wait(&gateway, "c0", |one| {
        one["parked_for"]
            .to_string()
            .contains("dead letters cannot be written")
    });
    let asked = cluster.counts().bulks;
    // The first of these tries is half a second after the one before it.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(cluster.counts().bulks, asked, "the nodes were asked again");
    disk.free();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(0), &json!(1)));
    let letters = gateway.admin().get("/dead_letters?queue=q&limit=1").unwrap();
    assert!(letters.text().contains("no number"), "{}", letters.text());
}
