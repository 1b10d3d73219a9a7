//! A server under overload that refuses the least important calls first, and the clients that
//! overload it, in one program that runs for half a minute.
//!
//! ```text
//! cargo run --release --example overload
//! cargo run --release --example overload -- --check
//! ```
//!
//! The server has 16 permits, each for a call of 40 ms: it can answer 400 calls a second. It gets
//! 320: 5 % are payments, 45 % lists, 50 % suggestions. Then the suggestions grow twelvefold.
//! With `--check` the program fails if an important call is lost.
//!
//! With `--spin` a call is 5 ms of work for a processor, on the pool of blocking threads, and with
//! `--spin-inline` within the handler: then the runtime is what calls wait for before any rule has
//! judged them, and no rule can choose among them. Both get 0.4 of the calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tower_sentinel::observe::page::Page;
use tower_sentinel::{AdaptiveRule, BoxError, Criticality, Sentinel, SentinelLayer};

const PERMITS: usize = 16;
const WORK: Duration = Duration::from_millis(40);
/// What a call takes of a processor, and how many of the calls come, if calls are such work.
const SPIN: Duration = Duration::from_millis(5);
const SPIN_SHARE: f64 = 0.4;
/// Calls a second of each route while there is no overload, and by how much those of the last one
/// grow.
const ROUTES: [(&str, f64); 3] = [("/pay", 16.0), ("/list", 144.0), ("/suggest", 160.0)];
const SPIKE: f64 = 12.0;
/// When the spike begins and ends, and the end of it all, in seconds.
const PHASES: [u64; 3] = [12, 24, 32];
const PATIENCE: Duration = Duration::from_secs(2);

/// Which call matters how much.
fn by_route(route: &str) -> Option<Criticality> {
    match route {
        "/pay" => Some(Criticality::Critical),
        "/list" => Some(Criticality::SheddablePlus),
        _ => Some(Criticality::Sheddable),
    }
}

/// How a call ended, for its client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Answered,
    Refused,
    Lost,
}

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Sleep,
    Blocking,
    Inline,
}

struct Ended {
    route: usize,
    began: Duration,
    took: Duration,
    end: End,
}

fn main() -> Result<(), BoxError> {
    let has = |name: &str| std::env::args().any(|it| it == name);
    let work = match (has("--spin"), has("--spin-inline")) {
        (_, true) => Work::Inline,
        (true, _) => Work::Blocking,
        _ => Work::Sleep,
    };
    let (started, addr) = std::sync::mpsc::channel();
    // Server and clients share the machine, but no thread.
    std::thread::spawn(move || {
        let server = async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            started.send(listener.local_addr()?)?;
            let service = app(work).into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await?;
            Ok::<(), BoxError>(())
        };
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(server)
    });
    let addr: SocketAddr = addr.recv()?;
    println!("The live page: http://{addr}/sentinel\n");
    let clients = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let calls = clients.block_on(overload(addr, work));
    show(&calls);
    if has("--check") {
        check(&calls);
    }
    Ok(())
}

fn app(kind: Work) -> Router {
    let permits = Arc::new(Semaphore::new(PERMITS));
    let work = move |State(permits): State<Arc<Semaphore>>| async move {
        match kind {
            Work::Sleep => {
                let _permit = permits.acquire().await;
                tokio::time::sleep(WORK).await;
            }
            // Fails only if `spin` panics.
            Work::Blocking => drop(tokio::task::spawn_blocking(spin).await),
            Work::Inline => spin(),
        }
        "done\n"
    };
    // One resource for all routes: only its calls are compared.
    let sentinel = Sentinel::new(AdaptiveRule::new("api"));
    let layer = SentinelLayer::with(sentinel.clone())
        .named("api")
        .criticality(|head| by_route(head.route()));
    Router::new()
        .route("/pay", get(work))
        .route("/list", get(work))
        .route("/suggest", get(work))
        .with_state(permits)
        .layer(layer)
        .route_service("/sentinel", Page::new(&sentinel).title("examples/overload"))
}

/// Work for a processor.
fn spin() {
    let start = Instant::now();
    while start.elapsed() < SPIN {
        std::hint::spin_loop();
    }
}

/// Sends calls whether or not earlier ones have been answered, and gathers how they end.
async fn overload(addr: SocketAddr, work: Work) -> Vec<Ended> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let (ended, mut all) = mpsc::unbounded_channel();
    let start = Instant::now();
    let mut gaps = Gaps(1);
    let mut at = Duration::ZERO;
    let end = Duration::from_secs(PHASES[2]);
    let mut second = 0;
    while at < end {
        let in_spike = (PHASES[0]..PHASES[1]).contains(&at.as_secs());
        let loads = ROUTES.map(|(route, load)| match route {
            "/suggest" if in_spike => load * SPIKE,
            _ => load,
        });
        let loads = match work {
            Work::Sleep => loads,
            Work::Blocking | Work::Inline => loads.map(|load| load * SPIN_SHARE),
        };
        let total: f64 = loads.iter().sum();
        at += Duration::from_secs_f64(-(1.0 - gaps.next()).ln() / total);
        let mut dice = gaps.next() * total;
        let route = loads.iter().position(|load| {
            dice -= load;
            dice < 0.0
        });
        sleep_until(start + at).await;
        if at.as_secs() > second {
            second = at.as_secs();
            eprint!("\r{second:3} s of {}", PHASES[2]);
        }
        let (client, ended) = (client.clone(), ended.clone());
        let route = route.unwrap_or(ROUTES.len() - 1);
        tokio::spawn(async move {
            let began = start.elapsed();
            let end = match timeout(PATIENCE, call(&client, addr, ROUTES[route].0)).await {
                Ok(Ok(end)) => end,
                _ => End::Lost,
            };
            let took = start.elapsed() - began;
            let _ = ended.send(Ended {
                route,
                began,
                took,
                end,
            });
        });
    }
    drop(ended);
    let mut calls = Vec::new();
    while let Some(call) = all.recv().await {
        calls.push(call);
    }
    eprintln!();
    calls
}

