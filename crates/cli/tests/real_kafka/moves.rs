//! An alias that moves again and again while writes through it are queued.

use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::concerns::{until, with};
use super::gateway::Gateway;
use super::{GatewayHome, broker, send, wait};

/// Moves the alias, and waits until writes through it are queued for the index; deletes of this document show
/// that.
fn move_alias(cluster: &FakeCluster, gateway: &Gateway, index: &str, id: &str) {
    cluster.alias("a", &[index]);
    let probe = &format!("{{\"delete\":{{\"_index\":\"a\",\"_id\":\"{id}\"}}}}\n");
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

/// Returns ids of documents of this lane, and of the other one.
fn ids_of(gateway: &Gateway, lane: usize) -> [Vec<String>; 2] {
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
