use super::*;
use crate::budget::BUDGET_BYTES_DEFAULT;
use crate::claim::Claim;
use crate::claim::ClaimVerdict;
use crate::holder::Principal;

const MIB: usize = 1 << 20;

fn peer(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn sender(last: u8) -> Sender {
    Sender::unknown(peer(last))
}

async fn wait(budget: &Arc<Budget>, claim: &Claim, bytes: usize, seconds: u64) -> bool {
    let wait = Duration::from_secs(seconds);
    budget.wait_for_room(claim, bytes, wait).await.is_ok()
}

#[test]
fn sixty_four_bits_of_an_ipv6_address_are_one_peer_and_mapped_ones_are_what_they_map_to() {
    let of = |text: &str| peer_of(text.parse().expect("an address"));
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
}

#[tokio::test]
async fn who_fits_passes_who_does_not_and_nobody_waits_for_room_that_is_there() {
    let budget = Arc::new(Budget::new(60 * MIB)); // 45 for bodies, 2.8 of it for small ones
    let claims: Vec<Claim> = (0..4).map(|_| Claim::begin(&budget, sender(1))).collect();
    assert!(wait(&budget, &claims[0], 28 * MIB, 1).await);
    assert!(wait(&budget, &claims[1], 8 * MIB, 1).await);
    let (large, small, ()) = tokio::join!(
        wait(&budget, &claims[2], 24 * MIB, 2),
        wait(&budget, &claims[3], 7 * MIB, 2),
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(budget.admission.waiting(), 2);
            claims[1].give_back(8 * MIB);
            budget.release(8 * MIB);
            tokio::task::yield_now().await;
            assert_eq!(budget.admission.waiting(), 1, "the smaller one has it at once");
        }
    );
    assert!(!large && small);
    assert_eq!((budget.used(), budget.admission.waiting()), (35 * MIB, 0));
}

#[tokio::test]
async fn room_that_is_of_no_use_to_anybody_has_nobody_looked_at() {
    let budget = Arc::new(Budget::new(40 * MIB)); // 30 for bodies, 1.9 of it for small ones
    let claims: Vec<Claim> = (0..3).map(|_| Claim::begin(&budget, sender(1))).collect();
    assert!(
        wait(&budget, &claims[0], 30 * MIB, 1).await,
        "all, while nobody has any"
    );
    let (first, second, ()) = tokio::join!(
        wait(&budget, &claims[1], 20 * MIB, 5),
        wait(&budget, &claims[2], 6 * MIB, 5),
        async {
            tokio::task::yield_now().await;
            for (room, is_useful) in [(7, false), (8, true)] {
                budget.forget(room * MIB - (30 * MIB - budget.used()));
                assert_eq!(budget.can_serve(), is_useful, "{room} MiB");
            }
            budget.release(0);
            tokio::task::yield_now().await;
            assert_eq!(
                budget.admission.waiting(),
                1,
                "the smaller one has what it wanted"
            );
            assert!(!budget.can_serve());
            budget.release(20 * MIB);
        }
    );
    assert!(first && second);
}

#[tokio::test]
async fn in_the_middle_of_its_wait_nobody_passes_the_first() {
    let budget = Arc::new(Budget::new(60 * MIB));
    let claims: Vec<Claim> = (0..4).map(|_| Claim::begin(&budget, sender(1))).collect();
    assert!(wait(&budget, &claims[0], 20 * MIB, 1).await);
    assert!(wait(&budget, &claims[1], 20 * MIB, 1).await);
    let (large, small, ()) = tokio::join!(
        wait(&budget, &claims[2], 30 * MIB, 4),
        wait(&budget, &claims[3], 15 * MIB, 4),
        async {
            for claim in &claims[..2] {
                tokio::time::sleep(Duration::from_millis(1_300)).await;
                claim.give_back(20 * MIB);
                budget.release(20 * MIB);
            }
        }
    );
    assert!(large && !small, "{large} {small}");
}

#[tokio::test]
async fn small_bodies_have_room_of_their_own_whatever_large_ones_hold_or_collect() {
    let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT)); // 108 for bodies, 6.7 of it for small ones
    let large: Vec<Claim> = (0..4).map(|n| Claim::begin(&budget, sender(100 + n))).collect();
    assert!(wait(&budget, &large[0], 100_000_000, 1).await);
    assert!(
        !wait(&budget, &large[1], 8_000_000, 0).await,
        "the reserve is not theirs"
    );
    let small: Vec<Claim> = (0..13).map(|n| Claim::begin(&budget, sender(n + 2))).collect();
    let at_once = |claim| wait(&budget, claim, 768 << 10, 0);
    for claim in &small[..5] {
        assert!(at_once(claim).await);
    }
    let (collector, rest) = tokio::join!(wait(&budget, &large[2], 50 * MIB, 1), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut rest = Vec::new();
        for claim in &small[5..] {
            rest.push(at_once(claim).await);
        }
        rest
    });
    assert!(!collector);
    assert_eq!(rest, [true, true, true, true, false, false, false, false]);
    drop((large, small));
    budget.release(budget.used());
    let state = budget.admission.state();
    assert_eq!((state.small_held, state.peers.len()), (0, 0));
}

