//! Flow rules: what passes in which window, and when a refused call may come
//! back.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::clock::Tick;
use tower_sentinel::stat::{Event, LeapArray, SlidingWindow};
use tower_sentinel::{
    BlockKind, Blocked, Call, CircuitBreakerRule, FlowRule, InvalidSetting, KeyedRule, MissingKey,
    Rules, Sentinel, Verdict,
};

use crate::support::{Rng, at, engine, enter};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The refusal of a call that ends at once if it passes.
fn refusal(sentinel: &Sentinel, call: Call<'_>) -> Option<Blocked> {
    enter(sentinel, call).err()
}

fn passes(sentinel: &Sentinel, call: Call<'_>) -> bool {
    refusal(sentinel, call).is_none()
}

/// How many of `n` calls to "r" pass.
fn passed(sentinel: &Sentinel, n: u32) -> usize {
    (0..n).filter(|_| passes(sentinel, Call::new("r"))).count()
}

/// How many of five calls by `origin` pass.
fn passed_by(sentinel: &Sentinel, origin: &str) -> usize {
    let call = Call::new("r").origin(origin);
    (0..5).filter(|_| passes(sentinel, call)).count()
}

// === windows ===

#[test]
fn a_fixed_window_lets_a_double_burst_pass_and_two_buckets_do_not() {
    let (one, clock) = engine(FlowRule::per_second("r", 10_000).buckets(1));
    clock.set(at(900));
    assert_eq!(passed(&one, 10_000), 10_000);
    clock.set(at(1_100));
    assert_eq!(passed(&one, 10_000), 10_000);

    let (two, clock) = engine(FlowRule::per_second("r", 10_000));
    clock.set(at(900));
    assert_eq!(passed(&two, 10_001), 10_000);
    clock.set(at(1_100));
    assert_eq!(passed(&two, 10_000), 0);
    clock.set(at(1_499));
    assert_eq!(passed(&two, 10_000), 0);
    clock.set(at(1_500));
    assert_eq!(passed(&two, 10_000), 10_000);
}

#[test]
fn ten_slices_see_the_burst_that_two_fixed_windows_hide() -> Result<(), InvalidSetting> {
    // 60 calls in [10, 20), 80 in [20, 30), and 110 of them in [16, 26).
    let arrivals = [(13, 10), (18, 50), (23, 60), (28, 20)];
    let (fixed, sliding) = (
        SlidingWindow::new(Duration::from_secs(10), 1)?,
        SlidingWindow::of_seconds(10)?,
    );
    let (rule, clock) = engine(FlowRule::per("r", 100, SECOND * 10).buckets(10));
    let mut admitted = Vec::new();
    for (second, n) in arrivals {
        let now = at(second * 1_000);
        assert!(fixed.add_and_sum(now, n) <= 100);
        let sum = sliding.add_and_sum(now, n);
        assert_eq!(sum > 100, second == 23, "{sum} at {second}");
        if second == 23 {
            assert_eq!(sliding.sum(at(25_999)), 110);
        }
        clock.set(now);
        admitted.push(passed(&rule, n));
    }
    // At 23 the ten of 13 have left, and at 28 the fifty of 18.
    assert_eq!(admitted, [10, 50, 50, 20]);
    Ok(())
}

#[test]
fn the_window_is_full_until_its_oldest_bucket_leaves() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    clock.set(at(700));
    assert_eq!(passed(&sentinel, 11), 10);
    clock.set(at(1_200));
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 10);
    assert_eq!(passed(&sentinel, 1), 0);
    clock.set(at(1_500));
    assert_eq!(passed(&sentinel, 1), 1);

    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    clock.set(at(700));
    assert_eq!(passed(&sentinel, 7), 7);
    clock.set(at(1_200));
    assert_eq!(passed(&sentinel, 10), 3);
    clock.set(at(1_500));
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 3);
    assert_eq!(passed(&sentinel, 10), 7);
}

