//! Clocks that jump, step back, stop or lie: the limits hold and time goes on.

use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::{Clock, Tick, TokioClock};
use tower_sentinel::keyed::KeyedLimiter;
use tower_sentinel::middleware::CallLayer;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::read::BreakerState;
use tower_sentinel::stat::{Event, SlidingWindow};
use tower_sentinel::{
    BlockKind, Call, CircuitBreakerRule, FlowRule, KeyedRule, ManualClock, NotAdmitted, Rules,
    Sentinel, SentinelLayer, SystemRule, Verdict,
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
    let rule = || KeyedRule::per_second("r", 1);
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
fn after_a_step_back_the_limit_holds_and_time_goes_on_after_a_second() {
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
            // A second, and the window; a strict one is a bucket longer.
            assert!(again <= 21, "{step:?}: nothing passed for {again} tenths");
            for second in log.windows(10) {
                assert!(second.iter().sum::<u32>() <= 2 * LIMIT, "{step:?}: {log:?}");
            }
            // And then at the ordinary rate: five in each 1, or 1.1, seconds.
            let passed: u32 = log[20..].iter().sum();
            assert!(
                (5 * LIMIT..=6 * LIMIT).contains(&passed),
                "{step:?}: {log:?}"
            );
        }
    }
}

#[test]
fn who_meets_a_breaker_after_a_step_back_is_not_sent_away_for_hours() {
    let clock = ManualClock::starting_at(Tick::ZERO + HOUR * 10);
    let breaker = CircuitBreakerRule::consecutive_errors("r", 1).open_for(SECOND * 5);
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1))
        .with(breaker);
    let sentinel = engine(clock.clone(), rules);
    let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("r")) else {
        panic!("the first call passes");
    };
    clock.set(Tick::ZERO + HOUR);
    entry.fail();
    drop(entry);
    let Verdict::Block(blocked) = sentinel.try_enter(Call::new("r")) else {
        panic!("the breaker is open");
    };
    assert_eq!(blocked.kind(), BlockKind::CircuitBreaker);
    assert_eq!(blocked.retry_after(), Some(SECOND * 5));
}

#[test]
fn a_quota_after_a_step_back_does_not_tell_of_hours() {
    let clock = ManualClock::starting_at(Tick::ZERO + HOUR * 10);
    let sentinel = engine(clock.clone(), FlowRule::per_second("/", LIMIT));
    let layer = SentinelLayer::with(sentinel).fields(RateLimitFields::Legacy);
    let reset = || {
        let service = layer.layer(service_fn(|_| {
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        }));
        let request = Request::get("/").body(String::new()).unwrap();
        let response = service.oneshot(request).now_or_never().unwrap().unwrap();
        let reset = response.headers()["x-ratelimit-reset"].to_str().unwrap();
        reset.parse::<u64>().unwrap()
    };
    assert_eq!(reset(), 1);
    clock.set(Tick::ZERO + HOUR);
    assert_eq!(reset(), 1);
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
    /// How far ahead the next reading will be, in ns, wrapping.
    ahead: Arc<AtomicU64>,
}

impl Liar {
    fn at(now: Tick) -> Self {
        let liar = Self::default();
        liar.clock.set(now);
        liar
    }

