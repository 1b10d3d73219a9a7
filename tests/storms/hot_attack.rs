//! Values that an attacker makes up: what they cost, what they get, and what they
//! do to others.
//!
//! `SENTINEL_ATTEMPTS` sets how many values are made up, a million in release
//! builds and a fifth of it in others unless it is set; `SENTINEL_SEED` sets the
//! seed, which is printed.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use allocation_counter::measure;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use tower_sentinel::call::Param;
use tower_sentinel::key::{ClientAddr, ForwardedIp, Header};
use tower_sentinel::read::KeyedView;
use tower_sentinel::{
    Call, FlowRule, Key, KeyedRule, ManualClock, Rules, Sentinel, SentinelLayer, Verdict,
};

use crate::support::caller::status;
use crate::support::{Rng, attempts, engine, get, ms};

const HOUR: Duration = Duration::from_secs(3_600);

fn passes<'a>(sentinel: &Sentinel, value: impl Into<Key<'a>>) -> bool {
    matches!(
        sentinel.try_enter(Call::new("r").param(value)),
        Verdict::Pass(_)
    )
}

fn passed(sentinel: &Sentinel, value: &str, most: usize) -> usize {
    (0..most).filter(|_| passes(sentinel, value)).count()
}

fn view(sentinel: &Sentinel, resource: &str) -> KeyedView {
    let node = sentinel.node(resource).expect("it has been called");
    node.keyed_rules().remove(0)
}

// === one client, a million values ===

/// Floods a rule that lets `quota` calls of a value pass at one moment.
fn flood(rule: KeyedRule, quota: usize, rng: &mut Rng) {
    let attempts = attempts();
    let (sentinel, clock) = engine(rule.max_keys(16_384));
    assert_eq!(passed(&sentinel, "attacker", 20), quota);
    assert_eq!(passed(&sentinel, "victim", 1), 1);
    let params = view(&sentinel, "r");
    let footprint = params.footprint();

    let mut calls_of_victim = 0;
    let mut passed_of_made_up = 0;
    let memory = measure(|| {
        for number in 0..attempts {
            passed_of_made_up += usize::from(passes(&sentinel, rng.next()));
            let victims_turn = number % (attempts / 8) == 0;
            if victims_turn && calls_of_victim + 1 < quota {
                assert!(passes(&sentinel, "victim"), "call {calls_of_victim}");
                calls_of_victim += 1;
            }
        }
    });
    println!("{} allocations, all freed", memory.count_total);
    assert_eq!(memory.bytes_current, 0, "bytes kept");
    assert_eq!(params.footprint(), footprint);
    assert_eq!(calls_of_victim + 1, quota);
    // Beside the two, each value with a place has had one call, and all others
    // together a single quota.
    let places = params.values() - 2;
    assert_eq!(passed_of_made_up, places + quota);
    assert_eq!(params.overflows(), attempts - places as u64);
    // Who had spent all still has, whoever came since, and a new one has nothing.
    for value in ["attacker", "victim", "new"] {
        assert_eq!(params.left(value), 0, "{value}");
        assert_eq!(passed(&sentinel, value, 20), 0, "{value}");
    }

    clock.advance(HOUR * 3);
    assert_eq!(params.values(), 0, "all are at rest");
    for value in ["attacker", "victim", "new"] {
        assert_eq!(passed(&sentinel, value, 20), quota, "{value}");
    }
    assert_eq!(params.footprint(), footprint);
}

#[test]
fn a_flood_of_values_takes_no_memory_and_pushes_nobody_out() {
    flood(KeyedRule::per("r", 5, HOUR), 5, &mut Rng::seeded());
}

#[test]
fn a_flood_of_values_pushes_nobody_out_of_a_window() {
    let rule = KeyedRule::per("r", 5, HOUR).window();
    flood(rule, 5, &mut Rng::seeded());
}

#[test]
fn a_flood_of_values_pushes_nobody_out_of_a_queue() {
    let rule = KeyedRule::per("r", 5, HOUR).throttle(ms(0));
    flood(rule, 1, &mut Rng::seeded());
}

/// How many calls of a flood from one network find no place in the table of the rule on
/// addresses, which is at `place` among those with tables.
fn overflows_of_a_network(rules: Rules, place: usize) -> u64 {
    let (sentinel, clock) = engine(rules);
    for address in 0..4_000 {
        clock.advance(ms(1));
        let params = [Param::new("network", 1), Param::new("address", address)];
        drop(sentinel.try_enter(Call::new("r").params(&params)));
    }
    let node = sentinel.node("r").expect("it has been called");
    node.keyed_rules().remove(place).overflows()
}

