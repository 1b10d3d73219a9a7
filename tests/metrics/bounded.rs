//! Names that callers make up add no series, and stand nowhere.

use std::task::{Context, Poll, Waker};

use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::call::Param;
use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::{
    Call, CircuitBreakerRule, FlowRule, KeyedRule, ManualClock, Rules, Sentinel, SentinelLayer,
};

use crate::support::{attempts, configured, run};
use crate::{count, figures, passes};

/// Rules that look at origins and parameters, for a name and for all.
fn rules() -> Rules {
    Rules::new()
        .with(FlowRule::per_second("/named", 1_000_000))
        .with(
            FlowRule::per_second("/named", 1_000_000)
                .for_origin("other")
                .strict(),
        )
        .with(KeyedRule::per_second("/named", 1_000_000))
        .with(FlowRule::per_second("*", 1_000_000))
        .with(CircuitBreakerRule::error_ratio("*", 0.5))
}

#[test]
fn made_up_names_origins_and_keys_add_not_one_series() {
    let (sentinel, _clock) = configured(rules(), |builder| {
        builder
            .max_resources(1_000)
            .max_origins(1_000)
            .origins(true)
            .contexts(true)
    });
    let metrics = Metrics::new(&sentinel);
    assert!(passes(
        &sentinel,
        Call::new("/named").origin("a").param("b")
    ));
    // The one that all without a place share comes once.
    for number in 0..2_000 {
        passes(&sentinel, Call::new(&format!("/{number}")));
    }
    let before = count(&metrics);
    let attempts = attempts() / 4;
    for number in 0..attempts {
        let made_up = format!("{number:x}");
        let call = match number % 3 {
            0 => Call::new(&*made_up),
            1 => Call::new("/named").origin(&*made_up).context(&*made_up),
            _ => Call::new("/named").param(&*made_up),
        };
        passes(&sentinel, call);
    }
    assert_eq!(count(&metrics), before);
    let listed = figures(&metrics, "sentinel_resources_listed");
    assert_eq!(listed, [(String::new(), 2.0)], "/named and the overflow");
    let all = figures(&metrics, "sentinel_engine_completed")[0].1;
    assert_eq!(all, (2_001 + attempts) as f64);
}

#[test]
fn a_marker_that_a_caller_sends_stands_in_no_output() {
    const MARKER: &str = "k3y-0f-a-c4ll3r";
    let sentinel = Sentinel::builder()
        .rules(rules())
        .origins(true)
        .contexts(true)
        .build();
    let metrics = Metrics::new(&sentinel);
    let params = [Param::new("user", MARKER)];
    let call = Call::new("/named")
        .origin(MARKER)
        .context(MARKER)
        .tier(MARKER)
        .params(&params);
    run(&sentinel, call).fail();
    let unlisted = Call::new(MARKER).origin(MARKER).param(MARKER);
    drop(run(&sentinel, unlisted));
    drop(run(&sentinel, unlisted.outbound()));
    for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
        let text = metrics.render(format);
        assert!(text.contains("/named") && !text.contains(MARKER));
    }
    assert!(!format!("{:?}", metrics.families()).contains(MARKER));
    assert!(!format!("{metrics:?}").contains(MARKER));
}

#[test]
fn those_that_are_seen_first_have_series_and_keep_them() {
    let names: Vec<_> = (0..10).map(|n| format!("/{n}")).collect();
    let rule = |name: &String| FlowRule::per_second(name, 9);
    let (sentinel, _clock) = configured(Rules::build(names.iter().map(rule)).unwrap(), |it| it);
    let metrics = Metrics::new(&sentinel).max_resources(3);
    let shown = || {
        let series = figures(&metrics, "sentinel_completed").into_iter();
        series
            .map(|(labels, _)| labels.replace(",direction=\"inbound\"", ""))
            .collect::<Vec<_>>()
    };
    let call = |place: usize| assert!(passes(&sentinel, Call::new(&*names[place])));
    assert_eq!(shown(), [""; 0]);
    (8..10).for_each(call);
    assert_eq!(shown(), ["resource=\"/8\"", "resource=\"/9\""]);
    (0..8).for_each(call);
    let three = shown();
    assert_eq!(three.len(), 3);
    assert_eq!(three[1..], ["resource=\"/8\"", "resource=\"/9\""]);
    // Rules that go take no series away.
    sentinel.reload(Rules::new());
    (0..10).for_each(call);
    assert_eq!(shown(), three);
    // All count in the engine's own.
    assert_eq!(figures(&metrics, "sentinel_engine_completed")[0].1, 20.0);
    let none = Metrics::new(&sentinel).max_resources(0);
    assert_eq!(figures(&none, "sentinel_completed"), []);
}

#[test]
fn two_hundred_resources_with_histograms_are_less_than_two_megabytes() {
    let rules = (0..300).map(|n| FlowRule::per_second(format!("/resource/number/{n}"), 1_000));
    let sentinel = Sentinel::builder()
        .rules(
            Rules::build(rules)
                .unwrap()
                .with(CircuitBreakerRule::error_ratio("*", 0.5)),
        )
        .clock(ManualClock::new())
        .histograms()
        .build();
    for number in 0..300 {
        assert!(passes(
            &sentinel,
            Call::new(&format!("/resource/number/{number}"))
        ));
    }
    let metrics = Metrics::new(&sentinel);
    for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
        let size = metrics.render(format).len();
        assert!((500_000..2_000_000).contains(&size), "{size}");
    }
    assert_eq!(figures(&metrics, "sentinel_completed").len(), 200);
}

