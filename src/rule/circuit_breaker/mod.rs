//! Circuit breaker rules, which stop calls to a resource for a while.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod inspect;
mod setters;

use std::time::Duration;

use crate::base::number::WholeNumber;
use crate::breaker::Strategy;

/// The default of `min_calls`, unless the rule needs or counts fewer calls.
const DEFAULT_MIN_CALLS: u32 = 5;
/// The default of [`open_up_to`](CircuitBreakerRule::open_up_to) for a pushback.
const LONGEST_PUSHBACK: Duration = Duration::from_secs(60);
/// The default of `open_for`.
const DEFAULT_OPEN_FOR: Duration = Duration::from_secs(10);
/// The default of `interval`.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of buckets of an interval if `buckets` is not set.
const DEFAULT_BUCKETS: u32 = 10;

/// Stops calls to a resource for a while when too many of them fail or are slow.
///
/// The breaker is *closed* at first: all calls pass, and are counted when they end. It
/// *opens* as soon as enough calls have ended in its [interval](Self::interval), or among
/// its [last calls](Self::last_calls), and too many of them were slow or failed, or when a
/// number of calls [in a row](Self::consecutive_errors) has failed. While it is open, it
/// refuses every call. When the [recovery time](Self::open_for) is over, the breaker is
/// *half-open*: the next call passes as a probe, all others are refused. If the probe is
/// good, the breaker closes, with no counts; if the probe is bad, the breaker opens again,
/// for the same time or [longer](Self::open_up_to). The breaker of a [pushback](Self::pushback)
/// rule counts nothing: it opens when the callee asks not to be called for a while.
///
/// * A call is slow if it took longer than the limit, not if it took exactly as long.
/// * A ratio or a count is met when it is *reached*, unless [`exceeds`](Self::exceeds) is
///   set. A ratio is compared in integers, as the simplest fraction that it stands for: 0.1
///   is one call in ten, and `2.0 / 3.0` two in three.
/// * Under a [layer for HTTP](crate::SentinelLayer) a breaker judges a call when the head of the
///   response has arrived, and a gRPC call when the trailers have. A body that breaks off later
///   is an [error](crate::stat::Totals::error), but no breaker counts it, unless responses are
///   [judged at their end](crate::middleware::Judgement::AtTrailers).
/// * A call of any weight counts once, and only in the state in which it was admitted. A call that
///   was admitted before the breaker opened, and ends afterwards, decides nothing.
/// * A call that another rule refuses is no probe, in any order of the rules.
/// * A probe that is cancelled or [ignored](crate::Entry::ignore) decides nothing: the next call
///   becomes a probe at once. If it was the only probe, and no probe was good before it, the
///   breaker is open until that call arrives.
/// * A probe that does not end holds its place for [`open_for`](Self::open_for) after the newest
///   probe started, or for the limit of a slow call if that is longer. Then the next call becomes a
///   probe in its place. With several [probes](Self::probes) this happens only while all places are
///   taken, and the next call takes the first place.
/// * The outcome of every probe counts as long as the breaker is half-open, also if another call
///   has taken its place. So a breaker can close even if each call takes longer than `open_for`,
///   and a call that hangs blocks no other.
/// * A call that is cancelled or ignored is not counted. But if it had already taken longer than
///   the limit of a slow call, it counts as slow, and as a bad probe if it was a probe; see
///   [`count_cancelled_as_slow`](Self::count_cancelled_as_slow).
/// * A resource may have up to 32 breakers. They are checked together: if one breaker refuses a
///   call, no other breaker takes the call as a probe.
///
/// A rule for the resource `*` is the [default](crate::rule#default-rules): every resource
/// without a circuit breaker rule of its own gets a separate breaker from it.
///
/// A breaker stays open until a call decides otherwise, even if its resource is not called for so
/// long that [it is evicted](crate::Builder::idle_after): the full state of up to 4 096 breakers of
/// evicted resources is kept while they are not closed.
///
/// # Reloads
///
/// A new rule has at most one predecessor: an equal rule of the previous set, else the rule
/// with the same [id](Self::id), else any rule that counts the same calls. Two rules count
/// the same calls if both count errors in a row, or if they have the same interval and
/// buckets or the same number of last calls. If they count slow calls, they must also have
/// the same limit of a slow call.
///
/// If the new rule counts the same calls as its predecessor, the breaker continues: it keeps its
/// counts, its state and its probes, even if other settings change. If not, the breaker starts with
/// no counts. It then stays open for as long as the predecessor's breaker would have, even if an
/// operator had opened that breaker. If the predecessor's breaker was half-open, the new breaker is
/// open, and the next call becomes a probe.
///
/// A call that was admitted before the reload is judged by the rule that admitted it. If it is a
/// probe, it decides by that rule. If not, it counts for the breaker that continues, but can open
/// it only if the two rules are equal: otherwise only a call that the new rule itself has admitted
/// opens the breaker.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, CircuitBreakerRule, Rules, Sentinel, Verdict};
///
/// let rules = Rules::new()
///     // Half of at least 20 calls in ten seconds took longer than 300 ms.
///     .with(
///         CircuitBreakerRule::slow_ratio("/search", Duration::from_millis(300), 0.5)
///             .interval(Duration::from_secs(10))
///             .min_calls(20),
///     )
///     // Every resource without a rule of its own: a tenth of the calls failed.
///     .with(CircuitBreakerRule::error_ratio("*", 0.1).open_for(Duration::from_secs(5)))
///     // 50 errors in a minute; three good probes close it again.
///     .with(
///         CircuitBreakerRule::error_count("/pay", 50)
///             .interval(Duration::from_secs(60))
///             .probes(3),
///     )
///     // Five errors with no success in between, however far apart.
///     .with(CircuitBreakerRule::consecutive_errors("/mail", 5))
///     // Half of the last twenty calls.
///     .with(CircuitBreakerRule::error_ratio("/report", 0.5).last_calls(20));
/// assert_eq!(rules.len(), 5);
///
/// // A rule that one error is enough for: its breaker opens with the first.
/// let sentinel = Sentinel::new(CircuitBreakerRule::error_count("/pay", 1));
/// let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("/pay")) else {
///     panic!("it is closed");
/// };
/// entry.fail();
/// drop(entry);
/// assert!(matches!(sentinel.try_enter(Call::new("/pay")), Verdict::Block(_)));
///
/// let error = Rules::build([CircuitBreakerRule::error_ratio("/pay", 1.5).min_calls(0)]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rule 0 (circuit-breaker \"/pay\"): ratio is 1.5, must be above 0 and at most 1; \
///      rule 0 (circuit-breaker \"/pay\"): min_calls is 0, must be between 1 and 1000000",
/// );
/// ```
///
/// # Accuracy
///
/// Times are accurate to 8 µs, and never shortened. The interval is a window of aligned buckets, so
/// the calls that it counts go back by at least an interval less one bucket, and by at most a whole
/// interval. A bucket counts 4 194 303 calls exactly; after that, a ratio is computed from the more
/// recent calls of the bucket. The last calls and errors in a row are counted exactly, in the order
/// in which calls end: calls that end at the same instant are counted in one of the possible
/// orders.
///
/// # Source
///
/// The three strategies of Alibaba Sentinel, the consecutive errors that proxies such as Envoy
/// and Linkerd count, and the window over the last calls of resilience4j. In Alibaba Sentinel,
/// any call that ends while a breaker is half-open decides, a probe that never ends keeps the
/// breaker half-open for ever, and an error ratio of 1.0 cannot be exceeded.
#[derive(Clone, Debug, PartialEq)]
pub struct CircuitBreakerRule {
    resource: String,
    strategy: Strategy,
    threshold: TripThreshold,
    exceeds: bool,
    /// How many calls must have ended before the breaker can open; `None`: `default_min_calls`.
    min_calls: Option<WholeNumber>,
    open_for: Duration,
    /// The longest time that the breaker stays open; `None`: `open_for` each time, or what a
    /// pushback asks for, up to 60 s.
    open_up_to: Option<Duration>,
    /// How many of the last calls are counted; `None`: the calls of the interval are counted.
    last_calls: Option<WholeNumber>,
    interval: Duration,
    buckets: Option<WholeNumber>,
    probes: WholeNumber,
    cancelled_as_slow: bool,
    pub(super) id: Option<String>,
}

