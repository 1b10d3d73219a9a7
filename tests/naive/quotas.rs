//! What responses tell of quotas: of the rule that leaves the smallest part of its
//! limit, as a naive engine counts it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{Head, from_fn};
use tower_sentinel::rejection::RateLimitFields;
use tower_sentinel::{BoxError, Key, SentinelLayer};

use crate::oracle::Naive;
use crate::setup::{Asks, BEGIN, Flow, NS, Op, Whose, op, setup};
use crate::support::bench::Bench;
use crate::support::ready;

/// The two fields that tell of what `flow` has left for `call`, and the part that this
/// is; `None` if it says nothing of it.
fn told(naive: &Naive, index: usize, call: &Asks, now: u64) -> Option<(f64, [String; 2])> {
    let flow: &Flow = &naive.setup.flows[index];
    if flow.line.is_some() || matches!(flow.whose, Whose::Related(_)) {
        return None;
    }
    let passed = naive.counted_with(flow, call)?;
    let left = (0..=flow.limit).rfind(|n| flow.room_at(now, *n, &passed) == Some(now))?;
    let more = flow.room_at(now, left + 1, &passed).unwrap_or(now);
    let whole = |ns: u64| ns.div_ceil(1_000 * NS).max(1);
    let window = whole(flow.buckets * flow.bucket * NS);
    let fields = [
        format!("\"{index}\";q={};w={window}", flow.limit),
        format!("\"{index}\";r={left};t={}", whole(more - now)),
    ];
    Some((f64::from(left) / f64::from(flow.limit.max(1)), fields))
}

fn asks(head: Head<'_>) -> &Asks {
    head.extensions().get().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn responses_tell_of_the_tightest_quota(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let bench = Bench::new(setup.rules());
        let layer = SentinelLayer::with(bench.sentinel.clone())
            .fields(RateLimitFields::Ietf)
            .resource(from_fn(|head| Some(Key::Str(asks(head).resource))))
            .origin(from_fn(|head| asks(head).origin.map(Key::Str)))
            .context(from_fn(|head| asks(head).context.map(Key::Str)))
            .weight(|head| asks(head).n);
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
        let mut naive = Naive::new(setup);
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    let request = Request::builder().extension(call).body(Body::empty()).unwrap();
                    let response = ready(service.clone().oneshot(request)).unwrap();
                    if naive.enter(call, now).is_err() {
                        continue;
                    }
                    // Each ends with its response.
                    naive.running.clear();
                    prop_assert_eq!(response.status(), StatusCode::OK);
                    let told: Vec<_> = (0..naive.setup.flows.len())
                        .filter_map(|index| told(&naive, index, &call, now))
                        .collect();
                    let least = told.iter().map(|(part, _)| *part).fold(f64::INFINITY, f64::min);
                    let found = ["ratelimit-policy", "ratelimit"].map(|name| {
                        let field = response.headers().get(name);
                        field.map_or("", |field| field.to_str().unwrap()).to_owned()
                    });
                    let is_right = if told.is_empty() {
                        found.iter().all(String::is_empty)
                    } else {
                        told.iter().any(|(part, fields)| *part <= least && *fields == found)
                    };
                    prop_assert!(is_right, "{:?} of {:?}", found, told);
                }
            }
        }
    }
}
