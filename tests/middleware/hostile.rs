//! Headers that no honest client sends: each has a stated key, and none fails
//! the server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::routing::any as any_method;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_sentinel::key::{Authority, ClientAddr, ForwardedIp, Header};
use tower_sentinel::read::Scope;
use tower_sentinel::{Sentinel, SentinelLayer};

use crate::support::caller::{Probe, assert_caller, callers, per_caller, status};
use crate::support::{Server, get};

/// Lines of one header field.
type Lines = Vec<Vec<u8>>;

fn request_with(name: &str, lines: &Lines) -> Request<Body> {
    let mut request = get("/x");
    let peer = ClientAddr("10.0.0.1:1".parse().unwrap());
    request.extensions_mut().insert(peer);
    for line in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

fn one(line: &str) -> Lines {
    vec![line.as_bytes().to_vec()]
}

#[test]
fn hostile_values_are_a_stated_key_or_none() {
    let long = "k".repeat(256);
    let cases: &[(&str, Lines, Option<&str>)] = &[
        ("none", vec![], None),
        ("empty", one(""), None),
        ("blank", one(" "), None),
        ("blanks around", one(" k\t "), Some("k")),
        ("as long as is kept", one(&long), Some(&long)),
        ("a tab", one("a\tb"), Some("a\tb")),
        ("quotes", one("\"';--"), Some("\"';--")),
        ("no UTF-8", vec![vec![0xff, 0xfe]], None),
        ("UTF-8", one("\u{e9}"), None),
        ("twice", vec![b"a".to_vec(), b"a".to_vec()], Some("a")),
        ("two values", vec![b"a".to_vec(), b"b".to_vec()], None),
        ("an empty one first", vec![vec![], b"b".to_vec()], None),
    ];
    for (case, lines, caller) in cases {
        let layer = per_caller(Header::from_static("x-key"));
        let request = || request_with("x-key", lines);
        assert_caller(&layer, request, *caller, case);
    }
    // A line break or a zero cannot even be made.
    for line in ["a\r\nb: c", "a\n", "\r", "a\0b", "a\x7f"] {
        assert!(
            HeaderValue::from_bytes(line.as_bytes()).is_err(),
            "{line:?}"
        );
    }
}

#[test]
fn long_values_are_told_apart_without_being_kept() {
    let layer = per_caller(Header::from_static("x-key"));
    let long = |end: &str| request_with("x-key", &one(&("k".repeat(64 * 1024) + end)));
    assert_eq!(status(&layer, long("1")), StatusCode::OK);
    assert_eq!(status(&layer, long("2")), StatusCode::OK);
    assert_eq!(status(&layer, long("1")), StatusCode::TOO_MANY_REQUESTS);
    for caller in callers(&layer) {
        assert!(matches!(caller, Scope::Origin(name) if name.len() < 64));
    }
}

#[test]
fn hostile_forwarded_addresses_are_a_stated_key() {
    let peer = "10.0.0.1";
    let behind = || ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]);
    let many = |first: &str, lines: usize, elements: usize| -> Lines {
        let line = vec!["10.0.0.2"; elements].join(",");
        let mut lines = vec![line.into_bytes(); lines];
        lines.insert(0, first.as_bytes().to_vec());
        lines
    };
    // The field, its lines, and the key behind trusted addresses and by hops.
    let xff: &[(&str, Lines, &str, &str)] = &[
        ("none", vec![], peer, peer),
        ("empty", one(""), peer, peer),
        ("commas", one(",,,,"), peer, peer),
        ("a comma at the end", one("1.2.3.4,"), "1.2.3.4", "1.2.3.4"),
        (
            "an empty last line",
            vec![b"1.2.3.4".to_vec(), vec![]],
            "1.2.3.4",
            "1.2.3.4",
        ),
        ("blanks", one("  \t "), peer, peer),
        (
            "1000 on 100 lines",
            many("1.2.3.4", 100, 10),
            "1.2.3.4",
            "10.0.0.2",
        ),
        (
            "1000 on one line",
            many("1.2.3.4", 1, 1_000),
            "1.2.3.4",
            "10.0.0.2",
        ),
        ("1000 and garbage", many("?", 100, 10), peer, "10.0.0.2"),
        ("64 KiB", one(&"1".repeat(64 * 1024)), peer, peer),
        ("no UTF-8", vec![vec![0xff, b'1']], peer, peer),
        (
            "no UTF-8 behind an address",
            vec![b"\xff,1.2.3.4".to_vec()],
            "1.2.3.4",
            "1.2.3.4",
        ),
        ("a port", one("1.2.3.4:65535"), "1.2.3.4", "1.2.3.4"),
        ("no port", one("1.2.3.4:65536"), peer, peer),
        ("zeros in front", one("001.2.3.4"), peer, peer),
        ("a number", one("16909060"), peer, peer),
        ("IPv6", one("2001:db8::7"), "2001:db8::", "2001:db8::"),
        (
            "IPv6 in brackets",
            one("[2001:db8::7]"),
            "2001:db8::",
            "2001:db8::",
        ),
        (
            "IPv6 with a port",
            one("[2001:db8::7]:80"),
            "2001:db8::",
            "2001:db8::",
        ),
        ("IPv6 with half a bracket", one("[2001:db8::7"), peer, peer),
        ("IPv6 with a zone", one("fe80::1%eth0"), peer, peer),
        (
            "a mapped address",
            one("::ffff:1.2.3.4"),
            "1.2.3.4",
            "1.2.3.4",
        ),
        (
            "a translated address",
            one("64:ff9b::1.2.3.4"),
            "1.2.3.4",
            "1.2.3.4",
        ),
        ("quotes", one("\"1.2.3.4\""), "1.2.3.4", "1.2.3.4"),
        ("a script", one("<script>1.2.3.4</script>"), peer, peer),
    ];
    for (case, lines, by_address, by_hops) in xff {
        let request = || request_with("x-forwarded-for", lines);
        assert_caller(&per_caller(behind()), request, Some(by_address), case);
        let hops = per_caller(ForwardedIp::hops(1));
        assert_caller(&hops, request, Some(by_hops), case);
    }

    let forwarded: &[(&str, Lines, &str)] = &[
        ("none", vec![], peer),
        ("empty", one(""), peer),
        ("only signs", one(";=;,=;\","), peer),
        ("no value", one("for="), peer),
        ("half a quote", one("for=\"1.2.3.4"), peer),
        ("a name", one("for=unknown"), peer),
        ("in any case", one("By=a;FOR=1.2.3.4;host=b"), "1.2.3.4"),
        ("twice", one("for=1.2.3.4;for=5.6.7.8"), peer),
        ("a comma at the end", one("for=1.2.3.4,"), "1.2.3.4"),
        (
            "an empty last line",
            vec![b"for=1.2.3.4".to_vec(), vec![]],
            "1.2.3.4",
        ),
        (
            "a host that a proxy quotes",
            one("for=1.2.3.4;host=\"a,for=5.6.7.8;b=\\\"c\""),
            "1.2.3.4",
        ),
        (
            "IPv6 with a port",
            one("for=\"[2001:db8::7]:80\""),
            "2001:db8::",
        ),
        ("no UTF-8", vec![b"for=\xff".to_vec()], peer),
        (
            "64 KiB",
            one(&format!("for={}", "1".repeat(64 * 1024))),
            peer,
        ),
        ("1000 on 100 lines", many_forwarded(), "1.2.3.4"),
    ];
    for (case, lines, caller) in forwarded {
        let request = || request_with("forwarded", lines);
        let layer = per_caller(behind().rfc7239());
        assert_caller(&layer, request, Some(caller), case);
    }
}