#[tokio::test]
async fn small_bodies_find_their_room_behind_however_many_large_ones() {
    let budget = Arc::new(Budget::new(40 * MIB)); // 30 for bodies, 1.9 of it for small ones
    let holder = Claim::begin(&budget, sender(1));
    assert!(wait(&budget, &holder, 24 * MIB, 1).await);
    let large: Vec<Claim> = (0..150).map(|n| Claim::begin(&budget, sender(n + 2))).collect();
    let small = Claim::begin(&budget, sender(200));
    let second = Duration::from_secs(1);
    let waiting = large
        .iter()
        .map(|claim| QueuePlace::take(&budget, claim, 8 * MIB, second));
    let waiting: Vec<_> = waiting.map(|place| place.expect("a place")).collect();
    assert!(waiting.iter().all(|place| !place.waiter.is_granted()));
    assert!(wait(&budget, &small, 100 << 10, 0).await);
    drop(waiting);
    assert_eq!(budget.admission.waiting(), 0);
    assert_eq!(budget.aside(), 0);
}

#[tokio::test]
async fn a_body_that_needs_all_the_room_is_not_starved_by_small_ones() {
    let budget = Arc::new(Budget::new(40 * MIB));
    let small: Vec<Claim> = (0..40).map(|n| Claim::begin(&budget, sender(n + 2))).collect();
    assert!(wait(&budget, &small[0], 100 << 10, 0).await);
    let whole = Claim::begin(&budget, sender(1));
    let (whole, ()) = tokio::join!(wait(&budget, &whole, 30 * MIB, 4), async {
        // Each is there before the one before it goes, until the large one collects.
        for pair in small.windows(2) {
            let next = wait(&budget, &pair[1], 100 << 10, 0).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            let held = pair[0].record().held();
            pair[0].give_back(held);
            budget.release(held);
            if !next {
                break;
            }
        }
    });
    assert!(whole);
}

#[tokio::test]
async fn a_large_body_that_grows_gets_as_much_as_one_that_says_its_length() {
    let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT)); // 108 for bodies, 6.7 of it for small ones
    let growing = Claim::begin(&budget, sender(1));
    assert!(wait(&budget, &growing, 64 * MIB, 1).await);
    assert!(wait(&budget, &growing, 36 * MIB, 1).await, "it is alone");
    let other = Claim::begin(&budget, sender(2));
    assert!(!wait(&budget, &other, 8_000_000, 0).await);
}

#[tokio::test]
async fn a_large_body_that_grows_in_small_steps_takes_nothing_from_the_small_ones() {
    let budget = Arc::new(Budget::new(BUDGET_BYTES_DEFAULT));
    let (large, growing) = (Claim::begin(&budget, sender(1)), Claim::begin(&budget, sender(2)));
    assert!(wait(&budget, &large, 94 * MIB, 1).await);
    assert!(wait(&budget, &growing, 7 * MIB, 1).await);
    assert!(!wait(&budget, &growing, MIB, 0).await);
    assert!(wait(&budget, &Claim::begin(&budget, sender(3)), 768 << 10, 0).await);
}

#[tokio::test]
async fn a_peer_has_all_while_it_is_alone_and_its_share_when_another_comes() {
    let budget = Arc::new(Budget::new(60 * MIB));
    let greedy: Vec<Claim> = (0..6).map(|_| Claim::begin(&budget, sender(1))).collect();
    for claim in &greedy[..4] {
        assert!(wait(&budget, claim, 10 * MIB, 1).await, "alone");
    }
    let modest = Claim::begin(&budget, sender(2));
    let (more, other, ()) = tokio::join!(
        wait(&budget, &greedy[4], 10 * MIB, 1),
        wait(&budget, &modest, 10 * MIB, 1),
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            greedy[0].give_back(10 * MIB);
            budget.release(10 * MIB);
        }
    );
    assert!(!more && other, "who came later, with nothing, comes first");
    let large = Claim::begin(&budget, sender(3));
    greedy[1..4].iter().for_each(|claim| claim.give_back(10 * MIB));
    budget.release(30 * MIB);
    assert!(
        wait(&budget, &large, 30 * MIB, 1).await,
        "one body is always allowed"
    );
}