#[test]
fn more_buckets_free_places_sooner() {
    // Filled at 999 ms, the window is free when the bucket of 999 leaves it.
    for (buckets, free) in [
        (1, 1_000),
        (2, 1_500),
        (4, 1_750),
        (10, 1_900),
        (1_000, 1_999),
    ] {
        let (sentinel, clock) = engine(FlowRule::per_second("r", 10).buckets(buckets));
        clock.set(at(999));
        assert_eq!(passed(&sentinel, 11), 10, "{buckets} buckets");
        clock.set(Tick::from_nanos(at(free).as_nanos() - 1));
        assert_eq!(passed(&sentinel, 1), 0, "{buckets} buckets");
        clock.set(at(free));
        assert_eq!(passed(&sentinel, 11), 10, "{buckets} buckets");
    }
}

#[test]
fn a_threshold_counts_calls_per_interval_of_any_length() {
    let hour = MINUTE * 60;
    for interval in [
        Duration::from_millis(2),
        SECOND * 3,
        MINUTE,
        hour * 24 * 366,
    ] {
        let (sentinel, clock) = engine(FlowRule::per("r", 5, interval));
        assert_eq!(passed(&sentinel, 6), 5, "{interval:?}");
        clock.advance(interval - Duration::from_nanos(1));
        assert_eq!(passed(&sentinel, 1), 0, "{interval:?}");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(passed(&sentinel, 6), 5, "{interval:?}");
    }
}

#[test]
fn of_a_threshold_only_the_whole_part_matters() {
    for (threshold, whole) in [(0.0, 0), (1.0, 1), (2.9, 2), (1e3, 1_000)] {
        let (sentinel, _clock) = engine(FlowRule::per_second("r", threshold));
        assert_eq!(passed(&sentinel, 1_001), whole, "{threshold}");
    }
}

#[test]
fn a_threshold_of_zero_refuses_for_ever_and_says_so() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 0).id("closed"));
    for _ in 0..5 {
        let blocked = refusal(&sentinel, Call::new("r")).unwrap();
        assert_eq!(
            (blocked.kind(), blocked.rule(), blocked.limit()),
            (BlockKind::Flow, "closed", Some(0))
        );
        assert_eq!(blocked.retry_after(), None);
        clock.advance(MINUTE);
    }
}

#[test]
fn every_window_of_a_resource_is_kept_exactly() {
    // The day has a ring of its own, which is asked first; the second and the
    // minute share one.
    let limits = [(43_200_000, 2, 230_u32), (500, 2, 10), (30_000, 2, 100)];
    let [day, second, minute] = limits.map(|(bucket_ms, buckets, limit)| {
        FlowRule::per("r", limit, Duration::from_millis(bucket_ms * buckets))
    });
    let (sentinel, clock) = engine(Rules::new().with(day).with(second).with(minute));
    let mut log = Vec::new();
    let mut refused_by = [0; 3];
    for now in (0..240_000).step_by(50) {
        clock.set(at(now));
        let full = limits.iter().position(|&(bucket, buckets, limit)| {
            let start = (now / bucket + 1).saturating_sub(buckets) * bucket;
            log.iter().filter(|&&then| then >= start).count() >= limit as usize
        });
        match (refusal(&sentinel, Call::new("r")), full) {
            (None, None) => log.push(now),
            (Some(blocked), Some(index)) => {
                assert_eq!(blocked.limit(), Some(limits[index].2), "at {now}");
                refused_by[index] += 1;
            }
            (ours, theirs) => panic!("{ours:?} instead of {theirs:?} at {now}"),
        }
    }
    assert_eq!(log.len(), 230);
    assert!(refused_by.iter().all(|&n| n > 100), "{refused_by:?}");
}

// === strict ===

/// The most admissions in any interval of `length`, wherever it begins.
fn fullest(log: &[u64], length: u64) -> usize {
    let within = |start| {
        log.iter()
            .filter(|&&t| t >= start && t - start < length)
            .count()
    };
    log.iter().map(|&t| within(t)).max().unwrap_or(0)
}

/// When the calls that arrive at `arrivals` (in ns) pass.
fn admissions(rule: FlowRule, arrivals: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let (sentinel, clock) = engine(rule);
    let admitted = arrivals.into_iter().filter(|&now| {
        clock.set(Tick::from_nanos(now));
        passed(&sentinel, 1) == 1
    });
    admitted.collect()
}

