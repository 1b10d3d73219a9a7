//! How far a class travels: into a service and its body, to the next servers, and no further.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Request, Response};
use axum::routing::get as on_get;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::Criticality::{self, Critical, CriticalPlus, Sheddable, SheddablePlus};
use tower_sentinel::key::CriticalityHeader;
use tower_sentinel::middleware::{Completion, SentinelService};
use tower_sentinel::{IsolationRule, Rules, SentinelLayer};

use crate::support::{Server, engine, fetch, get, ms, poll_now, ready};

const FIELD: &str = "x-criticality";

/// A layer without rules that carries classes on.
fn carrying() -> SentinelLayer {
    SentinelLayer::new(Rules::new()).propagate_criticality()
}

/// The layer of a server inside, which believes its callers.
fn inside() -> SentinelLayer {
    let header = CriticalityHeader::new().trust(["127.0.0.0/8".parse().unwrap()]);
    carrying().criticality(move |head| header.read(head))
}

fn told(class: Option<Criticality>) -> String {
    class.map_or("none", Criticality::as_str).to_owned()
}

// === three services in a row ===

/// The third service, by gRPC: answers with the class that it runs with.
#[derive(Clone, Debug)]
struct Third;

const TELL: PathAndQuery = PathAndQuery::from_static("/test.Third/Tell");

impl NamedService for Third {
    const NAME: &'static str = "test.Third";
}

impl Service<Request<tonic::body::Body>> for Third {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        async fn tell(_: tonic::Request<String>) -> Result<tonic::Response<String>, tonic::Status> {
            tokio::task::yield_now().await;
            Ok(tonic::Response::new(told(Criticality::current())))
        }
        Box::pin(async {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(service_fn(tell), request).await)
        })
    }
}

/// Asks the third service.
async fn ask_third(channel: Channel) -> String {
    let layer = carrying().outbound();
    let mut grpc = tonic::client::Grpc::new(layer.layer(channel));
    grpc.ready().await.unwrap();
    let request = tonic::Request::new(String::new());
    let answer = grpc.unary(request, TELL, ProstCodec::<String, String>::default());
    answer.await.unwrap().into_inner()
}

/// The second service asks the third one three times: by itself, in a task, and in a task of its
/// class.
async fn second(channel: Channel) -> String {
    let class = Criticality::current().unwrap();
    let own = ask_third(channel.clone()).await;
    let lost = tokio::spawn(ask_third(channel.clone())).await.unwrap();
    let kept = tokio::spawn(class.scope(ask_third(channel))).await.unwrap();
    [own, lost, kept].join(" ")
}

type ToSecond = SentinelService<Client<HttpConnector, Body>>;

async fn first(client: ToSecond, second: String) -> Response<Body> {
    let request = Request::get(second).body(Body::empty()).unwrap();
    let response = client.oneshot(request).await.unwrap();
    response.map(Body::new)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_given_at_the_edge_arrives_at_the_third_service() {
    let third = Server::start(|listener| async {
        let incoming = TcpListenerStream::new(listener);
        let mut server = tonic::transport::Server::builder().layer(inside());
        let served = server.add_service(Third).serve_with_incoming(incoming);
        served.await.unwrap();
    })
    .await;
    let endpoint = Endpoint::from_shared(format!("http://{}", third.addr)).unwrap();
    let channel = endpoint.connect().await.unwrap();

    let handler = on_get(move || second(channel.clone()));
    let second = Server::axum(Router::new().route("/", handler.layer(inside()))).await;

    let client = Client::builder(TokioExecutor::new()).build_http();
    let client = carrying().outbound().layer(client);
    let uri = format!("http://{}/", second.addr);
    let header = CriticalityHeader::new();
    let edge = carrying().criticality(move |head| match head.uri().path() {
        "/report" => Some(Sheddable),
        "/pay" => Some(CriticalPlus),
        _ => header.read(head),
    });
    let handler = on_get(move |_: Path<String>| first(client.clone(), uri.clone()));
    let edge = Server::axum(Router::new().route("/{page}", handler).layer(edge)).await;

    let mut connection = edge.connect().await;
    let cases = [
        ("/report", None, Sheddable),
        ("/pay", None, CriticalPlus),
        ("/pay", Some("sheddable"), CriticalPlus),
        ("/list", None, Critical),
        ("/list", Some("Sheddable-Plus"), SheddablePlus),
        // Nobody raises itself at the edge.
        ("/list", Some("critical-plus"), Critical),
        ("/list", Some("nonsense"), Critical),
    ];
    for (path, header, class) in cases {
        let mut request = get(path);
        if let Some(header) = header {
            let value = HeaderValue::from_static(header);
            request.headers_mut().insert(FIELD, value);
        }
        let answer = fetch(&mut connection, request).await;
        let expected = format!("{class} critical {class}");
        assert_eq!(answer.body(), expected.as_bytes(), "{path} {header:?}");
    }
}

// === inbound ===

/// Tells its class when it is called and when it is polled, and has a body that does so too.
async fn telling(request: Request<Body>) -> Result<Response<Telling>, Infallible> {
    let given = request.extensions().get().copied();
    tokio::task::yield_now().await;
    let said = format!("{} {}", told(given), told(Criticality::current()));
    Ok(Response::new(Telling(vec![Some(said), None])))
}

/// A body of these texts; in the place of `None` the class with which it is polled.
#[derive(Debug)]
struct Telling(Vec<Option<String>>);

impl http_body::Body for Telling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        let text = self.0.remove(0);
        let text = text.unwrap_or_else(|| format!(" {}", told(Criticality::current())));
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}

