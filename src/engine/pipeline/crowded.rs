//! Refusals of full windows while many threads refuse at once, without a write to shared words.
//!
//! An ordinary refusal writes six times to words that all threads share: twice to the reference
//! count of the resource, once to a count of the node, once to a count of the rule, and twice to
//! the reference count of the rule's label. If many threads refuse at once, they wait for these
//! cache lines in turn. So in a crowd, the call is judged while the table protects the resource,
//! counts go to [stripes](crate::base::spread), and the label is the thread's copy. A call that
//! is not refused has taken nothing, and takes the ordinary path.

use super::beside::check_both_rings;
use super::fast_path::check_own_ring;
use super::slow_path::available_at;
use crate::blocked::{BlockKind, Blocked};
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::registry::own_label;
use crate::engine::resource::{PathKind, Resource};
use crate::hook::Interest;
use crate::stat::Denied;

/// Returns whether `call` can be refused in a crowd. Only windows of `resource` may judge it, on
/// its own ring and at most one [second ring](super::try_beside_ring). No hook must be notified,
/// and the engine must not belong to rules in shadow mode.
pub(crate) fn may_refuse_in_crowd(resource: &Resource, call: &Call<'_>) -> bool {
    let is_by_windows = match resource.path_kind() {
        PathKind::Fast | PathKind::FastBesideRing => resource.fixed_slot_limit().is_none(),
        _ => false,
    };
    let shared = resource.shared();
    let needs_ordinary_path = shared.hooks.want(Interest::BLOCK) || shared.part.is_shadow();
    is_by_windows && !call.flags.prioritized() && !needs_ordinary_path
}

/// Returns the refusal of `call`, if a window of the crowded `resource` is full.
pub(crate) fn refuse_in_crowd(
    resource: &Resource,
    call: &Call<'_>,
    now: Glance,
) -> Option<Blocked> {
    if !may_refuse_in_crowd(resource, call) {
        return None;
    }
    let (now, weight, node) = (resource.check_time(now), call.weight, resource.node());
    let Err(Denied::Full(rule)) = check_rings(resource, now, weight) else {
        return None;
    };
    let (tokens, interval) = resource.rules().flow(rule)?.advertised();
    let at = available_at(resource, now, weight);
    let text = resource.text();
    let label = own_label(resource.rules().label(rule), text);
    let blocked = Blocked::by(BlockKind::Flow, label, text)
        .with_retry_after(at.map(|at| resource.time_until(at, now)))
        .with_limit(tokens, interval);
    node.block_in_crowd(now, weight);
    blocked.count_in_crowd(weight);
    Some(blocked)
}

