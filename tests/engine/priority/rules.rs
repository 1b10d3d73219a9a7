//! Loans that more than one rule has a say in.

use std::time::Duration;

use tower_sentinel::read::Scope;
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::{
    BlockKind, Call, FlowRule, IsolationRule, KeyedRule, NotAdmitted, Rule, Rules, SystemRule,
    Verdict,
};

use super::{Bench, MINUTE, at, enter, ms};

#[test]
fn a_rule_that_has_room_does_not_stand_in_the_way_of_a_loan() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 10))
        .with(FlowRule::per("r", 1_000, MINUTE));
    let bench = Bench::new(rules);
    bench.fill(700, 10);
    let waiting = bench.borrow(1_200).unwrap();
    assert_eq!(waiting.delay(), ms(300));
    drop(bench.admit(1_500, waiting).unwrap());
    bench.assert_settled();
}

#[test]
fn nothing_but_a_window_of_a_flow_rule_lends() {
    let refusing: [Rule; 4] = [
        KeyedRule::per_second("r", 1).into(),
        KeyedRule::per_second("r", 1).window().into(),
        IsolationRule::new("r", 1).into(),
        SystemRule::new().qps(1).into(),
    ];
    for rule in refusing {
        let bench = Bench::new(Rules::build([rule.clone()]).unwrap());
        let _running = bench.sentinel.try_enter(Call::new("r"));
        // A window would have room at 1000.
        assert!(bench.borrow(600).is_err(), "{rule:?}");
    }
    // In a queue whoever comes first goes first.
    let queue = FlowRule::per_second("r", 10).throttle(ms(500));
    let bench = Bench::new(Rules::new().with(queue));
    let turns = [false, false, false, true].map(|prioritized| {
        match bench
            .sentinel
            .try_enter(Call::new("r").prioritized(prioritized))
        {
            Verdict::Pass(_) => (ms(0), None),
            Verdict::Wait(waiting) => (waiting.delay(), Some(waiting)),
            other => panic!("{other:?}"),
        }
    });
    let delays = turns.each_ref().map(|(delay, _)| *delay);
    assert_eq!(delays, [ms(0), ms(100), ms(200), ms(300)]);
}

#[test]
fn a_minute_that_is_full_refuses_although_the_second_would_lend() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 10))
        .with(FlowRule::per("r", 12, MINUTE).id("minute"));
    let bench = Bench::new(rules);
    bench.fill(700, 10);
    let waiting = [0, 1].map(|_| bench.borrow(1_200).unwrap());
    let blocked = bench.borrow(1_200).unwrap_err();
    // Both are full: the call is let in to wait less than half a second before the minute's
    // first half leaves.
    let wait = ms(500) - Duration::from_nanos(1);
    assert_eq!(blocked.retry_after(), Some(ms(60_000 - 1_200) - wait));
    drop(waiting);
    bench.assert_settled();
}

#[test]
fn a_refusal_by_another_rule_gives_back_what_was_borrowed() {
    // The origin's rule lends; the resource's rule is full and does not.
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).for_origin("app"))
        .with(FlowRule::per_second("r", 2).lend(false).id("all"));
    let bench = Bench::with(rules, |builder| builder.origins(true));
    let app = Call::new("r").origin("app");
    bench.clock.set(at(700));
    assert!(matches!(bench.sentinel.try_enter(app), Verdict::Pass(_)));
    bench.fill(700, 1);
    for _ in 0..5 {
        assert!(bench.borrow_for(1_200, app).is_err());
    }
    bench.assert_settled();
    let snapshot = bench.sentinel.snapshot();
    assert!(
        snapshot
            .nodes()
            .iter()
            .all(|node| (node.held(), node.waiting()) == (0, 0))
    );
    // At 1500 the origin's place is free, and so is the resource's.
    bench.clock.set(at(1_500));
    assert!(matches!(bench.sentinel.try_enter(app), Verdict::Pass(_)));
}

#[test]
fn a_call_waits_once_until_the_latest_of_its_places() {
    // Of the origin 500 ms buckets lend, of the resource 100 ms buckets.
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).for_origin("app"))
        .with(FlowRule::per_second("r", 2).buckets(10));
    let bench = Bench::new(rules);
    let app = Call::new("r").origin("app");
    bench.clock.set(at(250));
    assert!(matches!(bench.sentinel.try_enter(app), Verdict::Pass(_)));
    bench.fill(250, 1);
    // The origin's bucket [0, 500) leaves at 1000, the resource's [200, 300) at
    // 1200: there the call waits, and it counts there in both.
    let waiting = bench.borrow_for(900, app).unwrap();
    assert_eq!(waiting.start(), at(1_200));
    drop(bench.admit(1_200, waiting).unwrap());
    bench.assert_settled();
    assert_eq!(bench.node().sum(Event::Pass), 1);
    // The origin's place was taken in [1000, 1500), which leaves at 2000.
    bench.clock.set(at(1_999));
    assert!(matches!(bench.sentinel.try_enter(app), Verdict::Block(_)));
    bench.clock.set(at(2_000));
    assert!(matches!(bench.sentinel.try_enter(app), Verdict::Pass(_)));
}

