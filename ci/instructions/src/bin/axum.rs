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
use http::{Request, Response, Uri};
use tower_layer::Layer;
use tower_sentinel::clock::Tick;
use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
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
        "idle" => send(route.layer(Idle), calls, 200),
        "at-head" => send(route.layer(layer(OPEN).at_head()), calls, 200),
        "around" => send_to(layer(OPEN).at_head().layer(router(route)), calls, 200),
        other => panic!("{other} is no kind of call"),
    }
}

/// A layer that does nothing: what axum takes for any layer of a route.
#[derive(Clone)]
struct Idle;

/// The service of [`Idle`].
#[derive(Clone)]
struct Through<S>(S);

impl<S> Layer<S> for Idle {
    type Service = Through<S>;

    fn layer(&self, inner: S) -> Through<S> {
        Through(inner)
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Through<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.0.call(request)
    }
}

fn router(route: MethodRouter) -> Router {
    Router::new().route("/users", route)
}

fn send(route: MethodRouter, calls: u32, status: u16) {
    send_to(router(route), calls, status);
}

/// Sends requests to a router. Each response's body is polled until it says that it has ended, as
/// servers do.
fn send_to<S, B>(mut router: S, calls: u32, status: u16)
where
    S: Service<Request<Body>, Response = Response<B>>,
    B: http_body::Body,
{
    let mut cx = Context::from_waker(Waker::noop());
    let uri = Uri::from_static("/users");
    for _ in 0..calls {
        let request = Request::get(uri.clone()).body(Body::empty());
        assert!(router.poll_ready(&mut cx).is_ready());
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
