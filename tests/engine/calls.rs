//! The engine as a whole: what is counted where, and what it needs.

use std::time::Duration;

use futures_util::FutureExt;
use tower_sentinel::call::Direction;
use tower_sentinel::clock::Tick;
use tower_sentinel::read::{NodeSnapshot, Scope};
use tower_sentinel::stat::Event;
use tower_sentinel::{
    BlockKind, Call, FlowRule, IsolationRule, ManualClock, Rules, Sentinel, Verdict,
};

use crate::support::{configured, run};

const MS: Duration = Duration::from_millis(1);

// === what is counted where ===

/// Pass, block, complete and calls in flight of a node.
fn figures(node: &NodeSnapshot) -> [u64; 4] {
    let window = node.window();
    [
        window.pass(),
        window.block(),
        window.complete(),
        node.concurrency().into(),
    ]
}

#[test]
fn an_inbound_call_counts_on_its_resource_origin_context_and_all_inbound() {
    let rule = FlowRule::per_second("r", 1);
    let (sentinel, _clock) = configured(rule, |builder| builder.origins(true).contexts(true));
    let call = Call::new("r").origin("app").context("web");
    // What the four nodes say, and that there are no others.
    let four = || {
        let snapshot = sentinel.snapshot();
        let mut scopes: Vec<_> = snapshot.nodes().iter().map(|n| n.scope().clone()).collect();
        scopes.sort_by_key(|scope| format!("{scope:?}"));
        let expected = [
            Scope::Context("web".into()),
            Scope::Origin("app".into()),
            Scope::Resource,
        ];
        assert_eq!(scopes, expected);
        let inbound = sentinel.inbound();
        let events = [Event::Pass, Event::Block, Event::Complete];
        let [pass, block, complete] = events.map(|event| inbound.sum(event));
        let mut figures: Vec<_> = snapshot.nodes().iter().map(figures).collect();
        figures.push([pass, block, complete, inbound.concurrency().into()]);
        figures
    };
    let entry = run(&sentinel, call);
    assert_eq!(four(), [[1, 0, 0, 1]; 4]);
    drop(entry);
    assert_eq!(four(), [[1, 0, 1, 0]; 4]);
    assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    assert_eq!(four(), [[1, 1, 1, 0]; 4]);
    assert_eq!(
        sentinel.entrance("web").totals(),
        sentinel.inbound().totals()
    );
}

#[test]
fn inbound_calls_of_all_resources_are_timed_together_and_wait_together() {
    let queue = |name: &str| FlowRule::per_second(name, 10).throttle(MS * 5_000);
    let rules = Rules::new().with(queue("a")).with(queue("b"));
    let (sentinel, clock) = configured(rules, |builder| builder);
    let inbound = sentinel.inbound();
    let figures = || (inbound.average_rt(), inbound.min_rt(), inbound.waiting());
    assert_eq!(figures(), (None, None, 0));
    let call = |name| sentinel.try_enter(Call::new(name));
    let running = ["a", "b"].map(|name| run(&sentinel, Call::new(name)));
    let waiting = ["a", "a", "b"].map(call);
    let abroad = run(&sentinel, Call::new("c").outbound());
    for (entry, rt) in running.into_iter().zip([10, 20]) {
        clock.advance(MS * rt);
        drop(entry);
    }
    clock.advance(MS * 100);
    drop(abroad);
    assert_eq!(figures(), (Some(MS * 20), Some(MS * 10), 3));
    drop(waiting);
    assert_eq!(inbound.waiting(), 0);
}

#[test]
fn an_outbound_call_without_an_origin_counts_on_its_resource_alone() {
    let (sentinel, _clock) =
        configured(Rules::new(), |builder| builder.origins(true).contexts(true));
    let entry = run(&sentinel, Call::new("r").outbound());
    assert_eq!(entry.direction(), Direction::Outbound);
    let snapshot = sentinel.snapshot();
    let [node] = snapshot.nodes() else {
        panic!("there is one node: {snapshot:?}");
    };
    assert_eq!(
        (node.direction(), figures(node)),
        (Direction::Outbound, [1, 0, 0, 1])
    );
    assert!(sentinel.node("r").is_none());
    assert_eq!(sentinel.outbound_node("r").unwrap().concurrency(), 1);
    assert_eq!(
        (
            sentinel.inbound().concurrency(),
            sentinel.inbound().totals().pass()
        ),
        (0, 0)
    );
}

#[test]
fn rules_hold_for_each_direction_apart() {
    let (sentinel, _clock) = configured(FlowRule::per_second("r", 2), |builder| builder);
    let passed = |call: Call<'_>| {
        let passes = |_: &u32| matches!(sentinel.try_enter(call), Verdict::Pass(_));
        (0..5).filter(passes).count()
    };
    assert_eq!(
        [Call::new("r"), Call::new("r").outbound()].map(passed),
        [2, 2]
    );
}

