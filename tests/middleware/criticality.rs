//! Which class a client may say that its call has.

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderName, HeaderValue, Request};
use std::net::SocketAddr;
use tower_sentinel::Criticality::{self, Critical, CriticalPlus, Sheddable, SheddablePlus};
use tower_sentinel::key::{ClientAddr, CriticalityHeader, Head};

use crate::support::get;

/// A request from `peer` with the field in these lines.
fn with_lines(peer: Option<&str>, lines: &[&[u8]]) -> Request<Body> {
    let mut request = get("/x");
    for line in lines {
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append("x-criticality", value);
    }
    if let Some(peer) = peer {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4000);
        request.extensions_mut().insert(ClientAddr(peer));
    }
    request
}

// === what a client may say ===

#[test]
fn a_client_may_lower_its_class_and_never_raise_it() {
    let trusting = CriticalityHeader::new()
        .trust(["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    let peers = [
        (None, false),
        (Some("192.0.2.7"), false),
        (Some("11.0.0.1"), false),
        (Some("10.1.2.3"), true),
        (Some("::ffff:10.1.2.3"), true),
        (Some("fd00::7"), true),
        (Some("2001:db8::7"), false),
    ];
    let classes = [
        ("critical-plus", CriticalPlus, false),
        ("critical", Critical, true),
        ("sheddable-plus", SheddablePlus, true),
        ("sheddable", Sheddable, true),
    ];
    for (peer, is_trusted) in peers {
        for (name, class, is_for_all) in classes {
            let request = with_lines(peer, &[name.as_bytes()]);
            let read = trusting.read(Head::of(&request));
            let expected = (is_for_all || is_trusted).then_some(class);
            assert_eq!(read, expected, "{name} from {peer:?}");
            // Without networks nobody is trusted.
            let read = CriticalityHeader::new().read(Head::of(&request));
            assert_eq!(read, is_for_all.then_some(class), "{name} from {peer:?}");
        }
    }
}

#[test]
fn a_peer_is_trusted_by_its_connection_and_not_by_what_it_writes() {
    let header = CriticalityHeader::new().trust(["10.0.0.0/8".parse().unwrap()]);
    let mut request = with_lines(None, &[b"critical-plus"]);
    let stranger = SocketAddr::from(([192, 0, 2, 7], 4000));
    request.extensions_mut().insert(ConnectInfo(stranger));
    for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let value = if name == "forwarded" {
            "for=10.0.0.1"
        } else {
            "10.0.0.1"
        };
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    assert_eq!(header.read(Head::of(&request)), None);
    let ours = SocketAddr::from(([10, 0, 0, 1], 4000));
    request.extensions_mut().insert(ConnectInfo(ours));
    assert_eq!(header.read(Head::of(&request)), Some(CriticalPlus));
}

#[test]
fn a_value_is_one_name_in_any_case_or_it_is_absent() {
    let long = b"sheddable;a=234567890123456789012";
    assert_eq!(long.len(), 33);
    let cases: [(&[&[u8]], Option<Criticality>); 21] = [
        (&[b"sheddable"], Some(Sheddable)),
        (&[b"SHEDDABLE"], Some(Sheddable)),
        (&[b"Sheddable-Plus"], Some(SheddablePlus)),
        (&[b" sheddable\t"], Some(Sheddable)),
        (&[b"sheddable;cohort=37"], Some(Sheddable)),
        (&[b"sheddable ; cohort=37"], Some(Sheddable)),
        (&[b"sheddable;"], Some(Sheddable)),
        (&[&long[..32]], Some(Sheddable)),
        (&[long], None),
        // The one value twice is still one value, as of any key.
        (&[b"sheddable", b"sheddable"], Some(Sheddable)),
        (&[b"sheddable", b"critical"], None),
        (&[b"critical", b"critical-plus"], None),
        (&[b"sheddable, critical"], None),
        (&[b"sheddable,sheddable"], None),
        (&[b"low"], None),
        (&[b"3"], None),
        (&[b"sheddable_plus"], None),
        (&[b"\"sheddable\""], None),
        (&[b";sheddable"], None),
        (&[b"\xff"], None),
        (&[b""], None),
    ];
    for (lines, expected) in cases {
        let request = with_lines(Some("192.0.2.7"), lines);
        let read = CriticalityHeader::new().read(Head::of(&request));
        assert_eq!(read, expected, "{lines:?}");
    }
    assert_eq!(CriticalityHeader::new().read(Head::of(&get("/x"))), None);
}

#[test]
fn a_field_of_another_name_is_read_alone() {
    let own = CriticalityHeader::named(HeaderName::from_static("x-importance"));
    let mut request = with_lines(None, &[b"sheddable"]);
    assert_eq!(own.read(Head::of(&request)), None);
    let value = HeaderValue::from_static("sheddable-plus");
    request.headers_mut().insert("x-importance", value);
    assert_eq!(own.read(Head::of(&request)), Some(SheddablePlus));
    assert_eq!(
        CriticalityHeader::new().read(Head::of(&request)),
        Some(Sheddable)
    );
}
