//! What the layer costs a request, in multiples of a bare service.
//!
//! ```text
//! cargo bench --bench middleware
//! ```

mod support;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::Full;
use support::Bench;
use tower::util::{ServiceFn, service_fn};
use tower::{Layer, Service};
use tower_sentinel::clock::{MonotonicClock, QuantaClock};
use tower_sentinel::key::Header;
use tower_sentinel::{Clock, FlowRule, IsolationRule, Rules, Sentinel, SentinelLayer};

type Req = Request<()>;
type Answer = Result<Response<Full<Bytes>>, Infallible>;
type Handler = ServiceFn<fn(Req) -> Ready<Answer>>;

/// More than a run uses up in a second.
const PLENTY: u32 = (1 << 31) - 1;

fn main() {
    let mut bench = Bench::against(
        "one request through the layer",
        "bare service",
        calls(handler()),
    );

    let one = || FlowRule::per_second("/known", PLENTY);
    bench.add(
        "no rule, QuantaClock",
        calls(layer(Rules::new(), QuantaClock::new()).layer(handler())),
    );
    bench.add(
        "one rule, QuantaClock",
        calls(layer(one(), QuantaClock::new()).layer(handler())),
    );
    bench.add(
        "one rule, MonotonicClock",
        calls(layer(one(), MonotonicClock::new()).layer(handler())),
    );
    let both = Rules::new()
        .with(one())
        .with(IsolationRule::new("/known", 8));
    bench.add(
        "one rule and isolation, QuantaClock",
        calls(layer(both, QuantaClock::new()).layer(handler())),
    );
    let template = FlowRule::per_second("/{name}", PLENTY);
    bench.add(
        "one rule by template, QuantaClock",
        calls(layer(template, QuantaClock::new()).layer(handler())),
    );
    let by_header = layer(one().by_origin(), QuantaClock::new())
        .origin(Header::new(HeaderName::from_static("x-client")));
    bench.add(
        "one rule by header, QuantaClock",
        calls(by_header.layer(handler())),
    );
    let never = FlowRule::per_second("/known", 0);
    bench.add(
        "refused with 429, QuantaClock",
        calls(layer(never.clone(), QuantaClock::new()).layer(handler())),
    );
    let as_error = layer(never, QuantaClock::new()).refusals_as_errors();
    bench.add(
        "refused as an error, QuantaClock",
        calls(as_error.layer(handler())),
    );
    bench.print();
}

fn handler() -> Handler {
    service_fn(|_| ready(Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))))
}

fn layer(rules: impl Into<Rules>, clock: impl Clock) -> SentinelLayer {
    SentinelLayer::with(Sentinel::builder().rules(rules).clock(clock).build())
}

/// Sends a request through `service` and drops the answer with its body.
fn calls<S: Service<Req> + 'static>(mut service: S) -> impl FnMut() + 'static {
    move || {
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::get("/known")
            .header("x-client", "a")
            .body(())
            .expect("a request");
        assert!(service.poll_ready(&mut context).is_ready());
        let answer = pin!(service.call(request)).poll(&mut context);
        assert!(matches!(std::hint::black_box(answer), Poll::Ready(_)));
    }
}
