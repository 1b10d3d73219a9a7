//! What a call to a known resource allocates (nothing), and how large what is
//! kept of it is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, Response};
use tower::{Layer, Service, service_fn};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::key::{
    Bearer, ClientAddr, Cookie, Header, KeyExtractor, PathParam, PeerIp, Query, Secret, from_fn,
};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::skip;
use tower_sentinel::stat::LeapArray;
use tower_sentinel::store::MemoryStore;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    ManualClock, MissingKey, Rule, Rules, Sentinel, SentinelLayer, SystemRule, Verdict,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const OPEN: u32 = 1_000_000;

/// An engine that keeps everything that can be kept.
fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .contexts(true)
        .minute(true)
        .minute_of_origins(true)
        .build();
    (sentinel, clock)
}

/// Runs `call` until everything is made that is made once, over two seconds, and
/// then asserts that it allocates nothing, in one moment and from second to
/// second.
fn assert_allocates_nothing(what: &str, clock: &ManualClock, mut call: impl FnMut()) {
    for _ in 0..4 {
        call();
        clock.advance(Duration::from_millis(700));
    }
    let still = measure(|| (0..100).for_each(|_| call()));
    assert_eq!(still.count_total, 0, "{what}");
    let turning = measure(|| {
        for _ in 0..300 {
            clock.advance(Duration::from_millis(300));
            call();
        }
    });
    assert_eq!(turning.count_total, 0, "{what}, while time goes on");
}

/// Has a reader end, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn calls_whose_times_are_counted_allocate_nothing_beside_a_reader() {
    let clock = ManualClock::new();
    let rules = Rules::new()
        .with(FlowRule::per_second("r", OPEN))
        .with(IsolationRule::new("r", 2));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .histograms()
        .build();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // What it allocates is measured on its own thread, and nowhere here.
        let reader = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                let node = sentinel.node("r");
                let count = node
                    .and_then(|node| node.rt_histogram())
                    .map_or(0, |it| it.count());
                assert!(count >= most, "{count} after {most}");
                most = count;
            }
        });
        let over = Over(&is_over);
        assert_allocates_nothing("histograms", &clock, || {
            let running = sentinel.try_enter(Call::new("r"));
            clock.advance(Duration::from_micros(700));
            drop(running);
        });
        drop(over);
        reader.join().unwrap();
    });
    let times = sentinel.node("r").unwrap().rt_histogram().unwrap();
    let seen: Vec<_> = times.buckets().map(|(_, count)| count).collect();
    assert_eq!(seen[..2], [0, 404], "of {seen:?}");
    assert_eq!(times.count(), 404);
}

#[test]
fn a_histogram_takes_what_its_documentation_says() {
    let footprint = |on: bool, waits: bool| {
        let clock = ManualClock::new();
        let queue = FlowRule::per_second("r", 1).throttle(MINUTE);
        let builder = Sentinel::builder().rules(queue).clock(clock.clone());
        let builder = if on { builder.histograms() } else { builder };
        let sentinel = builder.build();
        drop(sentinel.try_enter(Call::new("r")));
        if let (true, Verdict::Wait(waiting)) = (waits, sentinel.try_enter(Call::new("r"))) {
            clock.advance(Duration::from_secs(1));
            drop(waiting.admit().unwrap());
        }
        sentinel.node("r").unwrap().footprint()
    };
    let [one, more] = [false, true].map(|waits| footprint(true, waits) - footprint(false, waits));
    assert!((144..=200).contains(&one), "{one}");
    assert_eq!(more, one + 144);
}

fn assert_passes(sentinel: &Sentinel, call: Call<'_>) {
    assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
}

#[test]
fn the_counter_counts() {
    let info = measure(|| drop(std::hint::black_box(Box::new(1_u32))));
    assert_eq!((info.count_total, info.count_current), (1, 0));
}

