//! Rules in shadow mode: what they count, tell, and leave alone.
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::hook::{BlockEvent, Hook};
use tower_sentinel::key::from_fn;
use tower_sentinel::read::{BreakerState, NodeView, ShadowView};
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, Call, CircuitBreakerRule, Entry, FlowRule,
    IsolationRule, Key, KeyedRule, ManualClock, Rule, Rules, Sentinel, SentinelLayer, SystemRule,
    Verdict,
};

use crate::support::{bench, configured, get, ms, ready, run};

/// What hooks are told, as `enforced|shadow kind rule`.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl Hook for Told {
    fn on_block(&self, event: &BlockEvent<'_>) {
        let blocked = event.blocked();
        let told = format!("enforced {} {}", blocked.kind(), blocked.rule());
        self.0.lock().unwrap().push(told);
    }

    fn on_shadow_block(&self, event: &BlockEvent<'_>) {
        assert_eq!(event.resource(), "r");
        let blocked = event.blocked();
        let told = format!("shadow {} {}", blocked.kind(), blocked.rule());
        self.0.lock().unwrap().push(told);
    }
}

struct Bench {
    sentinel: Sentinel,
    clock: ManualClock,
    told: Arc<Told>,
    probe: ManualProbe,
}

impl Bench {
    fn new(rules: impl Into<Rules>) -> Self {
        Self::with(rules, false)
    }

    fn with(rules: impl Into<Rules>, all_shadow: bool) -> Self {
        let told = Arc::new(Told::default());
        let probe = ManualProbe::new();
        let bench::Bench { sentinel, clock } = bench::Bench::with(rules, |builder| {
            builder
                .hook("told", told.clone())
                .sampler(Sampler::new(probe.clone()))
                .shadow(all_shadow)
        });
        Self {
            sentinel,
            clock,
            told,
            probe,
        }
    }

    /// A call that has to pass.
    #[track_caller]
    fn enter(&self, call: Call<'_>) -> Entry {
        run(&self.sentinel, call)
    }

    /// What hooks were told since they were last asked.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.0.lock().unwrap())
    }

    /// What the only rule in shadow mode makes of the calls.
    fn shadow(&self) -> NodeView {
        self.sentinel.shadows()[0].node("r").unwrap()
    }

    /// Passed and blocked, as it sees them.
    fn seen(&self) -> (u64, u64) {
        let totals = self.shadow().totals();
        assert_eq!(self.sentinel.shadows()[0].would_block(), totals.block());
        (totals.pass(), totals.block())
    }
}

fn call() -> Call<'static> {
    Call::new("r")
}

#[test]
fn a_rule_of_every_kind_tells_what_it_would_refuse_and_refuses_nothing() {
    let flow = || FlowRule::per_second("r", 2).id("two");
    // The kind that is told, and how many of five pass.
    let rules: [(Rule, BlockKind, u64); 6] = [
        (flow().shadow(), BlockKind::Flow, 2),
        (flow().throttle(ms(0)).shadow(), BlockKind::Flow, 1),
        (flow().by_origin().shadow(), BlockKind::Flow, 2),
        (
            KeyedRule::per_second("r", 2).id("two").shadow(),
            BlockKind::Keyed,
            2,
        ),
        (
            SystemRule::new().qps(2).id("two").shadow(),
            BlockKind::System,
            2,
        ),
        (
            IsolationRule::new("r", 2).id("two").shadow(),
            BlockKind::Isolation,
            2,
        ),
    ];
    for (rule, kind, passing) in rules {
        let bench = Bench::new(rule.clone());
        let running: Vec<_> = (0..5).map(|_| bench.enter(call())).collect();
        assert_eq!(bench.seen(), (passing, 5 - passing), "{rule:?}");
        let told = vec![format!("shadow {kind} two"); 5 - passing as usize];
        assert_eq!(bench.told(), told);
        drop(running);
        let node = bench.sentinel.node("r").unwrap();
        assert_eq!((node.totals().pass(), node.totals().block()), (5, 0));
        let shadow = bench.shadow();
        assert_eq!((node.concurrency(), shadow.concurrency()), (0, 0));
        assert_eq!(shadow.slots_in_use(), 0, "{rule:?}");
    }

    let bench = Bench::new(AuthorityRule::deny("r", ["bot"]).id("no-bots").shadow());
    drop(bench.enter(call().origin("bot")));
    drop(bench.enter(call().origin("app")));
    assert_eq!(bench.told(), ["shadow authority no-bots"]);
    assert_eq!(bench.seen(), (1, 1));

    let bench = Bench::new(SystemRule::new().cpu(0.5).id("busy").shadow());
    bench.probe.set_cpu(0.9);
    drop(bench.enter(call()));
    assert_eq!(bench.told(), ["shadow system busy"]);

    let bench = Bench::new(AdaptiveRule::new("r").start(1).ceiling(1).shadow());
    let _running = [bench.enter(call()), bench.enter(call())];
    assert_eq!(bench.seen(), (1, 1));
}

