use std::ops::ControlFlow;

use log::{Log, RealDisk};

use super::*;
use crate::fingerprint::{Fingerprint, fingerprint_of};

fn settings() -> config::Idempotency {
    config::Idempotency {
        window: Duration::from_secs(60),
        keys_max: 3,
    }
}

struct Setup {
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn queue(&self) -> Log {
        let options = Options {
            lanes: 2,
            free_bytes_min: 0,
            ..Options::default()
        };
        Log::open(self.folder.path().join("queue"), options, RealDisk::default()).unwrap()
    }

    fn keys(&self, queue: &Log) -> Arc<Keys> {
        self.keys_with(queue, 0)
    }

    fn keys_with(&self, queue: &Log, free_bytes_min: u64) -> Arc<Keys> {
        let options = Options {
            free_bytes_min,
            ..Options::default()
        };
        let (folder, end) = (self.folder.path().join("keys"), queue.status().end);
        Keys::open(&folder, &settings(), options, end, |from| in_queue(queue, from)).unwrap()
    }
}

impl Keys {
    /// Sets how many bytes the disk has to keep free for the keys' log to take anything.
    fn room(&self, free_bytes_min: u64) {
        self.kept.adjust(&Options {
            free_bytes_min,
            ..Options::default()
        });
    }
}

fn wait(what: &dyn Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn print(text: &str) -> Fingerprint {
    fingerprint_of(&[text.as_bytes()])
}

fn first(claimed: Claimed) -> Claim {
    match claimed {
        Claimed::First(claim) => claim,
        _ => panic!("nobody had it"),
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

fn claim(keys: &Arc<Keys>, queue: &Log, key: &str, digest: &str) -> Claimed {
    // Each key is of a client of its own.
    claim_of(keys, queue, key, key, digest)
}

fn claim_of(keys: &Arc<Keys>, queue: &Log, client: &str, key: &str, digest: &str) -> Claimed {
    let named = NamedKey {
        key: print(key),
        client: print(client),
    };
    block(keys.claim(named, print(digest), queue.status().end))
}

/// Returns the keys of the records from a place on; the parameters of a record are its key here.
fn in_queue(queue: &Log, from: u64) -> Result<Vec<Accepted>, ReadError> {
    let mut accepted = Vec::new();
    queue.browse(from).each(|record| {
        let keyed = serde_json::from_slice(&record.params).ok();
        accepted.extend(keyed.map(|keyed| Accepted {
            keyed,
            position: record.receipt.position,
        }));
        ControlFlow::Continue(())
    })?;
    Ok(accepted)
}

/// Appends the record of a keyed request.
fn append(queue: &Log, keyed: Keyed) -> Receipt {
    let mut record = queue.record(0, &serde_json::to_vec(&keyed).unwrap());
    record.group(1, 1, |out| out.extend_from_slice(b"{\"index\":{}}\n{}\n"));
    queue.append_blocking(record).unwrap()
}

fn write(keys: &Arc<Keys>, queue: &Log, key: &str) -> Accepted {
    let claim = first(claim(keys, queue, key, key));
    let keyed = claim.keyed();
    let receipt = append(queue, keyed);
    settle(claim, keyed, &Ok(receipt));
    Accepted {
        keyed,
        position: receipt.position,
    }
}

/// Settles a claim, and waits until the key is kept or cannot be.
fn settle(claim: Claim, keyed: Keyed, result: &Result<Receipt, AppendError>) {
    let (decided, is_kept) = oneshot::channel();
    claim.settle(keyed, result, decided);
    let _ = block(is_kept);
}

fn again(claimed: Claimed) -> Option<Accepted> {
    match claimed {
        Claimed::Again(accepted) => Some(accepted),
        _ => None,
    }
}

#[test]
fn a_key_is_for_one_request_and_is_given_back_if_that_was_not_written() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    drop(first(claim(&keys, &queue, "k", "body")));
    let one = first(claim(&keys, &queue, "k", "body"));
    assert!(matches!(claim(&keys, &queue, "k", "other body"), Claimed::Other));
    let keyed = one.keyed();
    settle(one, keyed, &Err(AppendError::Closed));
    let accepted = write(&keys, &queue, "k");
    assert_eq!(again(claim(&keys, &queue, "k", "k")), Some(accepted));
    assert!(matches!(claim(&keys, &queue, "k", "other body"), Claimed::Other));
    assert_eq!(
        accepted.keyed.mint().mint(),
        accepted.keyed.mint().mint(),
        "the same ids"
    );
    write(&keys, &queue, "l");
    write(&keys, &queue, "m");
    assert!(matches!(claim(&keys, &queue, "n", "n"), Claimed::Full));
}

#[test]
fn a_repeat_waits_for_what_is_under_way() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    let one = first(claim(&keys, &queue, "k", "k"));
    let (waiting, other_queue) = (Arc::clone(&keys), queue.clone());
    let waits = std::thread::spawn(move || again(claim(&waiting, &other_queue, "k", "k")));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waits.is_finished());
    let keyed = one.keyed();
    let receipt = append(&queue, keyed);
    settle(one, keyed, &Ok(receipt));
    assert_eq!(
        waits.join().unwrap().map(|accepted| accepted.position),
        Some(receipt.position)
    );
}