#[test]
fn a_call_that_passes_allocates_nothing() {
    let second = || FlowRule::per_second("r", OPEN);
    let sets: [(&str, Rules); 7] = [
        ("no rule", Rules::new()),
        ("one rule", second().into()),
        (
            "three rules on one ring",
            Rules::new()
                .with(second())
                .with(FlowRule::per("r", OPEN, MINUTE))
                .with(second().buckets(4).strict()),
        ),
        (
            "a rule with a ring of its own",
            Rules::new()
                .with(second())
                .with(FlowRule::per("r", OPEN, MINUTE * 60 * 24)),
        ),
        (
            "thresholds that change",
            Rules::new()
                .with(second().warm_up(Duration::from_secs(10)))
                .with(second().memory(0.5..0.9, OPEN / 2)),
        ),
        (
            "isolation",
            Rules::new().with(IsolationRule::new("r", 8)).with(second()),
        ),
        (
            "rules by origin",
            Rules::new()
                .with(second().by_origin())
                .with(second().buckets(100).for_origin("other"))
                .with(second().for_origin("app")),
        ),
    ];
    let calls = [
        ("plain", Call::new("r")),
        ("prioritized", Call::new("r").prioritized(true)),
        ("weighted", Call::new("r").batch(3)),
        ("by a text", Call::new("r").origin("app")),
        (
            "by an address",
            Call::new("r").origin(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ),
        (
            "through a context",
            Call::new("r").origin(7_u64).context("web"),
        ),
        ("outbound", Call::new("r").outbound()),
    ];
    for (rules, set) in sets {
        let (sentinel, clock) = engine(set);
        for (kind, call) in calls {
            let what = format!("{rules}, {kind}");
            assert_allocates_nothing(&what, &clock, || assert_passes(&sentinel, call));
            let enter = || drop(sentinel.enter(call).now_or_never().unwrap().unwrap());
            assert_allocates_nothing(&what, &clock, enter);
        }
        let node = sentinel.node("r").unwrap();
        assert!(node.seconds().is_some_and(|seconds| seconds.len() == 60));
    }
}

#[test]
fn a_call_that_is_refused_allocates_nothing() {
    let flow = || FlowRule::per("r", 1, HOUR);
    let values = || KeyedRule::per("r", 1, HOUR);
    let sets: [(&str, Rules); 17] = [
        ("a rule that is closed", FlowRule::per_second("r", 0).into()),
        ("a rule", flow().into()),
        (
            "the second of two rings",
            Rules::new()
                .with(FlowRule::per_second("r", OPEN))
                .with(flow()),
        ),
        ("a rule by origin", flow().by_origin().into()),
        (
            "a rule over nodes of origins",
            Rules::new().with(flow().for_origin("other")).with(flow()),
        ),
        ("a queue", flow().throttle(Duration::ZERO).into()),
        ("a warm-up", flow().warm_up(MINUTE).into()),
        ("a related resource", flow().when("r").into()),
        ("values", values().into()),
        ("values in windows", values().window().into()),
        ("values in queues", values().throttle(Duration::ZERO).into()),
        ("values at once", KeyedRule::concurrency("r", 1).into()),
        ("a missing key", values().missing(MissingKey::Refuse).into()),
        ("isolation", IsolationRule::new("r", 1).into()),
        (
            "an adaptive limit",
            AdaptiveRule::new("r").start(1).ceiling(1).into(),
        ),
        (
            "a list of callers",
            AuthorityRule::allow_list("r", "nobody")
                .deny_unknown()
                .into(),
        ),
        ("a system rule", SystemRule::new().concurrency(1).into()),
    ];
    let breaker = CircuitBreakerRule::error_count("r", 1);
    for (rules, set) in sets.into_iter().chain([("a breaker", breaker.into())]) {
        for call in [Call::new("r"), Call::new("r").origin("app")] {
            let (sentinel, clock) = engine(set.clone());
            // It takes all that there is, and keeps it.
            let _first = sentinel.try_enter(call);
            for breaker in sentinel.node("r").unwrap().breakers() {
                breaker.force_open();
            }
            assert_allocates_nothing(rules, &clock, || {
                let verdict = sentinel.try_enter(call);
                assert!(matches!(verdict, Verdict::Block(_)), "{rules}");
            });
        }
    }
}

#[test]
fn the_layer_adds_no_allocation_to_a_call_that_passes() {
    type Answer = Response<Full<Bytes>>;

    let rules = Rules::new()
        .with(FlowRule::per_second("/users/{id}", OPEN).by_origin())
        .with(FlowRule::per_second("/users/{id}", OPEN))
        .with(IsolationRule::new("/users/{id}", 8));
    let (sentinel, clock) = engine(rules);
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(Header::from_static("x-client"))
        .prioritize(|head| head.headers().contains_key("x-vip"));
    let answer =
        |_: Request<()>| async { Ok::<Answer, Infallible>(Response::new(Full::from("hello"))) };
    let mut service = layer.layer(service_fn(answer));

    // The requests are the client's; they are made before.
    let request = |number| {
        let request = Request::get(format!("/users/{number}"));
        request
            .header("x-client", "app")
            .header("x-vip", "1")
            .body(())
            .unwrap()
    };
    let mut requests: Vec<_> = (0..500).map(request).collect();
    let mut calls = 0;
    let mut call = || {
        calls += 1;
        let request = requests.pop().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        let response = service.call(request).now_or_never().unwrap().unwrap();
        let mut body = response.into_body();
        assert_eq!(
            body.frame()
                .now_or_never()
                .unwrap()
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            "hello"
        );
    };
    assert_allocates_nothing("the layer", &clock, &mut call);
    let node = sentinel.node("/users/{id}").unwrap();
    assert_eq!((node.totals().complete(), node.concurrency()), (calls, 0));
}

/// What a call through a layer that tells callers what is left allocates, if `rule` is in force.
fn of_a_call_that_is_told(rule: impl Into<Rules>) -> u64 {
    let (sentinel, _clock) = engine(rule);
    let layer = SentinelLayer::with(sentinel)
        .param_named("user", Header::from_static("x-user"))
        .fields(RateLimitFields::Ietf);
    let answer =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    let mut service = layer.layer(service_fn(answer));
    let request = || Request::get("/a").header("x-user", "ann").body(()).unwrap();
    let mut call = |request| {
        let response = service.call(request).now_or_never().unwrap().unwrap();
        assert!(response.headers().contains_key("ratelimit"));
    };
    call(request());
    let request = request();
    measure(|| call(request)).count_total
}

/// The headers of a refusal through the default layer by a rule that lets one call pass in
/// `window`, and what the call allocates.
fn of_a_call_that_is_refused(window: Duration) -> (u64, HeaderMap) {
    let (sentinel, _clock) = engine(FlowRule::per("/a", 1, window));
    let answer =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    let mut service = SentinelLayer::with(sentinel).layer(service_fn(answer));
    let mut call = |request, status| {
        let response = service.call(request).now_or_never().unwrap().unwrap();
        assert_eq!(response.status(), status);
        response
    };
    let request = || Request::get("/a").body(()).unwrap();
    drop(call(request(), 200));
    // The first refusal makes what all others copy.
    drop(call(request(), 429));
    let (last, mut headers) = (request(), HeaderMap::new());
    let taken = measure(|| headers = call(last, 429).into_parts().0.headers);
    (taken.count_total, headers)
}

#[test]
fn a_refusal_through_the_layer_takes_two_allocations_at_most() {
    for window in [Duration::from_secs(1), MINUTE * 10, HOUR, HOUR * 24] {
        let (taken, headers) = of_a_call_that_is_refused(window);
        assert!(taken <= 2, "{taken} of a rule of {window:?}");
        let seconds = headers["retry-after"].to_str().unwrap();
        assert_eq!(seconds, window.as_secs().to_string());
    }
}

#[test]
fn to_tell_what_a_value_has_left_allocates_no_more_than_a_note() {
    let flow = of_a_call_that_is_told(FlowRule::per_second("/a", OPEN));
    let rule = KeyedRule::per_second("/a", OPEN).param("user");
    // The call keeps the note from its start, when the value is at hand, to its end. A name
    // of the same length keeps the growing of texts out of the comparison.
    let value = of_a_call_that_is_told(rule.id("flow-0"));
    assert_eq!(value, flow + 1);
}

#[test]
fn no_extractor_and_no_skip_allocates() {
    const TARGET: &str = "/users/7?user=ann&page=2";
    const ENCODED: &str = "/users/%37?user=%61nn";

    fn by(extractor: impl KeyExtractor) -> SentinelLayer {
        let (sentinel, _clock) = engine(FlowRule::per_second("/users/{id}", OPEN).by_origin());
        SentinelLayer::with(sentinel).origin(extractor)
    }
    let plain = || by(PeerIp);
    let cookie = || Cookie::new("sid");
    let office = "198.51.100.0/24".parse().unwrap();
    let layers = [
        ("a query", by(Query::new("user"))),
        ("a cookie", by(cookie())),
        ("a secret", by(Secret::new(cookie()))),
        ("a token", by(Bearer::new())),
        ("a path", by(PathParam::new("id"))),
        ("either", by(Cookie::new("none").or(PeerIp))),
        (
            "a skipped path",
            plain().skip(skip::paths(["/users/{id}", "/static/{*rest}"])),
        ),
        ("a skipped net", plain().skip(skip::nets(PeerIp, [office]))),
        ("nothing skipped", plain().skip(skip::options())),
    ];
    let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::from("hello"))) };
    let peer = ClientAddr("198.51.100.7:80".parse().unwrap());
    for (what, layer) in layers {
        for target in [TARGET, ENCODED] {
            let mut service = layer.clone().layer(service_fn(answer));
            let request = || {
                let request = Request::get(target)
                    .header("cookie", "theme=dark; sid=7f3a")
                    .header("authorization", "Bearer mF_9.B5f-4.1JqM")
                    .extension(peer);
                request.body(()).unwrap()
            };
            let mut requests: Vec<_> = (0..20).map(|_| request()).collect();
            let mut call = || {
                let request = requests.pop().unwrap();
                let response = service.call(request).now_or_never().unwrap().unwrap();
                assert_eq!(response.status(), 200);
            };
            (0..10).for_each(|_| call());
            let taken = measure(|| (0..10).for_each(|_| call()));
            assert_eq!(taken.count_total, 0, "{what}, {target}");
        }
    }
}