const BUCKET_COUNTS: [u32; 6] = [1, 2, 4, 5, 10, 20];
const SECOND_NS: u64 = 1_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_interval_of_a_strict_rule_ever_holds_more_than_the_threshold(
        buckets in proptest::sample::select(&BUCKET_COUNTS),
        limit in 1_u32..12,
        gaps in proptest::collection::vec(
            prop_oneof![4 => Just(0), 4 => 0_u64..60_000_000, 1 => 0_u64..1_500_000_000],
            1..300,
        ),
    ) {
        let arrivals: Vec<u64> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let rule = FlowRule::per_second("r", limit).buckets(buckets);
        let strict = admissions(rule.clone().strict(), arrivals.iter().copied());
        prop_assert!(fullest(&strict, SECOND_NS) <= limit as usize, "{strict:?}");
        // The documented worst case of any other rule.
        let ordinary = admissions(rule, arrivals);
        prop_assert!(fullest(&ordinary, SECOND_NS) <= 2 * limit as usize, "{ordinary:?}");
    }

    #[test]
    fn a_refused_call_passes_at_the_time_it_was_told_and_not_a_nanosecond_before(
        rules in proptest::collection::vec(
            (proptest::sample::select(&BUCKET_COUNTS), 1_u64..8, 1_u32..20, any::<bool>(), any::<bool>()),
            1..4,
        ),
        steps in proptest::collection::vec((0_u64..700_000_000, 1_u32..6), 1..80),
    ) {
        let mut set = Rules::new();
        for (buckets, seconds, limit, is_strict, by_origin) in rules {
            let rule = FlowRule::per("r", limit, SECOND * seconds as u32).buckets(buckets);
            let rule = if is_strict { rule.strict() } else { rule };
            set = set.with(if by_origin { rule.for_origin("other") } else { rule });
        }
        let (sentinel, clock) = engine(set);
        let mut now = 0;
        for (gap, weight) in steps {
            now += gap;
            clock.set(Tick::from_nanos(now));
            let call = Call::new("r").origin("app").batch(weight);
            let Some(blocked) = refusal(&sentinel, call) else { continue };
            let Some(wait) = blocked.retry_after() else {
                // Nobody but a call above a limit is refused for ever.
                clock.advance(MINUTE);
                prop_assert!(!passes(&sentinel, call));
                break;
            };
            now += wait.as_nanos() as u64;
            clock.set(Tick::from_nanos(now - 1));
            let early = refusal(&sentinel, call);
            prop_assert_eq!(early.map(|early| early.retry_after()), Some(Some(Duration::from_nanos(1))));
            clock.set(Tick::from_nanos(now));
            prop_assert!(passes(&sentinel, call), "refused after {:?}", wait);
        }
    }
}

#[test]
fn a_caller_without_quota_is_told_to_wait_for_all_windows() {
    let by_origin = |seconds| FlowRule::per("r", 8, SECOND * seconds).by_origin();
    let both = Rules::new().with(by_origin(1)).with(by_origin(2));
    let of_all = FlowRule::per("r", 9, SECOND * 3).buckets(1);
    for (rules, wait) in [(both.clone(), SECOND * 2), (both.with(of_all), SECOND * 3)] {
        let (sentinel, clock) = engine(rules);
        let call = Call::new("r").origin("app").batch(8);
        assert!(passes(&sentinel, call));
        let blocked = refusal(&sentinel, call).unwrap();
        assert_eq!(blocked.retry_after(), Some(wait));
        clock.advance(wait);
        assert!(passes(&sentinel, call));
    }
}

#[test]
fn an_ordinary_rule_does_exceed_and_the_strict_one_does_not() {
    for buckets in BUCKET_COUNTS {
        let rule = FlowRule::per_second("r", 10).buckets(buckets);
        // A burst at a bucket's end, and another one as soon as it leaves.
        let bucket = SECOND_NS / u64::from(buckets);
        let arrivals = [bucket - 1, SECOND_NS].into_iter();
        let arrivals = arrivals.flat_map(|time| std::iter::repeat_n(time, 10));
        let ordinary = admissions(rule.clone(), arrivals.clone());
        assert_eq!(fullest(&ordinary, SECOND_NS), 20, "{buckets} buckets");
        let strict = admissions(rule.strict(), arrivals);
        assert_eq!(fullest(&strict, SECOND_NS), 10, "{buckets} buckets");
    }
}

