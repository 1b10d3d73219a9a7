//! Prioritized calls: who may wait for a coming bucket, for how long, and what
//! becomes of the place.

mod rules;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tower_sentinel::clock::{Clock, TokioClock};
use tower_sentinel::read::NodeView;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    BlockKind, Blocked, Builder, Call, Entry, FlowRule, ManualClock, NotAdmitted, Rules, Sentinel,
    Verdict, Waiting,
};

use crate::support::{at, configured, enter, ms};

const MINUTE: Duration = Duration::from_secs(60);

/// An engine that makes calls to "r" at times of choice.
struct Bench {
    sentinel: Sentinel,
    clock: ManualClock,
}

impl Bench {
    fn new(rules: impl Into<Rules>) -> Self {
        Self::with(rules, |builder| builder)
    }

    fn with(rules: impl Into<Rules>, configure: impl FnOnce(Builder) -> Builder) -> Self {
        let (sentinel, clock) = configured(rules, configure);
        Self { sentinel, clock }
    }

    /// `n` ordinary calls at `now`, all of which pass and end.
    fn fill(&self, now: u64, n: u32) {
        for _ in 0..n {
            assert!(self.passes(now), "the window is full at {now}");
        }
    }

    /// Whether an ordinary call passes at `now`; it ends at once.
    fn passes(&self, now: u64) -> bool {
        self.clock.set(at(now));
        enter(&self.sentinel, Call::new("r")).is_ok()
    }

    /// A prioritized call at `now` that must wait or be refused.
    fn borrow(&self, now: u64) -> Result<Waiting, Blocked> {
        self.borrow_for(now, Call::new("r"))
    }

    fn borrow_for(&self, now: u64, call: Call<'_>) -> Result<Waiting, Blocked> {
        self.clock.set(at(now));
        match self.sentinel.try_enter(call.prioritized(true)) {
            Verdict::Wait(waiting) => Ok(waiting),
            Verdict::Block(blocked) => Err(blocked),
            other => panic!("there is no room at {now}: {other:?}"),
        }
    }

    fn admit(&self, now: u64, waiting: Waiting) -> Result<Entry, NotAdmitted> {
        self.clock.set(at(now));
        waiting.admit()
    }

    fn node(&self) -> NodeView {
        self.sentinel.node("r").unwrap()
    }

    /// Nobody waits and nothing is held.
    fn assert_settled(&self) {
        let node = self.node();
        assert_eq!(
            (
                node.waiting(),
                node.held(),
                node.concurrency(),
                node.slots_in_use()
            ),
            (0, 0, 0, 0)
        );
    }
}

// === the worked example: ten a second, in two buckets of 500 ms ===

#[test]
fn ten_borrowers_wait_for_the_ten_that_leave_and_the_eleventh_is_refused() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    bench.fill(700, 10);
    let waiting: Vec<_> = (0..10).map(|_| bench.borrow(1_200).unwrap()).collect();
    for one in &waiting {
        assert_eq!((one.delay(), one.start()), (ms(300), at(1_500)));
    }
    let blocked = bench.borrow(1_200).unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Flow);
    assert_eq!((bench.node().waiting(), bench.node().held()), (10, 10));
    // Held, and not yet passed.
    assert_eq!(bench.node().sum(Event::Pass), 10);

    // At 1500 the ten of 700 have left and the ten that were lent are there.
    bench.clock.set(at(1_500));
    assert_eq!(bench.node().sum(Event::Pass), 10);
    for one in waiting {
        drop(bench.admit(1_500, one).unwrap());
    }
    assert!(!bench.passes(1_600));
    assert!(!bench.passes(2_499));
    assert!(bench.passes(2_500));
    bench.assert_settled();
    let totals = bench.node().totals();
    assert_eq!(
        (
            totals.pass(),
            totals.complete(),
            totals.occupied(),
            totals.waits()
        ),
        (21, 21, 10, 10)
    );
    assert_eq!(totals.waited(), ms(10 * 300));
}