#[test]
fn keys_outlive_the_process_wherever_it_ends() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    let kept = write(&keys, &queue, "kept");
    let lines = setup
        .folder
        .path()
        .join("keys")
        .join("00000000000000000000.segment");
    let lines = std::fs::read(lines).unwrap();
    let position = format!("\"position\":{}", kept.position);
    let at = lines.windows(position.len());
    assert_eq!(
        at.filter(|bytes| *bytes == position.as_bytes()).count(),
        1,
        "a kill after the answer leaves the key in two places"
    );
    // The record is durable, and the process ends before anything else is.
    let cut = first(claim(&keys, &queue, "cut", "cut"));
    let keyed = cut.keyed();
    let position = append(&queue, keyed).position;
    let unwritten = first(claim(&keys, &queue, "unwritten", "unwritten"));
    keys.close();
    std::mem::forget((cut, unwritten));
    for _ in 0..2 {
        let keys = setup.keys(&queue);
        assert_eq!(again(claim(&keys, &queue, "kept", "kept")), Some(kept));
        assert_eq!(
            again(claim(&keys, &queue, "cut", "cut")),
            Some(Accepted { keyed, position })
        );
        drop(first(claim(&keys, &queue, "unwritten", "unwritten")));
        assert_eq!(keys.count(), 2);
        keys.close();
    }
}

#[test]
fn a_key_that_a_full_disk_did_not_take_is_kept_once_there_is_room() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    keys.room(u64::MAX);
    let one = write(&keys, &queue, "one");
    assert_eq!(keys.unsaved().len(), 1);
    keys.room(0);
    let other = write(&keys, &queue, "other");
    wait(&|| keys.known().begun.is_empty());
    keys.close();
    // There is nothing any more where the record was: it is delivered, and gone.
    let kept = KeyLog::open(
        &setup.folder.path().join("keys"),
        &settings(),
        Options::default(),
        0,
    );
    let (_, found) = kept.unwrap();
    assert!(found.accepted.contains(&one) && found.accepted.contains(&other));
}

#[test]
fn a_key_that_a_start_finds_in_the_queue_while_the_disk_is_full_is_kept_once_there_is_room() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    // The record is durable, and the process ends before anything else is.
    let cut = first(claim(&keys, &queue, "cut", "cut"));
    let cut_as = cut.keyed();
    let cut_at = append(&queue, cut_as).position;
    keys.close();
    std::mem::forget(cut);
    let keys = setup.keys_with(&queue, u64::MAX);
    wait(&|| keys.unsaved().len() == 1);
    keys.room(0);
    write(&keys, &queue, "other");
    wait(&|| keys.known().begun.is_empty());
    keys.close();
    let keys = setup.keys(&queue);
    let accepted = Accepted {
        keyed: cut_as,
        position: cut_at,
    };
    assert_eq!(again(claim(&keys, &queue, "cut", "cut")), Some(accepted));
}

#[test]
fn keys_that_were_never_kept_by_themselves_are_found_in_the_queue() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    keys.room(u64::MAX);
    let one = write(&keys, &queue, "one");
    assert_eq!(keys.unsaved().len(), 1);
    keys.close();
    let keys = setup.keys(&queue);
    assert_eq!(again(claim(&keys, &queue, "one", "one")), Some(one));
}

#[test]
fn keys_are_forgotten_after_their_time_and_used_anew() {
    let mut known = RememberedKeys::default();
    let accepted = |key: &str, ms, position| Accepted {
        keyed: Keyed {
            client: Fingerprint::default(),
            key: print(key),
            digest: print(key),
            seed: 1,
            ms,
            took: 0,
        },
        position,
    };
    assert!(known.put(accepted("a", 10, 1)) && known.put(accepted("b", 20, 2)));
    assert!(!known.put(accepted("a", 10, 1)), "known");
    known.forget(20);
    assert_eq!(known.by_key.len(), 1);
    assert!(known.put(accepted("a", 30, 3)));
    known.forget(30);
    assert_eq!((known.by_key.len(), known.order.len()), (1, 1));
    assert!(known.by_key.contains_key(&print("a")));
    // A key that an earlier process accepted while the clock was ahead has its window, and no more.
    let ahead = accepted("c", 3_600_000, 4);
    assert!(known.put_at(ahead, 40));
    known.forget(41);
    assert!(!known.by_key.contains_key(&print("c")));
}

#[test]
fn what_the_queue_has_lost_was_not_accepted() {
    let setup = Setup::new();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    write(&keys, &queue, "k");
    keys.close();
    queue.close();
    drop((keys, queue));
    std::fs::remove_dir_all(setup.folder.path().join("queue")).unwrap();
    let queue = setup.queue();
    let keys = setup.keys(&queue);
    drop(first(claim(&keys, &queue, "k", "k")));
}

#[test]
fn a_client_gets_no_more_keys_than_are_left_for_others() {
    let setup = Setup::new();
    let queue = setup.queue();
    // There is room for three keys in all.
    let keys = setup.keys(&queue);
    let greedy: Vec<_> = ["1", "2"]
        .iter()
        .map(|key| first(claim_of(&keys, &queue, "greedy", key, "d")))
        .collect();
    assert!(matches!(
        claim_of(&keys, &queue, "greedy", "3", "d"),
        Claimed::Share
    ));
    let modest = first(claim_of(&keys, &queue, "modest", "1 too", "d"));
    assert!(matches!(
        claim_of(&keys, &queue, "third", "k", "d"),
        Claimed::Full
    ));
    drop((greedy, modest));
    assert!(keys.known().by_client.is_empty(), "all are given back");
    first(claim_of(&keys, &queue, "greedy", "3", "d"));
}