#[test]
fn a_call_that_need_not_wait_for_a_place_of_its_value_allocates_nothing() {
    let rule = KeyedRule::concurrency("r", 2).queue(MINUTE);
    let (sentinel, clock) = engine(rule);
    let call = || assert_passes(&sentinel, Call::new("r").param("ann"));
    assert_allocates_nothing("a queue of a value", &clock, call);
    // Nor beside those of another value that wait.
    let other = Call::new("r").param("bob");
    let _running = [0, 1].map(|_| sentinel.try_enter(other));
    let _waiting = sentinel.try_enter(other);
    assert_allocates_nothing("beside calls that wait", &clock, call);
}

#[test]
fn a_call_whose_turn_it_is_allocates_nothing() {
    let queue = FlowRule::per_second("r", 1_000).throttle(MINUTE);
    let (sentinel, clock) = engine(
        Rules::new()
            .with(queue)
            .with(FlowRule::per_second("r", OPEN)),
    );
    let call = || {
        clock.advance(Duration::from_millis(1));
        assert_passes(&sentinel, Call::new("r"));
    };
    assert_allocates_nothing("a queue", &clock, call);
}

/// What ten thousand waiting calls take, for each: bytes and allocations.
fn of_a_waiter<W>(mut wait: impl FnMut() -> W) -> (u64, u64) {
    const WAITERS: u64 = 10_000;
    let mut waiters = Vec::with_capacity(WAITERS as usize);
    let taken = measure(|| waiters.extend((0..WAITERS).map(|_| wait())));
    let before = measure(|| drop(waiters));
    assert_eq!(
        taken.count_current + before.count_current,
        -1,
        "all is given back, and the list"
    );
    (
        taken.bytes_current as u64 / WAITERS,
        taken.count_total / WAITERS,
    )
}

