//! Keyed rules on what calls cost, over several engines of one store.

use std::time::Duration;

use futures_util::future::join_all;
use tower_sentinel::store::{Fault, StoreErrorKind, WhenDown};
use tower_sentinel::{BlockKind, Call, KeyedRule, Rules, Sentinel};

use super::budgets::{Book, MINUTE};
use super::{Fleet, SECOND, ms};

/// A limit for each user in two buckets of half a minute.
fn rule(limit: u32) -> KeyedRule {
    KeyedRule::per_minute("chat", limit)
        .window()
        .cost("tokens")
        .shared()
}

fn chat(user: &str, reserved: u32) -> Call<'_> {
    Call::new("chat").param(user).reserve("tokens", reserved)
}

async fn passes(engine: &Sentinel, call: Call<'_>) -> bool {
    engine.enter(call).await.is_ok()
}

/// Long enough for the store to be told, and to be asked again.
async fn a_moment() {
    tokio::time::sleep(ms(110)).await;
}

/// What a user has left, as far as `engine` knows.
fn left(engine: &Sentinel, user: &'static str) -> Option<u32> {
    let views = engine.node("chat").unwrap().shared_keyed_rules();
    views[0].left(user)
}

/// What was charged, reserved, and charged beyond the limit by calls of all users.
fn totals(engine: &Sentinel) -> [u64; 3] {
    let budgets = engine.node("chat").unwrap().budgets();
    let [it] = &budgets[..] else {
        panic!("one rule limits costs: {budgets:?}");
    };
    assert!(it.is_by_key() && it.unit() == "tokens");
    [it.charged_total(), it.reserved_total(), it.over_total()]
}

#[tokio::test(start_paused = true)]
async fn each_value_has_one_budget_over_all_engines() {
    let rule = rule(100)
        .tier("pro", 300)
        .except("bob", 50)
        .except_unlimited("batch");
    let fleet = Fleet::of_minutes::<2>(rule).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = one.enter(chat("ann", 60)).await.unwrap();
    let refused = two.enter(chat("ann", 60)).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.limit()),
        (BlockKind::Keyed, Some(100))
    );
    let refused = two.enter(chat("bob", 51)).await.unwrap_err();
    assert_eq!((refused.limit(), refused.retry_after()), (Some(50), None));
    assert!(passes(two, chat("bob", 50)).await && !passes(one, chat("bob", 1)).await);
    assert!(passes(one, chat("eve", 300).tier("pro")).await);
    assert!(!passes(two, chat("eve", 1).tier("pro")).await);
    assert!(passes(two, chat("batch", 1_000)).await);
    first.charge("tokens", 5);
    first.settle("tokens", 10);
    a_moment().await;
    let mut second = two.enter(chat("ann", 90)).await.unwrap();
    assert!(!passes(one, chat("ann", 1)).await);
    // It costs 20 more than it has reserved.
    assert!(!second.charge("tokens", 110));
    fleet.next(MINUTE / 2).await;
    assert!(!passes(one, chat("ann", 1)).await);
    fleet.next(MINUTE / 2).await;
    assert!(passes(one, chat("ann", 100)).await);
    assert_eq!(totals(one), [10 + 300 + 100, 60 + 300 + 100, 0]);
    assert_eq!(totals(two), [110 + 50, 90 + 50, 20]);
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn a_value_whose_call_runs_keeps_its_counter_in_a_full_table() {
    const PLACES: usize = 64;
    let rule = KeyedRule::per("chat", 100, SECOND * 2)
        .window()
        .cost("tokens")
        .max_keys(PLACES as u32)
        .shared();
    let fleet = Fleet::new::<2>(rule).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut long = one.enter(chat("ann", 60)).await.unwrap();
    for second in 0..20 {
        for user in 0..PLACES {
            let user = format!("{second}.{user}");
            assert!(passes(one, chat(&user, 10)).await);
        }
        tokio::time::sleep(SECOND).await;
    }
    let snapshot = one.snapshot();
    assert_eq!(snapshot.shared_rules()[0].cells(), PLACES);
    // What it has reserved has left the window, and it goes on to cost 90 more than that.
    assert_eq!(left(one, "ann"), Some(100));
    assert!(long.charge("tokens", 150));
    assert_eq!(left(one, "ann"), Some(10));
    a_moment().await;
    assert!(!passes(two, chat("ann", 11)).await);
    assert!(passes(two, chat("ann", 10)).await);
}

#[tokio::test(start_paused = true)]
async fn a_value_without_a_place_has_its_budget_as_well() {
    const PLACES: usize = 8;
    let fleet = Fleet::of_minutes::<2>(rule(100).max_keys(PLACES as u32)).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut running = Vec::new();
    for user in 0..PLACES {
        running.push(one.enter(chat(&user.to_string(), 10)).await.unwrap());
    }
    let mut first = one.enter(chat("ann", 60)).await.unwrap();
    assert!(!passes(one, chat("ann", 60)).await);
    assert!(!passes(two, chat("ann", 60)).await);
    first.settle("tokens", 10);
    a_moment().await;
    let second = two.enter(chat("ann", 70)).await.unwrap();
    assert!(!passes(one, chat("ann", 21)).await);
    assert!(passes(one, chat("ann", 20)).await);
    assert_eq!(one.snapshot().shared_rules()[0].cells(), PLACES);
    drop((running, first, second));
}