    fn lie_once(&self, by: Duration) {
        self.ahead.store(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The next reading is the clock's first one.
    fn start_once(&self) {
        let behind = self.clock.now().as_nanos();
        self.ahead.store(behind.wrapping_neg(), Ordering::Relaxed);
    }
}

impl Clock for Liar {
    fn now(&self) -> Tick {
        let ahead = self.ahead.swap(0, Ordering::Relaxed);
        Tick::from_nanos(self.clock.now().as_nanos().wrapping_add(ahead))
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
fn one_wrong_reading_at_the_end_of_a_call_changes_nothing() {
    // For a table of values time ends 18 years after it was made.
    for by in [SECOND * 2, HOUR, YEAR, YEAR * 20, YEAR * 580] {
        let liar = Liar::at(at(10_200));
        let rules = Rules::new()
            .with(FlowRule::per_second("r", LIMIT))
            .with(SystemRule::new().qps(3 * LIMIT))
            .with(KeyedRule::per_second("r", LIMIT))
            .with(FlowRule::per("other", 1, HOUR));
        let sentinel = engine(liar.clone(), rules);
        let spend = |name, value| {
            let call = Call::new(name).param(value);
            let passes = |_: &u32| matches!(sentinel.try_enter(call), Verdict::Pass(_));
            (0..10).filter(passes).count() as u32
        };
        assert_eq!(spend("other", "ann"), 1);
        for name in ["once", "r"] {
            let Verdict::Pass(entry) = sentinel.try_enter(Call::new(name).param("ann")) else {
                panic!("the first call passes");
            };
            liar.lie_once(by);
            drop(entry);
        }
        assert_eq!(spend("r", "ann"), LIMIT - 1, "{by:?}");
        for second in 0..5 {
            liar.clock.advance(SECOND);
            assert_eq!(spend("r", "ann"), LIMIT, "{by:?}: {second}");
            assert_eq!(spend("other", "ann"), 0, "{by:?}: {second}");
        }
        let node = sentinel.node("r").unwrap();
        assert!(node.average_rt() == Some(Duration::ZERO), "{by:?}");
        assert_eq!(node.concurrency(), 0);
    }
}

#[test]
fn one_wrong_reading_behind_at_the_end_of_a_call_opens_no_breaker_for_less() {
    let liar = Liar::at(Tick::ZERO + HOUR);
    let breaker = CircuitBreakerRule::consecutive_errors("r", 1).open_for(SECOND * 5);
    let sentinel = engine(liar.clone(), breaker);
    let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("r")) else {
        panic!("the first call passes");
    };
    entry.fail();
    liar.clock.advance(MS);
    liar.start_once();
    drop(entry);
    assert_eq!(passed(&sentinel), 0);
    let node = sentinel.node("r").unwrap();
    assert_eq!(node.average_rt(), Some(MS));
}

#[test]
fn one_wrong_reading_when_a_response_is_there_changes_nothing() {
    for by in [SECOND * 2, HOUR, YEAR] {
        let liar = Liar::at(at(10_200));
        // Two errors of one second open it.
        let breaker = CircuitBreakerRule::error_count("r", 2).interval(SECOND);
        let sentinel = engine(liar.clone(), breaker);
        let layer = CallLayer::with(sentinel.clone(), |_: &()| Call::new("r"));
        let fail = |is_wrong: bool| {
            let liar = liar.clone();
            let service = layer.layer(service_fn(move |()| {
                if is_wrong {
                    liar.lie_once(by);
                }
                ready(Err::<(), _>("it failed"))
            }));
            assert!(service.oneshot(()).now_or_never().is_some());
        };
        fail(true);
        for _ in 0..5 {
            liar.clock.advance(SECOND * 60);
            fail(false);
            let state = sentinel.node("r").unwrap().breakers()[0].state();
            assert_eq!(state, BreakerState::Closed, "{by:?}");
        }
    }
}

/// By how much single readings are wrong.
const WRONG: [Duration; 4] = [
    MS.saturating_mul(2_001),
    HOUR,
    YEAR,
    YEAR.saturating_mul(500),
];

#[test]
fn one_wrong_reading_by_which_a_resource_is_made_changes_nothing() {
    for by in WRONG {
        let liar = Liar::at(at(10_200));
        let rules = Rules::new()
            .with(FlowRule::per_second("r", LIMIT))
            .with(FlowRule::per("other", 1, YEAR));
        let sentinel = engine(liar.clone(), rules);
        let other = || matches!(sentinel.try_enter(Call::new("other")), Verdict::Pass(_));
        assert!(other());
        liar.lie_once(by);
        for second in 0..5 {
            assert_eq!(passed(&sentinel), LIMIT, "{by:?}: {second}");
            assert!(!other(), "{by:?}: {second}");
            liar.clock.advance(SECOND);
        }
    }
}

#[test]
fn one_wrong_reading_by_which_a_table_is_made_changes_nothing() {
    let rule = || KeyedRule::per_second("r", 1);
    for rule in [rule(), rule().throttle(Duration::ZERO)] {
        // Longer ago than a table reckons.
        for is_first in [true, false] {
            let liar = Liar::at(Tick::ZERO + YEAR * 30);
            let (enter, sentinel);
            if is_first {
                sentinel = engine(liar.clone(), rule.clone());
            } else {
                sentinel = engine(liar.clone(), FlowRule::per_second("r", 100));
                drop(sentinel.try_enter(Call::new("r")));
                assert!(sentinel.reload(rule.clone().into()));
            }
            enter = || {
                matches!(
                    sentinel.try_enter(Call::new("r").param("ann")),
                    Verdict::Pass(_)
                )
            };
            if is_first {
                liar.start_once();
            } else {
                liar.lie_once(YEAR);
            }
            for second in 0..3 {
                assert!(enter() && !enter(), "{rule:?} {is_first}: {second}");
                liar.clock.advance(SECOND);
            }
        }
    }
}

#[test]
fn one_wrong_reading_at_the_first_call_to_a_name_forgets_no_other() {
    for by in WRONG {
        let liar = Liar::at(at(10_200));
        let builder = Sentinel::builder().rules(FlowRule::per("*", 1, HOUR));
        let sentinel = builder.max_resources(2).clock(liar.clone()).build();
        let enter = |name| matches!(sentinel.try_enter(Call::new(name)), Verdict::Pass(_));
        assert!(enter("a") && enter("b"));
        liar.lie_once(by);
        enter("c");
        assert!(!enter("a") && !enter("b"), "{by:?}");
        assert_eq!(sentinel.snapshot().evicted(), 0);
    }
}

#[test]
fn one_wrong_reading_by_which_all_calls_are_counted_together_changes_nothing() {
    for by in WRONG {
        for is_first in [true, false] {
            let liar = Liar::at(at(10_200));
            let rule = SystemRule::new().qps(LIMIT);
            let sentinel;
            if is_first {
                liar.lie_once(by);
                sentinel = engine(liar.clone(), rule);
            } else {
                sentinel = engine(liar.clone(), Rules::new());
                liar.lie_once(by);
                assert!(sentinel.reload(rule.into()));
            }
            for second in 0..5 {
                assert_eq!(passed(&sentinel), LIMIT, "{by:?} {is_first}: {second}");
                liar.clock.advance(SECOND);
            }
        }
    }
}

#[test]
fn one_wrong_reading_of_figures_changes_nothing() {
    type Look = fn(&Sentinel) -> u64;
    let looks: [Look; 6] = [
        |sentinel| sentinel.node("r").unwrap().sum(Event::Pass),
        |sentinel| sentinel.snapshot().totals().pass(),
        |sentinel| sentinel.inbound().sum(Event::Pass),
        |sentinel| sentinel.inbound().totals().pass(),
        |sentinel| sentinel.entrance("web").sum(Event::Pass),
        |sentinel| sentinel.shadows()[0].would_block(),
    ];
    for (index, look) in looks.iter().enumerate() {
        let liar = Liar::at(at(10_200));
        let rule = || FlowRule::per("r", LIMIT, HOUR);
        let rules = Rules::new()
            .with(rule())
            .with(rule().shadow())
            .with(rule().in_context("web"));
        let sentinel = engine(liar.clone(), rules);
        let passed = || {
            let call = Call::new("r").context("web");
            let passes = |_: &u32| matches!(sentinel.try_enter(call), Verdict::Pass(_));
            (0..10).filter(passes).count() as u32
        };
        assert_eq!(passed(), LIMIT);
        // The view reads the clock as well when it is found.
        for _ in 0..2 {
            liar.lie_once(YEAR);
            look(&sentinel);
        }
        for tenth in 0..30 {
            assert_eq!(passed(), 0, "{index}: after {tenth} tenths");
            liar.clock.advance(MS * 100);
        }
    }
}

#[test]
fn after_a_step_back_figures_go_on_though_nobody_calls() {
    type Look = fn(&Sentinel) -> u64;
    let looks: [Look; 4] = [
        |sentinel| sentinel.node("r").unwrap().sum(Event::Pass),
        |sentinel| sentinel.snapshot().nodes()[0].window().pass(),
        |sentinel| sentinel.inbound().sum(Event::Pass),
        |sentinel| sentinel.entrance("web").sum(Event::Pass),
    ];
    for (index, look) in looks.iter().enumerate() {
        let clock = ManualClock::starting_at(Tick::ZERO + HOUR * 10);
        let builder = Sentinel::builder().contexts(true).clock(clock.clone());
        let sentinel = builder.build();
        drop(sentinel.try_enter(Call::new("r").context("web")));
        clock.set(Tick::ZERO + HOUR);
        assert_eq!(look(&sentinel), 1, "{index}: time stands still");
        clock.advance(SECOND);
        look(&sentinel);
        clock.advance(SECOND);
        assert_eq!(look(&sentinel), 0, "{index}");
    }
}

#[test]
fn after_a_step_back_calls_of_other_resources_refuse_nobody_for_long() {
    let when = FlowRule::per_second("r", LIMIT).when("other");
    for rules in [Rules::from(SystemRule::new().qps(LIMIT)), when.into()] {
        for is_known in [true, false] {
            let clock = ManualClock::starting_at(Tick::ZERO + HOUR);
            let sentinel = engine(clock.clone(), rules.clone());
            if is_known {
                drop(sentinel.try_enter(Call::new("r")));
            }
            clock.set(Tick::ZERO + HOUR * 10);
            for _ in 0..LIMIT {
                drop(sentinel.try_enter(Call::new("other")));
            }
            // The resource has never seen a later time than this.
            clock.set(Tick::ZERO + HOUR * 2);
            for more in [MS * 999, MS] {
                let Verdict::Block(blocked) = sentinel.try_enter(Call::new("r")) else {
                    panic!("{rules:?} {is_known}: time stands still");
                };
                let wait = blocked.retry_after().unwrap_or_default();
                assert!(wait <= SECOND, "come back in {wait:?}");
                clock.advance(more);
            }
            assert!(passed(&sentinel) > 0, "{rules:?} {is_known}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_does_not_wait_for_a_clock_that_has_stepped_back() {
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

/// A clock at so many thousandths of the speed of tokio's.
#[derive(Clone, Debug)]
struct Drifting {
    thousandths: u32,
    tokio: TokioClock,
    /// What tokio's said when this one was set, and to what that was.
    since: ManualClock,
    then: ManualClock,
}

impl Drifting {
    fn new(thousandths: u32) -> Self {
        Self {
            thousandths,
            tokio: TokioClock::new(),
            since: ManualClock::new(),
            then: ManualClock::new(),
        }
    }

    fn set(&self, tick: Tick) {
        self.since.set(self.tokio.now());
        self.then.set(tick);
    }
}

impl Clock for Drifting {
    fn now(&self) -> Tick {
        let passed = self.tokio.now() - self.since.now();
        self.then.now() + passed * self.thousandths / 1_000
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_starts_at_its_turn_by_a_clock_that_drifts() {
    // Speed, by which the call waits until 2000 ms, and how long it sleeps for that.
    let cases = [
        (2_000, 300),
        (1_001, 300),
        (999, 301),
        (900, 334),
        (500, 600),
        // Not waited for, as it may stand still.
        (499, 300),
        (0, 300),
    ];
    for (thousandths, sleeps) in cases {
        for has_layer in [false, true] {
            let clock = Drifting::new(thousandths);
            clock.set(at(1_200));
            let sentinel = engine(clock.clone(), FlowRule::per_second("r", LIMIT));
            assert_eq!(passed(&sentinel), LIMIT);
            clock.set(at(1_700));
            let call = Call::new("r").prioritized(true);
            let before = tokio::time::Instant::now();
            if has_layer {
                let layer = CallLayer::with(sentinel.clone(), move |()| call);
                let service = service_fn(|()| ready(Ok::<_, Infallible>(())));
                layer.layer(service).oneshot(()).await.unwrap();
            } else {
                drop(sentinel.enter(call).await.unwrap());
            }
            assert_eq!(before.elapsed(), MS * sleeps, "{thousandths} {has_layer}");
            let is_there = clock.now() >= at(2_000);
            assert_eq!(is_there, thousandths >= 500);

            // One that starts before its bucket passes when that begins.
            let node = sentinel.node("r").unwrap();
            let borrowed = u64::from(is_there);
            assert_eq!(node.totals().pass(), u64::from(LIMIT) + borrowed);
            clock.set(at(2_000));
            assert_eq!(node.totals().pass(), u64::from(LIMIT) + 1);
            assert_eq!((node.waiting(), node.concurrency()), (0, 0));
            assert_eq!(passed(&sentinel), LIMIT - 1);
        }
    }
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