#[test]
fn a_waiting_call_is_small_and_leaves_nothing_behind() {
    let rules = || {
        Rules::new()
            .with(FlowRule::per_second("r", 10_000).throttle(MINUTE))
            .with(IsolationRule::new("r", 8))
    };
    let (sentinel, _clock) = engine(rules());
    assert_passes(&sentinel, Call::new("r"));
    let (bytes, count) = of_a_waiter(|| {
        let verdict = sentinel.try_enter(Call::new("r"));
        assert!(matches!(verdict, Verdict::Wait(_)));
        verdict
    });
    // The call's places, and what it holds in them.
    assert!(bytes <= 664 && count <= 2, "{bytes} bytes in {count}");

    // In the layer the request, the service and a timer come with it.
    let (sentinel, _clock) = engine(rules());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::from("hello"))) };
    let layer = SentinelLayer::with(sentinel).resource(from_fn(|_| Some("r".into())));
    let mut service = layer.layer(service_fn(answer));
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.call(Request::new(())).now_or_never().is_some());
    let wait = || {
        let mut call = Box::pin(service.call(Request::new(())));
        assert!(call.as_mut().poll(&mut context).is_pending());
        call
    };
    let (bytes, count) = of_a_waiter(wait);
    assert!(bytes <= 1_536 && count <= 6, "{bytes} bytes in {count}");
}