#[test]
fn a_breaker_in_shadow_mode_opens_probes_and_closes_by_what_happens() {
    let rule = CircuitBreakerRule::error_ratio("r", 0.5)
        .min_calls(4)
        .open_for(ms(2_000))
        .id("errors");
    let bench = Bench::new(rule.shadow());
    for _ in 0..4 {
        bench.enter(call()).fail();
    }
    let shadow = bench.shadow();
    let breaker = shadow.breakers().remove(0);
    assert_eq!(breaker.state(), BreakerState::Open);
    drop(bench.enter(call()));
    assert_eq!(bench.told(), ["shadow circuit-breaker errors"]);
    bench.clock.advance(ms(2_000));
    let probe = bench.enter(call());
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    drop(probe);
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert!(bench.sentinel.node("r").unwrap().breakers().is_empty());
}

#[tokio::test]
async fn an_answer_in_one_piece_counts_when_it_came_for_a_rule_in_shadow_mode_as_well() {
    let rule = SystemRule::new().rt(ms(100));
    for rule in [rule.clone().into(), rule.shadow()] {
        let bench = Bench::new(rule);
        let clock = bench.clock.clone();
        let slow = service_fn(move |_: Request<Body>| {
            clock.advance(ms(100));
            async { Ok::<_, Infallible>(Response::new("in one piece".to_owned())) }
        });
        let layer =
            SentinelLayer::with(bench.sentinel.clone()).resource(from_fn(|_| Some(Key::Str("r"))));
        let response = layer.layer(slow).oneshot(get("/")).await.unwrap();
        // Nobody asks for the body before the window of its head is over.
        bench.clock.advance(ms(1_500));
        drop(response);
        drop(bench.enter(call()));
        assert!(bench.told().is_empty());
    }
}

#[test]
fn a_rule_in_shadow_mode_is_its_own_shadow() {
    let shadow = FlowRule::per_second("r", 2).shadow();
    assert_eq!(shadow.clone().shadow(), shadow);
}

#[test]
fn a_rule_that_is_put_into_shadow_mode_twice_by_hand_judges_once() {
    let rule = FlowRule::per_second("r", 2).shadow();
    let twice = Rule::Shadow(Box::new(rule));
    let bench = Bench::new(twice);
    for _ in 0..5 {
        drop(bench.enter(call()));
    }
    assert_eq!(bench.seen(), (2, 3));
}

#[test]
fn it_judges_what_the_enforced_rules_let_pass() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 4).id("hard"))
        .with(FlowRule::per_second("r", 2).id("soft").shadow());
    let bench = Bench::new(rules);
    for _ in 0..4 {
        drop(bench.enter(call()));
    }
    assert!(matches!(
        bench.sentinel.try_enter(call()),
        Verdict::Block(_)
    ));
    assert_eq!(
        bench.told(),
        ["shadow flow soft", "shadow flow soft", "enforced flow hard"]
    );
    assert_eq!(bench.seen(), (2, 2));
}

