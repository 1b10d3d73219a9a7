//! Quotas of days and months of the calendar, over several engines of one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::store::{Fault, MemoryStore, StoreErrorKind, StoreHandle, StoreSettings};
use tower_sentinel::{BlockKind, Call, Clock, FlowRule, KeyedRule, Rules, Sentinel};

use super::{SECOND, ms};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// 2027-12-31 18:00 by UTC, the day before a leap year.
const BEGIN: Duration = Duration::from_secs(1_830_276_000);
/// What the clock of a [`MemoryStore`] shows when it is made.
const STORE_BEGIN: Duration = Duration::from_secs(1_700_000_000);

/// A clock with a date, which jumps: a month of beats would take too long.
#[derive(Clone, Debug)]
struct Dated {
    clock: TokioClock,
    jumped_ms: Arc<AtomicU64>,
    epoch: Duration,
}

impl Clock for Dated {
    fn now(&self) -> Tick {
        self.clock.now() + ms(self.jumped_ms.load(Ordering::Relaxed))
    }

    fn epoch(&self) -> Duration {
        self.epoch
    }
}

/// Two engines over one store, at [`BEGIN`].
struct Pair {
    store: MemoryStore,
    clock: Dated,
    start: Tick,
    engines: [(Sentinel, StoreHandle); 2],
}

impl Pair {
    async fn new(rules: impl Into<Rules>) -> Self {
        Self::with(rules, Duration::ZERO).await
    }

    /// Engines whose clocks are so much ahead of the store's.
    async fn with(rules: impl Into<Rules>, ahead: Duration) -> Self {
        let (rules, tokio_clock) = (rules.into(), TokioClock::new());
        let start = tokio_clock.now();
        let since = start - Tick::ZERO;
        let clock = Dated {
            clock: tokio_clock,
            jumped_ms: Arc::default(),
            epoch: BEGIN + ahead - since,
        };
        let store = MemoryStore::with_clock(clock.clone());
        store.step_ahead(BEGIN - STORE_BEGIN - since);
        let engines = [(); 2].map(|()| {
            let sentinel = Sentinel::builder()
                .rules(rules.clone())
                .clock(clock.clone())
                .store(store.clone())
                .store_settings(StoreSettings::new().nodes(2))
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle)
        });
        let pair = Self {
            store,
            clock,
            start,
            engines,
        };
        pair.until(ms(500)).await;
        pair
    }

    /// The time since [`BEGIN`] by the store.
    fn since(&self) -> Duration {
        self.clock.now() - self.start
    }

    /// Until so long after [`BEGIN`]: a jump, and the last second or less with all its beats.
    async fn until(&self, since: Duration) {
        let left = since - self.since();
        let jump = left.saturating_sub(SECOND).as_millis() as u64;
        self.clock.jumped_ms.fetch_add(jump, Ordering::Relaxed);
        tokio::time::sleep(left - ms(jump)).await;
    }

    fn engine(&self, index: usize) -> &Sentinel {
        &self.engines[index].0
    }

    /// How many of 60 calls pass, on each engine in turn.
    async fn passed(&self, call: Call<'_>) -> usize {
        let mut passed = 0;
        for index in 0..60 {
            let engine = self.engine(index % 2);
            passed += usize::from(engine.enter(call).await.is_ok());
        }
        passed
    }
}

fn month(limit: u32) -> KeyedRule {
    KeyedRule::per_calendar_month("r", limit).shared()
}

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

/// The last hours of 2027, and then the lengths of all months of a leap year.
fn lengths() -> Vec<Duration> {
    let days = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut lengths = vec![HOUR * 6];
    lengths.extend(days.map(|days| DAY * days));
    lengths
}

