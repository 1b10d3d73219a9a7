//! Every interleaving of calls, refunds and a refiller over one cell, checked by loom.
//!
//! Each model counts what is taken, what is given back and what is left, and has a twin
//! with a planted bug that must fail.

use std::time::Duration;

use loom::thread;

use super::cell::{BucketEnd, Cell, Found};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;

const BUCKET: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn first() -> BucketEnd {
    BucketEnd::at(ms(100))
}

fn second() -> BucketEnd {
    BucketEnd::at(ms(200))
}

fn cell(permits: u32) -> Arc<Cell> {
    let cell = Cell::default();
    cell.put(first(), permits, BUCKET);
    Arc::new(cell)
}

/// Runs `body` on a thread of its own.
fn spawn<R: 'static>(
    cell: &Arc<Cell>,
    body: impl FnOnce(&Cell) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cell = cell.clone();
    thread::spawn(move || body(&cell))
}

/// One permit at so many milliseconds, and whether it is one of the first bucket.
fn take(cell: &Cell, at: u64) -> Option<bool> {
    match cell.take(ms(at), 1) {
        Found::Taken(end) => Some(end.is_bucket_of(first(), BUCKET)),
        _ => None,
    }
}

fn left(cell: &Cell) -> u32 {
    cell.withdraw(u32::MAX).map_or(0, |(_, left)| left)
}

model! {
    takers_of_one_permit at 3 fails with takers_who_subtract_blindly: LeaseBareTake;
    || {
        let cell = cell(1);
        let other = spawn(&cell, |cell| take(cell, 10).is_some());
        let ours = take(&cell, 10).is_some();
        assert!(ours != other.join().unwrap(), "one permit");
        assert_eq!(left(&cell), 0);
    }
}

model! {
    a_taker_beside_the_close_of_its_lease at 3 fails with
        a_close_that_returns_what_was_taken: LeaseBlindClose;
    || {
        // The taker has read the clock before the end, the closer after it.
        let cell = cell(2);
        let taker = spawn(&cell, |cell| u32::from(take(cell, 99).is_some()));
        let closed = cell.close(ms(100)).map_or(0, |(_, closed)| closed);
        let taken = taker.join().unwrap();
        assert_eq!(taken + closed + left(&cell), 2);
    }
}

model! {
    a_taker_beside_more_of_the_same_bucket at 3 fails with
        more_that_is_stored_over_a_take: LeaseBlindPut;
    || {
        let cell = cell(1);
        let taker = spawn(&cell, |cell| u32::from(take(cell, 10).is_some()));
        let out = cell.put(first(), 2, BUCKET);
        let taken = taker.join().unwrap();
        assert_eq!(taken + left(&cell) + out.new + out.old, 3);
    }
}

model! {
    a_taker_beside_the_lease_of_the_next_bucket at 3 fails with
        a_next_lease_that_is_stored_over_a_take: LeaseBlindPut;
    || {
        let cell = cell(1);
        let taker = spawn(&cell, |cell| take(cell, 99));
        let out = cell.put(second(), 1, BUCKET);
        let taken = taker.join().unwrap();
        let of_first = u32::from(taken == Some(true));
        let of_second = u32::from(taken == Some(false));
        assert_eq!((of_first + out.old, of_second + left(&cell)), (1, 1));
    }
}

model! {
    a_refund_beside_the_lease_of_the_next_bucket at 3 fails with
        a_refund_that_goes_to_the_next_bucket: LeaseBlindRefund;
    || {
        let cell = cell(1);
        assert_eq!(take(&cell, 10), Some(true));
        let refund = spawn(&cell, |cell| cell.refund(first(), 1, ms(50), BUCKET));
        let out = cell.put(second(), 1, BUCKET);
        let came_back = u32::from(refund.join().unwrap());
        assert_eq!(left(&cell), 1, "the next bucket has its one");
        assert_eq!(out.old, came_back, "what came back came out");
    }
}

model! {
    exhausted_beside_a_lease at 3 fails with a_lease_that_is_said_to_be_none: LeaseBlindExhaust;
    || {
        let cell = Arc::new(Cell::default());
        let refiller = spawn(&cell, |cell| cell.put(first(), 1, BUCKET));
        cell.exhaust(ms(100));
        refiller.join().unwrap();
        assert_eq!(left(&cell), 1, "a permit that was granted is there");
    }
}