/// One client behind a thousand proxies of ours.
fn many_forwarded() -> Lines {
    let line = ["for=10.0.0.2"; 10].join(", ").into_bytes();
    let mut lines = vec![line; 100];
    lines.insert(0, b"for=1.2.3.4".to_vec());
    lines
}

#[tokio::test]
async fn whatever_bytes_a_client_sends_the_server_never_fails() {
    let sentinel = Sentinel::builder().origins(true).contexts(true).build();
    let layer = SentinelLayer::with(sentinel)
        .origin(ForwardedIp::behind(["127.0.0.0/8".parse().unwrap()]).rfc7239())
        .param(Header::from_static("x-key"))
        .context(Authority);
    let app = Router::new()
        .route("/x", any_method(|| async {}))
        .layer(layer.clone());
    let server = Server::axum(app).await;
    let long = [b"x-key: ".as_slice(), &[b'k'; 64 * 1024]].concat();
    // hyper refuses what is no header at all.
    let cases: &[(&[u8], u16)] = &[
        (b"host: a", 200),
        (b"host: \xff\xfe", 200),
        (b"host: [::1", 200),
        (b"host: :::::", 200),
        (b"host:", 200),
        (b"x-key: \xff", 200),
        (&long, 200),
        (b"x-key: a\r\n folded", 400),
        (b"x-key: a\rb", 400),
        (b"x-key: a\0b", 400),
        (b"forwarded: for=\"\xff", 200),
        (b"forwarded: ;;;,,,===", 200),
    ];
    for (line, expected) in cases {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        let head = b"GET /x HTTP/1.1\r\nconnection: close\r\n";
        let request = [head.as_slice(), line, b"\r\n\r\n"].concat();
        stream.write_all(&request).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let status = String::from_utf8_lossy(&response[9..12]).into_owned();
        let line = line[..line.len().min(30)].escape_ascii();
        assert_eq!(status.parse::<u16>().unwrap(), *expected, "{line}");
    }
    let peer = Scope::Origin("127.0.0.1".into());
    assert!(callers(&layer).contains(&peer));
}