#[test]
fn a_saturated_strict_rule_lets_its_documented_part_of_the_rate_pass() {
    for buckets in BUCKET_COUNTS {
        // Whole turns of n + 1 buckets, and a call each millisecond.
        let turn = 1_000 * u64::from(buckets + 1) / u64::from(buckets);
        let arrivals = (0..20 * turn).map(|ms| ms * 1_000_000);
        let admitted = admissions(
            FlowRule::per_second("r", 30).buckets(buckets).strict(),
            arrivals,
        );
        assert_eq!(admitted.len(), 20 * 30, "{buckets} buckets");
    }
}

// === whose calls ===

#[test]
fn by_origin_gives_every_origin_a_quota_of_its_own() {
    let rule = || FlowRule::per_second("r", 3);
    // With more buckets than the ring of an origin has, its rule has its own.
    let others = rule().buckets(100).for_origin("other");
    for (rule, shared) in [(rule().by_origin(), 1), (others, 2)] {
        let (sentinel, clock) = engine(rule);
        assert_eq!(
            ["a", "b", "a"].map(|origin| passed_by(&sentinel, origin)),
            [3, 3, 0]
        );
        // Those without an origin share one quota, or are not meant.
        assert_eq!([passed(&sentinel, 2), passed(&sentinel, 2)], [2, shared]);
        clock.advance(SECOND);
        assert_eq!(
            ["a", "b"].map(|origin| passed_by(&sentinel, origin)),
            [3, 3]
        );
    }
}

#[test]
fn calls_without_an_origin_are_shared_skipped_or_refused() {
    let cases = [
        (MissingKey::Share, 3, Some(BlockKind::Flow)),
        (MissingKey::Skip, 5, None),
        (MissingKey::Refuse, 0, Some(BlockKind::MissingKey)),
    ];
    for (missing, expected, kind) in cases {
        let (sentinel, _clock) = engine(FlowRule::per_second("r", 3).by_origin().missing(missing));
        assert_eq!(passed(&sentinel, 5), expected, "{missing:?}");
        let refused = refusal(&sentinel, Call::new("r"));
        assert_eq!(refused.map(|blocked| blocked.kind()), kind, "{missing:?}");
    }
}

#[test]
fn default_limits_the_sum_other_each_unnamed_origin_and_a_name_its_owner() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2).for_origin("app"))
        .with(FlowRule::per_second("r", 3).for_origin("other"))
        .with(FlowRule::per_second("r", 9).for_origin("default"));
    let (sentinel, clock) = engine(rules);
    // "web" may have three, but gets what is left of the nine.
    let origins = ["app", "x", "y", "web"];
    assert_eq!(
        origins.map(|origin| passed_by(&sentinel, origin)),
        [2, 3, 3, 1]
    );
    // What a rule of an origin refused has taken nothing from the sum.
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 9);
    clock.advance(SECOND);
    // A caller that calls itself by a special name is one of the others, and
    // one without a name is only one of all.
    let origins = ["default", "other"];
    assert_eq!(origins.map(|origin| passed_by(&sentinel, origin)), [3, 3]);
    assert_eq!(passed(&sentinel, 5), 3);
}

// === weights ===

#[test]
fn a_weighted_call_takes_all_of_its_tokens_or_none() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    let weights = |weights: &[u32]| -> Vec<bool> {
        let call = |&weight| passes(&sentinel, Call::new("r").batch(weight));
        weights.iter().map(call).collect()
    };
    assert_eq!(
        weights(&[4, 4, 4, 3, 2, 1]),
        [true, true, false, false, true, false]
    );
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 10);
    // One of weight 0 passes beside a full window and takes nothing.
    assert_eq!(weights(&[0, 0, 1]), [true, true, false]);
    assert_eq!(sentinel.node("r").unwrap().sum(Event::Pass), 10);
    clock.advance(SECOND);
    assert_eq!(weights(&[0, 10, 1]), [true, true, false]);
}

