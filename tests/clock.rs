//! Clocks that jump, step back, stop or lie: the limits hold and time goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::clock::Clock;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, FlowRule, HotParamRule, KeyedLimiter, ManualClock,
    NotAdmitted, Rules, Sentinel, SlidingWindow, SystemRule, Tick, Verdict,
};

const LIMIT: u32 = 5;
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn engine(clock: impl Clock, rules: impl Into<Rules>) -> Sentinel {
    Sentinel::builder().rules(rules).clock(clock).build()
}

/// How many of ten calls to "r" pass; they end at once.
fn passed(sentinel: &Sentinel) -> u32 {
    let passes = |_: &u32| matches!(sentinel.try_enter(Call::new("r")), Verdict::Pass(_));
    (0..10).filter(passes).count() as u32
}

/// Rules with long and short, many and few buckets.
fn shapes() -> [Rules; 4] {
    let second = || FlowRule::per_second("r", LIMIT);
    [
        second().into(),
        second().buckets(20).into(),
        second().buckets(10).strict().into(),
        Rules::new()
            .with(second())
            .with(FlowRule::per("r", 1_000_000, HOUR * 24)),
    ]
}

/// A clock that, once, does not answer before a call of another thread is judged.
#[derive(Clone, Debug)]
struct Patient {
    sentinel: Arc<OnceLock<Sentinel>>,
    is_armed: Arc<AtomicBool>,
    was_judged: Arc<AtomicBool>,
}

impl Clock for Patient {
    fn now(&self) -> Tick {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            let sentinel = self.sentinel.get().unwrap().clone();
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                let _ = sentinel.try_enter(Call::new("new"));
                let _ = tell.send(());
            });
            // So long only if the call waits for a lock that is held meanwhile.
            let was_judged = told.recv_timeout(SECOND * 10).is_ok();
            self.was_judged.store(was_judged, Ordering::Relaxed);
        }
        Tick::ZERO
    }
}

#[test]
fn no_call_waits_while_a_reload_reads_a_slow_clock() {
    let clock = Patient {
        sentinel: Arc::default(),
        is_armed: Arc::default(),
        was_judged: Arc::default(),
    };
    let rule = || FlowRule::per_second("new", 1);
    let sentinel = engine(clock.clone(), rule());
    clock.sentinel.set(sentinel.clone()).unwrap();
    clock.is_armed.store(true, Ordering::Relaxed);
    let rules = Rules::new().with(rule()).with(SystemRule::new().qps(5));
    assert!(sentinel.reload(rules));
    assert!(!clock.is_armed.load(Ordering::Relaxed), "it was read");
    assert!(clock.was_judged.load(Ordering::Relaxed));
}

#[test]
fn a_jump_ahead_of_any_length_opens_one_window_and_no_more() {
    let jumps = [
        SECOND * 2,
        HOUR,
        HOUR * 24 * 50,
        YEAR,
        YEAR * 10,
        YEAR * 100,
    ];
    for rules in shapes() {
        let clock = ManualClock::starting_at(at(700));
        let sentinel = engine(clock.clone(), rules);
        for jump in jumps {
            assert_eq!(passed(&sentinel), LIMIT, "before {jump:?}");
            assert_eq!(passed(&sentinel), 0);
            clock.advance(jump);
            assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 0);
            assert_eq!(passed(&sentinel), LIMIT, "after {jump:?}");
            clock.advance(SECOND * 2);
        }
    }
}

