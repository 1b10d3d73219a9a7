//! Makes HTTP calls of one kind, for `ci/instructions/run` to count what they cost.
//!
//! ```text
//! layer KIND CALLS
//! ```
//!
//! A program of its own: in one that also calls the engine itself, the compiler inlines
//! less of the engine, and the counts are others.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use tower_layer::Layer;
use tower_sentinel::clock::Tick;
use tower_sentinel::key::PeerIp;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::{FlowRule, ManualClock, Sentinel, SentinelLayer};
use tower_service::Service;

/// More than any run makes calls.
const OPEN: u32 = 1_000_000;

const HOUR: Duration = Duration::from_secs(3_600);

/// The service behind the layer: answers at once.
#[derive(Clone)]
struct Hello;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("a kind and a number of calls");
    let kind = next();
    let calls = next().parse().expect("a number of calls");
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let sentinel = |rule: FlowRule| Sentinel::builder().rules(rule).clock(clock).build();
    let layer = |rule| SentinelLayer::with(sentinel(rule));
    let open = FlowRule::per_second("/users", OPEN);
    let shut = FlowRule::per_second("/users", 0);
    // The others are named by their path.
    let by_template = FlowRule::per_second("/{name}", OPEN);
    match kind.as_str() {
        "none" => send(Hello, calls, 200),
        "skipped" => send(layer(shut).skip(|_| true).layer(Hello), calls, 200),
        "passed" => send(layer(open).layer(Hello), calls, 200),
        "fields" => {
            let layer = layer(open).fields(RateLimitFields::Ietf);
            send(layer.layer(Hello), calls, 200);
        }
        "refused" => send(layer(shut).layer(Hello), calls, 429),
        "full" => {
            let service = layer(FlowRule::per_second("/users", 1)).layer(Hello);
            send(service.clone(), 1, 200);
            send(service, calls, 429);
        }
        "full-hour" => {
            let service = layer(FlowRule::per("/users", 1, HOUR)).layer(Hello);
            send(service.clone(), 1, 200);
            send(service, calls, 429);
        }
        "by-peer" => {
            let layer = layer(by_template.by_origin()).origin(PeerIp);
            send(layer.layer(Hello), calls, 200);
        }
        other => panic!("{other} is no kind of call"),
    }
}

/// Sends requests of a peer whose address is known. Each response's body is polled until it
/// says that it has ended, as servers do: so what a call takes at its end is counted too.
fn send<S, B>(mut service: S, calls: u32, status: u16)
where
    S: Service<Request<()>, Response = Response<B>>,
    B: Body,
{
    let mut cx = Context::from_waker(Waker::noop());
    let uri = Uri::from_static("/users");
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    for _ in 0..calls {
        let request = Request::get(uri.clone()).extension(peer).body(());
        assert!(service.poll_ready(&mut cx).is_ready());
        let call = pin!(service.call(request.expect("a request")));
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

// === impl Hello ===

impl Service<Request<()>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Full::new(Bytes::from_static(b"hello")))))
    }
}