#[test]
fn a_call_of_weight_0_passes_when_no_limit_is_exceeded_any_more() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    let weightless = Call::new("r").batch(0);
    assert!(passes(&sentinel, Call::new("r").batch(10)));
    assert!(passes(&sentinel, weightless));
    assert!(sentinel.reload(FlowRule::per_second("r", 5).into()));
    let told = || refusal(&sentinel, weightless).unwrap().retry_after();
    assert_eq!(told(), Some(SECOND));
    clock.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(told(), Some(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    assert!(passes(&sentinel, weightless));
}

#[test]
fn a_call_heavier_than_the_limit_is_refused_for_ever() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    for weight in [11, 1 << 31, u32::MAX] {
        let blocked = refusal(&sentinel, Call::new("r").batch(weight)).unwrap();
        assert_eq!(blocked.retry_after(), None, "{weight}");
        clock.advance(MINUTE);
    }
    assert!(passes(&sentinel, Call::new("r").batch(10)));
}

// === the plain window ===

#[test]
fn the_plain_window_admits_seven_of_ten_and_reads_zero_after_any_idle_time()
-> Result<(), InvalidSetting> {
    let now = at(1_000);
    // Eleven and thirteen slices: where the index of a ring of 2 × 5 + 1 slices
    // is the same again, and where it has wrapped past.
    for idle in [5, 11, 13, 22, 110, 11_000_000] {
        let window = SlidingWindow::of_millis(5)?;
        let allowed: Vec<_> = (0..10).map(|_| window.try_add(now, 1, 7)).collect();
        assert_eq!(
            allowed,
            [
                true, true, true, true, true, true, true, false, false, false
            ]
        );
        assert_eq!(window.sum(at(1_000 + idle)), 0, "idle for {idle}");
        assert_eq!(
            window.add_and_sum(at(1_000 + idle), 1),
            1,
            "idle for {idle}"
        );
    }
    let window = SlidingWindow::of_millis(5)?;
    let sums: Vec<_> = (0..10).map(|_| window.add_and_sum(now, 1)).collect();
    assert_eq!(sums, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    Ok(())
}

#[test]
fn whoever_refuses_a_call_says_when_all_others_have_room() {
    let queue = |seconds| FlowRule::per("r", 1, SECOND * seconds).throttle(Duration::ZERO);
    let window = |seconds| FlowRule::per("r", 1, SECOND * seconds);
    let yields = |seconds| window(seconds).when("other");
    let each = |seconds| KeyedRule::per("r", 1, SECOND * seconds);
    let breaker = |seconds| {
        CircuitBreakerRule::error_count("r", 1)
            .min_calls(1)
            .open_for(SECOND * seconds)
    };
    // When all have room, and whether they ever have for a heavier call.
    let cases: [(Rules, u32, bool); 10] = [
        (Rules::new().with(queue(1)).with(queue(3)), 3, true),
        (Rules::new().with(queue(1)).with(window(4)), 4, false),
        (Rules::new().with(yields(1)).with(yields(4)), 4, false),
        (Rules::new().with(yields(1)).with(window(4)), 4, false),
        (Rules::new().with(yields(1)).with(queue(3)), 3, false),
        (Rules::new().with(each(1)).with(yields(4)), 4, false),
        (Rules::new().with(each(1)).with(queue(3)), 3, false),
        (Rules::new().with(breaker(1)).with(breaker(3)), 3, true),
        (Rules::new().with(breaker(1)).with(window(4)), 4, false),
        (
            Rules::new().with(breaker(1)).with(each(2)).with(queue(3)),
            3,
            false,
        ),
    ];
    for (rules, seconds, is_for_heavy) in cases {
        let (sentinel, clock) = engine(rules.clone());
        let call = Call::new("r").param("p");
        let Verdict::Pass(mut entry) = sentinel.try_enter(call) else {
            panic!("the first one: {rules:?}");
        };
        entry.fail();
        drop(entry);
        assert!(passes(&sentinel, Call::new("other")));
        let told = |call| refusal(&sentinel, call).unwrap().retry_after();
        let wait = SECOND * seconds;
        assert_eq!(told(call), Some(wait), "{rules:?}");
        let heavy = told(call.batch(2));
        assert_eq!(heavy.is_some(), is_for_heavy, "{rules:?}: {heavy:?}");
        clock.advance(wait - Duration::from_nanos(1));
        assert_eq!(told(call), Some(Duration::from_nanos(1)), "{rules:?}");
        clock.advance(Duration::from_nanos(1));
        assert!(passes(&sentinel, call), "{rules:?}");
    }
}

#[test]
fn who_can_never_pass_a_later_rule_is_told_no_time_by_an_earlier_one() {
    let callers = || FlowRule::per("r", 9, SECOND).by_origin();
    let values = || KeyedRule::concurrency("r", 9).except("banned", 0);
    let each = || KeyedRule::per("r", 1, SECOND).by_origin();
    let breaker = || CircuitBreakerRule::error_count("r", 1).min_calls(1);
    let good = Call::new("r").origin("x").param("p");
    let banned = Call::new("r").origin("x").param("banned");
    let no_value = Call::new("r").origin("x");
    let no_origin = Call::new("r").param("p");
    let refusing = MissingKey::Refuse;
    let cases: [(Rules, Call<'_>); 5] = [
        (Rules::new().with(each()).with(values()), banned),
        (
            Rules::new().with(each()).with(values().missing(refusing)),
            no_value,
        ),
        (Rules::new().with(breaker()).with(values()), banned),
        (
            Rules::new()
                .with(breaker())
                .with(values().missing(refusing)),
            no_value,
        ),
        (
            Rules::new()
                .with(breaker())
                .with(callers().missing(refusing)),
            no_origin,
        ),
    ];
    for (rules, call) in cases {
        let (sentinel, _clock) = engine(rules.clone());
        let Verdict::Pass(mut entry) = sentinel.try_enter(good) else {
            panic!("the first one: {rules:?}");
        };
        entry.fail();
        drop(entry);
        let told = |call| refusal(&sentinel, call).unwrap().retry_after();
        assert!(told(good).is_some(), "{rules:?}");
        assert_eq!(told(call), None, "{rules:?}");
    }
}

#[test]
fn a_refusal_by_an_array_tells_when_all_its_quotas_have_room() {
    let mut rng = Rng::seeded();
    let mut met = [0; 2];
    for _ in 0..200 {
        let new = || LeapArray::new(SECOND, 10).unwrap();
        let array = new();
        let quotas = [
            array.quota(Duration::from_millis(300), 4).unwrap(),
            array.quota(SECOND, 5).unwrap(),
        ];
        let (mut now, mut taken) = (1_000, Vec::new());
        let refusal = loop {
            now += rng.below(300) as u64;
            let weight = 1 + rng.below(3) as u32;
            match array.try_acquire(at(now), weight, &quotas) {
                Ok(()) => taken.push((now, weight)),
                Err(refusal) => break (refusal, weight),
            }
        };
        let (refusal, weight) = refusal;
        met[refusal.index()] += 1;
        let then = refusal.available_at().unwrap();
        assert_eq!(refusal.retry_after(), Some(then - at(now)));
        // The same calls, and then the refused one at another time.
        let again = |at_then: Tick| {
            let array = new();
            for &(ms, weight) in &taken {
                array.try_acquire(at(ms), weight, &quotas).unwrap();
            }
            array.try_acquire(at_then, weight, &quotas)
        };
        assert_eq!(again(then), Ok(()), "{taken:?}");
        let before = Tick::from_nanos(then.as_nanos() - 1);
        let early = again(before).unwrap_err();
        assert_eq!(early.available_at(), Some(then), "{taken:?}");
    }
    assert!(met.iter().all(|&times| times > 20), "{met:?}");
    let array = LeapArray::new(SECOND, 10).unwrap();
    let quotas = [array.quota(SECOND, 6).unwrap()];
    let never = array.try_acquire(at(0), 7, &quotas).unwrap_err();
    assert_eq!((never.available_at(), never.retry_after()), (None, None));
}
