//! Whatever requests come in, the layer answers, and nothing stays behind.
//!
//! ```text
//! cargo +nightly fuzz run request -- -max_total_time=60
//! ```
#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tower::{Layer, Service, service_fn};
use tower_sentinel::clock::Tick;
use tower_sentinel::key::{
    ClientAddr, Cookie, ForwardedIp, Header, KeyExtractor, Path, PathParam, PeerIp, Query, Secret,
};
use tower_sentinel::middleware::SentinelService;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::skip;
use tower_sentinel::{
    AdaptiveRule, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, KeyedRule, ManualClock,
    Rules, Sentinel, SentinelLayer, Verdict,
};

const MAX_RESOURCES: usize = 8;
const MAX_ORIGINS: usize = 8;
/// Fields that something reads; other names come from the input.
const NAMES: [&str; 8] = [
    "x-forwarded-for",
    "forwarded",
    "cookie",
    "authorization",
    "content-type",
    "host",
    "x-tenant",
    "upgrade",
];
const PATHS: [&str; 4] = ["/", "/users/1?q=1", "/hot?q=%31", "/__overflow__"];

fn rules() -> Rules {
    let second = Duration::from_secs(1);
    Rules::new()
        .with(FlowRule::per_second("/", 2))
        .with(FlowRule::per_second("/users/{id}", 3).by_origin())
        .with(FlowRule::per("/", 5, 10 * second).strict())
        .with(FlowRule::per_second("__overflow__", 4))
        .with(IsolationRule::new("/", 2))
        .with(KeyedRule::per_second("/hot", 1).max_keys(64))
        .with(KeyedRule::concurrency("/users/{id}", 1).param("tenant"))
        .with(CircuitBreakerRule::error_count("/", 3))
        .with(AdaptiveRule::new("/hot"))
}

/// Bytes of the input up to a length that it says.
fn bytes<'a>(input: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let len = input.int_in_range(0..=64)?;
    input.bytes(len.min(input.len()))
}

/// A request, unless the input makes none.
fn request(input: &mut Unstructured<'_>) -> Result<Option<Request<Bytes>>> {
    let method = Method::from_bytes(bytes(input)?).unwrap_or(Method::GET);
    let uri = match input.arbitrary()? {
        true => Uri::from_static(input.choose(&PATHS)?),
        false => match Uri::from_maybe_shared(Bytes::copy_from_slice(bytes(input)?)) {
            Ok(uri) => uri,
            Err(_) => return Ok(None),
        },
    };
    let mut request = Request::new(Bytes::copy_from_slice(bytes(input)?));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    for _ in 0..input.int_in_range(0..=6)? {
        let name = match input.arbitrary()? {
            true => Ok(HeaderName::from_static(input.choose(&NAMES)?)),
            false => HeaderName::from_bytes(bytes(input)?),
        };
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(bytes(input)?)) {
            request.headers_mut().append(name, value);
        }
    }
    if input.arbitrary()? {
        let peer = std::net::IpAddr::from(input.arbitrary::<[u8; 16]>()?);
        request
            .extensions_mut()
            .insert(ClientAddr((peer, 1).into()));
    }
    Ok(Some(request))
}

fn layer(input: &mut Unstructured<'_>, clock: &ManualClock) -> Result<SentinelLayer> {
    let sentinel = Sentinel::builder()
        .clock(clock.clone())
        .rules(rules())
        .max_resources(MAX_RESOURCES)
        .max_origins(MAX_ORIGINS)
        .contexts(input.arbitrary()?)
        .build();
    let mut layer = SentinelLayer::with(sentinel)
        .param(Query::new("q"))
        .param_named("tenant", Header::from_static("x-tenant"))
        .tier(PathParam::new("id"))
        .context(Cookie::new("c"))
        .fields(match input.int_in_range(0..=3)? {
            0 => RateLimitFields::None,
            1 => RateLimitFields::Ietf,
            2 => RateLimitFields::IetfDraft06,
            _ => RateLimitFields::Legacy,
        });
    if input.arbitrary()? {
        layer = layer.resource(Path);
    }
    layer = match input.int_in_range(0..=3)? {
        0 => layer.origin(PeerIp),
        1 => layer.origin(ForwardedIp::hops(1).or(PeerIp)),
        2 => layer.origin(ForwardedIp::hops(2).rfc7239()),
        _ => layer.origin(Secret::new(Header::from_static("authorization"))),
    };
    if input.arbitrary()? {
        layer = layer.skip(skip::options()).skip(skip::paths(["/health"]));
    }
    Ok(layer)
}