#[test]
fn nobody_waits_for_it_and_a_call_that_waits_is_judged_once() {
    let bench = Bench::new(FlowRule::per_second("r", 10).throttle(ms(200)).shadow());
    let running: Vec<_> = (0..5).map(|_| bench.enter(call())).collect();
    // Three would come to their turn, and two not.
    assert_eq!(bench.seen(), (3, 2));
    drop(running);

    let rules = Rules::new()
        .with(FlowRule::per_second("r", 10).throttle(ms(1_000)))
        .with(FlowRule::per_second("r", 1).shadow());
    let bench = Bench::new(rules);
    drop(bench.enter(call()));
    let Verdict::Wait(waiting) = bench.sentinel.try_enter(call()) else {
        panic!("its turn comes at 100 ms");
    };
    assert_eq!(bench.told().len(), 1);
    bench.clock.advance(ms(100));
    drop(waiting.admit().unwrap());
    assert_eq!(bench.seen(), (1, 1));
}

#[test]
fn as_nobody_waits_for_it_it_refuses_no_call_because_too_many_wait() {
    // How many may wait, and how many of the others have no turn because of that.
    for (most, refused) in [(0, 5), (2, 0), (10_000, 0)] {
        let rule = FlowRule::per_second("r", 1).throttle(ms(10_000));
        let bench = Bench::new(rule.max_waiting(most).shadow());
        let running: Vec<_> = (0..6).map(|_| bench.enter(call())).collect();
        assert_eq!(bench.told().len(), refused, "{most}");
        drop(running);
    }
}

#[test]
fn an_engine_in_shadow_mode_refuses_nothing_after_any_reload() {
    let bench = Bench::with(FlowRule::per_second("r", 2), true);
    for _ in 0..5 {
        drop(bench.enter(call()));
    }
    assert_eq!(bench.seen(), (2, 3));
    assert!(bench.sentinel.reload(FlowRule::per_second("r", 3).into()));
    drop(bench.enter(call()));
    drop(bench.enter(call()));
    assert_eq!(bench.seen(), (3, 4), "a new threshold keeps the counts");
    assert!(!bench.sentinel.reload(FlowRule::per_second("r", 3).into()));
    assert_eq!(bench.told().len(), 4);
}

#[test]
fn a_rule_that_is_enforced_later_starts_by_what_really_passed() {
    let rule = || FlowRule::per_second("r", 2).id("limit");
    let bench = Bench::new(rule().shadow());
    for _ in 0..5 {
        drop(bench.enter(call()));
    }
    assert!(bench.sentinel.reload(rule().into()));
    assert!(matches!(
        bench.sentinel.try_enter(call()),
        Verdict::Block(_)
    ));
    assert!(bench.sentinel.reload(rule().shadow().into()));
    drop(bench.enter(call()));
}

#[test]
fn without_a_rule_in_shadow_mode_there_is_no_shadow() {
    let bench = Bench::new(FlowRule::per_second("r", 2));
    drop(bench.enter(call()));
    assert!(bench.sentinel.shadows().is_empty());
    assert!(
        bench
            .sentinel
            .reload(FlowRule::per_second("r", 2).shadow().into())
    );
    drop(bench.enter(call()));
    let shadow = bench.sentinel.shadows().remove(0);
    assert_eq!(
        (shadow.rule(), shadow.snapshot().nodes().len()),
        ("flow-0", 1)
    );
    assert!(bench.sentinel.reload(Rules::new()));
    assert!(bench.sentinel.shadows().is_empty());
}

#[test]
fn a_reload_brings_a_shadow_to_a_resource_that_had_none() {
    let bench = Bench::new(Rules::new());
    drop(bench.enter(call()));
    for _ in 0..2 {
        assert!(
            bench
                .sentinel
                .reload(FlowRule::per_second("r", 1).shadow().into())
        );
        for _ in 0..3 {
            drop(bench.enter(call()));
        }
        let shadow = bench.sentinel.shadows().remove(0);
        assert_eq!(shadow.would_block(), 2);
        assert!(bench.sentinel.reload(Rules::new()));
        drop(bench.enter(call()));
    }
    let totals = bench.sentinel.node("r").unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (9, 0), "nobody is refused");
}

