//! A document that is answered by itself with what passes as a rule, for ever, holds up no other; what a busy
//! shard refuses waits for the shard.

use serde_json::json;
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::parked::{docs, no_lane_waits, parked_for};
use crate::refused_whole::struck;

const REJECTED: &str =
    r#"{"type":"es_rejected_execution_exception","reason":"rejected execution of primary operation"}"#;
/// As a pipeline that asks a service answers for its document.
const NO_KEY: &str = r#"{"type":"security_exception","reason":"the service wants a key"}"#;

fn two_indices(unfit: Option<(u16, &str)>) -> FakeCluster {
    let unfit = unfit.map(|(status, error)| Unfit {
        holds: "\"n\":666}".to_owned(),
        status,
        error: error.to_owned(),
    });
    let behaviour = Behaviour {
        unfit,
        ..Behaviour::default()
    };
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("good", 1).index("blocked", 1).storing()).unwrap()
}

#[test]
fn a_document_that_is_refused_again_and_again_holds_up_no_other() {
    for (status, words) in [(429, REJECTED), (401, NO_KEY), (408, REJECTED), (503, REJECTED)] {
        let cluster = two_indices(Some((status, words)));
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        gateway.bulk(&docs("good", 1, 666)).ok().unwrap();
        // Of the same index and shard, and one of the same document.
        gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
        let one = wait(&gateway, "c0", |one| one["indexed"] == 49 && one["pending"] == 0);
        no_lane_waits(&one);
        assert_eq!(
            (&one["parked"], &one["dead"]),
            (&json!(2), &json!(0)),
            "{status}: {one}"
        );
        assert!(parked_for(&one, "documents"), "{status}: {one}");
    }
}

#[test]
fn documents_that_are_all_refused_are_parked_for_their_index_and_not_each_with_a_question() {
    let cluster = two_indices(Some((429, REJECTED)));
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    gateway.bulk(&docs("blocked", 200, 666)).ok().unwrap();
    gateway.bulk(&docs("good", 50, 1)).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["indexed"] == 50 && one["pending"] == 0);
    no_lane_waits(&one);
    assert_eq!((&one["parked"], &one["dead"]), (&json!(200), &json!(0)), "{one}");
    assert!(parked_for(&one, "index:blocked"), "{one}");
}

#[test]
fn what_a_shard_refuses_that_takes_nothing_waits_in_its_lane() {
    let cluster = two_indices(None);
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let busy = Fault::Items {
        every: 1,
        status: 429,
        error: REJECTED.to_owned(),
    };
    cluster.inject(Injection::bulk(busy).always());
    gateway.bulk(&docs("blocked", 20, 1)).ok().unwrap();
    struck(&cluster, 8);
    let one = account(&queue(&gateway), "c0");
    assert_eq!(
        (&one["pending"], &one["parked"]),
        (&json!(20), &json!(0)),
        "{one}"
    );
    cluster.behave();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(20), &json!(0)));
}
