//! An alias that moves again and again while writes through it are queued.

use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{BLOCKED, until, with, writes};
use super::gateway::Gateway;
use super::parked::records_of;
use super::{GatewayHome, broker, send, wait};

/// Moves the alias, and waits until the gateway has seen that.
pub(super) fn move_alias(cluster: &FakeCluster, gateway: &Gateway, index: &str, id: &str) {
    cluster.alias("a", &[index]);
    seen(gateway, "a", index, id);
}

/// Waits until writes through an alias are queued for this index; deletes of this document show that.
fn seen(gateway: &Gateway, alias: &str, index: &str, id: &str) {
    let probe = &format!("{{\"delete\":{{\"_index\":\"{alias}\",\"_id\":\"{id}\"}}}}\n");
    until("the alias leads elsewhere", gateway, || {
        let answer = gateway.bulk(probe).ok().unwrap().json().unwrap();
        answer["items"][0]["delete"]["_index"] == index
    });
}

#[test]
fn no_document_is_in_two_indices_if_its_alias_moved_before_it_was_sent_and_moves_again_before_the_resend() {
    let spec = Spec::default().index("i1", 2).index("i2", 5).index("i3", 3);
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    cluster.alias("a", &["i1"]);
    let places = [(), ()].map(|()| GatewayHome::new(&cluster, broker(), "moved-twice", ", partitions: 2"));
    let [first, second] = places.each_ref().map(GatewayHome::start);
    for gateway in [&first, &second] {
        wait(gateway, |one| one["lanes_held"] == 1);
    }
    let held = send(&first, "GET", "/queue/q/groups/c/offset")["lanes"].clone();
    let of_first = usize::from(held[1]["held"] == true);
    let [mut ours, others] = ids_of(&first, of_first);
    // What shows where the alias leads goes to the first gateway's lane, too.
    let probe = ours.pop().unwrap();
    let lines = |ids: &[String], v: usize| -> String {
        let line = |id| format!("{{\"create\":{{\"_index\":\"a\",\"_id\":\"{id}\"}}}}\n{{\"v\":{v}}}\n");
        ids.iter().map(line).collect()
    };
    // The first gateway cannot send what was accepted while the alias led to `i1` ...
    let busy = Fault::StatusIfHolds {
        text: "{\"v\":1}".to_owned(),
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(busy).always());
    first.bulk(&lines(&ours, 1)).ok().unwrap();
    wait(&first, |one| one["retrying_lanes"] == 1);
    move_alias(&cluster, &first, "i2", &probe);
    // ... and the second one has not sent anything through the alias before it leads to `i2`.
    second.bulk(&lines(&others, 2)).ok().unwrap();
    until("those of the other lane are there", &second, || {
        with(&cluster, "i2", 2) == others.len()
    });
    cluster.behave();
    cluster.inject(Injection::bulk(Fault::HangWritten).always());
    until("some is written", &first, || with(&cluster, "i2", 1) > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    first.signal("KILL");
    drop(first);
    cluster.behave();
    // The second gateway sees it long before the brokers give it the lane.
    move_alias(&cluster, &second, "i3", &probe);
    wait(&second, |one| one["lanes_held"] == 2);
    wait(&second, |one| one["pending_messages"] == 0 && one["pending"] == 0);
    let (earlier, later) = (cluster.docs("i2"), cluster.docs("i3"));
    let twice = ours
        .iter()
        .filter(|id| earlier.contains_key(*id) && later.contains_key(*id));
    assert_eq!(twice.count(), 0);
    assert_eq!(with(&cluster, "i2", 1) + with(&cluster, "i3", 1), ours.len());
}

#[test]
fn no_document_is_in_two_indices_if_its_alias_moves_twice_and_its_next_owner_saw_neither() {
    std::thread::scope(|scope| {
        scope.spawn(|| unseen_moves("unseen-moves-parked", true, 0));
        scope.spawn(|| unseen_moves("unseen-moves", false, 0));
    });
}

/// A message says of its first names only where they led.
#[test]
fn no_document_is_in_two_indices_if_its_alias_moves_twice_and_is_one_of_many_in_its_request() {
    std::thread::scope(|scope| {
        scope.spawn(|| unseen_moves("many-names-parked", true, 40));
        scope.spawn(|| unseen_moves("many-names", false, 40));
    });
}

/// Moves an alias twice around the kill of a gateway that has sent documents through it, which were parked or
/// waited in their lanes before. They come in a request with so many other aliases.
fn unseen_moves(topic: &str, parked: bool, others: usize) {
    let spec = Spec::default().index("i1", 2).index("i2", 5).index("i3", 3);
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    cluster.alias("a", &["i1"]);
    ["other", "seen"]
        .iter()
        .for_each(|index| cluster.create_index(index, 2));
    cluster.alias("also-moved", &["other"]);
    let names: Vec<String> = (0..others).map(|n| format!("other-{n}")).collect();
    names.iter().for_each(|name| cluster.alias(name, &["other"]));
    let place = || GatewayHome::new(&cluster, broker(), topic, ", partitions: 2");
    let [first, second] = [place(), place()];
    let gateway = first.start();
    wait(&gateway, |one| one["lanes_held"] == 2);
    // What is accepted while the alias leads to `i1` cannot be sent before it leads to `i2`.
    match parked {
        true => ["i1", "i2"].iter().for_each(|index| block(&cluster, index)),
        false => cluster.inject(Injection::bulk(unavailable()).always()),
    }
    let of_other =
        |name: &String| writes("index", name, 1, 1).replace("\"_id\":\"", &format!("\"_id\":\"{name}-"));
    let of_others: String = names.iter().map(of_other).collect();
    gateway
        .bulk(&(of_others + &writes("index", "a", 40, 1)))
        .ok()
        .unwrap();
    wait(&gateway, |one| match parked {
        true => one["parked"] == 40,
        false => one["retrying_lanes"] == 2,
    });
    // Writes through another alias, which moves later, show what the gateway has seen. Writes through this
    // one would be parked, too, and might be all of the try that hangs.
    cluster.alias("a", &["i2"]);
    cluster.alias("also-moved", &["seen"]);
    seen(&gateway, "also-moved", "seen", "probe");
    cluster.behave();
    // First this: a request that is refused and never answered would be waited for.
    cluster.refuse_writes("i2", None);
    cluster.inject(Injection::bulk(Fault::HangWritten).always());
    until("some is written", &gateway, || with(&cluster, "i2", 1) > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    cluster.refuse_writes("i1", None);
    cluster.alias("a", &["i3"]);
    let gateway = second.start();
    wait(&gateway, |one| {
        one["lanes_held"] == 2 && one["pending_messages"] == 0 && one["parked"] == 0
    });
    let [first, earlier, later] = ["i1", "i2", "i3"].map(|index| cluster.docs(index));
    let twice = earlier.keys().filter(|id| later.contains_key(*id)).count();
    assert_eq!(twice, 0, "{topic}: of {}", earlier.len());
    assert_eq!((first.len(), earlier.len() + later.len()), (0, 40), "{topic}");
    if !parked {
        // What was written down for an owner does not outlast it. The first one has four records or more, and
        // so has the second: two of its own, what the first one wrote down, and where the alias leads now.
        let topic = format!("{topic}.c.parked");
        let began = std::time::Instant::now();
        loop {
            let records = records_of(&topic, 2);
            if records.iter().all(|records| *records <= 6) {
                break;
            }
            assert!(
                began.elapsed() < std::time::Duration::from_secs(60),
                "records are not deleted: {records:?}"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn no_document_is_in_two_indices_if_its_alias_moved_and_came_back_before_its_next_owner_started() {
    let spec = Spec::default().index("i1", 2).index("i2", 5);
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    cluster.alias("a", &["i1"]);
    let place = |()| GatewayHome::new(&cluster, broker(), "unseen-return", ", partitions: 2");
    let [accepts, first, second] = [(); 3].map(place);
    let text = std::fs::read_to_string(&accepts.file).unwrap();
    // It accepts, and delivers nothing of what the others deliver.
    let idle = text.replace(
        "{elasticsearch: c}}]}]",
        "{elasticsearch: c, consumer: {group: g}}}]}]",
    );
    assert_ne!(idle, text);
    std::fs::write(&accepts.file, idle).unwrap();
    cluster.inject(Injection::bulk(unavailable()).always());
    let gateway = accepts.start();
    gateway.bulk(&writes("index", "a", 40, 1)).ok().unwrap();
    let accepted = std::time::Instant::now();
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    cluster.alias("a", &["i2"]);
    cluster.inject(Injection::bulk(Fault::HangWritten).always());
    let gateway = first.start();
    until("some is written", &gateway, || with(&cluster, "i2", 1) > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    cluster.alias("a", &["i1"]);
    // An alias that comes back sooner may have been there all the time: clocks differ.
    std::thread::sleep(std::time::Duration::from_secs(11).saturating_sub(accepted.elapsed()));
    let gateway = second.start();
    wait(&gateway, |one| {
        one["lanes_held"] == 2 && one["pending_messages"] == 0 && one["parked"] == 0
    });
    let [earlier, later] = ["i2", "i1"].map(|index| cluster.docs(index));
    let twice = earlier.keys().filter(|id| later.contains_key(*id)).count();
    assert_eq!(twice, 0, "of {}", earlier.len());
    assert_eq!(earlier.len() + later.len(), 40);
}

fn unavailable() -> Fault {
    Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    }
}

/// Returns ids of documents of this lane, and of the other one.
pub(super) fn ids_of(gateway: &Gateway, lane: usize) -> [Vec<String>; 2] {
    let mut ids = [Vec::new(), Vec::new()];
    while ids.iter().any(|ids| ids.len() < 20) {
        let id = format!("d{}", ids[0].len() + ids[1].len());
        // The alias is not used.
        let probe = format!("{{\"delete\":{{\"_index\":\"i1\",\"_id\":\"{id}\"}}}}\n");
        let answer = gateway.bulk(&probe).ok().unwrap();
        let is_first = answer.header("x-tidegate-ack").unwrap().contains("=0:");
        ids[usize::from(is_first != (lane == 0))].push(id);
    }
    ids
}

/// Returns operations through the alias on these documents.
fn on(ids: std::ops::Range<usize>, operation: &str, v: usize) -> String {
    let line = |id| {
        let action = format!("{{\"{operation}\":{{\"_index\":\"a\",\"_id\":\"{id}\"}}}}\n");
        match operation {
            "delete" => action,
            _ => format!("{action}{{\"v\":{v}}}\n"),
        }
    };
    ids.map(line).collect()
}

/// Writes through an alias while the indices that it leads to are blocked, moves it twice, has another
/// gateway take over, and returns which document has which version in the end.
fn moved_while_parked(round: usize) -> Vec<Option<String>> {
    let spec = Spec::default().index("i1", 2).index("i2", 5).index("i3", 3);
    let cluster = FakeCluster::start(spec.storing()).unwrap();
    cluster.alias("a", &["i1"]);
    for index in ["i1", "i2", "i3"] {
        block(&cluster, index);
    }
    let topic = format!("moved-while-parked-{round}");
    let place = || GatewayHome::new(&cluster, broker(), &topic, ", partitions: 4");
    let [first, second] = [place(), place()];
    let gateway = first.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    let some_time = || std::thread::sleep(std::time::Duration::from_millis(fastrand::u64(..200)));
    let write = |operations: String| {
        gateway.bulk(&operations).ok().unwrap();
        some_time();
    };
    write(on(0..40, "index", 1));
    write(on(0..40, "index", 2));
    move_to(&cluster, &gateway, "i2", round);
    write(on(0..10, "delete", 0));
    write(on(10..40, "index", 3));
    move_to(&cluster, &gateway, "i3", round);
    write(on(5..25, "index", 4));
    gateway.signal("KILL");
    drop(gateway);
    let gateway = second.start();
    wait(&gateway, |one| one["lanes_held"] == 4);
    gateway.bulk(&on(20..30, "index", 5)).ok().unwrap();
    some_time();
    for index in ["i1", "i2", "i3"] {
        cluster.refuse_writes(index, None);
    }
    wait(&gateway, |one| {
        one["parked"] == 0 && one["pending_messages"] == 0 && one["pending"] == 0
    });
    let docs = cluster.docs("i3");
    let versions = (0..40).map(|id| docs.get(&id.to_string()).map(|doc| doc.source.clone()));
    versions.collect()
}

fn block(cluster: &FakeCluster, index: &str) {
    let error = BLOCKED.replace("[blocked]", &format!("[{index}]"));
    cluster.refuse_writes(index, Some((403, &error)));
}

/// Moves the alias; in every other round, the gateway need not know before it goes on.
fn move_to(cluster: &FakeCluster, gateway: &Gateway, index: &str, round: usize) {
    match round % 2 {
        0 => move_alias(cluster, gateway, index, "probe"),
        _ => cluster.alias("a", &[index]),
    }
}

#[test]
fn writes_parked_through_an_alias_that_moves_twice_keep_their_order_when_another_gateway_takes_over() {
    let newest = |id: usize| match id {
        0..5 => None,
        5..20 => Some("{\"v\":4}".to_owned()),
        20..30 => Some("{\"v\":5}".to_owned()),
        _ => Some("{\"v\":3}".to_owned()),
    };
    let newest: Vec<_> = (0..40).map(newest).collect();
    std::thread::scope(|scope| {
        let rounds = [0, 1].map(|round| scope.spawn(move || moved_while_parked(round)));
        for (round, versions) in rounds.into_iter().enumerate() {
            assert_eq!(versions.join().unwrap(), newest, "round {round}");
        }
    });
}
