//! What readers see beside takers, borrowers and rolls is true of some moment.
//!
//! Every figure is put together from several words. Here the twins leave out what
//! makes sure that they belong together.

use loom::thread;

use crate::stat::cuts::StepHead;
use crate::stat::extremes::{Extreme, Extremes};
use crate::sync::Arc;
use crate::sync::fault::model;

model! {
    a_late_opener_of_extremes at 2 fails with
        an_opener_that_does_not_look_where_the_head_is: OpenLate;
    || {
        // One place for all buckets. A helper opens 11 while others are at 12.
        let seen = Arc::new((StepHead::new(10), Extremes::new(1, 10)));
        seen.1.note_rt(10, 9);
        let open_after = |seen: &(StepHead, Extremes), step| {
            seen.0.advance(step, |next, stands| seen.1.open(next, stands));
        };
        let other = seen.clone();
        let helper = thread::spawn(move || open_after(&other, 10));
        open_after(&seen, 10);
        open_after(&seen, 11);
        seen.1.note_rt(12, 5);
        helper.join().unwrap();
        let expected = Extreme { min_rt_us: Some(5), max_concurrency: 0 };
        assert_eq!(seen.1.get(12), expected, "wiped");
    }
}
