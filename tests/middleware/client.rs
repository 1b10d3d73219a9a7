//! Limits on the client's side: what really reaches a server, and what comes
//! back to the caller.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode, Uri};
use axum::routing::{any, get as on_get};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{PathParam, ResourceName, from_fn};
use tower_sentinel::middleware::{AsError, CallLayer, SentinelService};
use tower_sentinel::read::BreakerState;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, CircuitBreakerRule, FlowRule, IsolationRule, Key,
    KeyedRule, Rules, Sentinel, SentinelLayer,
};

use crate::support::{Server, collect, engine, eventually, ms, ready};

const UPSTREAM: &str = "upstream";

/// What the server has seen.
#[derive(Debug)]
struct Seen {
    total: AtomicU32,
    in_flight: AtomicU32,
    most_in_flight: AtomicU32,
    /// One permit for each answer that may be given.
    answers: Semaphore,
}

impl Seen {
    fn total(&self) -> u32 {
        self.total.load(Ordering::SeqCst)
    }
}

/// A server that counts, and answers as it is let.
async fn upstream() -> (Server, Arc<Seen>) {
    async fn count(State(seen): State<Arc<Seen>>) -> &'static str {
        seen.total.fetch_add(1, Ordering::SeqCst);
        let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_in_flight.fetch_max(now, Ordering::SeqCst);
        seen.answers.acquire().await.unwrap().forget();
        seen.in_flight.fetch_sub(1, Ordering::SeqCst);
        "hello"
    }
    let seen = Arc::new(Seen {
        total: AtomicU32::new(0),
        in_flight: AtomicU32::new(0),
        most_in_flight: AtomicU32::new(0),
        answers: Semaphore::new(0),
    });
    let app = Router::new()
        .route("/count", on_get(count))
        .route("/busy", on_get(|| async { StatusCode::TOO_MANY_REQUESTS }))
        .route("/broken", on_get(|| async { StatusCode::BAD_GATEWAY }))
        .with_state(seen.clone());
    (Server::axum(app).await, seen)
}

type HyperClient = SentinelService<Client<HttpConnector, Body>, AsError>;

/// A client whose calls all count as calls to one upstream.
fn client(sentinel: &Sentinel) -> HyperClient {
    SentinelLayer::with(sentinel.clone())
        .resource(from_fn(|_| Some(Key::Str(UPSTREAM))))
        .outbound()
        .refusals_as_errors()
        .layer(Client::builder(TokioExecutor::new()).build_http())
}

/// The status of what the upstream answers, whose body is read.
async fn fetch(client: HyperClient, uri: String) -> Result<StatusCode, BoxError> {
    let request = Request::get(uri).body(Body::empty()).unwrap();
    let response = client.oneshot(request).await?;
    Ok(collect(response).await.status())
}

fn blocked(error: &BoxError) -> &Blocked {
    error.downcast_ref().expect("a refusal, not a failure")
}