/// Checks that `engine` refuses `call` a second before the end of a period of this length, in which
/// five calls may pass.
async fn refused_for_a_second(
    engine: &Sentinel,
    call: Call<'_>,
    kind: BlockKind,
    length: Duration,
) {
    let blocked = engine.enter(call).await.unwrap_err();
    assert_eq!((blocked.kind(), blocked.rule()), (kind, "quota"));
    let after = blocked.retry_after().unwrap();
    assert!(after >= SECOND && after < SECOND + ms(1), "{after:?}");
    // The hours of the first period are the end of a whole month.
    let whole = if length < DAY { DAY * 31 } else { length };
    let limit = (blocked.limit(), blocked.interval());
    assert_eq!(limit, (Some(5), Some(whole)));
    let never = engine.enter(call.batch(6)).await.unwrap_err();
    assert_eq!(never.retry_after(), None);
}

#[tokio::test(start_paused = true)]
async fn each_value_has_one_quota_in_each_month_over_all_engines() {
    for rule in [month(5), month(5).exact()] {
        let pair = Pair::new(rule.tier("pro", 9).except("z", 1).id("quota")).await;
        let mut end = Duration::ZERO;
        for length in lengths() {
            end += length;
            assert_eq!(pair.passed(by("x")).await, 5);
            assert_eq!(pair.passed(by("y").tier("pro")).await, 9);
            pair.until(end - SECOND).await;
            assert_eq!(pair.passed(by("x")).await, 0);
            assert_eq!(pair.passed(by("y").tier("pro")).await, 0);
            assert_eq!(pair.passed(by("z")).await, 1);
            for (engine, _) in &pair.engines {
                refused_for_a_second(engine, by("x"), BlockKind::Keyed, length).await;
                let view = &engine.node("r").unwrap().shared_keyed_rules()[0];
                assert_eq!((view.limit("x"), view.left("x")), (Some(5), Some(0)));
            }
            pair.until(end + ms(1)).await;
            let view = &pair.engine(0).node("r").unwrap().shared_keyed_rules()[0];
            assert_eq!(view.left("x"), Some(5));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_callers_have_one_quota_in_each_month_over_all_engines() {
    let month = || FlowRule::per_calendar_month("r", 5).shared().id("quota");
    for rule in [month(), month().exact(), month().by_origin()] {
        let pair = Pair::new(rule).await;
        let from = |origin| Call::new("r").origin(origin);
        let mut end = Duration::ZERO;
        for length in lengths() {
            end += length;
            assert_eq!(pair.passed(from("a")).await, 5);
            pair.until(end - SECOND).await;
            assert_eq!(pair.passed(from("a")).await, 0);
            for (engine, _) in &pair.engines {
                refused_for_a_second(engine, from("a"), BlockKind::Flow, length).await;
            }
            pair.until(end + ms(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_all_callers_is_one_over_all_engines_until_midnight() {
    let rule = FlowRule::per_calendar_day("r", 1_000).cost("tokens");
    let pair = Pair::new(rule.shared()).await;
    let reserve = |n| Call::new("r").reserve("tokens", n);
    let mut first = pair.engine(0).enter(reserve(600)).await.unwrap();
    assert!(pair.engine(1).enter(reserve(600)).await.is_err());
    first.settle("tokens", 100);
    drop(first);
    pair.until(SECOND * 2).await;
    let mut second = pair.engine(1).enter(reserve(900)).await.unwrap();
    second.settle("tokens", 900);
    drop(second);
    let refused = pair.engine(0).enter(reserve(1)).await.unwrap_err();
    assert_eq!(refused.kind(), BlockKind::Flow);
    pair.until(HOUR * 6 - SECOND).await;
    assert!(pair.engine(0).enter(reserve(1)).await.is_err());
    pair.until(HOUR * 6 + ms(1)).await;
    assert!(pair.engine(0).enter(reserve(1_000)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_day_begins_by_the_offset_that_is_given() {
    for (minutes, left) in [
        (0, HOUR * 6),
        (60, HOUR * 5),
        (-300, HOUR * 11),
        (330, HOUR / 2),
        (-1_080, HOUR * 24),
    ] {
        let rule = KeyedRule::per_calendar_day("r", 2).utc_offset(minutes);
        let pair = Pair::new(rule.shared()).await;
        assert_eq!(pair.passed(by("x")).await, 2);
        pair.until(left - ms(2)).await;
        assert_eq!(pair.passed(by("x")).await, 0, "{minutes}");
        pair.until(left + ms(2)).await;
        assert_eq!(pair.passed(by("x")).await, 2, "{minutes}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_month_is_over_where_calls_come_all_the_time_around_its_end() {
    for trip in [0, 1, 20] {
        let pair = Pair::new(month(1_000)).await;
        pair.store.set_fault(Some(Fault::SlowAnswer(ms(trip))));
        let end = HOUR * 6;
        pair.until(end - SECOND * 2).await;
        let mut passed = [0; 2];
        let mut calls = 0;
        while pair.since() < end + SECOND * 2 {
            let is_before = pair.since() < end;
            calls += 1;
            let has_passed = pair.engine(calls % 2).enter(by("x")).await.is_ok();
            if has_passed && is_before == (pair.since() < end) {
                passed[usize::from(!is_before)] += 1;
            }
            tokio::time::sleep(ms(3)).await;
        }
        assert!(
            passed[0] > 50 && passed[1] > 50,
            "{passed:?} with {trip} ms"
        );
        // What is left of the new one, and no more.
        let mut all = passed[1];
        for index in 0..2_000 {
            all += usize::from(pair.engine(index % 2).enter(by("x")).await.is_ok());
        }
        assert!((990..=1_000).contains(&all), "{all} with {trip} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_date_is_that_of_the_store_wherever_the_clocks_of_the_engines_are() {
    for ahead in [Duration::ZERO, SECOND * 5, HOUR * 7, DAY * 40] {
        let pair = Pair::with(KeyedRule::per_calendar_day("r", 4).shared(), ahead).await;
        // No draw is made before the store has told the date.
        assert_eq!(pair.passed(by("x")).await, 4, "{ahead:?}");
        assert_eq!(pair.passed(by("y")).await, 4, "{ahead:?}");
        let blocked = pair.engine(1).enter(by("x")).await.unwrap_err();
        let after = blocked.retry_after().unwrap();
        assert!(after > HOUR * 5 && after <= HOUR * 6, "{after:?}");
        pair.until(HOUR * 6 + ms(1)).await;
        assert_eq!(pair.passed(by("x")).await, 4, "{ahead:?}");
        assert_eq!(pair.passed(by("y")).await, 4, "{ahead:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_goes_back_over_midnight_goes_on_with_the_old_day() {
    let pair = Pair::new(KeyedRule::per_calendar_day("r", 5).shared()).await;
    assert_eq!(pair.passed(by("x")).await, 5);
    pair.until(HOUR * 6 + SECOND).await;
    assert_eq!(pair.passed(by("y")).await, 5);
    pair.store.step_back(HOUR);
    // Who asks learns that it is the day before, of which nothing is left for one of them.
    assert_eq!(pair.passed(by("x")).await, 0);
    assert_eq!(pair.passed(by("z")).await, 5);
    pair.until(HOUR * 7 + SECOND * 2).await;
    // One draw of each engine was of the day that had begun before.
    assert_eq!(pair.passed(by("x")).await, 3);
    assert_eq!(pair.passed(by("y")).await, 0);
    assert_eq!(pair.passed(by("z")).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_a_month_is_one_over_all_engines() {
    let rule = month(1 << 30).cost("tokens").tier("free", 1_000);
    let pair = Pair::new(rule).await;
    let [one, two] = [pair.engine(0), pair.engine(1)];
    let reserve = |user, n| by(user).tier("free").reserve("tokens", n);
    let mut first = one.enter(reserve("x", 600)).await.unwrap();
    let refused = two.enter(reserve("x", 600)).await.unwrap_err();
    assert_eq!(refused.limit(), Some(1_000));
    first.settle("tokens", 100);
    tokio::time::sleep(ms(200)).await;
    let mut second = two.enter(reserve("x", 900)).await.unwrap();
    assert!(one.enter(reserve("x", 1)).await.is_err());
    // Of the last day of the month; its excess is of the month in which it is told.
    pair.until(HOUR * 6 + SECOND).await;
    let third = one.enter(reserve("x", 1_000)).await.unwrap();
    second.settle("tokens", 1);
    tokio::time::sleep(ms(200)).await;
    assert!(two.enter(reserve("x", 1)).await.is_err());
    drop(third);
    let mut over = two.enter(reserve("y", 10)).await.unwrap();
    over.settle("tokens", 510);
    tokio::time::sleep(ms(200)).await;
    assert!(one.enter(reserve("y", 491)).await.is_err());
    assert!(one.enter(reserve("y", 490)).await.is_ok());
    // A lease holds no more than this, whatever the limit is.
    let most = by("z").reserve("tokens", 1_048_574);
    let too_much = by("z").reserve("tokens", 1_048_575);
    for _ in 0..3 {
        assert!(one.enter(most).await.is_ok() && two.enter(most).await.is_ok());
    }
    let refused = one.enter(too_much).await.unwrap_err();
    assert_eq!(refused.retry_after(), None);
}

#[tokio::test(start_paused = true)]
async fn a_value_is_reset_in_its_month_over_all_engines() {
    for ahead in [Duration::ZERO, DAY * 40] {
        let pair = Pair::with(month(5), ahead).await;
        for end in [HOUR * 6, HOUR * 6 + DAY * 31] {
            for value in ["x", "y"] {
                assert_eq!(pair.passed(by(value)).await, 5);
            }
            let view = &pair.engine(0).node("r").unwrap().shared_keyed_rules()[0];
            assert_eq!(view.reset("x").await, Ok(true));
            tokio::time::sleep(ms(260)).await;
            assert_eq!(pair.passed(by("x")).await, 5);
            assert_eq!(pair.passed(by("y")).await, 0);
            assert_eq!(view.reset("z").await, Ok(false));
            pair.until(end + ms(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_each_engine_has_its_share_of_the_month() {
    let pair = Pair::new(month(10)).await;
    assert_eq!(pair.passed(by("x")).await, 10);
    pair.store
        .set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(SECOND).await;
    assert_eq!(pair.passed(by("x")).await, 0);
    assert_eq!(pair.passed(by("y")).await, 10);
    let mut end = HOUR * 6;
    for days in [31, 29] {
        pair.until(end - SECOND).await;
        assert_eq!(pair.passed(by("y")).await, 0);
        pair.until(end + SECOND).await;
        assert_eq!(pair.passed(by("x")).await, 10);
        assert_eq!(pair.passed(by("y")).await, 10);
        end += DAY * days;
    }
    // The store learns what they have taken in the present month.
    pair.store.set_fault(None);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(pair.passed(by("y")).await, 0);
    assert_eq!(pair.passed(by("z")).await, 10);
    // And so it does when it has lost its data.
    pair.store.flush();
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(pair.passed(by("z")).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_month_leaves_the_store_when_it_is_over() {
    let pair = Pair::new(month(5)).await;
    assert_eq!(pair.passed(by("x")).await, 5);
    assert_eq!(pair.store.keys(), 1);
    // Each month has a counter, which is kept for a day after it.
    pair.until(HOUR * 6 + SECOND).await;
    assert_eq!(pair.passed(by("x")).await, 5);
    assert_eq!(pair.store.keys(), 2);
    pair.until(HOUR * 6 + DAY + SECOND).await;
    for number in 0..200 {
        let key = number.to_string();
        drop(pair.engine(0).enter(by(&key)).await);
    }
    // Expired ones go when others come.
    assert!(pair.store.keys() <= 201, "{}", pair.store.keys());
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_the_next_day_and_other_calendars_count_apart() {
    let rules = [
        month(5).id("q"),
        month(5).utc_offset(60).id("q"),
        KeyedRule::per_calendar_day("r", 5).shared().id("q"),
    ];
    let pair = Pair::new(rules[0].clone()).await;
    for rule in rules {
        pair.engine(0).reload(Rules::new().with(rule));
        let mut passed = 0;
        for _ in 0..9 {
            passed += u32::from(pair.engine(0).enter(by("x")).await.is_ok());
        }
        assert_eq!(passed, 5);
        let prioritized = by("x").prioritized(true);
        assert!(pair.engine(0).enter(prioritized).await.is_err());
    }
}
