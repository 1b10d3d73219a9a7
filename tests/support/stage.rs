//! A layer over a service whose answers the test gives by hand, and a clock
//! that a paused test moves.

use std::pin::Pin;

use axum::body::Body;
use axum::http::{Request, Response};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::key::Head;
use tower_sentinel::middleware::{Respond, ResponseBody, ResponseFuture, SentinelService};
use tower_sentinel::read::NodeView;
use tower_sentinel::stat::Totals;
use tower_sentinel::{BoxError, Call, Rules, Sentinel, SentinelLayer, Verdict};
use tower_test::mock::{self, Handle, Mock, SendResponse};

use super::{assert_at_rest, get, ms, poll_now};

/// The resource of all calls.
pub(crate) const RESOURCE: &str = "/x";

const PRIORITY: &str = "x-priority";

/// The service behind the layer. It panics if it is called without being ready.
type Upstream = Mock<Request<Body>, Response<Body>>;

/// A call that is under way.
pub(crate) type Running = Pin<Box<ResponseFuture<Upstream, Request<Body>, Respond>>>;

/// What comes of it.
pub(crate) type Answer = Result<Response<ResponseBody<Body>>, BoxError>;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) sentinel: Sentinel,
    pub(crate) service: SentinelService<Upstream>,
    /// Where the calls arrive that the layer lets through.
    pub(crate) upstream: Handle<Request<Body>, Response<Body>>,
    start: Instant,
}

impl Stage {
    /// A stage with `rules`, at 0 ms. Time must be paused.
    pub(crate) fn new(rules: impl Into<Rules>) -> Self {
        let (mock, upstream) = mock::pair();
        let sentinel = Sentinel::builder()
            .rules(rules)
            .clock(TokioClock::new())
            .build();
        Self {
            service: SentinelLayer::with(sentinel.clone())
                .blocked_in_extensions()
                .prioritize(is_prioritized)
                .layer(mock),
            sentinel,
            upstream,
            start: Instant::now(),
        }
    }

    /// Moves the clock on to `millis`.
    pub(crate) async fn at(&self, millis: u64) {
        tokio::time::advance(self.start + ms(millis) - Instant::now()).await;
    }

    /// What the clock shows, in whole milliseconds.
    pub(crate) fn now(&self) -> u64 {
        let since = self.start.elapsed();
        assert_eq!(since.subsec_nanos() % 1_000_000, 0, "{since:?}");
        u64::try_from(since.as_millis()).unwrap()
    }

    pub(crate) fn node(&self) -> NodeView {
        self.sentinel.node(RESOURCE).expect("it has been called")
    }

    /// Takes `tokens` by a call that ends at once.
    pub(crate) fn take(&self, tokens: u32) {
        let verdict = self.sentinel.try_enter(Call::new(RESOURCE).batch(tokens));
        assert!(matches!(verdict, Verdict::Pass(_)));
    }

    /// Makes a call, which is not polled yet.
    pub(crate) async fn call(&mut self) -> Running {
        self.call_with(get(RESOURCE)).await
    }

    /// Makes a call that would rather wait than be refused.
    pub(crate) async fn call_prioritized(&mut self) -> Running {
        self.call_with(prioritized(get(RESOURCE))).await
    }

    /// Makes a call with `request`.
    pub(crate) async fn call_with(&mut self, request: Request<Body>) -> Running {
        Box::pin(self.service.ready().await.unwrap().call(request))
    }

    /// Makes a call and gives its answer with `respond`.
    pub(crate) async fn answered(
        &mut self,
        respond: impl FnOnce(SendResponse<Response<Body>>),
    ) -> Answer {
        let call = self.call().await;
        respond(self.arrived().await);
        call.await
    }

    /// The way to answer the call that has arrived.
    pub(crate) async fn arrived(&mut self) -> SendResponse<Response<Body>> {
        self.upstream.next_request().await.expect("a call").1
    }

    /// How many of `calls` ordinary calls are let through, one after the other;
    /// none is answered.
    pub(crate) async fn admits(&mut self, calls: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..calls {
            let mut call = self.call().await;
            // A refusal is there at once.
            admitted += usize::from(poll_now(call.as_mut()).is_pending());
        }
        admitted
    }

    /// Asserts that nothing runs and that the books balance.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) -> Totals {
        assert_at_rest(&self.sentinel, RESOURCE)
    }
}

pub(crate) fn prioritized(mut request: Request<Body>) -> Request<Body> {
    let value = axum::http::HeaderValue::from_static("1");
    request.headers_mut().insert(PRIORITY, value);
    request
}

pub(crate) fn is_prioritized(head: Head<'_>) -> bool {
    head.headers().contains_key(PRIORITY)
}
