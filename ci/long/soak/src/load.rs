//! The calls of a soak, and the books at its end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{ClientAddr, Path, PeerIp, Query};
use tower_sentinel::{
    AdaptiveRule, CircuitBreakerRule, FlowRule, KeyedRule, IsolationRule, Rules, Sentinel,
    SentinelLayer,
};

/// Small enough to be full within seconds.
const MAX_RESOURCES: usize = 2_048;
const MAX_ORIGINS: usize = 4_096;
const TASKS: u64 = 8;
const SECOND: Duration = Duration::from_secs(1);

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Service = BoxCloneSyncService<
    Request<()>,
    Response<tower_sentinel::middleware::ResponseBody<Body>>,
    Infallible,
>;

/// The rules of the `turn`th reload: every limit, a window, and which rules there
/// are change.
fn rules(turn: u64) -> Rules {
    let some = (turn % 5) as u32;
    let rules = Rules::new()
        .with(FlowRule::per_second("/flow", 500 + some))
        .with(FlowRule::per(
            "/flow",
            5_000,
            (2 + turn % 3) as u32 * SECOND,
        ))
        .with(FlowRule::per_second("/by-origin", 1 + some).by_origin())
        .with(FlowRule::per_second("/wait", 200).max_waiting(64))
        .with(FlowRule::per_second("/queue", 100).throttle(SECOND / 10))
        .with(IsolationRule::new("/slow", 4 + some))
        .with(CircuitBreakerRule::error_ratio("/fail", 0.5).open_for(SECOND / 2))
        .with(AdaptiveRule::new("/flow"))
        .with(KeyedRule::per_second("/hot", 5).max_keys(4_096));
    match turn % 2 {
        0 => rules,
        _ => rules
            .with(FlowRule::per_second("/sometimes", 10).warm_up(SECOND))
            .with(KeyedRule::concurrency("/slow", 2).max_keys(1_024 << (turn % 3)))
            .with(FlowRule::per_second("/flow", 100).shadow()),
    }
}

/// A small generator: runs must differ, not be random.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What is shared by the tasks of a run.
pub struct Load {
    sentinel: Sentinel,
    service: Service,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    calls: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    panicked: AtomicU64,
    reloads: AtomicU64,
}

impl Load {
    pub fn new() -> Self {
        let sentinel = Sentinel::builder()
            .rules(rules(0))
            .max_resources(MAX_RESOURCES)
            .max_origins(MAX_ORIGINS)
            .origins(true)
            .idle_after(SECOND)
            .occupy_timeout(SECOND / 2)
            .build();
        let layer = SentinelLayer::with(sentinel.clone())
            .resource(Path)
            .origin(PeerIp)
            .param(Query::new("q"))
            .prioritize(|head| head.uri().path() == "/wait");
        let service = layer.layer(service_fn(answer));
        Self {
            sentinel,
            service: BoxCloneSyncService::new(service),
            counts: Arc::default(),
        }
    }

    pub fn calls(&self) -> u64 {
        self.counts.calls.load(Ordering::Relaxed)
    }

