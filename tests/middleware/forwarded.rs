//! Whole chains of proxies: what each has written, and whom a naive reader who knows
//! what they meant takes for the client.

use std::net::{IpAddr, SocketAddr};

use axum::http::Request;
use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::Key;
use tower_sentinel::key::{ClientAddr, ClientIp, ForwardedIp, Head, KeyExtractor};

/// A text that a proxy may write for a client, and the address that it means.
type Node = (String, Option<IpAddr>);

const ADDRESSES: [&str; 11] = [
    "10.0.0.1",
    "10.255.3.4",
    "192.0.2.7",
    "203.0.113.9",
    "::ffff:10.0.0.9",
    "::ffff:192.0.2.7",
    "64:ff9b::10.0.0.9",
    "64:ff9b::c000:207",
    "::ffff:0:192.0.2.7",
    "fd00::1:1",
    "2001:DB8::00a1:2",
];
const NETS: [&str; 7] = [
    "10.0.0.0/8",
    "::ffff:10.0.0.0/104",
    "64:ff9b::10.0.0.0/104",
    "192.0.2.7/32",
    "fd00::/8",
    "2001:db8::/32",
    "::/0",
];
/// What means no address, in either field.
const NOBODY: [&str; 12] = [
    "unknown",
    "_hidden",
    "10.0.0.256",
    "10.0.0.01",
    "10.0.0",
    "192.0.2.7:70000",
    "192.0.2.7:",
    "192.0.2.7:http",
    "[2001:db8::1",
    "[2001:db8::1]80",
    "fe80::1%eth0",
    "",
];

/// The address as the keys have it: of IPv4, if it is written within one of these networks.
fn counted_key(ip: IpAddr) -> IpAddr {
    let text = ip.to_string();
    let is_v4_inside = ["::ffff:", "::ffff:0:", "64:ff9b::"].iter().any(|start| {
        let rest = text.strip_prefix(start);
        rest.is_some_and(|rest| rest.contains('.') || rest.matches(':').count() == 1)
    });
    match ip {
        IpAddr::V6(ip) if is_v4_inside => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d].into()
        }
        ip => ip,
    }
}

/// How an address stands in a field, with a port or without.
fn node(is_forwarded: bool) -> impl Strategy<Value = Node> {
    let known = (select(&ADDRESSES[..]), any::<bool>(), 0..5_u16).prop_map(
        move |(text, has_brackets, port)| {
            let ip: IpAddr = text.parse().unwrap();
            let port = match port {
                0 => ":0".to_owned(),
                1 => ":65535".to_owned(),
                // Only `Forwarded` knows ports that are hidden.
                2 if is_forwarded => ":_a.B_-9".to_owned(),
                _ => String::new(),
            };
            let is_bracketed = ip.is_ipv6() && (has_brackets || is_forwarded || !port.is_empty());
            let text = if is_bracketed {
                format!("[{text}]{port}")
            } else {
                format!("{text}{port}")
            };
            (text, Some(counted_key(ip)))
        },
    );
    let unknown = select(&NOBODY[..]).prop_map(|text| (text.to_owned(), None));
    prop_oneof![5 => known, 1 => unknown]
}

/// An element of `X-Forwarded-For`.
fn plain() -> impl Strategy<Value = Node> {
    node(false)
}

/// An element of `Forwarded`: parameters in any order, of which at most one is `for`.
fn parameters() -> impl Strategy<Value = Node> {
    let others = [
        "proto=https",
        "by=\"[2001:db8::9]:4\"",
        "host=\"a,b\"",
        "host=\"x;for=6.6.6.6\"",
        "host=\"a\\\",for=6.6.6.6\"",
        "host=\"\\\\\"",
        "ext=\", for=6.6.6.6, \"",
    ];
    let others = prop::collection::vec(select(others.to_vec()), 0..3);
    let name = select(vec!["for", "For", "FOR"]);
    let own = prop::option::weighted(0.9, (name, node(true), any::<bool>()));
    (own, others, 0..3_usize).prop_map(|(own, others, place)| {
        let mut parameters: Vec<String> = others.iter().map(|&text| text.to_owned()).collect();
        let mut meant = None;
        if let Some((name, (text, ip), is_quoted)) = own {
            let is_token = !text.is_empty() && !text.contains([':', '[', '%']);
            let value = if is_token && !is_quoted {
                format!("{name}={text}")
            } else {
                format!("{name}=\"{text}\"")
            };
            parameters.insert(place.min(parameters.len()), value);
            meant = ip;
        }
        (parameters.join(";"), meant)
    })
}

