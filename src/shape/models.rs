//! Models for loom: every interleaving of a few threads over the pacing types.
//!
//! Each model has a twin with a planted bug that must fail. The models run together with those of
//! `stat`, with the test filter `models`.

use std::time::Duration;

use loom::thread;

use super::throttle::{Throttle, Turn};
use super::warm_up::WarmUp;
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::clock::Tick;

fn at(now: u64) -> Tick {
    Tick::from_nanos(now)
}

fn join(queue: &Throttle, now: u64, cost: u64, max_wait: u64) -> Result<Turn, Option<Tick>> {
    queue.join(at(now), cost, Duration::from_nanos(max_wait))
}

/// Returns the sorted starts of turns. Asserts that no two are closer than `cost`.
fn apart(turns: impl IntoIterator<Item = Turn>, cost: u64) -> Vec<u64> {
    let mut starts: Vec<_> = turns
        .into_iter()
        .map(|turn| turn.start().as_nanos())
        .collect();
    starts.sort_unstable();
    let close = starts.windows(2).any(|two| two[1] - two[0] < cost);
    assert!(!close, "closer than {cost}: {starts:?}");
    starts
}

// The turns of calls at an idle queue keep their distance and leave no gaps.
model! {
    three_callers_at_an_idle_queue at 3 fails with callers_that_store_at_idle: StoreAtIdle;
    || {
        let queue = Arc::new(Throttle::new());
        let others = [0, 3].map(|now| {
            let queue = queue.clone();
            thread::spawn(move || join(&queue, now, 10, 100).unwrap())
        });
        let ours = join(&queue, 0, 10, 100).unwrap();
        let theirs = others.map(|thread| thread.join().unwrap());
        let starts = apart([ours].into_iter().chain(theirs), 10);
        // The queue has no gaps.
        assert_eq!(starts[2] - starts[0], 20);
    }
}

// Exactly one of two calls that cannot wait passes at a queue that has become idle.
model! {
    callers_at_a_queue_that_is_idle_again at 3 fails with callers_that_store_when_idle: StoreAtIdle;
    || {
        let queue = Arc::new(Throttle::new());
        let first = join(&queue, 0, 10, 0).unwrap();
        let other = queue.clone();
        let thread = thread::spawn(move || join(&other, 50, 10, 0).ok());
        let ours = join(&queue, 51, 10, 0).ok();
        let theirs = thread.join().unwrap();
        assert!(ours.is_some() != theirs.is_some(), "both or none");
        apart([first].into_iter().chain(ours).chain(theirs), 10);
    }
}

model! {
    a_refused_call_and_a_light_one at 3 fails with calls_that_move_first: MoveThenCheck;
    || {
        // The heavy call can never pass. The light call must always pass.
        let queue = Arc::new(Throttle::new());
        let first = join(&queue, 0, 10, 0).unwrap();
        let other = queue.clone();
        let light = thread::spawn(move || join(&other, 0, 10, 50));
        assert!(join(&queue, 0, 1_000, 50).is_err());
        let light = light.join().unwrap();
        assert_eq!(light.map(|turn| turn.start()), Ok(at(10)));
        apart([first].into_iter().chain(light), 10);
    }
}

// Exactly one of two calls gets the only turn within the maximum wait.
model! {
    two_callers_for_the_last_turn at 3 fails with two_calls_that_move_first: MoveThenCheck;
    || {
        let queue = Arc::new(Throttle::new());
        let first = join(&queue, 0, 10, 0).unwrap();
        let other = queue.clone();
        let thread = thread::spawn(move || join(&other, 0, 10, 10).ok());
        let ours = join(&queue, 0, 10, 10).ok();
        let theirs = thread.join().unwrap();
        assert!(ours.is_some() != theirs.is_some(), "both or none");
        apart([first].into_iter().chain(ours).chain(theirs), 10);
    }
}

// A cancelled turn is used again, unless another call is behind it.
model! {
    a_caller_and_a_leaver at 3 fails with a_leaver_that_cancels_blindly: BlindLeave;
    || {
        let queue = Arc::new(Throttle::new());
        let first = join(&queue, 0, 10, 0).unwrap();
        let leaver = join(&queue, 0, 10, 100).unwrap();
        let other = queue.clone();
        let thread = thread::spawn(move || other.cancel(leaver));
        let second = join(&queue, 0, 10, 100).unwrap();
        let left = thread.join().unwrap();
        let third = join(&queue, 0, 10, 100).unwrap();
        let starts = apart([first, second, third], 10);
        // The place of a cancelled turn is reused. A turn that could not be cancelled leaves a gap.
        assert_eq!(starts[2], if left { 20 } else { 30 });
    }
}