#[test]
fn a_rule_of_each_kind_allocates_nothing() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", OPEN))
        .with(
            FlowRule::per_second("r", OPEN)
                .throttle(MINUTE)
                .for_origin("queue"),
        )
        .with(FlowRule::per_second("r", OPEN).memory(0.5..0.9, OPEN / 2))
        .with(FlowRule::per_second("r", OPEN).warm_up(MINUTE))
        .with(FlowRule::per_second("r", OPEN).when("other"))
        .with(IsolationRule::new("r", 8))
        .with(KeyedRule::per_second("r", OPEN).by_origin())
        .with(KeyedRule::per_second("r", OPEN).window())
        .with(KeyedRule::concurrency("r", 8).tier("pro", 9))
        .with(AdaptiveRule::new("r"))
        .with(AuthorityRule::deny("r", ["bot"]))
        .with(CircuitBreakerRule::error_ratio("r", 0.5))
        .with(CircuitBreakerRule::slow_ratio("r", MINUTE, 0.5))
        .with(CircuitBreakerRule::error_count("r", 9).last_calls(20))
        .with(SystemRule::new().qps(OPEN).concurrency(1_000).cpu(0.99));
    let (sentinel, clock) = engine(rules);
    assert_passes(&sentinel, Call::new("other"));
    let call = Call::new("r").origin("app").param(7_u64).tier("pro");
    let call = || assert_passes(&sentinel, call);
    assert_allocates_nothing("a rule of each kind", &clock, call);
}