/// Lines of the field, and what all elements mean, the nearest proxy's last.
fn field(element: impl Strategy<Value = Node>) -> impl Strategy<Value = (Vec<String>, Vec<Node>)> {
    let gap = || select(vec!["", " ", "\t", "  "]);
    let line = prop::collection::vec((gap(), element, gap()), 1..4);
    prop::collection::vec(line, 0..4).prop_map(|lines| {
        let text = |line: &Vec<(&str, Node, &str)>| {
            let texts = line.iter();
            let texts = texts.map(|(before, (text, _), after)| format!("{before}{text}{after}"));
            texts.collect::<Vec<_>>().join(",")
        };
        let texts = lines.iter().map(text).collect();
        let nodes = lines.into_iter().flatten().map(|(_, node, _)| node);
        // An empty element is none.
        let nodes = nodes.filter(|(text, _)| !text.is_empty());
        (texts, nodes.collect())
    })
}

/// Whom to trust.
#[derive(Clone, Debug)]
enum Trust {
    Behind(Vec<&'static str>),
    Hops(usize),
}

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![
        prop::collection::vec(select(&NETS[..]), 0..4).prop_map(Trust::Behind),
        (0..5_usize).prop_map(Trust::Hops),
    ]
}

fn is_trusted(ip: IpAddr, nets: &[&str]) -> bool {
    nets.iter().any(|net| match (ip, *net) {
        (IpAddr::V4(ip), "10.0.0.0/8" | "::ffff:10.0.0.0/104" | "64:ff9b::10.0.0.0/104") => {
            ip.octets()[0] == 10
        }
        (IpAddr::V4(ip), "192.0.2.7/32") => ip.octets() == [192, 0, 2, 7],
        (IpAddr::V6(ip), "fd00::/8") => ip.octets()[0] == 0xfd,
        (IpAddr::V6(ip), "2001:db8::/32") => ip.segments()[..2] == [0x2001, 0xdb8],
        (IpAddr::V6(_), "::/0") => true,
        _ => false,
    })
}

/// The client, if it is known for sure. A field that is written without any element does
/// not tell it.
fn client(peer: Option<IpAddr>, chain: &[Node], is_written: bool, trust: &Trust) -> Option<IpAddr> {
    match trust {
        Trust::Hops(0) => peer,
        Trust::Hops(hops) => chain.iter().rev().nth(hops - 1)?.1,
        Trust::Behind(nets) => {
            let mut client = peer?;
            let mut others = chain.iter().rev();
            if is_trusted(client, nets) && chain.is_empty() && is_written {
                return None;
            }
            while is_trusted(client, nets) {
                match others.next() {
                    Some((_, other)) => client = (*other)?,
                    None => break,
                }
            }
            Some(client)
        }
    }
}

fn check(name: &str, lines: &[String], chain: &[Node], peer: Option<&str>, trust: &Trust) {
    let mut request = Request::new(());
    for line in lines {
        let name = name.parse::<axum::http::HeaderName>().unwrap();
        request.headers_mut().append(name, line.parse().unwrap());
    }
    let peer = peer.map(|peer| peer.parse::<IpAddr>().unwrap());
    if let Some(peer) = peer {
        let peer = ClientAddr(SocketAddr::new(peer, 4000));
        request.extensions_mut().insert(peer);
    }
    let peer = peer.map(counted_key);
    let extractor = match trust {
        Trust::Behind(nets) => ForwardedIp::behind(nets.iter().map(|net| net.parse().unwrap())),
        Trust::Hops(hops) => ForwardedIp::hops(*hops),
    };
    let extractor = match name {
        "forwarded" => extractor.rfc7239(),
        _ => extractor,
    };
    let client = client(peer, chain, !lines.is_empty(), trust);
    assert_eq!(extractor.client_ip(Head::of(&request)), client, "{lines:?}");
    // Who is not known is the peer.
    let whole = extractor.ipv6_prefix(128);
    let address = client.or(peer);
    assert_eq!(whole.address(Head::of(&request)), address, "{lines:?}");
    let key = address.map(Key::Ip);
    assert_eq!(whole.key(Head::of(&request)), key, "{lines:?}");
}

fn peer() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(0.9, prop_oneof![Just("10.0.0.1"), select(&ADDRESSES[..])])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    #[test]
    fn the_client_is_whom_the_chain_of_addresses_means(
        (lines, chain) in field(plain()),
        peer in peer(),
        trust in trust(),
    ) {
        check("x-forwarded-for", &lines, &chain, peer, &trust);
    }

    #[test]
    fn the_client_is_whom_the_chain_of_parameters_means(
        (lines, chain) in field(parameters()),
        peer in peer(),
        trust in trust(),
    ) {
        check("forwarded", &lines, &chain, peer, &trust);
    }
}
