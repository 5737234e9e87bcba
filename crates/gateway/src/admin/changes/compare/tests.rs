use super::*;

fn told(before: &State, now: &State) -> Vec<(&'static str, String)> {
    let changes = changes(before, now).into_iter();
    changes.map(|change| (change.kind, change.text)).collect()
}

fn with_cluster(change: impl FnOnce(&mut ClusterState)) -> State {
    let node = |name: &str| ((name.to_owned(), "http://127.0.0.1:9200".to_owned()), true);
    let mut cluster = ClusterState {
        watch: WatchState::Watching,
        uuid: None,
        generation: 7,
        state_version: Some(70),
        primaries: 700,
        indices_split: 2,
        primaries_missing: 0,
        why: None,
        nodes: [node("n1"), node("n2")].into(),
    };
    change(&mut cluster);
    State {
        clusters: [("prod".into(), cluster)].into(),
        ..State::default()
    }
}

fn with_group(group: GroupState) -> State {
    State {
        groups: [(("q".into(), "prod".to_owned()), group)].into(),
        ..State::default()
    }
}

#[test]
fn an_applied_configuration_is_told_with_the_time_in_which_it_has_to_be_confirmed() {
    let now = State {
        applied: Some(Applied {
            actor: "ada".to_owned(),
            state: AppliedState::Unconfirmed,
            changes: String::new(),
            why: None,
            at_ms: 1,
            within_s: 90,
            patience_s: 30,
            deadline: std::time::Instant::now(),
            was_ready: true,
            not_ready: Vec::new(),
        }),
        ..State::default()
    };
    let text = "ada applied a configuration, which is taken back unless it is confirmed within 90 s";
    assert_eq!(told(&State::default(), &now), [("applied", text.to_owned())]);
}

#[test]
fn a_topology_is_another_one_if_nodes_indices_or_primaries_are_not_if_the_state_is_a_newer_one() {
    let before = with_cluster(|_| {});
    let mappings = with_cluster(|cluster| {
        (cluster.generation, cluster.state_version) = (8, Some(71));
    });
    assert_eq!(told(&before, &mappings), []);
    let elsewhere: [fn(&mut ClusterState); 4] = [
        |cluster| cluster.primaries += 1,
        |cluster| cluster.indices_split += 1,
        |cluster| cluster.primaries_missing += 1,
        |cluster| drop(cluster.nodes.pop_last()),
    ];
    for change in elsewhere {
        let told = told(&before, &with_cluster(change));
        assert_eq!(told.last().map(|(kind, _)| *kind), Some("topology"), "{told:?}");
    }
    let down = with_cluster(|cluster| cluster.nodes.values_mut().for_each(|up| *up = false));
    let told = told(&before, &down);
    assert!(
        told.len() == 2 && told.iter().all(|(kind, _)| *kind == "node"),
        "{told:?}"
    );
}

#[test]
fn of_a_group_that_has_gone_nothing_is_told_but_that() {
    let wait = |reason: &str| json!({"reason": reason, "why": "no answer", "node": null, "lanes": [1]});
    let before = with_group(GroupState {
        dead: 3,
        parked: 5,
        keys: vec![json!({"key": "index:logs", "why": "blocked"})],
        key_count: 1,
        waits: vec![wait("retrying")],
        ..GroupState::default()
    });
    let gone = "the queue q has no consumer group prod any more".to_owned();
    assert_eq!(told(&before, &State::default()), [("group", gone)]);
    let kinds: Vec<_> = told(&before, &with_group(GroupState::default()))
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["dead_letters", "parked", "waits"], "of one that is there");
}

#[test]
fn a_slow_node_is_told_once_however_much_it_is_sent() {
    let slow = |node: &str, limit: u32| {
        let why = format!("the node {node} has not answered; it is sent {limit} requests at once at present");
        with_group(GroupState {
            waits: vec![json!({"reason": "slow_node", "why": why, "node": node, "lanes": [1]})],
            ..GroupState::default()
        })
    };
    assert_eq!(told(&slow("n1", 4), &slow("n1", 2)), []);
    let other = told(&slow("n1", 4), &slow("n2", 4));
    assert!(
        other.len() == 1 && other[0].0 == "waits" && other[0].1.contains("n2"),
        "{other:?}"
    );
}