#[tokio::test(start_paused = true)]
async fn without_the_store_each_engine_has_its_share_of_each_value() {
    let rules = Rules::new().with(rule(100)).with(
        KeyedRule::per_minute("closed", 100)
            .window()
            .cost("tokens")
            .shared()
            .when_down(WhenDown::Closed),
    );
    let fleet = Fleet::of_minutes::<2>(rules).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let before = one.enter(chat("ann", 10)).await.unwrap();
    fleet
        .store
        .set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(SECOND).await;
    // Its share is 50, of which it has 10.
    let mut first = one.enter(chat("ann", 40)).await.unwrap();
    assert!(!passes(one, chat("ann", 1)).await);
    assert!(passes(one, chat("bob", 50)).await && !passes(one, chat("bob", 1)).await);
    first.settle("tokens", 15);
    let second = one.enter(chat("ann", 25)).await.unwrap();
    assert!(!passes(one, chat("ann", 1)).await);
    let other = two.enter(chat("ann", 50)).await.unwrap();
    assert!(!passes(two, chat("ann", 1)).await);
    let closed = Call::new("closed").param("ann").reserve("tokens", 1);
    let refused = one.enter(closed).await.unwrap_err();
    assert_eq!(refused.kind(), BlockKind::Store);
    fleet.store.set_fault(None);
    tokio::time::sleep(SECOND * 3).await;
    // Both have told the store of what they have reserved without it.
    for engine in [one, two] {
        assert!(!passes(engine, chat("ann", 1)).await);
        assert!(!passes(engine, chat("bob", 51)).await);
    }
    assert!(passes(two, chat("bob", 50)).await);
    fleet.next(MINUTE / 2).await;
    fleet.next(MINUTE / 2).await;
    assert!(passes(two, chat("ann", 100)).await);
    drop((before, first, second, other));
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_each_value_has_reserved() {
    let fleet = Fleet::of_minutes::<2>(rule(100)).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = one.enter(chat("ann", 60)).await.unwrap();
    // It counts as before, by another limit.
    for engine in [one, two] {
        engine.reload(Rules::new().with(rule(80).tier("pro", 500)));
    }
    assert!(!passes(two, chat("ann", 30)).await);
    let second = two.enter(chat("ann", 20)).await.unwrap();
    first.settle("tokens", 30);
    a_moment().await;
    assert!(passes(two, chat("ann", 30)).await);
    assert!(!passes(one, chat("ann", 1)).await);
    assert!(passes(one, chat("bob", 80)).await);
    assert_eq!(totals(one), [30 + 80, 60 + 80, 0]);
    // Another unit is another budget.
    for engine in [one, two] {
        engine.reload(Rules::new().with(rule(80).cost("KiB")));
    }
    let call = Call::new("chat").param("ann").reserve("KiB", 80);
    assert!(passes(one, call).await);
    drop((first, second));
}

/// One call after another of one user.
async fn ask(fleet: &Fleet, user: &str, client: usize, book: &Book, until: Duration) {
    let engine = fleet.engine(client % fleet.engines.len());
    let mut dice = client as u64 + 1;
    let mut roll = |most: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % most
    };
    while fleet.store_time() < until {
        let Ok(mut entry) = engine.enter(chat(user, 40)).await else {
            tokio::time::sleep(ms(100 + roll(200))).await;
            continue;
        };
        let bucket = book.reserve(fleet.store_time(), 40);
        tokio::time::sleep(ms(100 + roll(900))).await;
        let cost = roll(41) as u32;
        book.settle(bucket, 40, cost);
        entry.settle("tokens", cost);
    }
}

#[tokio::test(start_paused = true)]
async fn no_window_of_a_value_is_over_and_nearly_all_of_it_is_used() {
    for rule in [rule(3_000), rule(3_000).exact()] {
        let fleet = Fleet::of_minutes::<3>(rule.clone()).await;
        fleet.store.set_fault(Some(Fault::SlowRequest(ms(1))));
        let users = ["ann", "bob"].map(|user| (user, Book::new(MINUTE / 2, 2, 3_000)));
        let start = fleet.store_time();
        let until = start + MINUTE * 4;
        let mut all = Vec::new();
        for (user, book) in &users {
            // They want six times as much as there is.
            for client in 0..9 {
                all.push(ask(&fleet, user, client, book, until));
            }
        }
        join_all(all).await;
        for (user, book) in &users {
            let (worst, used) = (book.worst(), book.used(start, until));
            assert!(worst <= 3_000, "{worst} of {user} by {rule:?}");
            assert!(used >= 0.97, "{used} used by {user} by {rule:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_floods_costs_the_store_little() {
    let fleet = Fleet::of_minutes::<1>(rule(100)).await;
    let engine = fleet.engine(0);
    assert!(passes(engine, chat("ann", 100)).await);
    a_moment().await;
    let before = fleet.store.draws();
    let until = fleet.store_time() + SECOND * 10;
    while fleet.store_time() < until {
        assert!(!passes(engine, chat("ann", 10)).await);
        tokio::time::sleep(ms(1)).await;
    }
    // Ten a second, as others may give back what they have reserved.
    let draws = fleet.store.draws() - before;
    assert!((1..=101).contains(&draws), "{draws}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_five_million_is_one_over_all_engines() {
    let fleet = Fleet::of_minutes::<2>(rule(5_000_000)).await;
    let [one, two] = [fleet.engine(0), fleet.engine(1)];
    let mut first = one.enter(chat("ann", 1_000_000)).await.unwrap();
    for engine in [two, one, two, one] {
        assert!(passes(engine, chat("ann", 1_000_000)).await);
    }
    let refused = two.enter(chat("ann", 1)).await.unwrap_err();
    assert_eq!(refused.limit(), Some(5_000_000));
    // What the first call does not use is free in the other process.
    first.settle("tokens", 1_000);
    a_moment().await;
    assert!(passes(two, chat("ann", 999_000)).await);
    assert!(!passes(one, chat("ann", 1)).await);
}
