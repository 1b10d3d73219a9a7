//! Whatever lines of forwarded addresses a client sends, the call is judged, and
//! for the address that the trusted proxy has seen.
//!
//! ```text
//! cargo +nightly fuzz run forwarded -- -max_total_time=60
//! ```
#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use libfuzzer_sys::fuzz_target;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::ForwardedIp;
use tower_sentinel::{FlowRule, SentinelLayer};

const HOUR: Duration = Duration::from_secs(3_600);

fuzz_target!(|data: &[u8]| {
    let old = ("x-forwarded-for", "203.0.113.7", ForwardedIp::hops(1));
    let new = (
        "forwarded",
        "for=203.0.113.7",
        ForwardedIp::hops(1).rfc7239(),
    );
    for (field, last, client) in [old, new] {
        let rule = FlowRule::per("/", 1, HOUR).by_origin();
        let layer = SentinelLayer::new(rule).origin(client);
        let service = layer.layer(service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }));
        let call = |lines: &[u8]| {
            let mut request = Request::get("/").body(()).expect("a request");
            let lines = lines.split(|byte| *byte == b'\n');
            for value in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
                request.headers_mut().append(field, value);
            }
            let last = HeaderValue::from_static(last);
            request.headers_mut().append(field, last);
            let response = service.clone().oneshot(request).now_or_never();
            response
                .expect("nobody waits")
                .expect("it cannot fail")
                .status()
        };
        assert_eq!(call(b""), StatusCode::OK);
        // What stands before the proxy's own line makes nobody another client.
        assert_eq!(call(data), StatusCode::TOO_MANY_REQUESTS);
    }
});