/// Calls, and lets the call end in one of the ways in which calls end.
fn call<S>(service: &mut SentinelService<S>, request: Request<Bytes>, end: u8) -> Option<StatusCode>
where
    S: Service<Request<Bytes>, Response = Response<Full<Bytes>>, Error = Infallible>,
    S: Clone + 'static,
    S::Future: Send + 'static,
{
    let ready = futures_util::future::poll_fn(|cx| service.poll_ready(cx)).now_or_never();
    assert!(matches!(ready, Some(Ok(()))));
    let future = service.call(request);
    if end == 0 {
        return None;
    }
    let response = future
        .now_or_never()
        .expect("nobody waits")
        .expect("no error");
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        let wait = &response.headers()["retry-after"];
        let wait: u64 = wait.to_str().expect("text").parse().expect("a number");
        assert!(wait >= 1);
    }
    if end != 1 {
        let body = response.into_body().collect().now_or_never();
        body.expect("it is there").expect("no error");
    }
    Some(status)
}

fn case(input: &mut Unstructured<'_>) -> Result<()> {
    let clock = ManualClock::starting_at(Tick::from_millis(10_000));
    let layer = layer(input, &clock)?;
    let sentinel = layer.sentinel().clone();
    let mut service = layer.layer(service_fn(|request: Request<Bytes>| async move {
        // What the body says is what the service answers.
        let status = request
            .body()
            .first()
            .map_or(200, |byte| 200 + u16::from(*byte) * 2);
        let mut response = Response::new(Full::new(request.into_body()));
        *response.status_mut() = StatusCode::from_u16(status).expect("three digits");
        Ok::<_, Infallible>(response)
    }));
    let mut running: Vec<Entry> = Vec::new();
    while !input.is_empty() {
        match input.int_in_range(0..=4)? {
            0 => clock.advance(Duration::from_millis(input.int_in_range(0..=3_000)?)),
            1 if sentinel.reload(rules()) => {}
            2 => {
                let text = String::from_utf8_lossy(bytes(input)?).into_owned();
                // Few enough that no second counts 2³¹ tokens.
                let weight = input.arbitrary::<u16>()?;
                let call = Call::new(&text).batch(weight.into());
                if let Verdict::Pass(entry) = sentinel.try_enter(call) {
                    running.push(entry);
                }
            }
            _ => {
                if let Some(request) = request(input)? {
                    call(&mut service, request, input.int_in_range(0..=2)?);
                }
            }
        }
    }
    drop(running);
    let snapshot = sentinel.snapshot();
    // Overflow and the names of rules have places of their own.
    assert!(
        snapshot.resources() <= MAX_RESOURCES + 8,
        "{}",
        snapshot.resources()
    );
    assert!(
        snapshot.origins() <= MAX_ORIGINS + 8,
        "{}",
        snapshot.origins()
    );
    for node in snapshot.nodes() {
        let totals = node.totals();
        assert_eq!((node.concurrency(), node.waiting()), (0, 0), "{node:?}");
        assert_eq!(
            totals.pass(),
            totals.complete() + totals.cancelled(),
            "{node:?}"
        );
    }
    assert!(snapshot.to_json().starts_with('{'));
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // Too short an input is none.
    let _ = case(&mut Unstructured::new(data));
});