#[test]
fn at_the_end_of_all_time_nothing_panics_and_the_limit_holds() {
    let end = u64::MAX;
    for rules in shapes() {
        let clock = ManualClock::starting_at(at(700));
        let sentinel = engine(clock.clone(), rules);
        let mut last = 0;
        for back in [3_000_000_000, 1_700_000_000, 600_000_000, 1_000, 1, 0, 0] {
            clock.set(Tick::from_nanos(end - back));
            let vip = Call::new("r").prioritized(true);
            drop(sentinel.try_enter(vip));
            last += passed(&sentinel);
            assert!(sentinel.node("r").unwrap().sum(Event::Pass) <= LIMIT.into());
            if let Verdict::Block(blocked) = sentinel.try_enter(Call::new("r")) {
                assert!(blocked.retry_after().is_some_and(|wait| wait <= SECOND * 2));
            }
        }
        assert!((LIMIT..=3 * LIMIT).contains(&last), "{last}");
        assert_eq!(sentinel.inbound().concurrency(), 0);
        let _ = sentinel.snapshot().to_json();
    }
}

#[test]
fn what_is_used_alone_stands_still_until_the_clock_has_come_back() {
    let (ahead, behind) = (at(3_600_000), at(1_000));
    let window = SlidingWindow::of_seconds(1).unwrap();
    assert!(window.try_add(ahead, 1, 1));
    let limiter = KeyedLimiter::per_second(1).build(behind).unwrap();
    assert!(limiter.try_acquire(ahead, "ann", 1).is_ok());
    for seconds in [0, 60, 3_599] {
        let now = behind + SECOND * seconds;
        assert!(!window.try_add(now, 1, 1), "after {seconds} s");
        assert!(limiter.try_acquire(now, "ann", 1).is_err());
    }
    assert!(window.try_add(ahead + SECOND, 1, 1));
    assert!(limiter.try_acquire(ahead + SECOND, "ann", 1).is_ok());
}

#[test]
fn a_table_of_values_gives_nothing_back_18_years_after_it_was_made() {
    let rule = || HotParamRule::per_second("r", 1);
    let rules: [(Rules, bool); 3] = [
        (rule().into(), false),
        (rule().throttle(SECOND).into(), false),
        (rule().window().into(), true),
    ];
    for (rules, is_endless) in rules {
        for (years, passes) in [(18, true), (19, is_endless)] {
            let clock = ManualClock::starting_at(at(700));
            let sentinel = engine(clock.clone(), rules.clone());
            let call = Call::new("r").param("ann");
            let enter = || matches!(sentinel.try_enter(call), Verdict::Pass(_));
            assert!(enter());
            clock.advance(YEAR * years);
            // What a value has left by then it still has.
            enter();
            clock.advance(SECOND * 100);
            assert_eq!(enter(), passes, "after {years} years: {rules:?}");
        }
    }
}

#[test]
fn after_a_step_back_the_limit_holds_and_time_goes_on_within_two_windows() {
    for step in [
        MS,
        MS * 499,
        MS * 500,
        SECOND,
        MS * 1_001,
        SECOND * 30,
        HOUR * 9,
        HOUR * 10,
    ] {
        for rules in shapes() {
            let start = Tick::ZERO + HOUR * 10;
            let clock = ManualClock::starting_at(start);
            let sentinel = engine(clock.clone(), rules);
            assert_eq!(passed(&sentinel), LIMIT);
            clock.set(Tick::from_nanos(
                (start - (Tick::ZERO + step)).as_nanos() as u64
            ));
            // What passes in each tenth of a second from here on.
            let mut log = Vec::new();
            for _ in 0..80 {
                log.push(passed(&sentinel));
                clock.advance(MS * 100);
            }
            let again = log.iter().position(|&n| n > 0).unwrap();
            assert!(again <= 30, "{step:?}: nothing passed for {again} tenths");
            for second in log.windows(10) {
                assert!(second.iter().sum::<u32>() <= 2 * LIMIT, "{step:?}: {log:?}");
            }
            // And then at the ordinary rate: five in each 1, or 1.1, seconds.
            let passed: u32 = log[30..].iter().sum();
            assert!(
                (4 * LIMIT..=6 * LIMIT).contains(&passed),
                "{step:?}: {log:?}"
            );
        }
    }
}