#[test]
fn a_coarser_rule_in_front_keeps_a_flood_out_of_a_table() {
    let network = || KeyedRule::per("r", 100, HOUR).param("network");
    let address = || {
        KeyedRule::per("r", 5, HOUR)
            .param("address")
            .max_keys(1_000)
    };
    let behind = |address| Rules::new().with(network()).with(address);
    assert_eq!(overflows_of_a_network(behind(address()), 1), 0);
    assert_eq!(overflows_of_a_network(behind(address().window()), 1), 0);

    let before = |address| Rules::new().with(address).with(network());
    assert_eq!(overflows_of_a_network(before(address()), 0), 0);
    // What a window has given back leaves its place taken until the window is over.
    assert!(overflows_of_a_network(before(address().window()), 0) >= 2_000);
    // And a rule over all callers comes after those with tables, wherever it stands.
    let all = Rules::new()
        .with(FlowRule::per("r", 100, HOUR))
        .with(address().window());
    assert!(overflows_of_a_network(all, 0) >= 2_000);
    assert!(overflows_of_a_network(address().into(), 0) >= 2_000);
}

#[test]
fn a_flood_of_values_pushes_no_call_in_flight_out() {
    let mut rng = Rng::seeded();
    let (sentinel, _) = engine(KeyedRule::concurrency("r", 2).max_keys(1_024));
    let enter = |value: Key<'_>| match sentinel.try_enter(Call::new("r").param(value)) {
        Verdict::Pass(entry) => Some(entry),
        _ => None,
    };
    let victim = enter("victim".into()).unwrap();
    let mut held: Vec<_> = [(); 2].map(|()| enter("attacker".into()).unwrap()).into();
    let params = view(&sentinel, "r");
    let footprint = params.footprint();
    for _ in 0..attempts() {
        held.extend(enter(rng.next().into()));
        assert!(enter("attacker".into()).is_none());
    }
    assert_eq!(
        held.len(),
        params.values() - 1 + 1 + 2,
        "and two without a place"
    );
    assert_eq!(params.footprint(), footprint);
    let second = enter("victim".into()).expect("one of two runs");
    assert!(enter("victim".into()).is_none());
    drop((held, victim, second));
    assert_eq!(params.values(), 0);
    assert_eq!(params.left("new"), 2);
}

#[test]
fn values_without_a_place_earn_no_more_than_one_value() {
    let mut rng = Rng::seeded();
    let (sentinel, clock) = engine(KeyedRule::per_second("r", 10).max_keys(16));
    assert!(passes(&sentinel, rng.next()));
    let params = view(&sentinel, "r");
    let steps = attempts() / 10;
    let mut passed = 0;
    for step in 0..steps {
        for _ in 0..10 {
            let before = params.overflows();
            let has_passed = passes(&sentinel, rng.next());
            let is_without_place = params.overflows() > before;
            passed += u64::from(has_passed && is_without_place);
        }
        assert!(
            passed * 1_000 <= 10_000 + 10 * step,
            "{passed} in {step} ms"
        );
        clock.advance(ms(1));
    }
    // They are not locked out either.
    assert!(passed * 1_000 > 9_000 + 9 * steps, "{passed} in {steps} ms");
}

// === values made for a hash ===

/// The factor that undoes an odd one, by Newton's iteration.
fn inverse(factor: u64) -> u64 {
    (0..6).fold(factor, |inverse, _| {
        inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
    })
}

/// Numbers which a hash that knows no secret puts into a 64th of a table: the
/// upper bits of both halves are 0.
fn colliding(hash: &impl BuildHasher) -> impl Iterator<Item = u64> {
    const MASK: u64 = 0xE000_0000_E000_0000;
    (0_u64..).filter(move |number| hash.hash_one(Key::Int(*number)) & MASK == 0)
}

#[test]
fn values_made_for_a_hash_fare_like_any_others() {
    let values = attempts() / 5;
    let mut rng = Rng::seeded();
    let unkeyed = BuildHasherDefault::<DefaultHasher>::default();
    // The factors of two well-known multiplicative hashes.
    let [old, new] = [0x517c_c1b7_2722_0a95, 0xf135_7aea_2e62_a9c5].map(inverse);
    assert_eq!(old.wrapping_mul(0x517c_c1b7_2722_0a95), 1);
    let families: [(&str, Box<dyn Iterator<Item = u64>>); 6] = [
        ("random", Box::new(std::iter::repeat_with(|| rng.next()))),
        ("in turn", Box::new(0..)),
        ("low bits are 0", Box::new((0..).map(|number| number << 32))),
        (
            "products are small",
            Box::new((0..).map(|number: u64| number.wrapping_mul(old))),
        ),
        (
            "products are small, too",
            Box::new((0..).map(|number: u64| number.wrapping_mul(new))),
        ),
        ("chosen by an unkeyed hash", Box::new(colliding(&unkeyed))),
    ];
    // Where all have a place, nobody is without one.
    let max_keys = u32::try_from(values / 3 * 4).unwrap();
    for (family, numbers) in families {
        let (sentinel, _) = engine(KeyedRule::per("r", 1, HOUR).max_keys(max_keys));
        let passed = numbers
            .take(values as usize)
            .filter(|number| passes(&sentinel, *number));
        assert_eq!(passed.count() as u64, values, "{family}");
        let params = view(&sentinel, "r");
        assert_eq!(params.overflows(), 0, "{family}");
        assert_eq!(params.values() as u64, values, "{family}");
    }
}

