use super::super::ledger::Said;
use super::*;

/// A run without flaws: two clusters, requests with and without answers, writes to the same documents.
struct Run {
    requests: Vec<Request>,
    holdings: Vec<Holding>,
    damaged: HashSet<u64>,
}

fn write(kind: WriteKind, id: &str, token: u64) -> Write {
    Write {
        id: Some(id.to_owned()),
        kind,
        token,
        unfit: false,
        only: kind == WriteKind::Create,
        index: None,
    }
}

fn request(moment: u64, process: u32, told: Told, writes: Vec<Write>) -> Request {
    Request {
        sent: moment,
        ended: moment + 1,
        processes: (process, process),
        told,
        writes,
        said: Vec::new(),
    }
}

fn said(position: u64, repeated: bool) -> Said {
    Said {
        position,
        repeated,
        body: "{}".to_owned(),
    }
}

impl Run {
    fn good() -> Self {
        let unfit = Write {
            unfit: true,
            ..write(WriteKind::Index, "s1", 14)
        };
        let made = Write {
            id: Some("made".to_owned()),
            ..write(WriteKind::Create, "", 21)
        };
        let requests = vec![
            request(
                0,
                1,
                Told::Queued(100),
                vec![
                    write(WriteKind::Create, "u1", 11),
                    write(WriteKind::Index, "s1", 12),
                    write(WriteKind::Index, "s2", 13),
                    unfit,
                ],
            ),
            request(
                2,
                1,
                Told::Queued(200),
                vec![
                    made,
                    write(WriteKind::Update, "s1", 22),
                    write(WriteKind::Index, "s3", 23),
                    write(WriteKind::Delete, "s3", 24),
                ],
            ),
            request(4, 1, Told::Refused(429), vec![write(WriteKind::Create, "u3", 31)]),
            request(
                6,
                1,
                Told::Nothing,
                vec![
                    write(WriteKind::Create, "u4", 41),
                    write(WriteKind::Index, "s2", 42),
                ],
            ),
            request(
                8,
                1,
                Told::Nothing,
                vec![
                    write(WriteKind::Create, "u5", 51),
                    write(WriteKind::Index, "s1", 52),
                ],
            ),
            request(
                10,
                2,
                Told::Queued(300),
                vec![
                    write(WriteKind::Create, "u6", 61),
                    write(WriteKind::Index, "s4", 62),
                ],
            ),
        ];
        let mut requests = requests;
        // The request was sent four times; the fate of the first time is unknown to its client.
        requests[1].said = vec![said(200, true); 2];
        requests[5].said = vec![said(300, false), said(300, true)];
        let docs = [
            ("u1", 11),
            ("made", 21),
            ("u4", 41),
            ("u6", 61),
            ("s1", 22),
            ("s2", 42),
            ("s4", 62),
        ];
        let holding = |name: &str| Holding {
            name: name.to_owned(),
            docs: docs.iter().map(|(id, token)| doc(id, *token)).collect(),
            letters: vec![Letter {
                position: 100,
                id: "s1".to_owned(),
                token: Some(14),
                reason: "no number".to_owned(),
            }],
            account: Account {
                accepted: 12,
                indexed: 11,
                dead: 1,
                ..Account::default()
            },
        };
        Self {
            requests,
            holdings: vec![holding("c0"), holding("c1")],
            damaged: HashSet::new(),
        }
    }

    fn kinds(&self) -> Vec<FlawKind> {
        let (flaws, _) = check(&self.requests, &self.holdings, &self.damaged, Order::Positions);
        flaws.into_iter().map(|flaw| flaw.kind).collect()
    }

    /// Returns what is found once something is wrong in the second cluster.
    fn with(spoil: impl FnOnce(&mut Holding)) -> Vec<FlawKind> {
        let mut run = Self::good();
        spoil(&mut run.holdings[1]);
        run.kinds()
    }
}

fn set(holding: &mut Holding, id: &str, token: Option<u64>) {
    holding.docs.retain(|there| there.id != id);
    holding.docs.extend(token.map(|token| doc(id, token)));
}

fn doc(id: &str, token: u64) -> Doc {
    Doc {
        index: "drill".to_owned(),
        id: id.to_owned(),
        token,
    }
}

#[test]
fn a_good_run_has_no_flaw_and_is_counted() {
    let run = Run::good();
    let (flaws, tally) = check(&run.requests, &run.holdings, &run.damaged, Order::Positions);
    assert_eq!(flaws, []);
    assert_eq!((tally.queued, tally.refused, tally.unanswered), (3, 1, 2));
    assert_eq!(
        (tally.unanswered_accepted, tally.documents, tally.dead),
        (1, 12, 2)
    );
    assert_eq!(tally.repeated, 3);
}