fn five_a_second_two_at_once() -> Rules {
    Rules::new()
        .with(FlowRule::per_second(UPSTREAM, 5))
        .with(IsolationRule::new(UPSTREAM, 2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_upstream_gets_five_calls_a_second_and_two_at_once() {
    let (sentinel, clock) = engine(five_a_second_two_at_once());
    let (server, seen) = upstream().await;
    let client = client(&sentinel);
    let uri = format!("http://{}/count", server.addr);
    seen.answers.add_permits(1_000);
    for window in 1..=4 {
        // Each of forty tasks insists until the window is exhausted.
        let tasks: Vec<_> = (0..40)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                tokio::spawn(async move {
                    loop {
                        match fetch(client.clone(), uri.clone()).await {
                            Ok(status) => assert_eq!(status, StatusCode::OK),
                            Err(error) => match blocked(&error).kind() {
                                BlockKind::Isolation => tokio::task::yield_now().await,
                                kind => return kind,
                            },
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), BlockKind::Flow);
        }
        assert_eq!(seen.total(), 5 * window);
        clock.advance(ms(1_000));
    }
    assert!(seen.most_in_flight.load(Ordering::SeqCst) <= 2);

    let node = sentinel.outbound_node(UPSTREAM).unwrap();
    eventually("all calls end", || node.concurrency() == 0).await;
    crate::support::assert_balanced(&node);
    assert_eq!(node.totals().complete(), 4 * 5);
    // Nothing of this came in.
    assert!(sentinel.node(UPSTREAM).is_none());
    assert_eq!(sentinel.inbound().totals(), Default::default());
}

#[tokio::test]
async fn a_third_call_at_once_never_leaves_the_client() {
    let (sentinel, _clock) = engine(five_a_second_two_at_once());
    let (server, seen) = upstream().await;
    let client = client(&sentinel);
    let uri = format!("http://{}/count", server.addr);
    let running: Vec<_> = (0..2)
        .map(|_| tokio::spawn(fetch(client.clone(), uri.clone())))
        .collect();
    eventually("both have arrived", || seen.total() == 2).await;
    for _ in 0..10 {
        let error = fetch(client.clone(), uri.clone()).await.unwrap_err();
        assert_eq!(blocked(&error).kind(), BlockKind::Isolation);
        assert_eq!(blocked(&error).resource(), UPSTREAM);
    }
    seen.answers.add_permits(2);
    for call in running {
        assert_eq!(call.await.unwrap().unwrap(), StatusCode::OK);
    }
    assert_eq!(seen.total(), 2);

    // The slots are free again, once the bodies have been read.
    seen.answers.add_permits(1);
    assert_eq!(fetch(client, uri).await.unwrap(), StatusCode::OK);
    assert_eq!(seen.most_in_flight.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_a_proxy_passes_on_is_named_by_where_it_goes() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/users/{id}", 1))
        .with(KeyedRule::per_second("/carts/{id}", 1));
    let (sentinel, _clock) = engine(rules);
    let answer = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let upstream = SentinelLayer::with(sentinel.clone())
        .param(PathParam::new("id"))
        .outbound()
        .layer(service_fn(answer));
    // With all that it carries: what axum has matched is where it came in.
    let pass_on = move |mut request: Request<Body>| {
        let target = request.uri().path().strip_prefix("/api").unwrap();
        *request.uri_mut() = target.parse().unwrap();
        upstream.clone().oneshot(request)
    };
    let proxy = Router::new().route("/api/{version}/{id}", any(pass_on));
    let status = async |path| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        proxy.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(status("/api/users/1").await, StatusCode::OK);
    assert_eq!(status("/api/users/2").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status("/api/carts/1").await, StatusCode::OK);
    assert_eq!(status("/api/carts/2").await, StatusCode::OK);
    assert_eq!(status("/api/carts/1").await, StatusCode::TOO_MANY_REQUESTS);

    // What was named by hand keeps its name.
    let request = Request::get("/api/users/3").extension(ResourceName::new("pages"));
    let request = request.body(Body::empty()).unwrap();
    assert_eq!(
        proxy.oneshot(request).await.unwrap().status(),
        StatusCode::OK
    );
    assert!(sentinel.outbound_node("pages").is_some());
}

#[tokio::test]
async fn a_refusal_is_told_from_an_answer_of_the_upstream_that_says_the_same() {
    let (sentinel, _clock) = engine(FlowRule::per_second(UPSTREAM, 3));
    let (server, _seen) = upstream().await;
    let client = client(&sentinel);
    let fetch = |path: &str| fetch(client.clone(), format!("http://{}{path}", server.addr));

    let answer = fetch("/busy").await;
    assert_eq!(answer.unwrap(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fetch("/broken").await.unwrap(), StatusCode::BAD_GATEWAY);
    // Nobody listens there: an error, but none of ours.
    let nowhere = self::fetch(client.clone(), "http://127.0.0.1:1/".to_owned()).await;
    assert!(nowhere.unwrap_err().downcast_ref::<Blocked>().is_none());
    let refused = fetch("/busy").await.unwrap_err();
    assert_eq!(blocked(&refused).kind(), BlockKind::Flow);

    let totals = sentinel.outbound_node(UPSTREAM).unwrap().totals();
    assert_eq!((totals.pass(), totals.block()), (3, 1));
    // The upstream's own 429 says nothing about its health.
    assert_eq!((totals.complete(), totals.error()), (3, 2));
}

#[tokio::test]
async fn who_may_not_connect_says_nothing_about_the_upstream() {
    let rules = Rules::new()
        .with(FlowRule::per_second("connections", 1))
        .with(CircuitBreakerRule::error_count(UPSTREAM, 1).min_calls(1));
    let (sentinel, clock) = engine(rules);
    let (server, seen) = upstream().await;
    let connections = CallLayer::with(sentinel.clone(), |_: &Uri| {
        Call::new("connections").outbound()
    });
    // No connection is kept.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connections.layer(HttpConnector::new()));
    let client = SentinelLayer::with(sentinel.clone())
        .resource(from_fn(|_| Some(Key::Str(UPSTREAM))))
        .outbound()
        .refusals_as_errors()
        .layer(client);
    let uri: Uri = format!("http://{}/count", server.addr).parse().unwrap();
    let fetch = async || {
        let request = Request::get(uri.clone()).body(Body::empty()).unwrap();
        client.clone().oneshot(request).await
    };
    seen.answers.add_permits(10);
    for second in 1..=3 {
        collect(fetch().await.unwrap()).await;
        // The client's own error, with the refusal inside.
        let error = fetch().await.unwrap_err();
        assert!(!error.is::<Blocked>());
        assert!(error.source().is_some_and(<dyn Error>::is::<Blocked>));
        assert_eq!(seen.total(), second);
        clock.advance(ms(1_000));
    }
    let totals = |name| sentinel.outbound_node(name).unwrap().totals();
    assert_eq!(
        (totals(UPSTREAM).complete(), totals(UPSTREAM).error()),
        (6, 0)
    );
    assert_eq!(
        (totals("connections").pass(), totals("connections").block()),
        (3, 3)
    );
}

// === services of other kinds ===

#[test]
fn a_service_of_any_kind_gets_exactly_its_limit() {
    const THREADS: usize = 8;
    let (sentinel, clock) = engine(FlowRule::per_second("dns", 50));
    let asked = Arc::new(AtomicU32::new(0));
    let resolver = {
        let asked = asked.clone();
        service_fn(move |_name: &'static str| {
            asked.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, BoxError>([127, 0, 0, 1]) }
        })
    };
    let layer = CallLayer::with(sentinel.clone(), |name: &&'static str| {
        Call::new("dns").origin(*name).outbound()
    });
    let resolver = layer.layer(resolver);
    let barrier = Barrier::new(THREADS);
    for window in 1..=4 {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..100 {
                        if let Err(error) = ready(resolver.clone().oneshot("example.com")) {
                            assert_eq!(blocked(&error).kind(), BlockKind::Flow);
                        }
                    }
                });
            }
        });
        assert_eq!(asked.load(Ordering::Relaxed), 50 * window);
        clock.advance(ms(1_000));
    }
    let node = sentinel.outbound_node("dns").unwrap();
    crate::support::assert_balanced(&node);
    assert_eq!(node.concurrency(), 0);
    assert_eq!(
        (node.totals().complete(), node.totals().block()),
        (200, 3_000)
    );
}

