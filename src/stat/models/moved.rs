//! A model of a reload: a call that passed on the old ring of a node ends concurrently with calls
//! on the new ring.

use std::sync::Arc as StdArc;
use std::time::Duration;

use loom::thread;

use super::quota;
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::stat::leap_array::Grid;
use crate::stat::shape::Shape;
use crate::stat::{Node, Outcome};

model! {
    an_end_on_the_old_ring_during_a_pass_on_the_new_ring at 2 fails with
        a_cut_that_the_old_ring_makes: CutFromOldRing;
    || {
        let at = |seconds: u64| Tick::from_millis(1_000 * seconds);
        let grid = |buckets| Grid { bucket_ns: 1_000_000_000, buckets, ahead: 1 };
        let shape = StdArc::new(Shape::new(1_000_000_000, 1));
        let old = Node::with_grid(grid(1), shape, true, at(0));
        old.pass(at(0), 1);
        old.pass(at(1), 1);
        let ending = old.clone();
        let ending = thread::spawn(move || {
            ending.complete(at(2), 1, Duration::from_secs(1), Outcome::Success);
        });
        let new = old.over(Arc::new(old.ring().move_to(grid(2), at(1))));
        // The call counts in bucket 2 if the other thread has moved the head there first. The call
        // takes tokens of a quota, because `add` does not always know the bucket that counted it.
        let bucket = new.acquire(at(1), 1, &[quota(1, 9)]).unwrap().bucket;
        ending.join().unwrap();
        let before = new.previous_second(at(2)).unwrap().pass();
        assert_eq!(before, if bucket == 1 { 2 } else { 1 });
    }
}
