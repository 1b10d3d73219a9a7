//! What it costs to count the bytes of a body, in multiples of a body that is not counted.
//!
//! ```text
//! cargo bench --bench body
//! ```
//!
//! A body has 1 000 chunks of 16 KiB, and each of them is 16 units. In the first table a chunk goes
//! through a local socket, which is the least that a server does with it. In the second one it is
//! copied once, and in the third one nothing touches its bytes.

mod support;

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use support::Bench;
use tower::util::{ServiceFn, service_fn};
use tower::{Layer, Service};
use tower_sentinel::clock::QuantaClock;
use tower_sentinel::{FlowRule, Rules, Sentinel, SentinelLayer};

const CHUNKS: usize = 1_000;
const CHUNK: usize = 16 << 10;

type Req = Request<()>;
type Answer = Result<Response<Chunks>, Infallible>;
type Handler = ServiceFn<fn(Req) -> Ready<Answer>>;

/// A body of so many chunks.
struct Chunks(usize);

static BYTES: [u8; CHUNK] = [7; CHUNK];

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&BYTES)))))
    }
}

fn main() {
    let (near, far) = UnixStream::pair().expect("two ends of a socket");
    let ends = Rc::new(RefCell::new((near, far, vec![0; CHUNK])));
    table("a body through a socket", move || {
        let ends = ends.clone();
        move |chunk: &[u8]| {
            let (near, far, read) = &mut *ends.borrow_mut();
            near.write_all(chunk).expect("there is room for a chunk");
            far.read_exact(read).expect("it was written");
        }
    });
    table("a body that is copied", || {
        let mut copy = vec![0; CHUNK];
        move |chunk: &[u8]| {
            copy.copy_from_slice(chunk);
            std::hint::black_box(&copy);
        }
    });
    table("a body that nobody reads", || {
        |chunk: &[u8]| {
            std::hint::black_box(chunk);
        }
    });
}

fn table<S: FnMut(&[u8]) + 'static>(title: &'static str, sink: impl Fn() -> S) {
    let requests = FlowRule::per_second("/known", 1 << 30);
    // The limit on requests takes the full path as well.
    let tokens = || FlowRule::per_second("/known", 1 << 30).cost("tokens");
    let kib = FlowRule::per_second("/known", 1 << 30).cost("KiB");
    let one = NonZeroU32::new(1 << 10).expect("it is not 0");
    let bare = Rules::new().with(requests.clone()).with(tokens());
    let counted = Rules::new().with(requests).with(tokens()).with(kib);
    let plain = layer(bare.clone());
    let mut bench = Bench::against(title, "through the layer", bodies(&plain, sink()));
    bench.add("through another one", bodies(&layer(bare), sink()));
    let counting = layer(counted).cost_of_body("KiB", one);
    bench.add("and cost_of_body", bodies(&counting, sink()));
    bench.print();
}

fn layer(rules: Rules) -> SentinelLayer {
    let builder = Sentinel::builder().rules(rules).clock(QuantaClock::new());
    SentinelLayer::with(builder.build())
}

/// Sends a request through `layer`, and each chunk of the answer into `sink`.
fn bodies(layer: &SentinelLayer, mut sink: impl FnMut(&[u8]) + 'static) -> impl FnMut() + 'static {
    let handler: Handler = service_fn(|_| ready(Ok(Response::new(Chunks(CHUNKS)))));
    let mut service = layer.layer(handler);
    move || {
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::get("/known").body(()).expect("a request");
        assert!(service.poll_ready(&mut context).is_ready());
        let answer = pin!(service.call(request)).poll(&mut context);
        let Poll::Ready(Ok(response)) = answer else {
            panic!("there is room for all");
        };
        let mut body = pin!(response.into_body());
        let mut chunks = 0;
        while let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) {
            sink(frame.data_ref().expect("it has no trailers"));
            chunks += 1;
        }
        assert_eq!(chunks, CHUNKS);
    }
}
