//! Rules on what calls cost, over several engines of one store.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::Tick;
use tower_sentinel::read::BudgetSnapshot;
use tower_sentinel::store::{Fault, StoreErrorKind, WhenDown};
use tower_sentinel::{BlockKind, Call, Clock, Entry, FlowRule, Rules, Sentinel, SentinelLayer};

use super::{Fleet, SECOND, ms};

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A limit of 100 a minute in one bucket.
fn hundred() -> FlowRule {
    FlowRule::per_minute("chat", 100)
        .buckets(1)
        .cost("tokens")
        .shared()
}

fn chat(reserved: u32) -> Call<'static> {
    Call::new("chat").reserve("tokens", reserved)
}

async fn passes(engine: &Sentinel, reserved: u32) -> bool {
    engine.enter(chat(reserved)).await.is_ok()
}

async fn enter(engine: &Sentinel, reserved: u32) -> Entry {
    engine.enter(chat(reserved)).await.unwrap()
}

/// Long enough for the store to be told, and to be asked again.
async fn a_moment() {
    tokio::time::sleep(ms(25)).await;
}

fn budget(engine: &Sentinel) -> BudgetSnapshot {
    let budgets = engine.node("chat").expect("it was called").budgets();
    let [budget] = &budgets[..] else {
        panic!("one rule limits costs: {budgets:?}");
    };
    budget.clone()
}

impl Fleet {
    /// At the beginning of a minute of the store's clock.
    pub(super) async fn of_minutes<const N: usize>(rules: impl Into<Rules>) -> Self {
        let fleet = Self::new::<N>(rules).await;
        fleet.next(MINUTE).await;
        fleet
    }

    /// The time since the beginning of the store's clock.
    pub(super) fn store_time(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + (self.clock.now() - Tick::ZERO)
    }

    /// Sleeps until the next bucket of this length begins.
    pub(super) async fn next(&self, bucket: Duration) {
        let since = self.store_time().as_nanos() % bucket.as_nanos();
        tokio::time::sleep(bucket - Duration::from_nanos(since as u64) + ms(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn engines_reserve_of_one_budget_and_give_back_what_they_do_not_use() {
    let fleet = Fleet::of_minutes::<2>(hundred()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 60).await;
    let refused = two.enter(chat(60)).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Flow, Some(100))
    );
    let retry_after = refused.retry_after().unwrap();
    assert!(
        retry_after > SECOND * 59 && retry_after < SECOND * 61,
        "{retry_after:?}"
    );
    // Another one may want less, at once.
    let small = enter(two, 40).await;
    assert!(!passes(one, 1).await);
    first.settle("tokens", 10);
    a_moment().await;
    let second = enter(two, 50).await;
    assert!(!passes(one, 1).await, "10 are charged and 90 reserved");
    drop((small, second));
    // They have told nothing, so they are charged what they have reserved.
    a_moment().await;
    assert!(!passes(one, 1).await);
    fleet.next(MINUTE).await;
    assert!(passes(one, 100).await);
}

#[tokio::test(start_paused = true)]
async fn a_local_rule_keeps_each_engine_to_the_number_that_its_provider_reported() {
    let local = FlowRule::per_minute("chat", 100)
        .buckets(1)
        .cost("tokens")
        .id("local");
    let fleet = Fleet::of_minutes::<2>(Rules::new().with(hundred()).with(local)).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 10).await;
    first.settle("tokens", 10);
    first.meter().left("tokens", 20, SECOND * 30);
    drop(first);
    let refused = one.enter(chat(21)).await.unwrap_err();
    assert_eq!(
        (refused.rule(), refused.retry_after()),
        ("local", Some(SECOND * 30))
    );
    assert!(passes(one, 20).await, "charged, as no cost was reported");
    assert!(!passes(one, 1).await);
    // The provider has reported nothing to the other engine.
    assert!(passes(two, 60).await);
    tokio::time::sleep(SECOND * 30).await;
    assert!(passes(one, 10).await, "10, 20 and 60 are used");
    let refused = one.enter(chat(1)).await.unwrap_err();
    assert_ne!(refused.rule(), "local");
}

#[tokio::test(start_paused = true)]
async fn a_surplus_goes_back_to_the_bucket_that_it_came_from() {
    let rule = hundred().buckets(2);
    let fleet = Fleet::of_minutes::<2>(rule).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 60).await;
    fleet.next(MINUTE / 2).await;
    let mut second = enter(two, 30).await;
    assert!(!passes(one, 20).await);
    // 50 of the former bucket come back, in which both windows end by then.
    first.settle("tokens", 10);
    a_moment().await;
    let third = enter(one, 50).await;
    assert!(!passes(two, 20).await);
    // What the former bucket still holds leaves with it, what came back is of this one.
    fleet.next(MINUTE / 2).await;
    let fourth = enter(two, 20).await;
    assert!(!passes(one, 10).await, "30, 50 and 20");
    // Its bucket is in the window no more, so nobody needs it.
    fleet.next(MINUTE / 2).await;
    second.settle("tokens", 0);
    a_moment().await;
    let fifth = enter(one, 80).await;
    assert!(!passes(two, 10).await);
    drop((first, third, fourth, fifth));
}