async fn call(
    client: &Client<HttpConnector, Empty<Bytes>>,
    addr: SocketAddr,
    path: &str,
) -> Result<End, BoxError> {
    let request = Request::get(format!("http://{addr}{path}")).body(Empty::new())?;
    let response = client.request(request).await?;
    let status = response.status().as_u16();
    response.into_body().collect().await?;
    Ok(match status {
        200 => End::Answered,
        429 => End::Refused,
        _ => End::Lost,
    })
}

/// The calls that began within some seconds.
fn within(calls: &[Ended], from: u64, to: u64) -> impl Iterator<Item = &Ended> {
    let range = Duration::from_secs(from)..Duration::from_secs(to);
    calls.iter().filter(move |call| range.contains(&call.began))
}

fn answered_of<'a>(calls: impl Iterator<Item = &'a Ended>, route: usize) -> f64 {
    let (mut all, mut answered) = (0, 0);
    for call in calls.filter(|call| call.route == route) {
        all += 1;
        answered += u32::from(call.end == End::Answered);
    }
    100.0 * f64::from(answered) / f64::from(all.max(1))
}

/// The response time of answered calls that `quantile` of them did not exceed.
fn quantile<'a>(calls: impl Iterator<Item = &'a Ended>, quantile: f64) -> Duration {
    let answered = calls.filter(|call| call.end == End::Answered);
    let mut times: Vec<_> = answered.map(|call| call.took).collect();
    times.sort_unstable();
    let rank = (times.len() as f64 * quantile) as usize;
    times.get(rank).copied().unwrap_or_default()
}

fn show(calls: &[Ended]) {
    println!("                     /pay   /list  /suggest  answered/s  p50   p99   refused");
    for (name, from, to) in [
        ("calm", 0, PHASES[0]),
        ("spike", PHASES[0], PHASES[1]),
        ("spike, from 2 s on", PHASES[0] + 2, PHASES[1]),
        ("after", PHASES[1], PHASES[2]),
    ] {
        let calls = || within(calls, from, to);
        let answered = calls().filter(|call| call.end == End::Answered).count();
        println!(
            "{name:20} {:4.0} %  {:4.0} %  {:6.0} %  {:10.0}  {:3.0?}  {:4.0?}  {:7}",
            answered_of(calls(), 0),
            answered_of(calls(), 1),
            answered_of(calls(), 2),
            answered as f64 / (to - from) as f64,
            quantile(calls(), 0.5),
            quantile(calls(), 0.99),
            calls().filter(|call| call.end == End::Refused).count(),
        );
    }
    println!("\nEach second: # answered, . refused or lost, one for 50 calls");
    for second in 0..PHASES[2] {
        let mut row = BTreeMap::new();
        for call in within(calls, second, second + 1) {
            let counts: &mut [usize; 2] = row.entry(call.route).or_default();
            counts[usize::from(call.end != End::Answered)] += 1;
        }
        print!("{second:3} ");
        for (route, [answered, not]) in row {
            let marks = |mark: &str, count: usize| mark.repeat(count.div_ceil(50));
            let marks = marks("#", answered) + &marks(".", not);
            print!(" {} {marks}", ROUTES[route].0);
        }
        println!();
    }
}

/// What the overload must not do.
fn check(calls: &[Ended]) {
    let [begin, end, _] = PHASES;
    let spike = || within(calls, begin, end);
    assert!(answered_of(spike(), 0) >= 99.9, "payments are lost");
    assert!(answered_of(spike(), 1) >= 99.0, "lists are lost");
    let calm = quantile(within(calls, 0, begin), 0.99);
    let p99 = quantile(within(calls, begin + 2, end), 0.99);
    assert!(p99 <= 2 * calm, "calls take {p99:?}, in calm {calm:?}");
    let refused = |from, to| {
        let calls = within(calls, from, to);
        calls.filter(|call| call.end == End::Refused).count()
    };
    assert_eq!(refused(0, begin), 0, "a call is refused in calm");
    assert_eq!(refused(end + 3, PHASES[2]), 0, "a call is refused too late");
    let answered = within(calls, begin + 2, end).filter(|call| call.end == End::Answered);
    let per_second = answered.count() as f64 / (end - begin - 2) as f64;
    let most = PERMITS as f64 / WORK.as_secs_f64();
    assert!(per_second >= 0.9 * most, "{per_second} of {most} a second");
    println!("\nAll as it should be.");
}

/// xorshift64*: times between arrivals, the same in each run.
struct Gaps(u64);

impl Gaps {
    /// Evenly between 0 and 1, 1 excluded.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
