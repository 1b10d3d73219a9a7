//! What a served request costs a whole axum server, with our layer and without.
//!
//! One thread serves over TCP, another one sends: sixteen connections that stay
//! open, each with one request on its way. What counts is the CPU time of the
//! serving thread, the kernel's work for it included. Routers take turns, and in
//! every other round they do so backwards; a ratio is taken within a round. The
//! bare router is there twice, so that the second one tells what the ratios are
//! worth.
//!
//! Arguments, if any, are parts of names: then only these run, for a profiler.

mod client;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use governor::middleware::NoOpMiddleware;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tower::layer::layer_fn;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;
use tower_sentinel::clock::QuantaClock;
use tower_sentinel::key::PeerIp;
use tower_sentinel::clock::MonotonicClock;
use tower_sentinel::{Clock, FlowRule, Rules, Sentinel, SentinelLayer};

/// What the 95 % interval of the median stands on: odd, and at least 31.
const ROUNDS: usize = 101;
const WARM_UP: usize = 3;
/// Requests that a router serves in one round.
const REQUESTS: usize = 4_096;
/// More than a run uses up in a second, and no more than the table of origins holds.
const PLENTY: u32 = (1 << 20) - 1;

/// A router that is served, and what a request cost it, in ns, per round.
struct Served {
    name: &'static str,
    address: SocketAddr,
    ns: Vec<f64>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let wanted: Vec<String> = std::env::args().skip(1).collect();
        let mut all = Vec::new();
        for (name, router) in routers() {
            if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part)) {
                continue;
            }
            all.push(serve(name, router).await);
        }
        measure(&mut all).await;
        print(&all);
    });
}

fn routers() -> Vec<(&'static str, Router)> {
    let rule = || FlowRule::per_second("/hello", PLENTY);
    let layered = |layer: SentinelLayer| hello().layer(layer);
    vec![
        ("bare", hello()),
        ("bare, once more", hello()),
        (
            "a layer that only passes on",
            hello().layer(layer_fn(|service| service)),
        ),
        ("tower_governor, peer address", hello().layer(governor())),
        (
            "one flow rule, Instant",
            layered(layer(rule(), MonotonicClock::new())),
        ),
        (
            "one flow rule, quanta",
            layered(layer(rule(), QuantaClock::new())),
        ),
        (
            "one flow rule by address, Instant",
            layered(layer(rule().by_origin(), MonotonicClock::new()).origin(PeerIp)),
        ),
        (
            "one flow rule by address, quanta",
            layered(layer(rule().by_origin(), QuantaClock::new()).origin(PeerIp)),
        ),
    ]
}

fn hello() -> Router {
    Router::new().route("/hello", get(|| async { "hello" }))
}

fn layer(rules: impl Into<Rules>, clock: impl Clock) -> SentinelLayer {
    SentinelLayer::with(Sentinel::builder().rules(rules).clock(clock).build())
}

fn governor() -> GovernorLayer<PeerIpKeyExtractor, NoOpMiddleware, Body> {
    let config = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(PLENTY)
        .key_extractor(PeerIpKeyExtractor)
        .finish();
    GovernorLayer::new(config.expect("a quota"))
}

async fn serve(name: &'static str, router: Router) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    Served {
        name,
        address,
        ns: Vec::new(),
    }
}

/// Has every router serve its requests in each round.
async fn measure(all: &mut [Served]) {
    let (order, orders) = std::sync::mpsc::channel();
    let (done, mut served) = mpsc::channel(1);
    let addresses: Vec<_> = all.iter().map(|served| served.address).collect();
    let sender = std::thread::spawn(move || {
        let mut clients: Vec<_> = addresses.into_iter().map(client::Client::connect).collect();
        for place in orders {
            let client: &mut client::Client = &mut clients[place];
            client.send(REQUESTS);
            done.blocking_send(()).expect("the server waits for it");
        }
    });
    for round in 0..WARM_UP + ROUNDS {
        let mut places: Vec<_> = (0..all.len()).collect();
        places.rotate_left(round % all.len());
        if round / all.len() % 2 == 1 {
            places.reverse();
        }
        for place in places {
            let start = cpu_time();
            order.send(place).expect("the client waits for it");
            served.recv().await.expect("the client tells");
            let spent = cpu_time() - start;
            if round >= WARM_UP {
                all[place]
                    .ns
                    .push(spent.as_nanos() as f64 / REQUESTS as f64);
            }
        }
    }
    drop(order);
    sender.join().expect("every request was answered");
}

fn print(all: &[Served]) {
    println!("| router | CPU time of a request, µs | beside bare | 95 % interval of the median |");
    println!("|---|---:|---:|---:|");
    let bare = &all[0].ns;
    for served in all {
        let mut ratios: Vec<_> = served
            .ns
            .iter()
            .zip(bare)
            .map(|(ns, bare)| ns / bare)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let mut ns = served.ns.clone();
        ns.sort_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        // By the ranks that a binomial of so many rounds leaves out on either side.
        let reach = (0.98 * (ratios.len() as f64).sqrt()).ceil() as usize;
        println!(
            "| {} | {:.2} | {:.3} | {:.3} to {:.3} |",
            served.name,
            ns[middle] / 1e3,
            ratios[middle],
            ratios[middle - reach],
            ratios[middle + reach],
        );
    }
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