    /// Starts to call, and to reload.
    pub fn start(&self, pace: u64) -> Vec<JoinHandle<()>> {
        let mut tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (service, counts) = (self.service.clone(), self.counts.clone());
                tokio::spawn(call_on(service, counts, Rng(task), pace))
            })
            .collect();
        let (sentinel, counts) = (self.sentinel.clone(), self.counts.clone());
        tasks.push(tokio::spawn(async move {
            for turn in 1.. {
                tokio::time::sleep(SECOND / 3).await;
                if counts.stop.load(Ordering::Relaxed) {
                    return;
                }
                sentinel.reload(rules(turn));
                std::hint::black_box(sentinel.snapshot().to_json());
                counts.reloads.fetch_add(1, Ordering::Relaxed);
            }
        }));
        tasks
    }

    /// Stops calling, and waits until the last call has ended.
    pub async fn stop(&self, tasks: Vec<JoinHandle<()>>) {
        self.counts.stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("tasks catch what calls panic with");
        }
    }

    /// Prints what there was, and returns whether all books balance.
    pub fn report(&self) -> bool {
        let snapshot = self.sentinel.snapshot();
        let totals = snapshot.totals();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        println!(
            "{} calls, {} refused, {} dropped, {} panicked, {} waits, {} reloads; {} resources, \
             {} origins, {} forgotten, {} beyond the bounds",
            read(&self.counts.calls),
            read(&self.counts.refused),
            read(&self.counts.dropped),
            read(&self.counts.panicked),
            totals.waits(),
            read(&self.counts.reloads),
            snapshot.resources(),
            snapshot.origins(),
            snapshot.evicted(),
            snapshot.overflowed(),
        );
        let mut ok = snapshot.resources() <= MAX_RESOURCES + 16;
        for node in snapshot.nodes() {
            let totals = node.totals();
            let settled = totals.complete() + totals.cancelled();
            if (node.concurrency(), node.waiting(), node.held()) != (0, 0, 0)
                || totals.pass() != settled
            {
                println!("not at rest: {node:?}");
                ok = false;
            }
        }
        ok
    }
}

/// What is behind the layer: by the path it takes its time, fails or panics.
async fn answer(request: Request<()>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path();
    match path {
        "/slow" => tokio::time::sleep(Duration::from_millis(2)).await,
        "/panic" => panic!("as it was asked"),
        _ => {}
    }
    let frame = || Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(b"soak")));
    let body = StreamBody::new(stream::repeat_with(frame).take(4));
    let mut response = Response::new(body.boxed_unsync());
    if path == "/fail" {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

fn request(rng: &mut Rng) -> Request<()> {
    let path = match rng.below(16) {
        0 => "/flow".into(),
        1 => "/by-origin".into(),
        2 => "/slow".into(),
        3 => "/fail".into(),
        4 if rng.below(100) == 0 => "/panic".into(),
        5 if rng.below(20) == 0 => "/wait".into(),
        6 if rng.below(20) == 0 => "/queue".into(),
        7 => "/sometimes".into(),
        8 | 9 => format!("/hot?q={}", rng.below(1 << 20)),
        _ => format!("/{:x}?q={}", rng.next(), rng.below(1 << 40)),
    };
    let mut request = Request::get(path).body(()).expect("a request");
    let peer = std::net::Ipv4Addr::from_bits(rng.next() as u32);
    request
        .extensions_mut()
        .insert(ClientAddr((peer, 1).into()));
    request
}

/// Calls, `pace` times in a row and then again after a rest.
async fn call_on(service: Service, counts: Arc<Counts>, mut rng: Rng, pace: u64) {
    while !counts.stop.load(Ordering::Relaxed) {
        for _ in 0..pace {
            one(&service, &counts, &mut rng).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One call, and how it ends.
async fn one(service: &Service, counts: &Counts, rng: &mut Rng) {
    counts.calls.fetch_add(1, Ordering::Relaxed);
    let call = service.clone().oneshot(request(rng));
    let call = std::panic::AssertUnwindSafe(call).catch_unwind();
    let response = match rng.below(8) {
        // Dropped before it is polled, or after one poll.
        0 => {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        1 => call.now_or_never(),
        // Somebody waits, but not for long.
        2 => tokio::time::timeout(Duration::from_millis(20), call)
            .await
            .ok(),
        _ => Some(call.await),
    };
    let response = match response {
        None => {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        Some(Err(_)) => {
            counts.panicked.fetch_add(1, Ordering::Relaxed);
            return;
        }
        Some(Ok(Ok(response))) => response,
    };
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        counts.refused.fetch_add(1, Ordering::Relaxed);
    }
    let mut body = response.into_body();
    // The whole body, a part of it, or nothing.
    for _ in 0..rng.below(7) {
        if body.frame().await.is_none() {
            break;
        }
    }
}