#[test]
fn a_request_that_was_sent_again_and_accepted_twice_is_found_in_answers_documents_and_accounts() {
    let mut run = Run::good();
    run.requests[5].said[1] = said(400, false);
    assert_eq!(run.kinds(), [FlawKind::Twice], "by what it was told");
    let mut run = Run::good();
    // Nobody got the first answer, and the ids were made anew.
    for holding in &mut run.holdings {
        holding.docs.push(doc("made anew", 21));
        holding.account.accepted += 4;
        holding.account.indexed += 4;
    }
    let found = run.kinds();
    assert!(found.contains(&FlawKind::Twice), "{found:?}");
    assert!(found.contains(&FlawKind::Accounts), "{found:?}");
    let mut run = Run::good();
    // Documents with given ids are there once, however often they are written.
    run.holdings[0].account.accepted += 2;
    run.holdings[0].account.indexed += 2;
    assert_eq!(run.kinds(), [FlawKind::Accounts]);
}

#[test]
fn a_request_that_was_sent_again_is_answered_with_the_same_position_and_ids() {
    let mut run = Run::good();
    run.requests[5].said[1].position = 299;
    assert_eq!(run.kinds(), [FlawKind::AnsweredOtherwise]);
    let mut run = Run::good();
    run.requests[1].said[1].body.push_str("other ids");
    assert_eq!(run.kinds(), [FlawKind::AnsweredOtherwise]);
}

#[test]
fn a_document_that_is_gone_is_missed_whoever_made_its_id() {
    for id in ["u1", "made", "u6", "s4"] {
        assert_eq!(Run::with(|one| set(one, id, None)), [FlawKind::Missing], "{id}");
    }
}

#[test]
fn a_document_that_is_there_twice_is_found() {
    let twice = Run::with(|one| one.docs.push(doc("made again", 21)));
    assert!(twice.contains(&FlawKind::Twice), "{twice:?}");
    let twice = Run::with(|one| one.docs.push(doc("u1", 11)));
    assert!(twice.contains(&FlawKind::Twice), "{twice:?}");
    let mut run = Run::good();
    run.holdings[0].docs.push(Doc {
        index: "drill-new".to_owned(),
        ..doc("u1", 11)
    });
    let (flaws, _) = check(&run.requests, &run.holdings, &run.damaged, Order::Positions);
    let shown = &flaws[0].what;
    assert!(
        shown.ends_with(": u1 of drill (11), u1 of drill-new (11)"),
        "{shown}"
    );
    let twice = Run::with(|one| one.letters.push(one.letters[0].clone()));
    assert!(twice.contains(&FlawKind::Twice), "{twice:?}");
}

#[test]
fn an_older_version_is_stale_and_so_is_a_document_that_was_deleted_last() {
    assert_eq!(Run::with(|one| set(one, "s1", Some(12))), [FlawKind::Stale]);
    assert_eq!(Run::with(|one| set(one, "s3", Some(23))), [FlawKind::Stale]);
    assert_eq!(Run::with(|one| set(one, "s1", None)), [FlawKind::Missing]);
}

#[test]
fn without_an_answer_all_of_a_request_may_be_there_or_nothing_but_no_part() {
    let torn = Run::with(|one| set(one, "u4", None));
    assert_eq!(torn, [FlawKind::Torn]);
    // The other write came after the one that had been answered before it was sent.
    assert_eq!(Run::with(|one| set(one, "s2", Some(13))), [FlawKind::Stale]);
    let mut run = Run::good();
    for holding in &mut run.holdings {
        set(holding, "u4", None);
        set(holding, "s2", Some(13));
        holding.account.accepted -= 2;
        holding.account.indexed -= 2;
    }
    assert_eq!(run.kinds(), []);
}

#[test]
fn what_a_dead_process_accepted_comes_before_what_the_next_one_did() {
    let mut run = Run::good();
    run.requests.push(request(
        12,
        2,
        Told::Queued(400),
        vec![
            write(WriteKind::Create, "u7", 71),
            write(WriteKind::Index, "s2", 72),
        ],
    ));
    for holding in &mut run.holdings {
        set(holding, "u7", Some(71));
        set(holding, "s2", Some(72));
        holding.account.accepted += 2;
        holding.account.indexed += 2;
    }
    assert_eq!(run.kinds(), []);
    set(&mut run.holdings[0], "s2", Some(42));
    assert_eq!(run.kinds(), [FlawKind::Stale]);
    // If both were sent to the same process, either could be the last.
    run.requests[6].processes = (1, 1);
    assert_eq!(run.kinds(), []);
}

#[test]
fn what_was_refused_or_sent_by_nobody_may_not_be_there() {
    assert_eq!(Run::with(|one| set(one, "u3", Some(31))), [FlawKind::Unexpected]);
    assert_eq!(Run::with(|one| set(one, "x", Some(999))), [FlawKind::Unexpected]);
    let unfit = Run::with(|one| set(one, "s1", Some(14)));
    assert!(unfit.contains(&FlawKind::Unexpected), "{unfit:?}");
    let elsewhere = Run::with(|one| {
        set(one, "u1", None);
        set(one, "y", Some(11));
    });
    assert!(elsewhere.contains(&FlawKind::Unexpected), "{elsewhere:?}");
}

