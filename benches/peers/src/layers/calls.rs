//! One request through a service, as an operation that can be timed.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode, Uri};
use rustix::time::{ClockId, clock_gettime};
use tower::Service;
use tower::util::{ServiceFn, service_fn};

/// CPU time of one operation in one round, roughly.
const TURN_NS: f64 = 1e6;

pub(crate) type Req = Request<()>;
pub(crate) type Answer = Result<Response<Body>, Infallible>;
pub(crate) type Handler = ServiceFn<fn(Req) -> Ready<Answer>>;

/// The service that all layers stand around.
pub(crate) fn handler() -> Handler {
    service_fn(|_| ready(Ok(Response::new(Body::from("hello")))))
}

/// Something that is measured.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Runs it so many times.
    run: Box<dyn FnMut(u64)>,
    times: u64,
    /// Nanoseconds of one run, per round.
    pub(crate) ns: Vec<f64>,
}

impl Operation {
    /// Calls that `service` answers with 200.
    pub(crate) fn admitted<S, B>(name: &'static str, service: S) -> Self
    where
        S: Service<Req, Response = Response<B>> + 'static,
    {
        Self::new(name, service, true)
    }

    /// Calls that `service` refuses, after the first if that one passes.
    pub(crate) fn refused<S, B>(name: &'static str, mut service: S) -> Self
    where
        S: Service<Req, Response = Response<B>> + 'static,
    {
        send(&mut service);
        Self::new(name, service, false)
    }

    fn new<S, B>(name: &'static str, mut service: S, passes: bool) -> Self
    where
        S: Service<Req, Response = Response<B>> + 'static,
    {
        let uri = Uri::from_static("/known");
        let run = Box::new(move |times| {
            for _ in 0..times {
                let passed = call(&mut service, request(&uri));
                assert_eq!(passed, passes, "{name}");
            }
        });
        Self {
            name,
            run,
            times: 1,
            ns: Vec::new(),
        }
    }

    /// Finds how many runs make a turn, by the best of a few: a first one is cold.
    pub(crate) fn calibrate(&mut self) {
        loop {
            let turns = (0..5).map(|_| self.measure() * self.times as f64);
            if turns.fold(f64::INFINITY, f64::min) >= TURN_NS {
                return;
            }
            self.times *= 2;
        }
    }

    /// Runs it for a moment, and keeps what that cost if it `counts`.
    pub(crate) fn turn(&mut self, counts: bool) {
        let ns = self.measure();
        if counts {
            self.ns.push(ns);
        }
    }

    /// Nanoseconds of one run.
    fn measure(&mut self) -> f64 {
        let start = cpu_ns();
        (self.run)(self.times);
        (cpu_ns() - start) as f64 / self.times as f64
    }
}

/// One call that nobody measures.
pub(crate) fn send<S, B>(service: &mut S)
where
    S: Service<Req, Response = Response<B>>,
{
    call(service, request(&Uri::from_static("/known")));
}

/// Sends `request`, drops the answer with its body, and tells whether it was a 200.
fn call<S, B>(service: &mut S, request: Req) -> bool
where
    S: Service<Req, Response = Response<B>>,
{
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(Ok(response)) => std::hint::black_box(response).status() == StatusCode::OK,
        Poll::Ready(Err(_)) => false,
        Poll::Pending => panic!("it waits"),
    }
}

/// A request of a peer whose address is known, as axum would hand it on.
fn request(uri: &Uri) -> Req {
    let mut request = Request::new(());
    request.uri_mut().clone_from(uri);
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// CPU time that this thread has used.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