// === through the layer ===

/// A request that a proxy of ours has passed on, with `forwarded` in its field.
fn forwarded(path: &str, forwarded: &str) -> Request<Body> {
    let mut request = get(path);
    let proxy = ClientAddr("10.0.0.1:1".parse().unwrap());
    request.extensions_mut().insert(proxy);
    let value = HeaderValue::from_str(forwarded).unwrap();
    request.headers_mut().insert("x-forwarded-for", value);
    request
}

/// An address whose network nobody else has.
fn address(number: u64) -> String {
    let [a, b] = [number >> 16 & 0xffff, number & 0xffff];
    format!("2001:db8:{a:x}:{b:x}::1")
}

fn behind_proxies(sentinel: &Sentinel) -> SentinelLayer {
    let proxies = ["10.0.0.0/8".parse().unwrap()];
    SentinelLayer::with(sentinel.clone()).origin(ForwardedIp::behind(proxies))
}

#[test]
fn forged_addresses_give_a_client_no_quota() {
    let (sentinel, _) = engine(KeyedRule::per("/x", 5, HOUR).by_origin());
    let layer = behind_proxies(&sentinel);
    let served = (0..attempts() / 2).filter(|number| {
        let field = format!("{}, 203.0.113.7", address(*number));
        status(&layer, forwarded("/x", &field)) == StatusCode::OK
    });
    assert_eq!(served.count(), 5);
    let params = view(&sentinel, "/x");
    assert_eq!((params.values(), params.overflows()), (1, 0));
    // Nobody whose address was used has lost anything.
    assert_eq!(status(&layer, forwarded("/x", &address(3))), StatusCode::OK);
}

#[test]
fn a_client_with_a_million_addresses_gets_a_bounded_table() {
    let rule = KeyedRule::per("/x", 5, HOUR).by_origin().max_keys(4_096);
    let (sentinel, _) = engine(rule);
    let layer = behind_proxies(&sentinel);
    let victim = || status(&layer, forwarded("/x", "203.0.113.7"));
    assert_eq!([0; 4].map(|_| victim()), [StatusCode::OK; 4]);
    let params = view(&sentinel, "/x");
    let footprint = params.footprint();
    let attempts = attempts() / 2;
    let served = (0..attempts)
        .filter(|number| status(&layer, forwarded("/x", &address(*number))) == StatusCode::OK);
    let served = served.count();
    assert_eq!(served, params.values() - 1 + 5);
    assert_eq!(params.overflows(), attempts - (served - 5) as u64);
    assert_eq!(params.footprint(), footprint);
    assert_eq!(
        [victim(), victim()],
        [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]
    );
}

#[test]
fn paths_that_are_made_up_share_the_quotas_of_all_others() {
    const PATHS: usize = 1_024;
    let rules = Rules::new()
        .with(KeyedRule::per("/x", 5, HOUR).param("key"))
        .with(KeyedRule::per("__overflow__", 5, HOUR).by_origin());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(PATHS)
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(Header::from_static("x-user"))
        .param_named("key", Header::from_static("x-key"));
    let mut rng = Rng::seeded();
    let mut is_served = |path: &str, user: &'static str| {
        let mut request = get(path);
        let headers = request.headers_mut();
        headers.insert("x-user", HeaderValue::from_static(user));
        headers.insert("x-key", HeaderValue::from(rng.next()));
        status(&layer, request) == StatusCode::OK
    };
    let paths = 0..attempts() / 2;
    let served = paths.filter(|number| is_served(&format!("/{number:016x}"), "bad"));
    assert_eq!(served.count(), PATHS + 5);
    let others = (0..9).filter(|number| is_served(&format!("/new/{number}"), "good"));
    assert_eq!(others.count(), 5);
    assert_eq!(view(&sentinel, "__overflow__").values(), 2);
    // A rule of a path that is known is for its own values.
    assert_eq!((0..9).filter(|_| is_served("/x", "bad")).count(), 9);
    assert_eq!(view(&sentinel, "/x").values(), 9);
}