#[test]
fn what_was_borrowed_in_this_second_is_told_alike_everywhere_whatever_the_window() {
    let borrowed = |bench: &Bench| {
        let snapshot = bench.sentinel.snapshot();
        let inbound = bench.sentinel.inbound();
        let all = [
            bench.node().sum(Event::Occupied) as f64,
            bench.node().qps(Event::Occupied),
            snapshot.nodes()[0].qps(Event::Occupied),
            inbound.sum(Event::Occupied) as f64,
            inbound.qps(Event::Occupied),
        ];
        assert!(all.iter().all(|figure| *figure == all[0]), "{all:?}");
        all[0]
    };
    for seconds in [1, 10] {
        let window = Duration::from_secs(seconds);
        let bench = Bench::with(FlowRule::per("r", 1, ms(200)), |builder| {
            builder.window(window, 2 * seconds as u32).unwrap()
        });
        // Also in the first second that the resource sees.
        for start in [10_000, 11_000] {
            bench.fill(start, 1);
            let waiting = bench.borrow(start + 150).unwrap();
            assert_eq!(borrowed(&bench), 0.0);
            drop(bench.admit(start + 200, waiting).unwrap());
            for later in [200, 999] {
                bench.clock.set(at(start + later));
                assert_eq!(borrowed(&bench), 1.0, "{start} {later}");
            }
        }
        bench.clock.set(at(12_000));
        assert_eq!(borrowed(&bench), 0.0);
        assert_eq!(bench.node().totals().occupied(), 2);
    }
}

#[test]
fn a_wait_as_long_as_the_timeout_is_refused() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    bench.fill(700, 10);
    // It would be 500 ms, the occupy timeout: a nanosecond later it is let in to wait.
    let blocked = bench.borrow(1_000).unwrap_err();
    assert_eq!(blocked.retry_after(), Some(Duration::from_nanos(1)));
    assert_eq!(bench.borrow(1_001).unwrap().delay(), ms(499));

    let bench = Bench::with(FlowRule::per_second("r", 10), |builder| {
        builder.occupy_timeout(ms(501))
    });
    bench.fill(700, 10);
    assert_eq!(bench.borrow(1_000).unwrap().delay(), ms(500));
}

#[test]
fn a_boundary_that_frees_nothing_is_not_lent() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    bench.fill(1_200, 10);
    // At 1500 the ten are still in the window; at 2000 they are not.
    assert!(bench.borrow(1_300).is_err());
    assert!(bench.borrow(1_500).is_err());
    assert_eq!(bench.borrow(1_600).unwrap().start(), at(2_000));
}

#[test]
fn a_place_that_was_given_up_can_be_used_by_anyone() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    bench.fill(700, 10);
    let mut waiting: Vec<_> = (0..10).map(|_| bench.borrow(1_200).unwrap()).collect();
    bench.clock.set(at(1_300));
    waiting.truncate(8);
    assert_eq!((bench.node().waiting(), bench.node().held()), (8, 8));
    waiting.push(bench.borrow(1_300).unwrap());
    assert!(
        bench
            .borrow(1_300)
            .is_ok_and(|tenth| tenth.delay() == ms(200))
    );

    // Nine run; an ordinary call gets the tenth place, and an eleventh does not.
    let _running: Vec<_> = waiting
        .into_iter()
        .map(|one| bench.admit(1_500, one).unwrap())
        .collect();
    assert!(bench.passes(1_600));
    assert!(!bench.passes(1_600));
    let totals = bench.node().totals();
    assert_eq!((totals.pass(), totals.waiting_dropped()), (20, 3));
}

#[test]
fn an_opened_place_is_given_back_until_its_bucket_closes() {
    for (dropped_at, passing) in [(1_500, 10), (1_999, 10), (2_000, 9)] {
        let bench = Bench::new(FlowRule::per_second("r", 10));
        bench.fill(700, 10);
        let waiting = bench.borrow(1_200).unwrap();
        bench.clock.set(at(dropped_at));
        drop(waiting);
        let passed = (0..20).filter(|_| bench.passes(dropped_at)).count();
        assert_eq!(passed, passing, "dropped at {dropped_at}");
        bench.assert_settled();
    }
}

