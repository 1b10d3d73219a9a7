//! Models of windows with large limits, whose two buckets have a word each.

use std::time::Duration;

use super::{A, B, at, spawn};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::keyed::table::KeyTable;
use crate::keyed::{Counting, Digest, HotKeys, KeyLimit, KeySpec, KeyTokens};

/// Half a window, in microseconds.
const BUCKET: u64 = 500_000;

/// Creates keys with wide windows, in two tables of `slots` slots.
fn keys(slots: usize) -> Arc<HotKeys> {
    let spec = KeySpec {
        count: Counting::Window,
        interval: Duration::from_secs(1),
        max_keys: 1,
    };
    let [even, odd] = [(); 2].map(|()| KeyTable::of_sets(slots));
    Arc::new(HotKeys::of_table(even, spec, Tick::ZERO).with_odd_buckets(odd))
}

/// Takes one token of `key` at `us`, under `limit`.
fn take(keys: &HotKeys, us: u64, key: Digest, limit: u32) -> Option<KeyTokens> {
    keys.take(at(us), key, &KeyLimit::WideWindow(limit), 1).ok()
}

model! {
    two_calls_at_the_edge_of_a_wide_bucket at 3;
    || {
        // One of the calls has read the clock just before the edge. Both buckets are in one window.
        let keys = keys(1);
        let late = spawn(&keys, |keys| take(keys, BUCKET - 1, A, 1).is_some());
        let ours = take(&keys, BUCKET, A, 1).is_some();
        let theirs = late.join().unwrap();
        assert!(ours != theirs, "both or none");
    }
}

model! {
    a_call_two_buckets_after_another at 3;
    || {
        // A call in the third bucket replaces the word of the first bucket, while a call of the
        // second bucket reads it.
        let keys = keys(1);
        let _ = take(&keys, 0, A, 2).unwrap();
        let late = spawn(&keys, |keys| take(keys, BUCKET, A, 2).is_some());
        let ours = take(&keys, 2 * BUCKET, A, 2).is_some();
        let theirs = late.join().unwrap();
        assert!(ours && theirs, "the second and third bucket have room for both");
        assert!(take(&keys, 2 * BUCKET, A, 2).is_none());
    }
}

model! {
    a_refund_at_the_end_of_its_wide_bucket at 3;
    || {
        // The limit is one token. The refund in the first bucket frees it, while a call in the
        // second bucket closes the first.
        let keys = keys(1);
        let first = take(&keys, 0, A, 1).unwrap();
        let refund = spawn(&keys, move |keys| keys.refund(|| at(BUCKET), &first));
        let ours = take(&keys, BUCKET, A, 1).is_some();
        refund.join().unwrap();
        let again = take(&keys, BUCKET, A, 1).is_some();
        assert!(ours != again, "one token is free once");
    }
}

model! {
    two_keys_for_the_last_slots_of_wide_buckets at 3;
    || {
        // Each key takes a token from a separate word, or from the word that keys without a slot
        // share.
        let keys = keys(1);
        let other = spawn(&keys, |keys| take(keys, 0, B, 1).is_some());
        let ours = take(&keys, 0, A, 1).is_some();
        let theirs = other.join().unwrap();
        assert!(ours && theirs);
        let again = [A, B].map(|key| take(&keys, 0, key, 1).is_some());
        assert_eq!(again, [false; 2], "each has had its one");
    }
}