#[test]
fn a_call_that_waited_is_booked_on_every_node_in_the_bucket_in_which_it_runs() {
    let bench = Bench::with(FlowRule::per_second("r", 2), |builder| {
        builder.origins(true).contexts(true)
    });
    let call = Call::new("r").origin("app").context("web").batch(2);
    bench.clock.set(at(700));
    assert!(matches!(bench.sentinel.try_enter(call), Verdict::Pass(_)));
    let waiting = bench.borrow_for(1_200, call).unwrap();
    let passed = |now: u64| {
        bench.clock.set(at(now));
        let snapshot = bench.sentinel.snapshot();
        let of = |scope: Scope| {
            let node = snapshot.nodes().iter().find(|node| *node.scope() == scope);
            node.unwrap().window().pass()
        };
        [
            of(Scope::Resource),
            of(Scope::Origin("app".into())),
            of(Scope::Context("web".into())),
            bench.sentinel.inbound().sum(Event::Pass),
            bench.sentinel.entrance("web").sum(Event::Pass),
        ]
    };
    assert_eq!(passed(1_499), [2; 5]);
    // The two of 700 leave, and the two that were lent come, everywhere.
    assert_eq!(passed(1_500), [2; 5]);
    drop(bench.admit(1_600, waiting).unwrap());
    assert_eq!(passed(2_499), [2; 5]);
    assert_eq!(passed(2_500), [0; 5]);
    let snapshot = bench.sentinel.snapshot();
    assert_eq!(snapshot.nodes().len(), 3);
    for node in snapshot.nodes() {
        let totals = node.totals();
        assert_eq!(
            (totals.pass(), totals.complete(), totals.occupied()),
            (4, 4, 2)
        );
        assert_eq!((totals.waits(), totals.waited()), (1, ms(400)));
    }
}

#[test]
fn a_waiting_call_holds_no_slot_and_may_find_none_when_its_turn_comes() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2))
        .with(IsolationRule::new("r", 1));
    let bench = Bench::new(rules);
    bench.fill(700, 2);
    let waiting = [0, 1].map(|_| bench.borrow(1_200).unwrap());
    assert_eq!(bench.node().slots_in_use(), 0);
    let [first, second] = waiting;
    let running = bench.admit(1_500, first).unwrap();
    assert_eq!(bench.node().slots_in_use(), 1);
    match bench.admit(1_500, second) {
        Err(NotAdmitted::Blocked(blocked)) => assert_eq!(blocked.kind(), BlockKind::Isolation),
        other => panic!("there is only one slot: {other:?}"),
    }
    drop(running);
    // Its token was given back.
    assert!(bench.passes(1_600));
    assert!(!bench.passes(1_600));
    bench.assert_settled();
    assert_eq!(bench.node().totals().block(), 2);
}

/// A call that waits from 1.8 s to 2 s and whose timer is late by 8 s: whoever looks first, it
/// has passed in the second of its bucket.
#[test]
fn who_starts_late_has_passed_in_the_second_of_its_bucket() {
    for is_isolated in [false, true] {
        for others in [&[][..], &[false], &[true]] {
            let mut rules = Rules::new().with(FlowRule::per_second("r", 10));
            if is_isolated {
                rules = rules.with(IsolationRule::new("r", 100));
            }
            let bench = Bench::new(rules);
            bench.fill(700, 1);
            bench.fill(1_200, 9);
            let waiting = bench.borrow_for(1_800, Call::new("r").batch(5)).unwrap();
            assert_eq!(waiting.start(), at(2_000));
            bench.clock.set(at(10_000));
            for &is_prioritized in others {
                let call = Call::new("r").prioritized(is_prioritized);
                drop(bench.sentinel.try_enter(call));
            }
            drop(waiting.admit());
            assert_eq!(
                passed_in(&bench, [0, 1, 2, 10]),
                [1, 9, 5, others.len() as u64]
            );
        }
    }
}

#[test]
fn who_starts_late_has_passed_in_its_second_though_a_rule_looks_from_elsewhere() {
    let bench = Bench::new([
        FlowRule::per_second("r", 10),
        FlowRule::per_second("other", 10).when("r"),
    ]);
    bench.fill(700, 1);
    bench.fill(1_200, 9);
    let waiting = bench.borrow_for(1_800, Call::new("r").batch(5)).unwrap();
    bench.clock.set(at(10_000));
    drop(enter(&bench.sentinel, Call::new("other")));
    drop(waiting.admit());
    assert_eq!(passed_in(&bench, [0, 1, 2, 10]), [1, 9, 5, 0]);
}

/// What has passed in each of these seconds of the clock.
fn passed_in(bench: &Bench, seconds: [u64; 4]) -> [u64; 4] {
    let known = bench.node().seconds().unwrap();
    seconds.map(|second| {
        let known = known
            .iter()
            .filter(|known| known.start() == at(second * 1_000));
        known.map(NodeBucket::pass).sum()
    })
}

/// What a rule that has room loses at once to a loan, though the loan is of a bucket to come: exact
/// windows are kept so by one word for each, and a call may be refused that would fit.
#[test]
fn a_loan_takes_a_place_of_the_present_window_as_well() {
    // Two tokens pass, two are lent at 1 000, and one would fit beside each: 2 + 1, then 1 + 2.
    let bench = Bench::new(FlowRule::per_second("r", 3));
    let call = |weight| Call::new("r").batch(weight);
    bench.clock.set(at(0));
    assert!(enter(&bench.sentinel, call(2)).is_ok());
    let loan = bench.borrow_for(510, call(2)).unwrap();
    assert_eq!(loan.delay(), ms(490));
    assert!(!bench.passes(510));
    drop(loan);
    assert!(bench.passes(510));

    // A loan that the rule for `app` needs is taken from the rule for all at once.
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 3))
        .with(FlowRule::per_second("r", 1).for_origin("app"));
    let bench = Bench::new(rules);
    let app = Call::new("r").origin("app");
    bench.clock.set(at(0));
    assert!(enter(&bench.sentinel, app).is_ok());
    let loan = bench.borrow_for(510, app).unwrap();
    assert_eq!(loan.delay(), ms(490));
    // One of two that would fit.
    assert_eq!([bench.passes(510), bench.passes(510)], [true, false]);
}
