//! Makes HTTP calls to a route of axum, for `ci/instructions/run` to count what they cost.
//!
//! ```text
//! axum KIND CALLS
//! ```
//!
//! A program of its own, so that what the others count does not depend on axum.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodRouter, get};
use http::{Request, Uri};
use http_body::Body as _;
use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer, Tick};
use tower_service::Service;

/// More than any run makes calls.
const OPEN: u32 = 1_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("a kind and a number of calls");
    let kind = next();
    let calls = next().parse().expect("a number of calls");
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let layer = |limit| {
        let rule = FlowRule::per_second("/users", limit);
        SentinelLayer::with(Sentinel::builder().rules(rule).clock(clock).build())
    };
    let route = get(async || "hello");
    match kind.as_str() {
        "none" => send(route, calls, 200),
        "passed" => send(route.layer(layer(OPEN)), calls, 200),
        "refused" => send(route.layer(layer(0)), calls, 429),
        other => panic!("{other} is no kind of call"),
    }
}

/// Sends requests to a router with this route. Each response's body is polled until it says
/// that it has ended, as servers do.
fn send(route: MethodRouter, calls: u32, status: u16) {
    let mut router: Router = Router::new().route("/users", route);
    let mut cx = Context::from_waker(Waker::noop());
    let uri = Uri::from_static("/users");
    for _ in 0..calls {
        let request = Request::get(uri.clone()).body(Body::empty());
        assert!(Service::<Request<Body>>::poll_ready(&mut router, &mut cx).is_ready());
        let call = pin!(router.call(request.expect("a request")));
        let Poll::Ready(Ok(response)) = call.poll(&mut cx) else {
            panic!("it is answered at once");
        };
        assert_eq!(response.status(), status);
        let mut body = pin!(response.into_body());
        while !body.is_end_stream() {
            let frame = black_box(body.as_mut().poll_frame(&mut cx));
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
        }
    }
}
