//! Calls of each class under an adaptive rule: however one ends, its slot is free again, and it has
//! counted under its class and under no other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::Criticality::{self, Critical, CriticalPlus, Sheddable, SheddablePlus};
use tower_sentinel::{AdaptiveRule, BoxError, Call, Rule, Rules, Sentinel, SentinelLayer};

use crate::support::stage::RESOURCE;
use crate::support::{assert_at_rest, engine, enter, get, poll_now, ready};

const CLASSES: [Criticality; 4] = [CriticalPlus, Critical, SheddablePlus, Sheddable];

fn adaptive() -> AdaptiveRule {
    AdaptiveRule::new(RESOURCE).id("adaptive").ceiling(2)
}

/// The adaptive rule, and one in shadow mode that admits a call at a time.
fn rules() -> Rules {
    let shadow = AdaptiveRule::new(RESOURCE).id("shadow").floor(1).ceiling(1);
    let shadow = Rule::from(shadow.start(1)).shadow();
    Rules::new().with(adaptive()).with(shadow)
}

/// Asserts that nothing runs, and that `admitted` calls of `class` and none of another one have
/// been admitted.
#[track_caller]
fn assert_ended(sentinel: &Sentinel, class: Criticality, admitted: u64) {
    assert_at_rest(sentinel, RESOURCE);
    let shedding = sentinel.node(RESOURCE).unwrap().shedding().unwrap();
    for each in CLASSES {
        let expected = if each == class { admitted } else { 0 };
        assert_eq!(shedding.admitted(each), expected, "{each:?}");
        assert_eq!(shedding.refused(each), 0, "{each:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_of_each_class_gives_its_slot_back_however_it_ends() {
    for class in CLASSES {
        let (sentinel, _clock) = engine(rules());
        let call = Call::new(RESOURCE).criticality(class);
        let answered = sentinel.run(call, async { Ok::<_, BoxError>(7) }).await;
        assert_eq!(answered.unwrap(), 7);
        let failed = async { Err::<(), BoxError>("down".into()) };
        assert!(sentinel.run(call, failed).await.is_err());

        let hangs = std::future::pending::<Result<(), BoxError>>();
        let mut dropped = Box::pin(sentinel.run(call, hangs));
        assert!(poll_now(dropped.as_mut()).is_pending());
        assert_eq!(sentinel.node(RESOURCE).unwrap().slots_in_use(), 1);
        drop(dropped);

        let panics = async { std::panic::panic_any("a bug") as Result<(), BoxError> };
        let mut panics = Box::pin(sentinel.run(call, panics));
        assert!(catch_unwind(AssertUnwindSafe(|| poll_now(panics.as_mut()))).is_err());
        assert_ended(&sentinel, class, 4);
        // No call waits for a slot, so one that is dropped before it runs had none.
        drop(sentinel.enter(call));
        assert_ended(&sentinel, class, 4);
        assert_eq!(sentinel.shadows()[0].would_block(), 0);
    }
}

#[test]
fn a_body_of_each_class_gives_its_slot_back_when_it_is_gone() {
    for class in CLASSES {
        let (sentinel, _clock) = engine(rules());
        let layer = SentinelLayer::with(sentinel.clone()).criticality(move |_| Some(class));
        let service = layer.layer(service_fn(|request: Request<Body>| async move {
            match request.headers().contains_key("fails") {
                true => Err::<Response<Body>, BoxError>("down".into()),
                false => Ok(Response::new(Body::from("a page"))),
            }
        }));
        let send = |request| ready(service.clone().oneshot(request));
        // Dropped unread, and read to its end.
        let response = send(get(RESOURCE)).unwrap();
        assert_eq!(sentinel.node(RESOURCE).unwrap().slots_in_use(), 1);
        drop(response);
        assert_ended(&sentinel, class, 1);
        let mut response = send(get(RESOURCE)).unwrap();
        assert!(ready(response.body_mut().frame()).is_some());
        assert_ended(&sentinel, class, 2);
        let mut fails = get(RESOURCE);
        let value = axum::http::HeaderValue::from_static("1");
        fails.headers_mut().insert("fails", value);
        assert!(send(fails).is_err());
        assert_ended(&sentinel, class, 3);
    }
}

#[test]
fn calls_of_each_class_that_outlive_their_rules_end_where_they_began() {
    for class in CLASSES {
        let (sentinel, _clock) = engine(rules());
        let call = Call::new(RESOURCE).criticality(class);
        let slots = |sentinel: &Sentinel| sentinel.node(RESOURCE).unwrap().slots_in_use();
        // The rule gets another ceiling, goes, and comes back, while calls run.
        let first = enter(&sentinel, call).unwrap();
        assert!(sentinel.reload(rules().with(AdaptiveRule::new("other"))));
        let second = enter(&sentinel, call).unwrap();
        assert_eq!(slots(&sentinel), 2);
        assert_eq!(
            enter(&sentinel, call).unwrap_err().criticality(),
            Some(class)
        );
        assert!(sentinel.reload(Rules::new()));
        drop(first);
        assert!(sentinel.reload(Rules::new().with(adaptive().ceiling(3))));
        assert_eq!(slots(&sentinel), 1, "that of the call that runs");
        drop(second);
        assert_at_rest(&sentinel, RESOURCE);
        assert_eq!(sentinel.shadows().len(), 0);
        for _ in 0..3 {
            drop(enter(&sentinel, call).unwrap());
        }
        assert_ended(&sentinel, class, 3);
    }
}

#[test]
fn a_rule_in_shadow_mode_keeps_no_slot_of_any_class() {
    let (sentinel, _clock) = engine(rules());
    for class in CLASSES {
        let call = Call::new(RESOURCE).criticality(class);
        let held: Vec<_> = (0..2).map(|_| enter(&sentinel, call).unwrap()).collect();
        drop(held);
        assert_at_rest(&sentinel, RESOURCE);
    }
    // Of each pair the second one found the slot of the first one taken.
    assert_eq!(sentinel.shadows()[0].would_block(), 4);
}