/// A call to `name`, as if a router had matched it: it is told as well.
async fn call_matched(sentinel: &Sentinel, name: &str) {
    let layer = SentinelLayer::with(sentinel.clone()).named(name);
    let service = layer.layer(service_fn(|_: http::Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    }));
    service.oneshot(http::Request::new(())).await.unwrap();
}

/// The names of the resources with series.
fn shown(metrics: &Metrics) -> Vec<String> {
    let series = figures(metrics, "sentinel_completed").into_iter();
    let names = series.map(|(labels, _)| labels.split('"').nth(1).unwrap().to_owned());
    names.collect()
}

#[tokio::test]
async fn what_has_rules_comes_first_and_a_gauge_says_how_many_have_no_series() {
    let matched = |n: usize| format!("/matched/{n}");
    let (sentinel, _clock) = configured(Rules::new(), |it| it);
    let call = async |name: &str| call_matched(&sentinel, name).await;
    for n in 0..5 {
        call(&matched(n)).await;
    }
    let metrics = Metrics::new(&sentinel).max_resources(3).max_rules(2);
    let shown = || shown(&metrics);
    let gauge = |name: &str| figures(&metrics, name)[0].1;
    assert_eq!(shown(), ["/matched/0", "/matched/1", "/matched/2"]);
    assert_eq!(gauge("sentinel_resources_left_out"), 2.0);
    assert_eq!(gauge("sentinel_rules_left_out"), 0.0);
    // The choice does not change by itself, nor by calls to the others.
    for n in (0..5).rev() {
        call(&matched(n)).await;
    }
    assert_eq!(shown(), ["/matched/0", "/matched/1", "/matched/2"]);
    // Two that rules name, and the others as before.
    let rules = Rules::new()
        .with(FlowRule::per_second("/zebra", 9))
        .with(FlowRule::per_second("/ape", 9))
        .with(FlowRule::per_second("/never", 9));
    sentinel.reload(rules.clone());
    call("/zebra").await;
    call("/ape").await;
    assert_eq!(shown(), ["/ape", "/matched/0", "/zebra"]);
    assert_eq!(gauge("sentinel_resources_left_out"), 4.0);
    assert_eq!(gauge("sentinel_rules_left_out"), 1.0);
    assert_eq!(figures(&metrics, "sentinel_rule_limit").len(), 2);
    assert_eq!(figures(&metrics, "sentinel_rule_blocked").len(), 2);
    let kinds = figures(&metrics, "sentinel_rules");
    assert!(
        kinds.contains(&("kind=\"flow\"".to_owned(), 3.0)),
        "all of them"
    );
    // A breaker for all of them changes nothing between those that are alike.
    sentinel.reload(rules.with(CircuitBreakerRule::error_ratio("*", 0.5)));
    for n in (0..5).rev() {
        call(&matched(n)).await;
    }
    assert_eq!(shown(), ["/ape", "/matched/0", "/zebra"]);
}

#[tokio::test]
async fn what_has_a_breaker_comes_before_what_has_none_and_stays() {
    let matched = |n: usize| format!("/matched/{n}");
    let (sentinel, _clock) = configured(Rules::new(), |it| it);
    for n in 0..5 {
        call_matched(&sentinel, &matched(n)).await;
    }
    let metrics = Metrics::new(&sentinel).max_resources(2);
    assert_eq!(shown(&metrics), [matched(0), matched(1)]);
    // A resource has the breaker from its next call on.
    sentinel.reload(CircuitBreakerRule::error_ratio("*", 0.5).into());
    for n in [4, 3] {
        call_matched(&sentinel, &matched(n)).await;
    }
    assert_eq!(shown(&metrics), [matched(3), matched(4)]);
    // Once older ones have it, too, those that have series keep them.
    for n in 0..5 {
        call_matched(&sentinel, &matched(n)).await;
    }
    assert_eq!(shown(&metrics), [matched(3), matched(4)]);
    // A rule for a name counts for more than a breaker.
    sentinel.reload(
        Rules::new()
            .with(CircuitBreakerRule::error_ratio("*", 0.5))
            .with(FlowRule::per_second("/zebra", 9)),
    );
    call_matched(&sentinel, "/zebra").await;
    assert_eq!(shown(&metrics), [matched(3), "/zebra".to_owned()]);
}

#[tokio::test]
async fn no_poll_of_a_scrape_reads_more_than_a_few_resources() {
    const COUNT: usize = 2_000;
    let rules = (0..COUNT).map(|n| FlowRule::per_second(format!("/{n}"), 9));
    let (sentinel, _clock) = configured(Rules::build(rules).unwrap(), |it| it);
    for number in 0..COUNT {
        passes(&sentinel, Call::new(&format!("/{number}")));
    }
    let metrics = Metrics::new(&sentinel).max_resources(COUNT);
    let mut answer = std::pin::pin!(metrics.clone().oneshot(http::Request::new(())));
    let mut cx = Context::from_waker(Waker::noop());
    let mut polls = 0;
    let answer = loop {
        polls += 1;
        if let Poll::Ready(answer) = answer.as_mut().poll(&mut cx) {
            break answer.unwrap();
        }
        // Others may read everything in between, and call.
        if polls % 100 == 0 {
            assert_eq!(figures(&metrics, "sentinel_completed").len(), COUNT);
        }
    };
    assert_eq!(answer.status(), http::StatusCode::OK);
    assert!(polls > COUNT / 16, "{polls}");
}