impl From<Bytes> for Telling {
    fn from(_: Bytes) -> Self {
        unreachable!("nothing is refused")
    }
}

async fn text<B: http_body::Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn the_service_and_its_body_run_with_the_class() {
    let sheddable = |layer: SentinelLayer| layer.criticality(|_| Some(Sheddable));
    let layer = SentinelLayer::new(Rules::new());
    let cases = [
        (sheddable(carrying()), "sheddable sheddable sheddable"),
        (
            sheddable(layer.clone()).propagate_criticality(),
            "sheddable sheddable sheddable",
        ),
        (
            sheddable(carrying()).completion(Completion::Head),
            "sheddable sheddable sheddable",
        ),
        // A call that no rule judges has a class nevertheless.
        (
            sheddable(carrying()).skip(|_| true),
            "sheddable sheddable sheddable",
        ),
        (carrying(), "critical critical critical"),
        (sheddable(layer.clone()), "none none none"),
        (layer, "none none none"),
    ];
    for (layer, expected) in cases {
        let service = layer.layer(service_fn(telling));
        let response = service.oneshot(get("/x")).await.unwrap();
        assert_eq!(Criticality::current(), None);
        assert_eq!(text(response).await, expected);
        assert_eq!(Criticality::current(), None);
    }
    // The body of a layer that leaves it alone has none.
    let service = sheddable(carrying()).at_head().layer(service_fn(telling));
    let response = service.oneshot(get("/x")).await.unwrap();
    assert_eq!(text(response).await, "sheddable sheddable none");
    // Refusals as errors.
    let layer = sheddable(carrying()).refusals_as_errors();
    let response = layer.layer(service_fn(telling)).oneshot(get("/x")).await;
    assert_eq!(
        text(response.unwrap()).await,
        "sheddable sheddable sheddable"
    );
    let layer = sheddable(carrying()).refusals_as_errors().at_head();
    let response = layer.layer(service_fn(telling)).oneshot(get("/x")).await;
    assert_eq!(text(response.unwrap()).await, "sheddable sheddable none");
}

#[tokio::test]
async fn a_layer_that_says_nothing_leaves_the_class_of_an_outer_one() {
    let outer = carrying().criticality(|_| Some(Sheddable));
    let service = outer.layer(carrying().layer(service_fn(telling)));
    let response = service.oneshot(get("/x")).await.unwrap();
    assert_eq!(text(response).await, "sheddable sheddable sheddable");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_runs_with_its_class() {
    let (sentinel, _clock) = engine(IsolationRule::new("/x", 1).queue(ms(1_000)));
    let layer = SentinelLayer::with(sentinel.clone()).propagate_criticality();
    let mut service = layer
        .criticality(|_| Some(SheddablePlus))
        .layer(service_fn(telling));
    let first = service.call(get("/x"));
    let second = tokio::spawn(service.call(get("/x")));
    crate::support::eventually("it waits", || sentinel.node("/x").unwrap().waiting() == 1).await;
    drop(first);
    let response = second.await.unwrap().unwrap();
    assert_eq!(
        text(response).await,
        "sheddable-plus sheddable-plus sheddable-plus"
    );
}

#[tokio::test]
async fn calls_that_are_polled_in_turn_each_have_their_own_class() {
    async fn twice() -> [Option<Criticality>; 2] {
        let before = Criticality::current();
        tokio::task::yield_now().await;
        [before, Criticality::current()]
    }
    let nested = async { (Sheddable.scope(twice()).await, Criticality::current()) };
    let (a, b, (inner, outer)) = tokio::join!(
        Sheddable.scope(twice()),
        twice(),
        CriticalPlus.scope(nested),
    );
    assert_eq!(a, [Some(Sheddable); 2]);
    assert_eq!(b, [None; 2]);
    assert_eq!((inner, outer), ([Some(Sheddable); 2], Some(CriticalPlus)));
}

/// A body that panics.
#[derive(Debug)]
struct Panicking;

impl http_body::Body for Panicking {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("in the body of a {}", told(Criticality::current()));
    }
}