// === anything ===

/// An element as a client may write it, to be taken for a proxy's.
fn forged() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"1.1.1.1".to_vec()),
        Just(b"10.0.0.2".to_vec()),
        Just(b"for=1.1.1.1".to_vec()),
        Just(b"for=\"10.0.0.2".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"unknown".to_vec()),
        Just(b"[::1]:80".to_vec()),
        // Without colons, so that the only address of IPv6 is the one above.
        prop::collection::vec(
            any::<u8>().prop_filter("no colon", |&byte| byte != b':'),
            0..12
        ),
    ]
}

/// An address as proxies write it.
fn written(ip: IpAddr, port: Option<u16>, is_forwarded: bool) -> String {
    let text = match (ip, port) {
        (IpAddr::V4(ip), None) => ip.to_string(),
        (IpAddr::V6(ip), None) if is_forwarded => format!("[{ip}]"),
        (IpAddr::V6(ip), None) => ip.to_string(),
        (ip, Some(port)) => SocketAddr::new(ip, port).to_string(),
    };
    if !is_forwarded {
        text
    } else if text.contains(':') {
        format!("for=\"{text}\";proto=https")
    } else {
        format!("For={text}")
    }
}

fn client() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (any::<[u8; 3]>()).prop_map(|[a, b, c]| IpAddr::from([203, a, b, c])),
        (any::<u64>())
            .prop_map(|n| IpAddr::from(Ipv6Addr::from_bits(0x2001 << 112 | u128::from(n)))),
    ]
}

/// Our proxies, nearest to the client first, and how each came by its line: by
/// adding to the last one, or with a new one.
fn chain() -> impl Strategy<Value = Vec<(u8, bool)>> {
    prop::collection::vec((1..250_u8, any::<bool>()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_that_a_client_writes_changes_its_key(
        lines in prop::collection::vec(prop::collection::vec(forged(), 0..4), 0..4),
        client in client(),
        port in prop::option::of(any::<u16>()),
        proxies in chain(),
        is_new_line in any::<bool>(),
        is_forwarded in any::<bool>(),
    ) {
        let name = if is_forwarded { "forwarded" } else { "x-forwarded-for" };
        let lines: Lines = lines.iter().map(|line| line.join(&b","[..])).collect();
        prop_assume!(lines.iter().all(|line| HeaderValue::from_bytes(line).is_ok()));

        // The first proxy writes the client's address, each further one that of
        // the one before it; the last is the peer.
        let mut sent = lines.clone();
        let mut add = |element: String, is_new: bool| match sent.last_mut() {
            Some(line) if !is_new => line.extend(format!(", {element}").bytes()),
            _ => sent.push(element.into_bytes()),
        };
        add(written(client, port, is_forwarded), is_new_line);
        for (number, is_new) in &proxies {
            let proxy = IpAddr::from([10, 0, 0, *number]);
            add(written(proxy, None, is_forwarded), *is_new);
        }
        let request = || request_with(name, &sent);

        let behind = ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]);
        let hops = ForwardedIp::hops(proxies.len() + 1);
        for extractor in [behind, hops] {
            let extractor = extractor.ipv6_prefix(128);
            let extractor = if is_forwarded { extractor.rfc7239() } else { extractor };
            let key = Probe::new(extractor).key(request());
            prop_assert_eq!(key, Some(client.to_string()), "{:?}", sent);
        }
    }

    #[test]
    fn whatever_is_written_the_key_is_an_address_of_the_chain_or_the_peer(
        lines in prop::collection::vec(prop::collection::vec(forged(), 0..6), 0..5),
        hops in 0..5_usize,
        is_forwarded in any::<bool>(),
    ) {
        let name = if is_forwarded { "forwarded" } else { "x-forwarded-for" };
        let lines: Lines = lines.iter().map(|line| line.join(&b","[..])).collect();
        prop_assume!(lines.iter().all(|line| HeaderValue::from_bytes(line).is_ok()));
        let text = lines.join(&b","[..]);
        let text = String::from_utf8_lossy(&text).into_owned();
        for extractor in [
            ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]),
            ForwardedIp::hops(hops),
        ] {
            let extractor = extractor.ipv6_prefix(128);
            let extractor = if is_forwarded { extractor.rfc7239() } else { extractor };
            let key = Probe::new(extractor).key(request_with(name, &lines)).unwrap();
            prop_assert!(key.parse::<IpAddr>().is_ok(), "{}", key);
            let is_of_the_chain = text.contains(&key) || key == "10.0.0.1";
            prop_assert!(is_of_the_chain, "{} of {}", key, text);
        }
    }
}