#[tokio::test(start_paused = true)]
async fn an_excess_is_booked_in_the_present_bucket() {
    let fleet = Fleet::of_minutes::<2>(hundred().buckets(2)).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 10).await;
    assert!(first.charge("tokens", 10));
    fleet.next(MINUTE / 2).await;
    assert!(first.charge("tokens", 50));
    a_moment().await;
    assert!(!passes(two, 50).await, "60 are charged");
    let second = enter(two, 40).await;
    // Now the first one has heard that nothing is left.
    assert!(!passes(one, 1).await);
    assert!(!first.charge("tokens", 30));
    assert_eq!(budget(one).over_total(), 30);
    a_moment().await;
    assert!(!passes(two, 1).await);
    // The 10 of the first bucket leave, and 120 of the second one stay.
    fleet.next(MINUTE / 2).await;
    assert!(!passes(two, 1).await);
    fleet.next(MINUTE / 2).await;
    assert!(passes(two, 100).await);
    assert_eq!(budget(one).charged_total(), 90);
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_reserves_nothing_passes_while_anything_is_left() {
    let fleet = Fleet::of_minutes::<2>(hundred()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    // A client that leaves before the cost is known.
    drop(enter(one, 0).await);
    a_moment().await;
    let mut all = enter(two, 100).await;
    assert!(one.enter(Call::new("chat")).await.is_err());
    all.settle("tokens", 90);
    a_moment().await;
    let mut first = one.enter(Call::new("chat")).await.unwrap();
    assert!(first.charge("tokens", 4));
    assert!(!first.charge("tokens", 16));
    drop(first);
    a_moment().await;
    assert!(
        one.enter(Call::new("chat")).await.is_err(),
        "110 of 100 are charged"
    );
    let [one, two] = [budget(one), budget(two)];
    assert_eq!(
        (
            one.charged_total(),
            one.reserved_total(),
            one.untold_total()
        ),
        (20, 0, 1)
    );
    assert_eq!(
        (two.charged_total(), two.reserved_total(), two.over_total()),
        (90, 100, 0)
    );
}

/// A lease that holds too few for one call is no reason to refuse another one.
#[tokio::test(start_paused = true)]
async fn a_call_that_wants_too_much_keeps_no_other_out() {
    let fleet = Fleet::of_minutes::<3>(hundred()).await;
    let [one, two, three] = [fleet.engine(0), fleet.engine(1), fleet.engine(2)];
    let running = enter(one, 70).await;
    for _ in 0..20 {
        assert!(!passes(one, 50).await && !passes(two, 50).await);
    }
    let small = enter(two, 10).await;
    assert!(!passes(one, 50).await);
    a_moment().await;
    let rest = enter(three, 20).await;
    assert!(!passes(one, 1).await);
    // What a call would have had that does not run is there for others as well.
    drop((running, small));
    a_moment().await;
    let refused = one.enter(chat(101)).await.unwrap_err();
    assert_eq!(refused.retry_after(), None);
    assert!(
        refused.to_string().ends_with("it reserves 101 of 100"),
        "{refused}"
    );
    drop(rest);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_no_lease_holds_is_refused() {
    const MOST: u32 = (1 << 20) - 2;
    let rule = FlowRule::per_minute("chat", 1_u32 << 30)
        .cost("tokens")
        .shared();
    let fleet = Fleet::of_minutes::<1>(rule).await;
    let engine = fleet.engine(0);
    assert!(passes(engine, MOST).await);
    let refused = engine.enter(chat(MOST + 1)).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_after()),
        (BlockKind::Flow, None)
    );
    // It may cost more all the same.
    enter(engine, MOST).await.settle("tokens", 1 << 24);
    a_moment().await;
    assert_eq!(budget(engine).used(), MOST + (1 << 24));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_leaves_its_reservations_spent() {
    let mut fleet = Fleet::of_minutes::<3>(hundred().buckets(2)).await;
    let lost = enter(fleet.engine(2), 70).await;
    // Nobody ends its call any more.
    std::mem::forget(lost);
    drop(fleet.engines.pop());
    a_moment().await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let first = enter(one, 30).await;
    for _ in 0..2 {
        assert!(!passes(one, 1).await && !passes(two, 1).await);
        fleet.next(MINUTE / 2).await;
    }
    assert!(
        passes(two, 70).await,
        "its window is over, and that of the others too"
    );
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_takes_nothing_along() {
    let fleet = Fleet::of_minutes::<2>(hundred()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    fleet.store.set_fault(Some(Fault::SlowAnswer(ms(10))));
    for wait in 0..30 {
        let left = tokio::time::timeout(ms(wait), one.enter(chat(100))).await;
        if let Ok(entry) = left {
            entry.unwrap().settle("tokens", 0);
        }
        tokio::time::sleep(ms(100)).await;
        let mut entry = enter(two, 100).await;
        entry.settle("tokens", 0);
        tokio::time::sleep(ms(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_rules_refuse_before_or_after_it_and_it_keeps_nothing() {
    let rules = Rules::new()
        .with(hundred().id("tpm"))
        .with(FlowRule::per_minute("chat", 50).cost("KiB").id("here"))
        .with(FlowRule::per_minute("chat", 4).shared().exact().id("rpm"));
    let fleet = Fleet::of_minutes::<2>(rules).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let both = |tokens, kib| [("tokens", tokens), ("KiB", kib)];
    for (reserves, rule) in [(both(200, 1), "tpm"), (both(90, 60), "here")] {
        let refused = one
            .enter(Call::new("chat").reserves(&reserves))
            .await
            .unwrap_err();
        assert_eq!((refused.rule(), refused.retry_after()), (rule, None));
        a_moment().await;
    }
    let reserves = both(90, 40);
    let mut first = one
        .enter(Call::new("chat").reserves(&reserves))
        .await
        .unwrap();
    first.settle("tokens", 20);
    first.settle("KiB", 50);
    a_moment().await;
    for reserved in [1, 79] {
        let refused = one.enter(chat(reserved)).await.unwrap_err();
        assert_eq!(refused.rule(), "here");
    }
    a_moment().await;
    // On the other engine KiB are left, and of the calls as many as were not refused.
    let second = enter(two, 80).await;
    assert_eq!(two.enter(chat(1)).await.unwrap_err().rule(), "tpm");
    drop((first, second));
    fleet.next(MINUTE).await;
    for _ in 0..4 {
        assert!(passes(two, 1).await);
    }
    assert_eq!(two.enter(chat(1)).await.unwrap_err().rule(), "rpm");
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_budget_does_what_its_rule_says() {
    let rules = Rules::new()
        .with(hundred())
        .with(
            FlowRule::per_minute("open", 100)
                .cost("tokens")
                .shared()
                .when_down(WhenDown::Open),
        )
        .with(
            FlowRule::per_minute("closed", 100)
                .cost("tokens")
                .shared()
                .when_down(WhenDown::Closed),
        );
    let fleet = Fleet::of_minutes::<2>(rules).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let call = |name| Call::new(name).reserve("tokens", 40);
    let mut before = enter(one, 10).await;
    // Each has heard of the buckets of the store.
    drop((enter(two, 0).await, one.enter(Call::new("open")).await));
    a_moment().await;
    fleet
        .store
        .set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(SECOND).await;

    // Its share is 50, of which it has 10.
    let mut first = enter(one, 40).await;
    assert!(!passes(one, 1).await);
    first.settle("tokens", 15);
    let second = enter(one, 25).await;
    assert!(!passes(one, 1).await);
    // It costs 7 more than it has reserved.
    before.charge("tokens", 17);
    assert!(passes(two, 40).await);

    let refused = one.enter(call("closed")).await.unwrap_err();
    assert_eq!(refused.kind(), BlockKind::Store);
    let mut open: Vec<_> = Vec::new();
    for _ in 0..10 {
        open.push(one.enter(call("open")).await.unwrap());
    }
    open[0].settle("tokens", 30);
    open[1].charge("tokens", 30);
    for entry in &mut open[2..] {
        entry.settle("tokens", 0);
    }
    drop(open);

    fleet.store.set_fault(None);
    tokio::time::sleep(SECOND * 3).await;
    // Of one 57 are known by then, and the other one has 5 of its share in hand.
    assert!(!passes(one, 1).await);
    let third = enter(two, 4).await;
    assert!(!passes(two, 3).await);
    assert!(one.enter(call("closed")).await.is_ok());
    // 60 were charged while nothing was limited.
    assert!(two.enter(call("open")).await.is_ok());
    assert!(two.enter(Call::new("open")).await.is_err());
    drop((first, second, third));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_loses_its_data_learns_what_is_reserved() {
    let fleet = Fleet::of_minutes::<2>(hundred()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 60).await;
    let second = enter(two, 20).await;
    fleet.store.flush();
    tokio::time::sleep(SECOND * 2).await;
    assert!(!passes(two, 30).await, "80 are reserved");
    first.settle("tokens", 10);
    a_moment().await;
    assert!(!passes(one, 75).await);
    let third = enter(two, 70).await;
    assert!(!passes(one, 1).await);
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_is_reserved() {
    let fleet = Fleet::of_minutes::<2>(hundred()).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 60).await;
    // It counts as before, by another limit.
    for engine in [one, two] {
        let smaller = FlowRule::per_minute("chat", 80).buckets(1);
        engine.reload(Rules::new().with(smaller.cost("tokens").shared()));
    }
    assert!(!passes(two, 30).await);
    let second = enter(two, 20).await;
    first.settle("tokens", 30);
    a_moment().await;
    assert!(passes(two, 30).await);
    assert!(!passes(one, 50).await);
    let kept = budget(one);
    assert_eq!(
        (kept.limit(), kept.charged_total(), kept.reserved_total()),
        (80, 30, 60)
    );
    // Another unit is another budget, as the calls are.
    for engine in [one, two] {
        engine.reload(Rules::new().with(hundred().cost("KiB")));
    }
    assert!(
        one.enter(Call::new("chat").reserve("KiB", 100))
            .await
            .is_ok()
    );
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn figures_are_those_of_all_engines_and_of_this_one() {
    let fleet = Fleet::of_minutes::<2>(hundred().id("tpm")).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = enter(one, 30).await;
    first.charge("tokens", 10);
    let mut second = enter(two, 50).await;
    let shown = |engine: &Sentinel| {
        let it = budget(engine);
        assert_eq!(
            (it.rule(), it.unit(), it.limit(), it.is_by_key()),
            ("tpm", "tokens", 100, false)
        );
        [it.used(), it.reserved(), it.left()]
    };
    // The first one has not asked since then.
    assert_eq!([shown(one), shown(two)], [[10, 20, 70], [30, 50, 20]]);
    second.settle("tokens", 20);
    a_moment().await;
    first.settle("tokens", 25);
    a_moment().await;
    drop((first, second));
    assert_eq!([shown(one), shown(two)], [[45, 0, 55], [50, 0, 50]]);
    let counts = |engine: &Sentinel| {
        let it = budget(engine);
        [
            it.charged_total(),
            it.reserved_total(),
            it.untold_total(),
            it.over_total(),
            it.cut_total(),
        ]
    };
    assert_eq!(
        [counts(one), counts(two)],
        [[25, 30, 0, 0, 0], [20, 50, 0, 0, 0]]
    );
    let rules = one.snapshot().shared_rules().to_vec();
    let [rule] = &rules[..] else {
        panic!("one is shared: {rules:?}");
    };
    assert_eq!((rule.granted(), rule.repaid(), rule.lost()), (30, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn layers_share_a_budget() {
    let rule = FlowRule::per_minute("/chat", 100)
        .buckets(1)
        .cost("tokens")
        .shared();
    let fleet = Fleet::of_minutes::<2>(rule).await;
    let chat = |index: usize| {
        let layer = SentinelLayer::with(fleet.engine(index).clone())
            .reserve("tokens", |_| 60)
            .cost("tokens", |head| {
                head.headers().get("x-cost")?.to_str().ok()?.parse().ok()
            });
        let service = layer.layer(service_fn(|_: Request<()>| async {
            let response = Response::builder().header("x-cost", "15");
            Ok::<_, Infallible>(response.body(String::new()).unwrap())
        }));
        service.oneshot(Request::get("/chat").body(()).unwrap())
    };
    let mut passed = 0;
    for index in 0..10 {
        let response = chat(index % 2).await.unwrap();
        passed += u32::from(response.status() == StatusCode::OK);
        drop(response);
        a_moment().await;
    }
    // 45 are charged, and 60 are more than 55.
    assert_eq!(passed, 3);
}

/// What calls have reserved, or have cost, of each bucket, by the clock of the store.
pub(super) struct Book {
    bucket: Duration,
    buckets: u64,
    limit: u64,
    units: RefCell<BTreeMap<u64, u64>>,
    worst: RefCell<u64>,
}

impl Book {
    pub(super) fn new(bucket: Duration, buckets: u64, limit: u64) -> Self {
        Self {
            bucket,
            buckets,
            limit,
            units: RefCell::default(),
            worst: RefCell::default(),
        }
    }

    fn number(&self, at: Duration) -> u64 {
        (at.as_nanos() / self.bucket.as_nanos()) as u64
    }

    /// The most that a window has had.
    pub(super) fn worst(&self) -> u64 {
        *self.worst.borrow()
    }

    /// A call reserves `units` now. Returns its bucket.
    pub(super) fn reserve(&self, now: Duration, units: u32) -> u64 {
        let bucket = self.number(now);
        *self.units.borrow_mut().entry(bucket).or_default() += u64::from(units);
        let all = self.units.borrow();
        // Every window that has this bucket.
        for last in bucket..bucket + self.buckets {
            let window = all.range((last + 1).saturating_sub(self.buckets)..=last);
            let held: u64 = window.map(|(_, units)| units).sum();
            let mut worst = self.worst.borrow_mut();
            *worst = held.max(*worst);
        }
        bucket
    }

    pub(super) fn settle(&self, bucket: u64, reserved: u32, cost: u32) {
        *self.units.borrow_mut().get_mut(&bucket).unwrap() -= u64::from(reserved - cost);
    }

    /// The part of the limit that was used in the buckets from `first` to before `end`.
    pub(super) fn used(&self, first: Duration, end: Duration) -> f64 {
        let (first, end) = (self.number(first), self.number(end));
        let units = self.units.borrow();
        let used: u64 = units.range(first..end).map(|(_, units)| units).sum();
        used as f64 * self.buckets as f64 / (end - first) as f64 / self.limit as f64
    }
}

/// One client after another call: it reserves 400, runs for a while, and costs no more. If it is
/// refused, it soon tries again.
async fn ask(fleet: &Fleet, book: &Book, client: u64, until: Duration) {
    let engine = fleet.engine(client as usize % fleet.engines.len());
    let mut dice = client.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |from: u64, to: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        from + dice % (to - from)
    };
    while fleet.store_time() < until {
        let Ok(mut entry) = engine.enter(chat(400)).await else {
            tokio::time::sleep(ms(roll(50, 250))).await;
            continue;
        };
        let bucket = book.reserve(fleet.store_time(), 400);
        tokio::time::sleep(ms(roll(200, 2_000))).await;
        let cost = roll(0, 401) as u32;
        if roll(0, 2) == 0 {
            // As a stream does.
            entry.charge("tokens", cost / 2);
        }
        book.settle(bucket, 400, cost);
        entry.settle("tokens", cost);
    }
}

#[tokio::test(start_paused = true)]
async fn no_window_is_over_and_nearly_all_of_it_is_used() {
    let rule = || {
        FlowRule::per_minute("chat", 60_000)
            .cost("tokens")
            .shared()
            .id("tpm")
    };
    for (rule, buckets, counted) in [
        (rule().buckets(1), 1, 1),
        (rule(), 2, 2),
        (rule().exact(), 2, 2),
        (rule().strict(), 2, 3),
        (rule().buckets(10), 10, 10),
    ] {
        let fleet = Fleet::of_minutes::<4>(rule.clone()).await;
        fleet.store.set_fault(Some(Fault::SlowRequest(ms(1))));
        let book = Book::new(MINUTE / buckets, counted, 60_000);
        let start = fleet.store_time();
        let until = start + MINUTE * 4;
        // They want three times as much as there is.
        let clients = (0..16).map(|client| ask(&fleet, &book, client, until));
        join_all(clients).await;
        let (worst, used) = (book.worst(), book.used(start, until));
        assert!(worst <= 60_000, "{worst} by {rule:?}");
        assert!(used >= 0.97, "{used} used by {rule:?}");
    }
}