#[test]
fn a_refusal_after_a_step_back_does_not_send_the_caller_away_for_hours() {
    let clock = ManualClock::starting_at(Tick::ZERO + HOUR * 10);
    let sentinel = engine(clock.clone(), FlowRule::per_second("r", LIMIT));
    assert_eq!(passed(&sentinel), LIMIT);
    for now in [HOUR * 9, MS * 3, SECOND] {
        clock.set(Tick::ZERO + now);
        let Verdict::Block(blocked) = sentinel.try_enter(Call::new("r")) else {
            panic!("the window is full");
        };
        let wait = blocked.retry_after().unwrap();
        assert!(wait <= SECOND * 2, "come back in {wait:?}");
    }
}

/// A clock that lies once when told to.
#[derive(Clone, Debug, Default)]
struct Liar {
    clock: ManualClock,
    /// How far ahead the next reading will be, in ns.
    ahead: Arc<AtomicU64>,
}

impl Liar {
    fn lie_once(&self, by: Duration) {
        self.ahead.store(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Liar {
    fn now(&self) -> Tick {
        self.clock.now() + Duration::from_nanos(self.ahead.swap(0, Ordering::Relaxed))
    }
}

#[test]
fn one_wrong_reading_at_the_start_of_a_call_changes_nothing() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::default();
        liar.clock.set(at(10_200));
        let sentinel = engine(liar.clone(), FlowRule::per_second("r", LIMIT));
        assert_eq!(passed(&sentinel), LIMIT);
        liar.lie_once(by);
        assert_eq!(passed(&sentinel), 0);
        // The window moves on by the clock's true time.
        liar.clock.advance(SECOND);
        assert_eq!(passed(&sentinel), LIMIT);
    }
}

#[test]
fn one_wrong_reading_at_the_start_of_a_call_that_waited_changes_nothing() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::default();
        liar.clock.set(at(10_200));
        let breaker = CircuitBreakerRule::error_count("r", 1).min_calls(1);
        let rules = Rules::new()
            .with(FlowRule::per_second("r", 1))
            .with(breaker.open_for(SECOND * 2));
        let sentinel = engine(liar.clone(), rules);
        let Verdict::Pass(mut failed) = sentinel.try_enter(Call::new("r")) else {
            panic!("the first call passes");
        };
        liar.clock.set(at(10_800));
        let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r").prioritized(true)) else {
            panic!("the first one leaves the window");
        };
        failed.fail();
        drop(failed);
        liar.lie_once(by);
        let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
            panic!("{by:?}: its bucket has not begun");
        };
        liar.clock.set(waiting.start());
        liar.lie_once(by);
        let Err(NotAdmitted::Blocked(blocked)) = waiting.admit() else {
            panic!("{by:?}: the breaker is open for more than a second");
        };
        assert_eq!(blocked.kind(), BlockKind::CircuitBreaker);
    }
}

#[test]
fn one_wrong_reading_at_the_end_of_a_call_costs_no_more_than_three_windows() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::default();
        liar.clock.set(at(10_200));
        let sentinel = engine(liar.clone(), FlowRule::per_second("r", LIMIT));
        let Verdict::Pass(entry) = sentinel.try_enter(Call::new("r")) else {
            panic!("the first call passes");
        };
        liar.lie_once(by);
        drop(entry);
        let mut total = 1;
        for tenth in 0..32 {
            total += passed(&sentinel);
            assert!(
                total <= LIMIT * (2 + tenth / 10),
                "{total} after {tenth} tenths"
            );
            liar.clock.advance(MS * 100);
        }
        assert!(total >= 2 * LIMIT, "only {total} passed");
        assert_eq!(sentinel.node("r").unwrap().concurrency(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_never_sleeps_longer_than_it_was_told() {
    let clock = ManualClock::starting_at(at(700));
    let sentinel = engine(clock.clone(), FlowRule::per_second("r", LIMIT));
    assert_eq!(passed(&sentinel), LIMIT);
    clock.set(at(1_200));
    let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r").prioritized(true)) else {
        panic!("the window is full, and lends");
    };
    clock.set(at(3));
    let before = tokio::time::Instant::now();
    drop(waiting.ready().await.unwrap());
    assert_eq!(before.elapsed(), MS * 300);
}

#[tokio::test(start_paused = true)]
async fn one_wrong_reading_makes_no_call_start_before_its_turn() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::default();
        liar.clock.set(at(700));
        let sentinel = engine(liar.clone(), FlowRule::per_second("r", LIMIT));
        assert_eq!(passed(&sentinel), LIMIT);
        liar.clock.set(at(1_200));
        let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r").prioritized(true)) else {
            panic!("the window is full, and lends");
        };
        liar.lie_once(by);
        let before = tokio::time::Instant::now();
        drop(waiting.ready().await.unwrap());
        assert_eq!(before.elapsed(), MS * 300);
    }
}