#[tokio::test]
async fn a_user_has_its_share_over_all_its_addresses_and_all_while_it_is_alone() {
    let budget = Arc::new(Budget::new(60 * MIB)); // 45 for bodies
    let of = |user: Option<u128>, last: u8| {
        let address = peer(last);
        let principal = user.map_or(Principal::Anybody, Principal::User);
        Claim::begin(&budget, Sender { address, principal })
    };
    let greedy: Vec<Claim> = (1..=6).map(|last| of(Some(7), last)).collect();
    for claim in &greedy[..3] {
        assert!(wait(&budget, claim, 10 * MIB, 1).await, "no other user is there");
    }
    // One of its own addresses, with other credentials.
    let modest = of(Some(8), 1);
    assert!(wait(&budget, &modest, 5 * MIB, 1).await);
    let stranger = of(None, 9);
    let (more, other, ()) = tokio::join!(
        wait(&budget, &greedy[3], 10 * MIB, 1),
        wait(&budget, &stranger, 10 * MIB, 1),
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            greedy[0].give_back(10 * MIB);
            budget.release(10 * MIB);
        }
    );
    assert!(!more && other, "a new address does not give a user more");
    for claim in &greedy[1..3] {
        claim.give_back(10 * MIB);
        budget.release(10 * MIB);
    }
    assert!(
        wait(&budget, &greedy[4], 25 * MIB, 1).await,
        "one body is always allowed"
    );
    drop((greedy, modest, stranger));
    assert!(budget.admission.state().peers.is_empty());
}

#[tokio::test]
async fn a_user_that_gives_something_back_lets_on_its_own_body_at_another_address() {
    let budget = Arc::new(Budget::new(60 * MIB));
    let of = |user, last: u8| {
        let address = peer(last);
        Claim::begin(
            &budget,
            Sender {
                address,
                principal: Principal::User(user),
            },
        )
    };
    let (other, first, second) = (of(8, 9), of(7, 1), of(7, 2));
    assert!(wait(&budget, &other, MIB, 1).await);
    assert!(wait(&budget, &first, 20 * MIB, 1).await);
    let began = Instant::now();
    let (served, ()) = tokio::join!(wait(&budget, &second, 10 * MIB, 5), async {
        tokio::task::yield_now().await;
        assert_eq!(budget.admission.waiting(), 1);
        first.give_back(20 * MIB);
        budget.release(20 * MIB);
    });
    assert!(
        served && began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    drop((other, first, second));
    assert!(budget.admission.state().peers.is_empty());
}

#[tokio::test]
async fn what_the_unconfirmed_hold_beyond_half_a_share_is_cut_when_somebody_else_waits_long() {
    let budget = Arc::new(Budget::new(64 * MIB)); // 48 for bodies, 24 for a user, 12 for all who are unproven
    let of = |principal, last: u8| {
        let address = peer(last);
        Claim::begin(&budget, Sender { address, principal })
    };
    let unproven: Vec<Claim> = (1..=3).map(|last| of(Principal::Unproven, last)).collect();
    for claim in &unproven[..2] {
        assert!(wait(&budget, claim, 20 * MIB, 1).await, "there is room");
    }
    let told = || {
        let told = |claim: &Claim| claim.record().told();
        unproven.iter().map(told).collect::<Vec<_>>()
    };
    unproven[..2].iter().for_each(Claim::arrives);
    // They arrive fast, all the time.
    let arrive = async {
        for times in 1.. {
            unproven[..2]
                .iter()
                .for_each(|claim| claim.arrived(times * 100_000));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let late = async {
        assert!(!wait(&budget, &unproven[2], 16 * MIB, 2).await);
        assert!(
            !told().contains(&Some(ClaimVerdict::OverShare)),
            "they wait for one another"
        );
        let user = of(Principal::User(7), 9);
        let (served, own) = tokio::join!(
            wait(&budget, &user, 16 * MIB, 2),
            wait(&budget, &unproven[2], 16 * MIB, 2)
        );
        assert!(!served && !own, "nobody has given anything back here");
        assert!(told().contains(&Some(ClaimVerdict::OverShare)), "{:?}", told());
    };
    tokio::select! {
        () = late => {}
        () = arrive => panic!("it arrives for ever"),
    }
}

#[tokio::test]
async fn who_stops_waiting_leaves_no_trace() {
    let budget = Arc::new(Budget::new(60 * MIB));
    let (one, two) = (Claim::begin(&budget, sender(1)), Claim::begin(&budget, sender(1)));
    assert!(wait(&budget, &one, 40 * MIB, 1).await);
    assert!(!wait(&budget, &two, 10 * MIB, 0).await);
    assert_eq!(budget.admission.waiting(), 0);
    one.give_back(40 * MIB);
    budget.release(40 * MIB);
    drop((one, two));
    assert_eq!(budget.used(), 0);
    assert!(budget.admission.state().peers.is_empty());
}