#[test]
fn a_panic_of_a_handler_or_a_body_leaves_no_class_behind() {
    let layer = || carrying().criticality(|_| Some(Sheddable));
    let said = |run: &mut dyn FnMut()| {
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        payload.downcast_ref::<String>().unwrap().clone()
    };
    let check = |expected: Option<Criticality>| {
        let mut at_call = layer().layer(service_fn(|_: Request<Body>| {
            if true {
                panic!("in the call of a {}", told(Criticality::current()));
            }
            async { Ok::<_, Infallible>(Response::new(Panicking)) }
        }));
        let text = said(&mut || drop(at_call.call(get("/x"))));
        assert_eq!(text, "in the call of a sheddable");
        assert_eq!(Criticality::current(), expected);

        let mut at_poll = layer().layer(service_fn(|_: Request<Body>| async {
            if true {
                panic!("in the poll of a {}", told(Criticality::current()));
            }
            Ok::<_, Infallible>(Response::new(Panicking))
        }));
        let text = said(&mut || drop(ready(at_poll.call(get("/x")))));
        assert_eq!(text, "in the poll of a sheddable");
        assert_eq!(Criticality::current(), expected);

        let mut in_body = layer().layer(service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Panicking))
        }));
        let mut body = pin!(ready(in_body.call(get("/x"))).unwrap().into_body());
        let text = said(&mut || {
            let mut frame = body.frame();
            drop(poll_now(Pin::new(&mut frame)));
        });
        assert_eq!(text, "in the body of a sheddable");
        assert_eq!(Criticality::current(), expected);

        let mut scoped =
            pin!(SheddablePlus.scope(async { panic!("{}", told(Criticality::current())) }));
        let text = said(&mut || {
            let _ = poll_now::<dyn Future<Output = ()>>(scoped.as_mut());
        });
        assert_eq!(text, "sheddable-plus");
        assert_eq!(Criticality::current(), expected);
    };
    check(None);
    // What an outer call had is put back.
    ready(CriticalPlus.scope(poll_fn(|_| {
        check(Some(CriticalPlus));
        Poll::Ready(())
    })));
    assert_eq!(Criticality::current(), None);
}

// === outbound ===

/// What is sent in the header; the class with which the client itself runs is none.
fn sent(layer: &SentinelLayer, request: Request<Body>) -> String {
    let client = layer.layer(service_fn(|request: Request<Body>| async move {
        let fields = request.headers().get_all(FIELD).iter();
        let fields = fields.map(|value| value.to_str().unwrap().to_owned());
        Ok::<_, Infallible>(Response::new(fields.collect::<Vec<_>>().join(", ")))
    }));
    ready(text(ready(client.oneshot(request)).unwrap()))
}

#[test]
fn the_header_is_of_the_layer_or_the_request_or_the_current_call() {
    let out = || carrying().outbound();
    let with = |class: Criticality| {
        let mut request = get("/x");
        request.extensions_mut().insert(class);
        request
    };
    let in_scope = |layer: &SentinelLayer, request: Request<Body>| {
        ready(SheddablePlus.scope(async { sent(layer, request) }))
    };
    assert_eq!(sent(&out(), get("/x")), "");
    assert_eq!(in_scope(&out(), get("/x")), "sheddable-plus");
    assert_eq!(in_scope(&out(), with(Sheddable)), "sheddable");
    let named = out().criticality(|_| Some(Critical));
    assert_eq!(in_scope(&named, with(Sheddable)), "critical");
    let silent = out().criticality(|_| None);
    assert_eq!(in_scope(&silent, with(Sheddable)), "sheddable");
    // A header that is there stays, whatever it says.
    let mut request = with(Sheddable);
    request
        .headers_mut()
        .insert(FIELD, HeaderValue::from_static("x"));
    assert_eq!(in_scope(&out(), request), "x");
    // Nothing is sent by a layer that carries nothing on, nor into a server.
    let plain = SentinelLayer::new(Rules::new()).outbound();
    assert_eq!(in_scope(&plain, with(Sheddable)), "");
    assert_eq!(in_scope(&carrying(), with(Sheddable)), "");
}