// === circuit breakers ===

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_breaker_spares_a_flaky_upstream_and_lets_exactly_its_probes_through() {
    // Half of at least ten in a second, two seconds of rest, three probes.
    let rule = CircuitBreakerRule::error_ratio(UPSTREAM, 0.5)
        .min_calls(10)
        .open_for(ms(2_000))
        .probes(3);
    let (sentinel, clock) = engine(rule);
    let broken = Arc::new(AtomicBool::new(true));
    let total = Arc::new(AtomicU32::new(0));
    let (is_broken, seen) = (broken.clone(), total.clone());
    let app = Router::new().route(
        "/",
        on_get(move || async move {
            seen.fetch_add(1, Ordering::SeqCst);
            if is_broken.load(Ordering::SeqCst) {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::OK
            }
        }),
    );
    let server = Server::axum(app).await;
    let client = client(&sentinel);
    let uri = format!("http://{}/", server.addr);
    let seen = || total.load(Ordering::SeqCst);

    // It opens within the window, after ten calls, and then none arrives.
    for _ in 0..30 {
        if let Err(error) = fetch(client.clone(), uri.clone()).await {
            assert_eq!(blocked(&error).kind(), BlockKind::CircuitBreaker);
        }
    }
    assert_eq!(seen(), 10);

    // One probe at a time fails, and it rests again.
    for rest in 1..=3 {
        clock.advance(ms(2_000));
        for _ in 0..10 {
            let _ = fetch(client.clone(), uri.clone()).await;
        }
        assert_eq!(seen(), 10 + rest);
    }

    // Of many that come at once, three are probes; they are good, and it closes.
    broken.store(false, Ordering::SeqCst);
    clock.advance(ms(2_000));
    let node = sentinel.outbound_node(UPSTREAM).unwrap();
    let breaker = node.breakers().remove(0);
    for probe in 1..=3 {
        assert_ne!(breaker.state(), BreakerState::Closed);
        assert_eq!(
            fetch(client.clone(), uri.clone()).await.unwrap(),
            StatusCode::OK
        );
        assert_eq!(seen(), 13 + probe);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    for _ in 0..20 {
        assert_eq!(
            fetch(client.clone(), uri.clone()).await.unwrap(),
            StatusCode::OK
        );
    }
    assert_eq!((node.concurrency(), node.waiting()), (0, 0));
}
