//! The least that a layer can cost which counts calls by name and takes their time.

use std::convert::Infallible;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use dashmap::DashMap;
use http::Response;
use tower::Service;
use tower_sentinel::clock::{QuantaClock, Tick};
use tower_sentinel::Clock;

use crate::calls::{Answer, Handler, Req, handler};

/// A look-up, three additions to shared words and two readings of the clock, around a
/// service that answers at once: nothing is kept until the call has ended.
pub(crate) struct Floor {
    inner: Handler,
    counters: Counters,
}

/// The same, but with the last addition and reading at the end of the response's body. It
/// stands for a service whose answer takes a while.
pub(crate) struct HeldFloor {
    inner: Handler,
    // Never freed, so that calls need not count who uses it.
    counters: &'static Counters,
}

struct Counters {
    clock: QuantaClock,
    names: DashMap<String, &'static [AtomicU64; 3]>,
}

/// A call that has been counted, and whose time is taken.
struct Running {
    counters: &'static Counters,
    counts: &'static [AtomicU64; 3],
    start: Tick,
}

pub(crate) struct HeldFuture {
    inner: Ready<Answer>,
    running: Option<Running>,
}

pub(crate) struct HeldBody {
    _body: Body,
    _running: Option<Running>,
}

// === impl Floor ===

impl Floor {
    pub(crate) fn new() -> Self {
        Self {
            inner: handler(),
            counters: Counters::new(),
        }
    }
}

impl Service<Req> for Floor {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Answer>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (counts, start) = self.counters.start(&request);
        let answer = self.inner.call(request);
        self.counters.end(counts, start);
        answer
    }
}

// === impl HeldFloor ===

impl HeldFloor {
    pub(crate) fn new() -> Self {
        Self {
            inner: handler(),
            counters: Box::leak(Box::new(Counters::new())),
        }
    }
}

impl Service<Req> for HeldFloor {
    type Response = Response<HeldBody>;
    type Error = Infallible;
    type Future = HeldFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let counters = self.counters;
        let (counts, start) = counters.start(&request);
        HeldFuture {
            inner: self.inner.call(request),
            running: Some(Running {
                counters,
                counts,
                start,
            }),
        }
    }
}

impl Future for HeldFuture {
    type Output = Result<Response<HeldBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let response = ready!(Pin::new(&mut this.inner).poll(context))?;
        Poll::Ready(Ok(response.map(|body| HeldBody {
            _body: body,
            _running: this.running.take(),
        })))
    }
}

// === impl Counters ===

impl Counters {
    fn new() -> Self {
        let names = DashMap::new();
        names.insert("/known".to_owned(), &*Box::leak(Box::default()));
        Self {
            clock: QuantaClock::new(),
            names,
        }
    }

    fn start(&self, request: &Req) -> (&'static [AtomicU64; 3], Tick) {
        let start = self.clock.now();
        let counts = *self.names.get(request.uri().path()).expect("it is there");
        counts[0].fetch_add(1, Ordering::Relaxed);
        counts[1].fetch_add(1, Ordering::Relaxed);
        (counts, start)
    }

    fn end(&self, counts: &[AtomicU64; 3], start: Tick) {
        let time = self.clock.now().nanos_since(start);
        counts[2].fetch_add(time, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counters.end(self.counts, self.start);
    }
}