#[test]
fn rules_in_shadow_mode_know_nothing_of_each_other_nor_of_other_resources() {
    let limit = |limit: u32| FlowRule::per_second("r", limit).id(format!("{limit}"));
    let rules = Rules::new()
        .with(limit(1).shadow())
        .with(limit(3).shadow())
        .with(FlowRule::per_second("s", 0).shadow())
        .with(
            FlowRule::per_second("r", 2)
                .when("s")
                .id("related")
                .shadow(),
        );
    let bench = Bench::new(rules);
    for _ in 0..4 {
        drop(bench.enter(call()));
    }
    let blocked = || -> Vec<u64> {
        let shadows = bench.sentinel.shadows();
        shadows.iter().map(ShadowView::would_block).collect()
    };
    assert_eq!(blocked(), [3, 1, 0, 0]);
    assert!(bench.sentinel.shadows()[2].node("r").is_none());
    // Calls of "s" are seen by what looks at them.
    for _ in 0..2 {
        drop(bench.enter(Call::new("s")));
    }
    drop(bench.enter(call()));
    assert_eq!(blocked()[3], 1);
    // A reload keeps what an equal rule has counted, and one of the same id.
    let rules = Rules::new().with(limit(3).shadow()).with(limit(1).shadow());
    assert!(bench.sentinel.reload(rules));
    assert_eq!(blocked(), [2, 4]);
}

#[test]
fn a_call_without_a_place_is_seen_by_the_rule_of_what_it_names() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).id("own").shadow())
        .with(FlowRule::per_second("__overflow__", 2).id("rest").shadow());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .max_resources(1)
        .build();
    let enter = |name: &str| {
        assert!(matches!(
            sentinel.try_enter(Call::new(name)),
            Verdict::Pass(_)
        ));
    };
    enter("first");
    for _ in 0..3 {
        enter("r");
    }
    enter("s");
    // All but the first have no place, and count together.
    assert_eq!(sentinel.node("__overflow__").unwrap().totals().pass(), 4);
    let shadows = sentinel.shadows();
    let [own, rest] = [&shadows[0], &shadows[1]];
    assert_eq!((own.rule(), own.would_block()), ("own", 2));
    assert_eq!(own.node("r").unwrap().totals().pass(), 1);
    assert_eq!((rest.rule(), rest.would_block()), ("rest", 2));
}

#[test]
fn what_it_would_refuse_stays_when_resources_make_place() {
    let (sentinel, clock) = configured(SystemRule::new().qps(0).shadow(), |builder| {
        builder.max_resources(1).idle_after(ms(1))
    });
    for (name, count) in [("a", 1), ("b", 2), ("c", 3)] {
        drop(run(&sentinel, Call::new(name)));
        assert_eq!(sentinel.shadows()[0].would_block(), count);
        assert_eq!(sentinel.snapshot().shadows().next().unwrap().1, count);
        clock.advance(ms(10_000));
    }
    assert_eq!(sentinel.shadows()[0].snapshot().evicted(), 2);
}

#[test]
fn an_address_or_a_number_without_a_place_is_seen_as_well() {
    let rules = Rules::new()
        .with(FlowRule::per_second("10.0.0.1", 1).shadow())
        .with(FlowRule::per_second("42", 2).shadow());
    let builder = Sentinel::builder().rules(rules).clock(ManualClock::new());
    let sentinel = builder.max_resources(1).build();
    let address = Key::from(IpAddr::from([10, 0, 0, 1]));
    for key in [Key::from("first"), address, Key::from(42)] {
        for _ in 0..4 {
            assert!(matches!(
                sentinel.try_enter(Call::new(key)),
                Verdict::Pass(_)
            ));
        }
    }
    let blocked = sentinel.shadows();
    let blocked: Vec<_> = blocked.iter().map(ShadowView::would_block).collect();
    assert_eq!(blocked, [3, 2]);
}

#[test]
fn equal_rules_do_not_share_their_figures_after_a_reload() {
    let rule = || FlowRule::per_second("r", 1).shadow();
    let bench = Bench::new(rule());
    for _ in 0..3 {
        drop(bench.enter(call()));
    }
    assert!(
        bench
            .sentinel
            .reload(Rules::new().with(rule()).with(rule()))
    );
    for expected in [[3, 0], [4, 1]] {
        drop(bench.enter(call()));
        let shadows = bench.sentinel.shadows();
        let blocked: Vec<_> = shadows.iter().map(ShadowView::would_block).collect();
        assert_eq!(blocked, expected);
    }
}