#[test]
fn what_would_not_fit_must_be_dead_with_a_reason_and_nothing_else() {
    assert!(Run::with(|one| one.letters.clear()).contains(&FlawKind::Missing));
    assert_eq!(
        Run::with(|one| one.letters[0].reason.clear()),
        [FlawKind::DeadForNothing]
    );
    let more = Run::with(|one| {
        one.letters.push(Letter {
            position: 200,
            id: "s3".to_owned(),
            token: None,
            reason: "why not".to_owned(),
        });
        one.account.dead += 1;
        one.account.indexed -= 1;
    });
    assert_eq!(more, [FlawKind::DeadForNothing]);
}

#[test]
fn accounts_that_do_not_add_up_are_found() {
    let spoils: [fn(&mut Account); 6] = [
        |one| one.accepted += 1,
        |one| one.indexed -= 1,
        |one| one.dead += 1,
        |one| one.waiting += 1,
        |one| one.other += 1,
        |one| {
            one.lost += 1;
            one.indexed -= 1;
        },
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let found = Run::with(|one| spoil(&mut one.account));
        assert!(!found.is_empty(), "{number}");
        assert!(
            found.iter().all(|kind| *kind == FlawKind::Accounts),
            "{number}: {found:?}"
        );
    }
}

#[test]
fn what_damage_cost_is_excepted_and_must_be_counted_as_lost() {
    let mut run = Run::good();
    run.damaged.insert(300);
    let second = &mut run.holdings[1];
    set(second, "u6", None);
    set(second, "s4", None);
    assert_eq!(run.kinds(), [FlawKind::Accounts], "not counted");
    let account = &mut run.holdings[1].account;
    account.lost = 2;
    account.indexed -= 2;
    assert_eq!(run.kinds(), []);
    // Damage to other records is no excuse.
    run.damaged = HashSet::from([100]);
    assert!(run.kinds().contains(&FlawKind::Missing));
}

#[test]
fn a_200_that_is_not_of_the_queue_is_found() {
    let mut run = Run::good();
    run.requests.push(request(
        20,
        2,
        Told::Passed,
        vec![write(WriteKind::Create, "u9", 91)],
    ));
    assert_eq!(run.kinds(), [FlawKind::NotQueued]);
}

/// Returns what is found in a run before a queue in Kafka. `shared` is the cluster's value of a document that
/// all clients write to; `with_perhaps` says whether the cluster has the unacknowledged write.
fn without_positions(shared: Option<u64>, with_perhaps: bool, in_topic: u64) -> Vec<FlawKind> {
    let of = |sent: u64, ended: u64, told: Told, token: u64| {
        let own = write(WriteKind::Create, &format!("u{token}"), token * 10);
        Request {
            ended,
            ..request(sent, 1, told, vec![own, write(WriteKind::Index, "s1", token)])
        }
    };
    let requests = [
        of(0, 1, Told::Queued(1), 1),
        of(2, 3, Told::Queued(3), 2),
        // At the same time as the previous request.
        of(2, 9, Told::Queued(9), 3),
        of(4, 5, Told::Perhaps, 4),
    ];
    let mut docs: Vec<Doc> = Vec::new();
    let mut has = |id: &str, token: u64| {
        docs.push(Doc {
            index: "i".to_owned(),
            id: id.to_owned(),
            token,
        });
    };
    for token in 1..=3 {
        has(&format!("u{token}"), token * 10);
    }
    if with_perhaps {
        has("u4", 40);
    }
    if let Some(token) = shared {
        has("s1", token);
    }
    let holding = Holding {
        name: "c0".to_owned(),
        docs,
        letters: Vec::new(),
        account: Account {
            accepted: in_topic,
            indexed: in_topic,
            ..Account::default()
        },
    };
    let (flaws, _) = check(&requests, &[holding], &HashSet::new(), Order::Answers);
    flaws.into_iter().map(|flaw| flaw.kind).collect()
}

#[test]
fn without_positions_what_was_acknowledged_before_another_was_sent_comes_first_and_no_more_is_known() {
    for with_perhaps in [false, true] {
        for last in [2, 3, 4] {
            assert_eq!(without_positions(Some(last), with_perhaps, 7), [], "{last}");
        }
        assert_eq!(without_positions(Some(1), with_perhaps, 7), [FlawKind::Stale]);
        assert_eq!(without_positions(None, with_perhaps, 7), [FlawKind::Missing]);
    }
    assert_eq!(
        without_positions(Some(2), false, 5),
        [FlawKind::Accounts],
        "fewer than were acknowledged"
    );
}
