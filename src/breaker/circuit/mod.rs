//! One breaker: a word with its state, the time at which this state ends, and its counts.
//!
//! Every change of state is one compare-and-swap of the word, and the thread whose swap succeeds
//! reports the change. The time at which an open breaker may be probed, or at which a half-open
//! breaker stops waiting for its probes, is its *moment*. It is written after the change, and
//! stamped with the version of the state. A thread that needs the moment before it is written
//! writes one from its own clock reading. So no thread waits for a slow writer, and a moment that
//! is written late is not mistaken for that of another version. The later of two moments of a
//! version wins, because a thread may have read its clock long ago.
//!
//! The epoch of a call decides whether it belongs to the current generation; see
//! [`breaker`](super).

mod judge;
mod probes;

use std::sync::Arc as StdArc;

use super::breakers::Change;
use super::counts::OutcomeCounts;
use super::history::History;
use super::spec::BreakerSpec;
use crate::base::small_vec::SmallVec;
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Lock};
use crate::clock::Tick;

/// The age, in epochs, at which a closed generation gets a later beginning, so that its distance
/// from the newest epoch stays small.
const OLD: u32 = 1 << 30;
/// The age, in epochs, of the later beginning. Calls that still run are assumed to be younger.
const RENEWED: u32 = OLD / 2;

/// A rule's view of its circuit.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    /// The settings of the rule.
    spec: BreakerSpec,
    /// The index of this breaker in its set.
    pub(super) index: usize,
    /// The state and the counts, shared with breakers of older rules.
    circuit: Arc<Circuit>,
    /// The number of this rule among all rules that the circuit has had, from 0 on.
    revision: u32,
}

/// The part of a breaker that outlives a changed rule.
#[derive(Debug)]
struct Circuit {
    /// The state, as a [`StateWord`](super::packed::StateWord).
    word: AtomicU64,
    /// The time at which the state ends, as a [`Moment`](super::packed::Moment).
    moment: AtomicU64,
    /// The epoch at which the last half-open period began in which places of probes were given to
    /// other calls.
    period: AtomicU32,
    counts: OutcomeCounts,
    history: History,
    /// The [revision](Breaker::revision) of the rule in force.
    revision: AtomicU32,
    longest: Longest,
    /// The name of the rule in force; `None` while no rule uses this circuit.
    name: Lock<Option<StdArc<str>>>,
}

/// The longest times of all rules that the circuit has had, because a call that has waited may
/// still use an older rule.
///
/// Relaxed: the times of a rule are raised before any moment of that rule is written (release).
#[derive(Debug)]
struct Longest {
    /// The longest time that a probe holds its place, in ns. It is at least the initial open time
    /// of a breaker.
    lease: AtomicU64,
    /// The longest time that a breaker is open before it may be probed, in ns.
    open: AtomicU64,
}

/// A breaker's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitAnswer {
    /// The breaker is closed, and the call may pass.
    Pass,
    /// The call may pass as a probe.
    Probe,
    /// The call is refused until this time; `None` if the end depends on an operator.
    Refuse(Option<Tick>),
}

/// The end of a call, as reported to a breaker.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The time at which the call ended.
    pub(super) now: Tick,
    /// The epoch at which the call was admitted.
    pub(super) epoch: u32,
    /// Whether the call was bad by the criterion of the rule.
    pub(super) is_bad: bool,
}

/// The changes to report. Four are stored inline, because hardly any resource has more breakers.
pub(super) type StateChanges = SmallVec<Change, 4>;

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::breaker::packed::StateKind;
    use crate::breaker::tests::stage::{at, ms, spec};

    #[test]
    fn the_later_of_two_moments_of_a_version_wins() {
        let breaker = Breaker::new(spec(), 0, Tick::ZERO, 0, None);
        let refused = |until| (breaker.word(), CircuitAnswer::Refuse(Some(at(until))));
        let closed = breaker.word();
        let open = closed.opened(StateKind::OpenUntil);
        assert!(breaker.swap(closed, open));
        for (time, expected) in [(1_000, 1_000), (500, 1_000), (1_500, 1_500)] {
            breaker.publish(open, at(time));
            assert_eq!(breaker.ask(at(0)), refused(expected));
        }
        // A time that is written late, for a version that is over, does not change the moment.
        let next = open.opened(StateKind::OpenUntil);
        assert!(breaker.swap(open, next));
        breaker.publish(next, at(500));
        for past in [closed, open] {
            breaker.publish(past, at(1_800));
            assert_eq!(breaker.ask(at(0)), refused(500));
        }
    }

    #[test]
    fn the_successor_of_an_open_breaker_without_a_written_time_is_open() {
        let old = Breaker::new(spec(), 0, Tick::ZERO, 0, None);
        let closed = old.word();
        // The thread that has opened the breaker sleeps before it writes the moment.
        assert!(old.swap(closed, closed.opened(StateKind::OpenUntil)));
        let otherwise = BreakerSpec {
            interval: ms(5_000),
            ..spec()
        };
        let new = Breaker::new(otherwise, 0, at(7_000), 1, Some(&old));
        let refused = CircuitAnswer::Refuse(Some(at(9_000)));
        assert_eq!(new.ask(at(7_000)).1, refused);
        old.publish(old.word(), at(8_000));
        assert_eq!(new.ask(at(7_000)).1, refused, "it has written its own");

        // The time that the asking thread writes grows with the number of failed probes.
        let spec = BreakerSpec {
            open_up_to: Some(ms(60_000)),
            ..spec()
        };
        let breaker = Breaker::new(spec, 0, Tick::ZERO, 0, None);
        let open = breaker.word().failed_once_more().failed_once_more();
        assert!(breaker.swap(breaker.word(), open));
        let refused = CircuitAnswer::Refuse(Some(at(15_000)));
        assert_eq!(breaker.ask(at(7_000)), (open, refused));
    }
}