// Turns keep their distance, and only turns that could not be cancelled leave gaps.
model! {
    two_leavers_and_a_caller at 3 fails with two_leavers_that_cancel_blindly: BlindLeave;
    || {
        let queue = Arc::new(Throttle::new());
        let others = [0, 1].map(|_| {
            let queue = queue.clone();
            thread::spawn(move || {
                let turn = join(&queue, 0, 10, 100).unwrap();
                queue.cancel(turn)
            })
        });
        let ours = join(&queue, 0, 10, 100).unwrap();
        let left = others.map(|thread| thread.join().unwrap());
        let next = join(&queue, 0, 10, 100).unwrap();
        apart([ours, next], 10);
        let gaps = left.iter().filter(|&&left| !left).count() as u64;
        assert!(next.start() <= at(10 + gaps * 10), "a turn is lost");
    }
}

// Of two callers that find a refill due, one does it.
model! {
    one_refill_of_a_warm_up at 3 fails with a_refill_for_everyone: FillUnclaimed;
    || {
        let second = |n: u64| Tick::from_millis(n * 1_000);
        let rule = WarmUp::new(10.0, Duration::from_secs(1), Duration::from_secs(10), 3.0);
        rule.limit(second(1), None, || 0);
        let rule = Arc::new(rule);
        let other = rule.clone();
        let thread = thread::spawn(move || other.limit(second(2), None, || 40));
        let ours = rule.limit(second(2), None, || 40);
        let theirs = thread.join().unwrap();
        // 40 of the 100 tokens are removed once. No caller sees a limit of any other number of
        // tokens.
        assert_eq!(rule.stored(), 60.0);
        let cold = [ours, theirs].map(|limit| limit < 4.0 || (7.1..7.2).contains(&limit));
        assert_eq!(cold, [true; 2], "{ours} {theirs}");
    }
}

// The refills of two successive steps both count.
model! {
    refills_of_two_steps at 3 fails with a_refill_that_does_not_compare: FillBlind;
    || {
        let second = |n: u64| Tick::from_millis(n * 1_000);
        let rule = WarmUp::new(10.0, Duration::from_secs(1), Duration::from_secs(10), 3.0);
        rule.limit(second(1), None, || 0);
        let rule = Arc::new(rule);
        let other = rule.clone();
        let thread = thread::spawn(move || other.limit(second(3), None, || 70));
        rule.limit(second(2), None, || 40);
        thread.join().unwrap();
        // If the call at 3 s lost the claim to the refill of the previous step, this call does the
        // refill.
        rule.limit(second(3), None, || 70);
        // If both refills run, 70 tokens are removed, in one or two parts. A caller that has
        // nothing to remove finds the rule idle and adds 10, which leaves 40. If the second step
        // had no call, no tokens are removed.
        let stored = rule.stored();
        assert!([30.0, 40.0, 100.0].contains(&stored), "{stored}");
    }
}

// The count of passes never decreases, so no tokens are subtracted twice.
model! {
    a_refill_and_that_of_the_next_step at 2
        fails with a_refill_that_counts_back: PassedGoesBack;
    || {
        let second = |n: u64| Tick::from_millis(n * 1_000);
        let rule = WarmUp::new(10.0, Duration::from_secs(1), Duration::from_secs(10), 3.0);
        rule.limit(second(1), None, || 0);
        let rule = Arc::new(rule);
        // Gives loom a point at which a thread may sleep, because it explores none between two
        // loads.
        let asked = Arc::new(AtomicU64::new(0));
        let ask = |asked: &AtomicU64, passed| {
            asked.fetch_add(1, Ordering::Relaxed);
            passed
        };
        let other = (rule.clone(), asked.clone());
        let thread = thread::spawn(move || {
            let (rule, asked) = other;
            rule.limit(second(3), None, || ask(&asked, 70));
        });
        rule.limit(second(2), None, || ask(&asked, 40));
        thread.join().unwrap();
        rule.limit(second(3), None, || 70);
        rule.limit(second(4), None, || 100);
        // The 30 tokens of the last step are removed from the values of the previous model. Below
        // the warning line, 10 tokens were added before.
        let stored = rule.stored();
        assert!([10.0, 20.0, 70.0].contains(&stored), "{stored}");
    }
}