#[test]
fn two_engines_share_nothing_and_clones_share_all() {
    let clock = ManualClock::new();
    let make = || {
        Sentinel::builder()
            .rules(FlowRule::per_second("r", 1))
            .clock(clock.clone())
    };
    let (one, two) = (make().build(), make().build());
    let clone = one.clone();
    drop(run(&one, Call::new("r")));
    assert!(matches!(clone.try_enter(Call::new("r")), Verdict::Block(_)));
    assert!(two.node("r").is_none());
    drop(run(&two, Call::new("r")));
    clone.reload(Rules::new());
    assert!(one.rules().is_empty());
    assert_eq!(two.rules().len(), 1);
}

#[test]
fn a_snapshot_a_view_and_a_naive_log_agree() {
    let rule = FlowRule::per_second("r", 7);
    let (sentinel, clock) = configured(rule, |builder| builder);
    // When calls passed, were refused, and ended, and how long they had taken.
    let (mut passed, mut refused, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut running = Vec::new();
    for step in 0_u64..400 {
        let now = step * 83;
        clock.set(Tick::from_millis(now));
        match sentinel.try_enter(Call::new("r")) {
            Verdict::Pass(entry) => {
                passed.push(now);
                running.push((entry, now));
            }
            _ => refused.push(now),
        }
        if running.len() > (step * step % 5) as usize {
            let (entry, since) = running.swap_remove(0);
            drop(entry);
            ended.push((now, now - since));
        }

        let start = (now / 500).saturating_sub(1) * 500;
        let count = |log: &[u64]| log.iter().filter(|&&then| then >= start).count() as u64;
        let recent: Vec<_> = ended.iter().filter(|(then, _)| *then >= start).collect();
        let view = sentinel.node("r").unwrap();
        let expected = [count(&passed), count(&refused), recent.len() as u64];
        let events = [Event::Pass, Event::Block, Event::Complete];
        assert_eq!(events.map(|event| view.sum(event)), expected, "at {now}");
        assert_eq!(view.concurrency() as usize, running.len());
        let sum: u64 = recent.iter().map(|(_, rt)| rt).sum();
        let average = (!recent.is_empty()).then(|| MS * sum as u32 / recent.len() as u32);
        assert_eq!(view.average_rt(), average, "at {now}");
        assert_eq!(
            view.min_rt(),
            recent.iter().map(|(_, rt)| MS * *rt as u32).min()
        );

        let snapshot = sentinel.snapshot();
        let node = &snapshot.nodes()[0];
        assert_eq!(figures(node)[..3], expected);
        assert_eq!(
            events.map(|event| node.qps(event)),
            events.map(|event| view.qps(event))
        );
        assert_eq!(
            (node.average_rt(), node.min_rt()),
            (view.average_rt(), view.min_rt())
        );
        assert_eq!(
            (*node.totals(), node.concurrency()),
            (view.totals(), view.concurrency())
        );
        assert_eq!(sentinel.inbound().totals(), view.totals());

        // The seconds say the same as the log, each for itself.
        for second in view.seconds().unwrap_or_default() {
            let begin = second.start().as_millis();
            let within = |then: &u64| (begin..begin + 1_000).contains(then);
            let count = |log: &[u64]| log.iter().filter(|then| within(then)).count() as u64;
            assert_eq!(
                (second.pass(), second.block()),
                (count(&passed), count(&refused))
            );
            let done = ended.iter().filter(|(then, _)| within(then)).count();
            assert_eq!(second.complete(), done as u64, "second {begin} at {now}");
        }
    }
    assert!(refused.len() > 50 && ended.len() > 100);
}

// === without a runtime ===

#[test]
fn nothing_needs_a_runtime_until_a_call_waits() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1))
        .with(IsolationRule::new("r", 9));
    let (sentinel, _clock) = configured(rules, |builder| builder);
    let enter = || sentinel.enter(Call::new("r")).now_or_never().unwrap();
    drop(enter().unwrap());
    assert_eq!(enter().unwrap_err().kind(), BlockKind::Flow);
}

#[test]
fn an_entrance_is_found_by_a_name_that_is_too_long_to_be_kept() {
    let (sentinel, _clock) = configured(Rules::new(), |builder| builder.contexts(true));
    let long = "x".repeat(1_000);
    drop(sentinel.try_enter(Call::new("r").context(&long)));
    assert_eq!(sentinel.entrance(&long).sum(Event::Pass), 1);
    assert_eq!(sentinel.entrance(&long[1..]).sum(Event::Pass), 0);
}

#[test]
fn no_weight_is_so_heavy_that_totals_are_wrong() {
    let sentinel = Sentinel::new(Rules::new());
    let most = u64::from(Call::MAX_WEIGHT);
    for heavy in [Call::MAX_WEIGHT, 1 << 30, u32::MAX] {
        for _ in 0..3 {
            drop(sentinel.try_enter(Call::new("r").batch(heavy)));
        }
    }
    let node = sentinel.node("r").unwrap();
    assert_eq!(
        (node.totals().pass(), node.totals().complete()),
        (9 * most, 9 * most)
    );
    assert_eq!(node.concurrency(), 0);
}