#[test]
fn whatever_threads_do_at_the_boundary_every_token_is_a_call_that_ran_or_is_booked_as_spent() {
    for round in 0..50 {
        let bench = Bench::new(FlowRule::per_second("r", 10));
        bench.fill(700, 10);
        bench.clock.set(at(1_499));
        let ran = AtomicU32::new(10);
        thread::scope(|scope| {
            for worker in 0..4 {
                let (bench, ran) = (&bench, &ran);
                scope.spawn(move || {
                    for call in 0..20 {
                        if worker == 0 && call == round % 20 {
                            bench.clock.set(at(1_500));
                        }
                        let call = Call::new("r").prioritized(call % 2 == 0);
                        match bench.sentinel.try_enter(call) {
                            Verdict::Pass(_) => drop(ran.fetch_add(1, Ordering::Relaxed)),
                            Verdict::Wait(waiting) => {
                                bench.clock.set(at(1_500));
                                drop(waiting.admit().unwrap());
                                ran.fetch_add(1, Ordering::Relaxed);
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        bench.clock.set(at(1_999));
        let (totals, ran) = (bench.node().totals(), u64::from(ran.into_inner()));
        // A loan that is being made while its bucket opens may be lost: its
        // token is booked as spent, and the caller is refused.
        assert_eq!(
            (totals.complete(), totals.pass()),
            (ran, ran + totals.cancelled())
        );
        // The window [1000, 2000) holds all but the first ten, and is full.
        assert_eq!((bench.node().sum(Event::Pass), totals.pass()), (10, 20));
        bench.assert_settled();
    }
}

// === bounds ===

#[test]
fn only_a_part_of_what_leaves_is_lent_if_the_rule_says_so() {
    for (ratio, lent) in [(0.5, 5), (0.19, 1), (0.01, 0), (1.0, 10)] {
        let rule = FlowRule::per_second("r", 10).max_occupy_ratio(ratio);
        let bench = Bench::new(rule);
        bench.fill(700, 10);
        let waiting: Vec<_> = (0..20).filter_map(|_| bench.borrow(1_200).ok()).collect();
        assert_eq!(waiting.len(), lent, "{ratio}");
        // Ordinary calls get what the borrowers leave.
        let passed = (0..20).filter(|_| bench.passes(1_500)).count();
        assert_eq!(passed, 10 - lent, "{ratio}");
    }
}

#[test]
fn a_part_that_is_lent_is_the_number_that_was_meant() {
    // The products in floating point fall short of these: 100 × 0.29 is 28.999…
    for (ratio, lent) in [(0.28, 28), (0.29, 29), (0.55, 55), (0.57, 57), (0.58, 58)] {
        let bench = Bench::new(FlowRule::per_second("r", 100).max_occupy_ratio(ratio));
        bench.fill(700, 100);
        let waiting: Vec<_> = (0..100).filter_map(|_| bench.borrow(1_200).ok()).collect();
        assert_eq!(waiting.len(), lent, "{ratio}");
    }
}

#[test]
fn the_part_of_a_window_to_come_is_lent_once_and_not_for_each_half_second() {
    // The whole next window is to come; the resource's figures cut it into half seconds.
    let rule = FlowRule::per("r", 10, ms(10_000)).buckets(1);
    let bench = Bench::with(rule.max_occupy_ratio(0.5), |it| {
        it.occupy_timeout(ms(3_000))
    });
    bench.fill(700, 10);
    let waiting: Vec<_> = (0..20).filter_map(|_| bench.borrow(9_000).ok()).collect();
    assert_eq!(waiting.len(), 5);
    assert!(waiting.iter().all(|one| one.start() == at(10_000)));
    // Ordinary calls get what the borrowers leave.
    assert_eq!((0..20).filter(|_| bench.passes(10_000)).count(), 5);
}

#[test]
fn a_part_of_a_window_to_come_is_lent_to_no_turn_within_it() {
    // The last turn in the window of now, that at the start of the next, and all others.
    for (part, last) in [(0.5, 10_000), (1.0, 30_000)] {
        let window = FlowRule::per("r", 10, ms(10_000)).buckets(1);
        let rules = Rules::new()
            .with(window.max_occupy_ratio(part))
            .with(FlowRule::per_second("r", 1).throttle(ms(30_000)));
        let bench = Bench::new(rules);
        bench.fill(0, 1);
        let call = |_| match bench.sentinel.try_enter(Call::new("r")) {
            Verdict::Wait(waiting) => Some(waiting),
            _ => None,
        };
        let waiting: Vec<_> = (0..40).filter_map(call).collect();
        let starts = waiting.iter().map(Waiting::start);
        assert!(starts.eq((1..=last / 1_000).map(|second| at(second * 1_000))));
    }
}

#[test]
fn only_so_many_calls_wait_at_once() {
    let bench = Bench::new(FlowRule::per_second("r", 10).max_waiting(3));
    bench.fill(700, 10);
    let mut waiting: Vec<_> = (0..3).map(|_| bench.borrow(1_200).unwrap()).collect();
    assert!(bench.borrow(1_200).is_err());
    waiting.pop();
    waiting.push(bench.borrow(1_200).unwrap());
    assert!(bench.borrow(1_200).is_err());
    let running = waiting.into_iter().map(|one| bench.admit(1_500, one));
    assert!(running.into_iter().all(|entry| entry.is_ok()));
    bench.assert_settled();
}

#[test]
fn however_much_is_lent_of_windows_to_come_the_present_one_stays_full() {
    // 119 such calls a second; more than 2³² tokens are lent if nothing keeps them from it.
    let heavy = Call::new("r").batch(Call::MAX_WEIGHT);
    let bench = Bench::with(FlowRule::per_second("r", 2_000_000_000), |builder| {
        builder.occupy_timeout(ms(5_000))
    });
    let passes = |now| {
        bench.clock.set(at(now));
        enter(&bench.sentinel, heavy).is_ok()
    };
    let passing = |now| (0..1_000).take_while(|_| passes(now)).count();
    assert_eq!(passing(700), 119);
    let lent = (0..1_000).map_while(|_| bench.borrow_for(1_200, heavy).ok());
    let waiting: Vec<_> = lent.collect();
    // All that leaves at 1500, and what keeps the whole below 2³².
    let counts = [1_500, 2_500].map(|start| {
        let starts = waiting.iter().map(Waiting::start);
        starts.filter(|&it| it == at(start)).count()
    });
    assert_eq!((counts, waiting.len()), ([119, 17], 136));
    assert_eq!(passing(1_200), 0);
    assert_eq!(bench.node().sum(Event::Pass), 119 << 24);

    for one in waiting {
        let start = one.start().as_millis();
        drop(bench.admit(start, one).unwrap());
        assert!(bench.node().sum(Event::Pass) <= 119 << 24);
    }
    bench.assert_settled();
}

#[test]
fn a_rule_that_does_not_lend_refuses() {
    for rule in [
        FlowRule::per_second("r", 10).lend(false),
        FlowRule::per_second("r", 10).max_waiting(0),
        FlowRule::per_second("r", 10).strict(),
    ] {
        let bench = Bench::with(rule.clone(), |builder| builder.occupy_timeout(MINUTE));
        bench.fill(700, 10);
        assert!(bench.borrow(1_200).is_err(), "{rule:?}");
        bench.assert_settled();
    }
    let bench = Bench::with(FlowRule::per_second("r", 10), |builder| {
        builder.occupy_timeout(Duration::ZERO)
    });
    bench.fill(700, 10);
    assert!(bench.borrow(1_499).is_err());
}

#[test]
fn a_rule_that_does_not_lend_keeps_nobody_from_waiting_for_what_others_lend() {
    let minute = || FlowRule::per("r", 1_000, MINUTE);
    for other in [minute().lend(false), minute().max_waiting(0)] {
        let bench = Bench::new(Rules::new().with(FlowRule::per_second("r", 10)).with(other));
        bench.fill(700, 10);
        let waiting = bench.borrow(1_200).unwrap();
        assert!(bench.admit(1_500, waiting).is_ok());
        bench.assert_settled();
    }
}

#[test]
fn who_takes_nothing_waits_for_any_rule_that_lends_and_for_no_other() {
    let weightless = Call::new("r").batch(0);
    let without_loans: [fn(FlowRule) -> FlowRule; 3] = [
        |rule| rule.lend(false),
        |rule| rule.max_waiting(0),
        FlowRule::strict,
    ];
    for rule in without_loans {
        let limited = |limit| rule(FlowRule::per_second("r", limit));
        let bench = Bench::with(limited(10), |builder| builder.occupy_timeout(MINUTE));
        bench.fill(700, 10);
        // More is in the window than it may hold.
        bench.sentinel.reload(limited(5).into());
        assert!(bench.borrow_for(1_200, weightless).is_err());
        bench.assert_settled();
    }
    // Five are lent, more than the part of a later rule, which is of no matter to a call
    // that borrows nothing.
    let lends = |part| FlowRule::per_second("r", 10).max_occupy_ratio(part);
    let bench = Bench::new(lends(1.0));
    bench.fill(700, 10);
    let waiting = [0; 5].map(|_| bench.borrow(1_200).unwrap());
    bench.sentinel.reload(lends(0.1).into());
    assert!(bench.borrow(1_200).is_err());
    let weightless = bench.borrow_for(1_200, weightless).unwrap();
    assert_eq!(weightless.start(), at(1_500));
    drop((waiting, weightless));
    bench.assert_settled();
}

#[test]
fn a_strict_rule_that_lends_lends_only_what_its_longer_window_frees() {
    let rule = FlowRule::per_second("r", 10).strict().lend(true);
    let bench = Bench::new(rule.clone());
    bench.fill(700, 10);
    // Three buckets count, so the ten of [500, 1000) leave at 2000.
    assert!(bench.borrow(1_200).is_err());
    assert_eq!(bench.borrow(1_600).unwrap().start(), at(2_000));

    let patient = Bench::with(rule, |builder| builder.occupy_timeout(ms(1_000)));
    patient.fill(700, 10);
    let waiting: Vec<_> = (0..12).filter_map(|_| patient.borrow(1_200).ok()).collect();
    assert_eq!(waiting.len(), 10);
    assert!(waiting.iter().all(|one| one.start() == at(2_000)));
}

#[test]
fn who_waited_for_a_short_bucket_has_passed_when_it_runs() {
    // Figures have steps of half a second: it comes and starts in the same one.
    let bench = Bench::new(FlowRule::per("r", 4, ms(10)).buckets(1));
    bench.fill(10_000, 4);
    let waiting = bench.borrow(10_000).unwrap();
    let start = waiting.start().as_millis();
    let entry = bench.admit(start, waiting).unwrap();
    let node = bench.node();
    assert_eq!((node.concurrency(), node.totals().pass()), (1, 5));
    drop(entry);
    let totals = node.totals();
    assert_eq!((totals.pass(), totals.complete()), (5, 5));
    assert_eq!((node.concurrency(), node.held()), (0, 0));
}

#[test]
fn a_call_waits_less_than_its_patience() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    bench.fill(700, 10);
    let with = |patience| bench.borrow_for(1_200, Call::new("r").patience(ms(patience)));
    assert!(with(0).is_err());
    assert!(with(300).is_err());
    assert_eq!(with(301).unwrap().delay(), ms(300));
    // Patience beyond the occupy timeout is cut to it.
    let call = Call::new("r").patience(MINUTE);
    assert!(bench.borrow_for(1_000, call).is_err());
    bench.assert_settled();
}

#[test]
fn nobody_borrows_a_bucket_that_is_more_than_512_ahead() {
    let rule = FlowRule::per_second("r", 1).buckets(1_000);
    let bench = Bench::with(rule, |builder| builder.occupy_timeout(MINUTE));
    bench.fill(700, 1);
    // What has passed leaves at 1700 ms, and a bucket is a millisecond.
    assert!(bench.borrow(1_187).is_err());
    assert_eq!(bench.borrow(1_188).unwrap().delay(), ms(512));
}

#[test]
fn a_call_heavier_than_the_limit_never_waits() {
    let bench = Bench::new(FlowRule::per_second("r", 10));
    assert!(bench.borrow_for(1_200, Call::new("r").batch(11)).is_err());
    assert!(
        bench
            .borrow_for(1_200, Call::new("r").batch(u32::MAX))
            .is_err()
    );
    bench.assert_settled();
}

// === the turn ===

#[test]
fn a_call_that_comes_too_early_keeps_its_place() {
    let bench = Bench::new(FlowRule::per_second("r", 1));
    bench.fill(700, 1);
    let mut waiting = bench.borrow(1_200).unwrap();
    for early in [1_200, 1_499] {
        waiting = match bench.admit(early, waiting) {
            Err(NotAdmitted::TooEarly(waiting)) => waiting,
            other => panic!("its bucket has not begun at {early}: {other:?}"),
        };
        assert_eq!((bench.node().waiting(), bench.node().held()), (1, 1));
    }
    assert!(bench.admit(1_500, waiting).is_ok());
    // Its time began when its wait was over.
    assert_eq!(bench.node().average_rt(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn entering_sleeps_until_the_bucket_begins() {
    let clock = TokioClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("r", 1))
        .clock(clock)
        .build();
    tokio::time::advance(ms(700)).await;
    drop(sentinel.enter(Call::new("r")).await.unwrap());
    tokio::time::advance(ms(500)).await;
    let vip = Call::new("r").prioritized(true);
    let entry = sentinel.enter(vip).await.unwrap();
    assert_eq!(clock.now(), at(1_500));
    assert_eq!(sentinel.node("r").unwrap().totals().waited(), ms(300));
    drop(entry);

    // Given up on the way, the place is free again.
    tokio::time::advance(ms(700)).await;
    let given_up = tokio::time::timeout(ms(100), sentinel.enter(vip)).await;
    assert!(given_up.is_err());
    let node = sentinel.node("r").unwrap();
    assert_eq!((node.waiting(), node.held()), (0, 0));
    assert_eq!(node.totals().waiting_dropped(), 1);
    tokio::time::advance(ms(200)).await;
    assert!(sentinel.enter(Call::new("r")).await.is_ok());
}