#[test]
fn one_wrong_reading_when_a_waiting_call_is_dropped_changes_nothing() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::default();
        liar.clock.set(at(10_700));
        let sentinel = engine(liar.clone(), FlowRule::per_second("r", LIMIT));
        assert_eq!(passed(&sentinel), LIMIT);
        liar.clock.set(at(11_200));
        let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("r").prioritized(true)) else {
            panic!("the window is full, and lends");
        };
        liar.lie_once(by);
        drop(waiting);
        assert_eq!(passed(&sentinel), 0, "{by:?}: the window is full");
        // Its token is there again, and the window moves on by the true time.
        liar.clock.set(at(11_500));
        assert_eq!(passed(&sentinel), LIMIT);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Forward(Duration),
    Back(Duration),
    Set(Tick),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![
        (0_u64..2_000).prop_map(Duration::from_millis),
        (0_u64..100).prop_map(|hours| HOUR * hours as u32),
        (0_u64..3).prop_map(|years| YEAR * years as u32),
    ];
    prop_oneof![
        6 => length.clone().prop_map(Step::Forward),
        3 => length.prop_map(Step::Back),
        1 => (0_u32..10).prop_map(|years| Step::Set(Tick::ZERO + YEAR * years)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_the_clock_goes_the_limit_holds_and_calls_pass_again(
        shape in 0_usize..4,
        steps in proptest::collection::vec((step(), any::<bool>()), 1..40),
    ) {
        let clock = ManualClock::starting_at(at(5_000));
        let sentinel = engine(clock.clone(), shapes()[shape].clone());
        let mut running = Vec::new();
        for (step, is_prioritized) in steps {
            let now = clock.now();
            match step {
                Step::Forward(by) => clock.advance(by),
                Step::Back(by) => clock.set(Tick::from_nanos((now - (Tick::ZERO + by)).as_nanos() as u64)),
                Step::Set(now) => clock.set(now),
            }
            let _ = passed(&sentinel);
            let call = Call::new("r").prioritized(is_prioritized);
            match sentinel.try_enter(call) {
                Verdict::Pass(entry) => running.push(entry),
                Verdict::Wait(waiting) => {
                    prop_assert!(waiting.delay() < MS * 500);
                    running.extend(waiting.admit());
                }
                _ => {}
            }
            if running.len() > 2 {
                running.clear();
            }
            prop_assert!(sentinel.node("r").unwrap().sum(Event::Pass) <= LIMIT.into());
        }
        drop(running);
        let node = sentinel.node("r").unwrap();
        prop_assert_eq!((node.concurrency(), node.waiting(), node.held()), (0, 0, 0));
        // Once the clock behaves, calls pass: at the latest when it has been
        // believed for a window, and what was counted has left.
        let mut total = 0;
        for _ in 0..40 {
            clock.advance(MS * 100);
            total += passed(&sentinel);
        }
        prop_assert!(total >= LIMIT, "{total} in four seconds");
    }
}