/// The condition under which the breaker opens: a fraction or a number of bad calls, a number of
/// failures in a row, or a pushback.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TripThreshold {
    Ratio(f64),
    Count(WholeNumber),
    Consecutive(WholeNumber),
    /// Opens when the callee asks not to be called.
    Pushback,
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::LONGEST_INTERVAL;
    use crate::rule::Rules;
    use crate::rule::problem::problems;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn every_bad_field_is_named_with_its_value_and_range() {
        let rule = |ratio| CircuitBreakerRule::error_ratio("r", ratio);
        let ratio = "above 0 and at most 1";
        let time = "between 1 ms and 366 days";
        let in_a_row = "left out for consecutive errors";
        let cases = [
            (rule(0.0), format!("ratio is 0, must be {ratio}")),
            (rule(1.01), format!("ratio is 1.01, must be {ratio}")),
            (rule(f64::NAN), format!("ratio is NaN, must be {ratio}")),
            (
                rule(-0.5).exceeds(),
                "ratio is -0.5, must be between 0 and 1".to_owned(),
            ),
            (
                CircuitBreakerRule::error_count("r", 0),
                "count is 0, must be between 1 and 1000000".to_owned(),
            ),
            (
                CircuitBreakerRule::error_count("r", 1_000_001).exceeds(),
                "count is 1000001, must be between 0 and 1000000".to_owned(),
            ),
            (
                CircuitBreakerRule::consecutive_errors("r", 0),
                "count is 0, must be between 1 and 1000000".to_owned(),
            ),
            (
                CircuitBreakerRule::consecutive_errors("r", 3).min_calls(3),
                format!("min_calls is 3, must be {in_a_row}"),
            ),
            (
                CircuitBreakerRule::consecutive_errors("r", 3).interval(ms(0)),
                format!("interval is 0ns, must be {in_a_row}"),
            ),
            (
                CircuitBreakerRule::consecutive_errors("r", 3).buckets(1),
                format!("buckets is 1, must be {in_a_row}"),
            ),
            (
                CircuitBreakerRule::consecutive_errors("r", 3).last_calls(3),
                format!("last_calls is 3, must be {in_a_row}"),
            ),
            (
                CircuitBreakerRule::pushback("r").open_for(ms(5)),
                "open_for is 5ms, must be left out for a pushback".to_owned(),
            ),
            (
                CircuitBreakerRule::pushback("r").exceeds(),
                "exceeds is true, must be left out for a pushback".to_owned(),
            ),
            (
                CircuitBreakerRule::pushback("r").min_calls(3),
                "min_calls is 3, must be left out for a pushback".to_owned(),
            ),
            (
                CircuitBreakerRule::pushback("r").interval(ms(5)),
                "interval is 5ms, must be left out for a pushback".to_owned(),
            ),
            (
                CircuitBreakerRule::pushback("r").open_up_to(Duration::ZERO),
                format!("open_up_to is 0ns, must be {time}"),
            ),
            (
                rule(0.5).last_calls(0),
                "last_calls is 0, must be between 1 and 40".to_owned(),
            ),
            (
                rule(0.5).last_calls(41).min_calls(41),
                "last_calls is 41, must be between 1 and 40".to_owned(),
            ),
            (
                rule(0.5).last_calls(20).min_calls(21),
                "min_calls is 21, must be between 1 and 20".to_owned(),
            ),
            (
                CircuitBreakerRule::error_count("r", 21).last_calls(20),
                "count is 21, must be between 1 and 20".to_owned(),
            ),
            (
                CircuitBreakerRule::error_count("r", 20)
                    .last_calls(20)
                    .exceeds(),
                "count is 20, must be between 0 and 19".to_owned(),
            ),
            (
                rule(0.5).last_calls(20).interval(ms(999)),
                "interval is 999ms, must be left out beside last_calls".to_owned(),
            ),
            (
                rule(0.5).last_calls(20).buckets(10),
                "buckets is 10, must be left out beside last_calls".to_owned(),
            ),
            (
                CircuitBreakerRule::slow_ratio("r", Duration::MAX, 1.0),
                format!(
                    "max_rt is {:?}, must be between 0 and 366 days",
                    Duration::MAX
                ),
            ),
            (
                rule(0.5).min_calls(0),
                "min_calls is 0, must be between 1 and 1000000".to_owned(),
            ),
            (
                rule(0.5).open_for(Duration::ZERO),
                format!("open_for is 0ns, must be {time}"),
            ),
            (
                rule(0.5).open_for(ms(20)).open_up_to(ms(19)),
                "open_up_to is 19ms, must be between the open_for of 20ms and 366 days".to_owned(),
            ),
            (
                rule(0.5).open_up_to(Duration::MAX),
                format!(
                    "open_up_to is {:?}, must be between the open_for of 10s and 366 days",
                    Duration::MAX
                ),
            ),
            (
                rule(0.5).interval(Duration::from_micros(10)).buckets(0),
                format!("interval is 10µs, must be {time}"),
            ),
            (
                rule(0.5).buckets(65),
                "buckets is 65, must be between 1 and 64".to_owned(),
            ),
            (
                rule(0.5).buckets(7),
                "buckets is 7, must be a number that divides the interval of 1s".to_owned(),
            ),
            (
                rule(0.5).interval(ms(5)).buckets(10),
                "buckets is 10, must be at most 5, so that a bucket lasts 1 ms".to_owned(),
            ),
            (
                rule(0.5).probes(64),
                "probes is 64, must be between 1 and 63".to_owned(),
            ),
            (
                CircuitBreakerRule::error_ratio(" ", 0.5),
                "resource is \" \", must be a name that is not blank".to_owned(),
            ),
        ];
        for (rule, problem) in cases {
            assert_eq!(problems(rule), [problem]);
        }
        for good in [
            rule(1.0),
            rule(1e-300),
            rule(0.5).open_for(ms(20)).open_up_to(ms(20)),
            rule(0.5).open_up_to(LONGEST_INTERVAL),
            rule(0.0).exceeds(),
            CircuitBreakerRule::error_count("*", 0).exceeds(),
            CircuitBreakerRule::consecutive_errors("*", 0).exceeds(),
            CircuitBreakerRule::consecutive_errors("r", 1_000_000).probes(2),
            CircuitBreakerRule::slow_ratio("r", Duration::ZERO, 0.2).probes(63),
            CircuitBreakerRule::pushback("*")
                .open_up_to(ms(1))
                .probes(2),
            rule(0.5).last_calls(1),
            rule(0.5).last_calls(40).min_calls(40),
            CircuitBreakerRule::error_count("r", 40).last_calls(40),
            CircuitBreakerRule::error_count("r", 0)
                .last_calls(1)
                .exceeds(),
            CircuitBreakerRule::error_count("r", 1_000_000).exceeds(),
        ] {
            assert_eq!(problems(good), [""; 0]);
        }
    }

    #[test]
    fn a_resource_has_at_most_32_breakers() {
        let rules = |count| vec![CircuitBreakerRule::error_ratio("r", 0.5); count];
        assert!(Rules::build(rules(32)).is_ok());
        let error = Rules::build(rules(33)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rule 32 (circuit-breaker \"r\"): resource is \"r\", \
             must be that of at most 32 circuit breakers"
        );
    }

    #[test]
    fn default_buckets_divide_the_interval() {
        let buckets = |interval| {
            let rule = CircuitBreakerRule::error_ratio("r", 0.5).interval(interval);
            rule.spec().buckets
        };
        assert_eq!(buckets(ms(1_000)), 10);
        assert_eq!(buckets(ms(10)), 10);
        assert_eq!(buckets(ms(7)), 7);
        assert_eq!(buckets(ms(1)), 1);
        assert_eq!(buckets(Duration::from_nanos(21_000_003)), 3);
        assert_eq!(buckets(Duration::from_nanos(1_000_000_007)), 1);
    }
}
