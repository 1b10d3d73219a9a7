//! Models of checkpoints that are taken concurrently with additions to a counter.

use loom::thread;

use crate::base::spread::SpreadCount;
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::stat::checkpoints::{Checkpoints, StepHead};

/// A counter with its checkpoints, like those of a node.
struct Counted {
    head: StepHead,
    counter: SpreadCount,
    cuts: Checkpoints<1>,
}

impl Counted {
    fn new() -> Arc<Self> {
        let counter = SpreadCount::default();
        // The stripes are created first: loom does not see that their creation orders threads.
        counter.add_in_crowd(0);
        Arc::new(Self {
            head: StepHead::new(10),
            counter,
            cuts: Checkpoints::new(4, 10),
        })
    }

    /// Counts an event in `step` or in a later step.
    fn event(&self, step: u64) {
        self.come_to(step);
        self.counter.add(1);
    }

    /// Counts an event as `event` does, but in the stripe of this thread.
    fn event_in_crowd(&self, step: u64) {
        self.come_to(step);
        self.counter.add_in_crowd(1);
    }

    /// Moves the head to `step`, and takes the checkpoints on the way.
    fn come_to(&self, step: u64) {
        while self.head.step() < step {
            self.head.advance(self.head.step(), |next, stands| {
                self.cuts.publish(next, 0, self.counter.sum(), stands)
            });
        }
    }
}

model! {
    checkpoints_during_additions_lose_no_event at 3
        fails with a_head_that_moves_first: HeadBeforeCut;
    || {
        let counted = Counted::new();
        let others = [11, 12].map(|step| {
            let counted = counted.clone();
            thread::spawn(move || counted.event(step))
        });
        counted.event(10);
        for thread in others {
            thread.join().unwrap();
        }
        let cut = |step| counted.cuts.get(step, 0).expect("the cut stands");
        assert_eq!(counted.counter.sum(), 3, "lost");
        // No event counts in a step before the one of its clock reading.
        assert!(cut(11) <= 1 && cut(12) <= 2 && cut(11) <= cut(12));
    }
}

model! {
    checkpoints_during_a_count_in_stripes at 2 fails with
        a_head_that_moves_before_the_sum: HeadBeforeCut;
    || {
        let counted = Counted::new();
        let other = counted.clone();
        // One thread still counts in its stripe when the other thread counts in the shared word
        // again.
        let crowd = thread::spawn(move || {
            other.event_in_crowd(11);
            other.event_in_crowd(12);
        });
        counted.event_in_crowd(10);
        counted.event(12);
        crowd.join().unwrap();
        assert_eq!(counted.counter.sum(), 4, "lost");
        let cut = |step| counted.cuts.get(step, 0).expect("the cut stands");
        assert!(cut(11) <= 1 && cut(11) <= cut(12) && cut(12) <= 2);
    }
}