#[test]
fn a_call_that_takes_a_permit_in_hand_allocates_nothing() {
    let shared = || FlowRule::per("r", OPEN, HOUR).shared();
    let local = Rules::new()
        .with(FlowRule::per_second("r", OPEN))
        .with(IsolationRule::new("r", 9));
    let rules: [Rules; 4] = [
        shared().into(),
        local.with(shared()),
        shared().by_origin().into(),
        Rules::new()
            .with(shared())
            .with(AuthorityRule::deny("r", ["bot"])),
    ];
    for rules in rules {
        let name = format!("{rules:?}");
        let clock = ManualClock::new();
        let builder = Sentinel::builder().rules(rules).clock(clock.clone());
        let store = MemoryStore::with_clock(clock.clone());
        // Of a store that is not started, all is in hand at once.
        let sentinel = builder.store(store).build();
        let call = || assert_passes(&sentinel, Call::new("r").origin("app"));
        assert_allocates_nothing(&name, &clock, call);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_warm_lease_allocates_nothing() {
    let clock = TokioClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per("r", OPEN, HOUR).shared())
        .clock(clock)
        .store(MemoryStore::with_clock(clock))
        .build();
    let _handle = sentinel.start_store().unwrap();
    // 10 000 calls a second, for long enough that some are drawn ahead.
    for _ in 0..200 {
        for _ in 0..10 {
            drop(sentinel.enter(Call::new("r")).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let taken = measure(|| (0..50).for_each(|_| assert_passes(&sentinel, Call::new("r"))));
    assert_eq!(taken.count_total, 0);
}

#[test]
fn breakers_that_open_and_close_together_allocate_nothing() {
    let breaker = || {
        let breaker = CircuitBreakerRule::error_count("r", 1).min_calls(1);
        breaker.open_for(Duration::from_millis(100))
    };
    let rules = Rules::new()
        .with(breaker())
        .with(breaker().open_for(Duration::from_millis(200)));
    let (sentinel, clock) = engine(rules);
    let (mut passed, mut refused) = (0, 0);
    assert_allocates_nothing("two breakers", &clock, || {
        match sentinel.try_enter(Call::new("r")) {
            Verdict::Pass(mut entry) => {
                passed += 1;
                if passed % 2 == 1 {
                    entry.fail();
                }
            }
            _ => refused += 1,
        }
    });
    assert!(passed > 100 && refused > 90, "{passed} and {refused}");
}

#[test]
fn a_call_that_has_a_cost_allocates_once_and_its_charges_nothing() {
    let costs = |unit| FlowRule::per_second("r", OPEN).cost(unit);
    for units in [&["tokens"][..], &["tokens", "rows"]] {
        let rules = units
            .iter()
            .fold(Rules::new(), |rules, unit| rules.with(costs(*unit)));
        let (sentinel, _clock) = engine(rules);
        let call = Call::new("r").reserve("tokens", 9);
        assert_passes(&sentinel, call);
        let taken = measure(|| {
            let Verdict::Pass(mut entry) = sentinel.try_enter(call) else {
                panic!("there is room");
            };
            let meter = entry.meter().clone();
            assert!(meter.charge("tokens", 3) && entry.charge("rows", 4));
            meter.settle("tokens", 8);
        });
        assert_eq!(taken.count_total, 1, "{units:?}");
    }
}

#[test]
fn a_call_that_a_rule_in_shadow_mode_does_not_see_allocates_nothing() {
    let rules = Rules::new()
        .with(Rule::from(FlowRule::per_second("other", OPEN)).shadow())
        .with(Rule::from(FlowRule::per_second("7", OPEN)).shadow());
    let (sentinel, clock) = engine(rules);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for call in [Call::new("r"), Call::new(8_u64), Call::new(address)] {
        let what = format!("beside rules in shadow mode, {call:?}");
        assert_allocates_nothing(&what, &clock, || assert_passes(&sentinel, call));
    }
}

/// What `make` leaves on the heap.
fn kept<T>(make: impl Fn() -> T) -> u64 {
    let mut made = None;
    measure(|| made = Some(make())).bytes_current as u64
}

#[test]
fn an_engine_and_a_rule_in_shadow_mode_take_what_their_documentation_says() {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let most = (42 << 10).max(if threads < 32 { 0 } else { threads * (4 << 10) });
    let rules = |shadows: u32| {
        let rule = FlowRule::per_second("r", 1);
        let rules = (0..shadows).map(|n| FlowRule::per_second("r", n).shadow());
        Rules::build(rules.chain([rule.into()])).unwrap()
    };
    // What is made once for all engines.
    drop(Sentinel::new(rules(1)));
    let one = kept(|| Sentinel::new(rules(0)));
    assert!((1..=most).contains(&one), "{one}");
    let eleven = kept(|| Sentinel::new(rules(10)));
    assert!(((one + 1)..=11 * most).contains(&eleven), "{eleven}");
}

#[test]
fn a_resource_at_rest_is_small() {
    let array = LeapArray::new(Duration::from_secs(1), 2).unwrap();
    // Its words fill one cache line; the rest is its shape.
    assert!(array.footprint() <= 64 + 40, "{}", array.footprint());

    let (sentinel, clock) = engine(FlowRule::per_second("r", 10));
    let call = || drop(sentinel.try_enter(Call::new("r")));
    (0..10).for_each(|_| call());
    // With its rule, its name's place and what the table keeps.
    let view = sentinel.node("r").unwrap();
    assert!(view.footprint() <= 776, "{}", view.footprint());
    // What each kind of rule has refused.
    (0..10).for_each(|_| call());
    assert!(view.footprint() <= 776 + 144, "{}", view.footprint());
    // The seconds of a minute are made in the second second.
    clock.advance(Duration::from_secs(1));
    call();
    assert!(view.footprint() <= 776 + 3_608, "{}", view.footprint());
}

/// How many bytes more a resource with such rules takes than it tells: in a thread that
/// has called nobody yet, and so has no memory of one to let go of.
fn untold_bytes(rules: fn(&str) -> Rules) -> usize {
    std::thread::spawn(move || untold_bytes_here(rules))
        .join()
        .unwrap()
}

fn untold_bytes_here(rules: fn(&str) -> Rules) -> usize {
    let names = ["/the/first/resource", "/the/second/resource"];
    let both: Vec<_> = names
        .iter()
        .flat_map(|name| rules(name).iter().cloned().collect::<Vec<_>>())
        .collect();
    let (sentinel, clock) = engine(Rules::build(both).unwrap());
    let call = |name| {
        for _ in 0..3 {
            clock.advance(Duration::from_secs(1));
            drop(sentinel.try_enter(Call::new(name).param("x")));
        }
    };
    // The tables are made for the first.
    call(names[0]);
    let taken = measure(|| call(names[1])).bytes_current as usize;
    let told = sentinel.node(names[1]).unwrap().footprint();
    taken - told
}

#[test]
fn the_last_calls_take_less_memory_than_an_interval() {
    let footprint = |rule: CircuitBreakerRule| {
        let (sentinel, _) = engine(rule);
        assert_passes(&sentinel, Call::new("r"));
        sentinel.node("r").unwrap().footprint()
    };
    let rule = || CircuitBreakerRule::error_count("r", 5);
    let one_bucket = footprint(rule().buckets(1));
    assert!(footprint(rule().last_calls(40)) < one_bucket);
}

#[test]
fn a_footprint_is_what_the_heap_gave() {
    // The name is no part of it, nor is its place in the table.
    let untold = untold_bytes(|_| Rules::new());
    assert!(untold <= 96, "{untold}");
    let assert_all_else_is_told = |what: &str, rules| {
        assert_eq!(untold_bytes(rules), untold, "{what}");
    };
    assert_all_else_is_told("windows", |name| {
        Rules::new()
            .with(FlowRule::per_second(name, 10).id(format!("{name} a second")))
            .with(FlowRule::per(name, 100, MINUTE))
    });
    assert_all_else_is_told("a window apart", |name| {
        let apart = FlowRule::per(name, 9, Duration::from_millis(70)).buckets(7);
        let apart = apart.id(format!("{name} apart"));
        Rules::new()
            .with(FlowRule::per(name, 100, MINUTE))
            .with(apart)
    });
    assert_all_else_is_told("a queue", |name| {
        let queue = FlowRule::per_second(name, 10).throttle(MINUTE);
        queue.id(format!("{name} in queue")).into()
    });
    assert_all_else_is_told("warm-ups", |name| {
        let rule = FlowRule::per_second(name, 10).warm_up(MINUTE);
        Rules::new()
            .with(rule.clone())
            .with(rule.throttle(MINUTE).id(format!("{name} in queue")))
    });
    assert_all_else_is_told("memory", |name| {
        FlowRule::per_second(name, 10).memory(0.7..0.9, 1).into()
    });
    assert_all_else_is_told("a limit that finds itself", |name| {
        AdaptiveRule::new(name).into()
    });
    assert_all_else_is_told("breakers", |name| {
        Rules::new()
            .with(CircuitBreakerRule::error_ratio(name, 0.5))
            .with(CircuitBreakerRule::error_count(name, 5))
            .with(CircuitBreakerRule::error_count(name, 5).last_calls(20))
    });
    assert_all_else_is_told("values", |name| {
        let rule = KeyedRule::per(name, 10, MINUTE).max_keys(1_000);
        Rules::new()
            .with(rule.clone().id(format!("{name} plain")))
            .with(rule.tier("gold", 20).tier("silver", 15))
    });
}