/// Checks whether the rings of `resource` have the tokens of a call now. Takes none.
fn check_rings(resource: &Resource, now: Tick, weight: u32) -> Result<(), Denied> {
    match resource.path_kind() {
        PathKind::FastBesideRing => check_both_rings(resource, now, weight),
        _ => check_own_ring(resource, now, weight),
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::call::{Direction, Key};
    use crate::clock::ManualClock;
    use crate::engine::call::verdict::Verdict;
    use crate::engine::resource::ResourceQuery;
    use crate::rule::{FlowRule, IsolationRule, Rules};
    use crate::sentinel::Sentinel;

    /// An interval whose window is on the resource's own ring.
    const SECOND: Duration = Duration::from_secs(1);
    /// An interval whose window has a dedicated ring.
    const DAY: Duration = Duration::from_secs(86_400);

    /// Admits one call of weight 1 to "r", and then refuses a call of `weight`, first as in a
    /// crowd, and then as a lone thread does. Returns both refusals, and the weights that the node
    /// and the rule "full" have counted as refused.
    fn refusals(rules: Rules, weight: u32) -> (Option<Blocked>, Option<Blocked>, [u64; 2]) {
        let clock = ManualClock::new();
        let builder = Sentinel::builder().rules(rules).clock(clock.clone());
        let sentinel = builder.build();
        assert!(matches!(
            sentinel.try_enter(Call::new("r")),
            Verdict::Pass(_)
        ));
        clock.advance(Duration::from_millis(300));
        let registry = sentinel.registry();
        let now = registry.shared().time.read();
        let resource = registry.known(Direction::Inbound, Key::Str("r"), now);
        let call = Call::new("r").batch(weight);
        let in_crowd = refuse_in_crowd(&resource.unwrap(), &call, now);
        let alone = match sentinel.try_enter(call) {
            Verdict::Block(blocked) => Some(blocked),
            _ => None,
        };
        let snapshot = sentinel.snapshot();
        let rule = snapshot.rules().find(|rule| rule.id() == "full");
        let counts = [snapshot.totals().block(), rule.unwrap().blocked()];
        (in_crowd, alone, counts)
    }

    #[test]
    fn a_crowd_is_refused_by_windows_of_any_length() {
        let lengths = [1, 60, 128, 129, 600, 3_600, 86_400, 366 * 86_400];
        for interval in lengths.map(Duration::from_secs) {
            let rule = FlowRule::per("r", 1, interval).id("full");
            let (in_crowd, alone, counts) = refusals(rule.into(), 1);
            assert!(in_crowd.is_some(), "{interval:?}");
            assert_eq!((in_crowd, counts), (alone, [2, 2]), "{interval:?}");
        }
    }

    #[test]
    fn each_of_two_windows_can_refuse_a_crowd() {
        // The second ring is asked first, and the retry time is the time at which both rings have
        // room.
        for (a_second, a_day, counts) in [(1, 9, [2, 2]), (9, 1, [2, 0]), (1, 1, [2, 0])] {
            let rules = Rules::from(FlowRule::per("r", a_second, SECOND).id("full"))
                .with(FlowRule::per("r", a_day, DAY).id("day"));
            let (in_crowd, alone, counted) = refusals(rules, 1);
            assert!(in_crowd.is_some(), "{a_second}, {a_day}");
            assert_eq!((in_crowd, counted), (alone, counts), "{a_second}, {a_day}");
        }
    }

    /// Makes `calls` refused calls to "r" on a new thread. Returns whether the node is then
    /// crowded, and whether the thread took the ordinary path, which caches the resource as a
    /// recent one.
    fn refuse_on_new_thread(sentinel: &Sentinel, calls: u32) -> (bool, bool) {
        let refuse = || {
            for _ in 0..calls {
                assert!(matches!(
                    sentinel.try_enter(Call::new("r")),
                    Verdict::Block(_)
                ));
            }
            let registry = sentinel.registry();
            let now = registry.shared().time.read();
            let resource = registry.known(Direction::Inbound, Key::Str("r"), now);
            let query = ResourceQuery {
                direction: Direction::Inbound,
                name: &Key::Str("r"),
            };
            let is_kept = registry.find_recent(&query).is_some();
            (resource.unwrap().node().is_crowded(), is_kept)
        };
        thread::scope(|scope| scope.spawn(refuse).join().unwrap())
    }

    #[test]
    fn a_crowd_ends_when_one_thread_refuses_alone_and_can_return() {
        for interval in [SECOND, DAY] {
            let rule = FlowRule::per("r", 0, interval).id("full");
            let clock = ManualClock::new();
            let sentinel = Sentinel::builder().rules(rule).clock(clock).build();
            let mut refused = 0;
            let mut refuse = |calls: u32| {
                refused += u64::from(calls);
                let found = refuse_on_new_thread(&sentinel, calls);
                let snapshot = sentinel.snapshot();
                let rule = snapshot.rules().find(|rule| rule.id() == "full");
                let counts = [snapshot.totals().block(), rule.unwrap().blocked()];
                assert_eq!(counts, [refused; 2]);
                found
            };
            assert_eq!(refuse(100_000), (false, true), "one thread is none");
            for _ in 0..3 {
                // Several threads are tried, as some can share a stripe.
                let has_come = (0..9).any(|_| refuse(2_048) == (true, false));
                assert!(has_come, "{interval:?}");
                assert_eq!(refuse(100_000), (false, true), "{interval:?}");
            }
        }
    }

    #[test]
    fn a_call_that_fits_or_needs_other_checks_takes_the_ordinary_path() {
        let day = |limit| Rules::from(FlowRule::per("r", limit, DAY).id("full"));
        assert_eq!(refusals(day(9), 8), (None, None, [0, 0]));
        let (in_crowd, alone, counts) = refusals(day(9), 9);
        assert_eq!((in_crowd, counts), (alone, [18, 18]));
        let (in_crowd, alone, counts) = refusals(day(1).with(IsolationRule::new("r", 9)), 1);
        assert_eq!((in_crowd, alone.is_some(), counts), (None, true, [1, 1]));
        let hours = day(1).with(FlowRule::per("r", 1, Duration::from_secs(3_601)));
        let (in_crowd, alone, _) = refusals(hours, 1);
        assert_eq!(
            (in_crowd, alone.is_some()),
            (None, true),
            "two rings beside its own"
        );
    }
}
