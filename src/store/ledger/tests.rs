//! Tests of how a ledger shares, books and reports the permits of its window.

use std::time::Duration;

use super::*;
use crate::store::draw::Booking;
use crate::store::settings::WhenDown;
use crate::store::terms::Nodes;
use crate::store::ticket::Asker;

const BUCKET: Duration = Duration::from_millis(100);

/// Creates a ledger that has received no answer.
fn ledger(limit: u32, buckets: u32) -> Ledger {
    let terms = Terms {
        limit,
        per_node: false,
        exact: false,
        when_down: WhenDown::LocalShare,
        local_limit: None,
        ahead: 0,
        by_key: false,
        by_cost: false,
        wait_us: 50_000,
    };
    Ledger::new(Arc::new(terms), Arc::new(Window::new(BUCKET, buckets)))
}

fn nodes(count: u32, rank: u32) -> Nodes {
    Nodes {
        count,
        rank: Some(rank),
    }
}

fn ms(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

/// Creates a ledger whose store was asked at 1 000 ms, and answered at 1 002 ms that bucket 7 lasts
/// for 40 ms more.
fn answered(limit: u32, buckets: u32, free: u32) -> Ledger {
    let mut ledger = ledger(limit, buckets);
    let rest = Duration::from_millis(40);
    ledger.see(Seen::new(7, rest, ms(1_000), ms(1_002)), free);
    ledger
}

#[test]
fn shares_add_up_to_the_limit() {
    for (limit, count) in [(10, 3), (0, 4), (2, 5), (1_000, 7)] {
        let shares = (0..count).map(|rank| nodes(count, rank).share(limit));
        assert_eq!(shares.sum::<u32>(), limit);
    }
}

#[test]
fn a_process_without_a_rank_has_an_equal_share_and_at_least_one() {
    for (limit, count, share) in [(10, 3, 3), (3, 5, 1), (1, 65_535, 1), (0, 4, 0), (8, 1, 8)] {
        let rank = None;
        assert_eq!(
            Nodes { count, rank }.share(limit),
            share,
            "{limit} of {count}"
        );
    }
}

/// Five processes share three permits that were free when the store stopped answering.
#[test]
fn free_permits_of_the_last_answer_are_shared_to_the_last_one() {
    let shares = (0..5).map(|rank| answered(100, 1, 3).share_left(7, nodes(5, rank)));
    assert_eq!(shares.collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
}

#[test]
fn a_refill_asks_for_free_permits_in_proportion_to_those_drawn() {
    let nodes = nodes(10, 0);
    let divisor = |drawn, free, at| {
        let mut ledger = answered(100, 1, 100);
        ledger.book_drawn(7, drawn);
        let rest = Duration::from_millis(40);
        ledger.see(Seen::new(7, rest, ms(1_000), ms(1_002)), free);
        ledger.divisor(ms(at), nodes)
    };
    assert_eq!(divisor(40, 60, 1_010), 1, "all that was drawn");
    assert_eq!(divisor(20, 40, 1_010), 3);
    assert_eq!(divisor(1, 40, 1_010), 10, "no less than an equal part");
    assert_eq!(divisor(0, 40, 1_010), 10);
    assert_eq!(divisor(40, u32::MAX, 1_010), 10, "nothing is known");
    assert_eq!(divisor(40, 60, 1_050), 10, "of a bucket that is over");
}

#[test]
fn between_answers_buckets_advance_by_the_local_clock() {
    let ledger = answered(10, 2, 10);
    let here = ledger.here(ms(1_041));
    assert_eq!((here.number, here.next), (7, ms(1_042)));
    assert!(
        here.end < ms(1_040) && here.end > ms(1_039),
        "{:?}",
        here.end
    );
    assert_eq!(ledger.here(ms(1_042)).number, 8);
    let later = ledger.here(ms(1_242));
    assert_eq!((later.number, later.next), (10, ms(1_342)));
    for (end, bucket) in [
        (740, 4),
        (940, 6),
        (1_040, 7),
        (1_042, 7),
        (1_141, 8),
        (1_240, 9),
    ] {
        assert_eq!(ledger.bucket_of(BucketEnd::at(ms(end))), bucket, "{end}");
    }
}

#[test]
fn without_the_store_a_process_has_its_share_less_its_own_permits() {
    let two = nodes(2, 0);
    let mut ledger = answered(100, 2, 60);
    ledger.book_drawn(7, 10);
    ledger.see(ledger.last, 60);
    // Half of the limit is 50, but the 10 permits of this process and half of the 60 free permits
    // make only 40.
    assert_eq!(ledger.share_left(7, two), 30);
    ledger.book_local(7, 30);
    assert_eq!(ledger.share_left(7, two), 0);
    assert_eq!(ledger.local_room_at(ms(1_010), two), ms(1_142));
    // From bucket 9 on, the window contains no bucket that the answer covers.
    assert_eq!(ledger.share_left(8, two), 0);
    assert_eq!(ledger.share_left(9, two), 50);
    ledger.terms = Arc::new(Terms {
        local_limit: Some(5),
        ..*ledger.terms
    });
    assert_eq!(ledger.share_left(9, two), 5);
}

#[test]
fn reports_name_what_the_store_does_not_know() {
    let mut ledger = answered(100, 2, 60);
    assert!(!ledger.must_report(Report::Local, ms(1_010)));
    ledger.book_drawn(7, 10);
    ledger.book_local(7, 3);
    let booked = |ledger: &Ledger, at| -> Vec<_> {
        let all = ledger.to_report(ms(at));
        all.iter()
            .map(|booked| (booked.bucket, booked.permits))
            .collect()
    };
    assert!(ledger.must_report(Report::Local, ms(1_010)));
    assert_eq!(booked(&ledger, 1_010), [(7, 3)]);
    assert!(ledger.must_report(Report::All, ms(1_010)));
    assert_eq!(booked(&ledger, 1_050), [(7, 13)]);
    assert_eq!(booked(&ledger, 1_150), [], "the bucket has left the window");
    let unknown = ledger.unknown(ms(1_010));
    ledger.book_local(7, 2);
    ledger.reported(&unknown, Report::All, ms(1_010));
    assert_eq!(booked(&ledger, 1_010), [(7, 2)], "taken meanwhile");
    let unknown = ledger.unknown(ms(1_010));
    ledger.reported(&unknown, Report::Local, ms(1_010));
    assert!(
        !ledger.must_report(Report::Local, ms(1_010)),
        "it knows them now"
    );
    assert_eq!(ledger.held(8), 15);
}

#[test]
fn returned_permits_are_unbooked_once() {
    let mut ledger = answered(100, 2, 60);
    ledger.book_drawn(7, 10);
    ledger.book_local(7, 3);
    // The store never counted the three local permits, so only two are returned to it.
    assert_eq!(ledger.return_later(7, 5), 0);
    assert_eq!((ledger.held(7), ledger.back()[0].permits), (8, 2));
    assert_eq!(ledger.return_later(7, 1), 0);
    assert_eq!(ledger.back()[0].permits, 3);
    assert_eq!(
        ledger.return_later(4, 6),
        0,
        "nothing is on the books there"
    );
}

#[test]
fn an_epoch_is_known_as_long_as_own_permits_count() {
    let mut ledger = answered(100, 2, 60);
    ledger.set_epoch(Epoch(5));
    assert_eq!(ledger.known_epoch(ms(1_010)), Epoch(0));
    ledger.book_drawn(7, 1);
    assert_eq!(ledger.known_epoch(ms(1_010)), Epoch(5));
    assert_eq!(ledger.known_epoch(ms(1_141)), Epoch(5));
    assert_eq!(ledger.known_epoch(ms(1_142)), Epoch(0));
}

#[test]
fn permits_from_before_a_step_back_of_the_clock_are_reported_once() {
    let mut ledger = answered(100, 2, 60);
    ledger.book_drawn(7, 10);
    ledger.book_local(8, 5);
    // The store's clock goes back by four buckets.
    let rest = Duration::from_millis(40);
    ledger.see(Seen::new(3, rest, ms(1_010), ms(1_010)), 60);
    assert_eq!(ledger.held(3), 15, "all of it is in the present bucket");
    ledger.must_report(Report::All, ms(1_010));
    let booked = |bucket, permits| vec![Booking { bucket, permits }];
    assert_eq!(ledger.to_report(ms(1_010)), booked(3, 15));
    for later in [200, 400, 500] {
        assert_eq!(ledger.to_report(ms(1_010 + later)), [], "{later} ms later");
    }
}

/// If other permits were returned at once as well, each unused permit would cost a draw.
#[test]
fn only_borrowed_permits_are_returned_without_another_draw() {
    let mut ledger = answered(100, 2, 60);
    ledger.book_drawn(6, 1);
    ledger.book_drawn(7, 1);
    ledger.return_later(6, 1);
    ledger.return_later(7, 1);
    assert!(ledger.returns() && !ledger.returns_ahead(7));
    ledger.book_drawn(8, 1);
    ledger.return_later(8, 1);
    assert!(ledger.returns_ahead(7));
}

#[test]
fn calls_that_asked_ahead_wait_normally_once_their_bucket_begins() {
    let mut ledger = answered(100, 2, 0);
    let asker = || Asker {
        weight: 1,
        latest: Some(ms(1_200)),
        asked: ms(1_000),
        slot: Arc::default(),
    };
    ledger.ask_ahead(asker(), ms(1_010));
    ledger.arrive(ms(1_030));
    assert!(ledger.asks_ahead() && ledger.tickets().is_empty());
    ledger.arrive(ms(1_050));
    assert!(!ledger.asks_ahead() && ledger.tickets().len() == 1);
    ledger.ask_ahead(asker(), ms(1_060));
    ledger.ask_ahead(asker(), ms(1_150));
    assert!(ledger.asks_ahead() && ledger.tickets().len() == 2);
}

#[test]
fn permits_are_returned_to_their_own_bucket_or_dropped() {
    let with_back = |drawn: u32| {
        let mut ledger = answered(100, 2, 60);
        ledger.set_epoch(Epoch(5));
        ledger.book_drawn(7, drawn);
        assert_eq!(ledger.return_later(7, 4), 0);
        ledger
    };
    let back = |ledger: &Ledger| ledger.back().iter().map(|back| back.permits).sum::<u32>();

    // The store counted the permits in epoch 5. A store that has lost its data does not know them.
    let mut ledger = with_back(4);
    assert_eq!(ledger.known_epoch(ms(1_010)), Epoch(5));
    assert_eq!((ledger.forget_stale_back(ms(1_010)), back(&ledger)), (0, 4));

    // The bucket is in the window until 1 142 ms. After that, permits for it are dropped.
    assert_eq!((ledger.forget_stale_back(ms(1_141)), back(&ledger)), (0, 4));
    assert_eq!((ledger.forget_stale_back(ms(1_142)), back(&ledger)), (4, 0));
    assert_eq!(ledger.known_epoch(ms(1_142)), Epoch(0));

    // The store's clock goes back, so the store counts the permits in another bucket, or not at
    // all.
    let mut ledger = with_back(9);
    let rest = Duration::from_millis(40);
    ledger.see(Seen::new(3, rest, ms(1_010), ms(1_010)), 60);
    assert_eq!(back(&ledger), 0);

    // After the store has lost its data, permits scheduled for return are not reported.
    let mut ledger = with_back(9);
    ledger.must_report(Report::All, ms(1_010));
    let booked = vec![Booking {
        bucket: 7,
        permits: 5,
    }];
    assert_eq!((ledger.to_report(ms(1_010)), back(&ledger)), (booked, 0));
}
