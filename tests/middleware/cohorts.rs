//! Which cohort a client may say, and how far a cohort travels.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::Criticality::{self, Critical, Sheddable};
use tower_sentinel::call::Cohort;
use tower_sentinel::key::{ClientAddr, CriticalityHeader, Head};
use tower_sentinel::{Rules, SentinelLayer};

use crate::support::get;

const FIELD: &str = "x-criticality";

/// The number of a cohort, or a word for none.
fn told(cohort: Option<Cohort>) -> String {
    cohort.map_or("none".to_owned(), |cohort| cohort.to_string())
}

fn from_peer(peer: &str, value: &str) -> Request<Body> {
    let mut request = get("/x");
    let value = HeaderValue::from_str(value).unwrap();
    request.headers_mut().insert(FIELD, value);
    let peer = SocketAddr::new(peer.parse().unwrap(), 4000);
    request.extensions_mut().insert(ClientAddr(peer));
    request
}

#[test]
fn a_cohort_is_a_number_below_128_that_a_trusted_peer_says() {
    let header = CriticalityHeader::new().trust(["10.0.0.0/8".parse().unwrap()]);
    let read = |peer, value| {
        let request = from_peer(peer, value);
        header.read_cohort(Head::of(&request)).map(Cohort::number)
    };
    let cases = [
        ("sheddable;cohort=37", Some(37)),
        ("Sheddable ; Cohort = 37", Some(37)),
        ("critical;a=b;cohort=0", Some(0)),
        ("critical;cohort=127", Some(127)),
        ("critical;cohort=128", None),
        ("critical;cohort=-1", None),
        ("critical;cohort=", None),
        ("critical;cohort", None),
        ("critical", None),
        ("critical;acohort=3", None),
        ("critical;cohort=1;cohort=2", Some(1)),
        ("sheddable;aaaaaaaaaaaa;cohort=37", Some(37)),
        ("sheddable;aaaaaaaaaaaaa;cohort=37", None),
    ];
    for (value, cohort) in cases {
        assert_eq!(read("10.1.2.3", value), cohort, "{value}");
        assert_eq!(read("192.0.2.7", value), None, "{value} of a stranger");
    }
    // The class is read whatever the cohort is.
    let request = from_peer("192.0.2.7", "sheddable;cohort=37");
    assert_eq!(header.read(Head::of(&request)), Some(Sheddable));
}

async fn text<B>(response: Response<B>) -> String
where
    B: axum::body::HttpBody<Error: std::fmt::Debug>,
{
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A layer that carries classes on.
fn carrying() -> SentinelLayer {
    SentinelLayer::new(Rules::new()).propagate_criticality()
}

#[tokio::test]
async fn a_cohort_goes_with_the_class_into_the_service_and_on_to_the_next() {
    // The next server answers with the field that it gets.
    let upstream = service_fn(async |request: Request<Body>| {
        let field = request.headers().get(FIELD);
        let field = field.map_or("none", |value| value.to_str().unwrap());
        Ok::<_, Infallible>(Response::new(Body::from(field.to_owned())))
    });
    let client = carrying().outbound().layer(upstream);
    let handler = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let given = request.extensions().get().copied();
            let own = told(Cohort::current());
            let asked = async || text(client.clone().oneshot(get("/")).await.unwrap()).await;
            let field = asked().await;
            let scoped = Sheddable.scope(asked()).await;
            let spawned = tokio::spawn(async { told(Cohort::current()) });
            let spawned = spawned.await.unwrap();
            let all = [told(given), own, field, scoped, spawned].join(" ");
            Ok::<_, Infallible>(Response::new(Body::from(all)))
        }
    });
    let layer = carrying().cohort(|head| {
        let number = head.uri().path().trim_start_matches('/');
        number.parse().ok().and_then(Cohort::new)
    });
    let server = layer.layer(handler);
    let answer = async |path| text(server.clone().oneshot(get(path)).await.unwrap()).await;
    let expected = "37 37 critical;cohort=37 sheddable;cohort=37 none";
    assert_eq!(answer("/37").await, expected);
    // Without one nothing is said.
    assert_eq!(answer("/list").await, "none none critical sheddable none");
    assert_eq!((Cohort::current(), Criticality::current()), (None, None));
    assert_eq!(Criticality::default(), Critical);
}