#[test]
fn a_rule_in_shadow_mode_goes_on_from_an_equal_one_else_from_its_id() {
    let limit = |limit: u32| FlowRule::per_second("r", limit);
    let bench = Bench::new(Rules::new().with(limit(1).shadow()).with(limit(3).shadow()));
    let blocked = || -> Vec<u64> {
        let shadows = bench.sentinel.shadows();
        shadows.iter().map(ShadowView::would_block).collect()
    };
    for _ in 0..4 {
        drop(bench.enter(call()));
    }
    assert_eq!(blocked(), [3, 1]);
    // The ids are those of their places, and change; the rules do not.
    let turned = Rules::new().with(limit(3).shadow()).with(limit(1).shadow());
    assert!(bench.sentinel.reload(turned));
    assert_eq!(blocked(), [1, 3]);
    // Now the rules change under their ids.
    let other = Rules::new().with(limit(4).shadow()).with(limit(9).shadow());
    assert!(bench.sentinel.reload(other));
    assert_eq!(blocked(), [1, 3]);
}

#[test]
fn a_rule_for_another_resource_starts_afresh_under_an_old_id() {
    let rule = |name: &str| FlowRule::per_second(name, 0).id("limit").shadow();
    let bench = Bench::new(rule("r"));
    drop(bench.enter(call()));
    assert_eq!(bench.seen(), (0, 1));
    assert!(bench.sentinel.reload(rule("s").into()));
    assert_eq!(bench.sentinel.shadows()[0].would_block(), 0);
}

#[test]
fn reloads_at_once_leave_the_shadows_of_the_newest_rules() {
    for _ in 0..200 {
        let sentinel = Sentinel::new(Rules::new());
        thread::scope(|scope| {
            for thread in 0..2 {
                let sentinel = &sentinel;
                scope.spawn(move || {
                    for round in 0..5 {
                        let id = format!("{thread}-{round}");
                        sentinel.reload(FlowRule::per_second("r", 1).id(id).shadow().into());
                    }
                });
            }
        });
        // The rule in force is the one whose shadow is there.
        let shadow = sentinel.shadows().remove(0);
        let in_force = sentinel.rules();
        let is_it = |last: &str| {
            let rule = FlowRule::per_second("r", 1).id(last).shadow();
            in_force == Rules::from(rule)
        };
        assert!(is_it(shadow.rule()), "{in_force:?}: {}", shadow.rule());
    }
}

#[test]
fn bounds_hold_for_enforced_rules_and_for_those_in_shadow_mode_apart() {
    let adaptive = || AdaptiveRule::new("r").burst(std::time::Duration::ZERO);
    let both = Rules::new().with(adaptive()).with(adaptive().shadow());
    assert_eq!(both.len(), 2);
    let error = both.try_with(adaptive().shadow()).unwrap_err();
    assert!(
        error.to_string().contains("at most 1 adaptive rule"),
        "{error}"
    );
    let error = Rules::build([FlowRule::per_second("", 1).shadow()]).unwrap_err();
    assert_eq!(error.problems()[0].field(), "resource");
}

#[test]
fn a_failing_response_is_what_a_breaker_in_shadow_mode_sees_at_its_head() {
    let rule = CircuitBreakerRule::error_count("r", 1).min_calls(1);
    let bench = Bench::new(rule.shadow());
    let fails = |_: Request<Body>| async {
        let mut response = Response::new(Body::from("no"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, Infallible>(response)
    };
    let mut service = SentinelLayer::with(bench.sentinel.clone())
        .resource(tower_sentinel::key::from_fn(|_| Some("r".into())))
        .layer(service_fn(fails));
    let response = ready(ready(service.ready()).unwrap().call(get("/"))).unwrap();
    let shadow = bench.shadow();
    assert_eq!(shadow.breakers()[0].state(), BreakerState::Open);
    // The call runs until the end of its body, also there.
    assert_eq!(shadow.concurrency(), 1);
    drop(response);
    assert_eq!((shadow.concurrency(), shadow.totals().error()), (0, 1));
}
