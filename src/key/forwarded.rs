//! Keys from the address of the client as proxies have written it.
//!
//! Anyone can write these headers, so they are used only if it is configured which proxies
//! to trust, and they are read from the right: that end was written by the nearest proxy.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::header::unquoted;
use super::ip::{ClientIp, IPV6_PREFIX, cut_ip, peer};
use super::nets::Nets;
use super::{Head, KeyExtractor};
use crate::call::{Key, canonical};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address as proxies have written it into headers.
///
/// Say which proxies to trust, by their addresses or by their number. If the headers cannot be
/// trusted or understood, the peer of the connection is the key, so a client cannot choose its own
/// key.
///
/// So [`behind`](Self::behind) needs the address of the peer, as [`PeerIp`](super::PeerIp) does:
/// without connect info, it finds no key for any request. The peer of a Unix socket has no address
/// either: use [`hops`](Self::hops) there.
///
/// Empty elements of a list are ignored, as in `192.0.2.7, ,`. A client that is written with an
/// IPv4 address [inside of an IPv6 address](super::cut_ip) is known by the IPv4 address.
///
/// Fields with one address, such as `X-Real-IP` or `CF-Connecting-IP`, are not read. Let an earlier
/// layer insert the address as a [`ClientAddr`](super::ClientAddr), for `PeerIp`. Do not read it by
/// [`Header`](super::Header): there it is a text, and a client with an IPv6 network has a key for
/// each address in it.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{ClientAddr, ForwardedIp};
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // Behind load balancers in 10.0.0.0/8. Behind exactly one proxy that appends to
/// // the field, use `ForwardedIp::hops(1)`.
/// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 1))
///     .param(ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |field: &str| {
///     let proxy = ClientAddr("10.0.0.1:4000".parse().unwrap());
///     let request = Request::get("/search").header("x-forwarded-for", field).extension(proxy);
///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
/// };
/// assert_eq!(status("192.0.2.7").await, StatusCode::OK);
/// // What a client writes itself does not change its key.
/// assert_eq!(status("192.0.2.8, 192.0.2.7").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("192.0.2.8").await, StatusCode::OK);
/// # });
/// ```
#[doc(alias("X-Forwarded-For", "Forwarded", "SmartIpKeyExtractor"))]
#[derive(Clone, Debug)]
pub struct ForwardedIp {
    trust: Trust,
    field: HeaderOfChain,
    ipv6_prefix: u8,
}

#[derive(Clone, Debug)]
enum Trust {
    /// Proxies with addresses in these networks.
    Nets(Nets),
    /// This number of proxies, counted from the right.
    Hops(usize),
}

#[derive(Clone, Copy, Debug)]
enum HeaderOfChain {
    XForwardedFor,
    Forwarded,
}

impl ForwardedIp {
    /// Trusts proxies in `nets`. If the peer is one of them, the key is the first address from the
    /// right that is not in `nets`, or the leftmost address if all are. An IPv4 network may also be
    /// written as an IPv6 network [with IPv4 inside](super::cut_ip).
    #[must_use]
    pub fn behind(nets: impl IntoIterator<Item = IpNet>) -> Self {
        Self::trusting(Trust::Nets(Nets::new(nets)))
    }

    /// Trusts the last `hops` proxies: the key is that many addresses from the right. If there are
    /// fewer addresses, or if `hops` is 0, the key is the peer.
    ///
    /// Use this only if clients cannot reach the server without passing the proxies.
    #[must_use]
    pub fn hops(hops: usize) -> Self {
        Self::trusting(Trust::Hops(hops))
    }

    fn trusting(trust: Trust) -> Self {
        Self {
            trust,
            field: HeaderOfChain::XForwardedFor,
            ipv6_prefix: IPV6_PREFIX,
        }
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`. The port of an address may be
    /// obfuscated, as in `192.0.2.7:_http`; an obfuscated address, or `unknown`, counts as no
    /// address.
    #[must_use]
    pub fn rfc7239(mut self) -> Self {
        self.field = HeaderOfChain::Forwarded;
        self
    }

    /// Sets how many leading bits distinguish IPv6 addresses; at most 128.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// Returns the full address that the key is made of: the address of the client, or of the
    /// peer if the headers cannot be trusted or understood; `None` if the peer is not known
    /// either. In contrast, [`client_ip`](ClientIp::client_ip) returns `None` where the client
    /// is not known and the key is the peer.
    ///
    /// ```
    /// use http::Request;
    /// use tower_sentinel::Key;
    /// use tower_sentinel::key::{ClientAddr, ForwardedIp, Head, KeyExtractor};
    ///
    /// let extractor = ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]);
    /// let request = Request::get("/")
    ///     .extension(ClientAddr("10.0.0.1:4000".parse().unwrap()))
    ///     .header("x-forwarded-for", "2001:db8:1:2::a")
    ///     .body(())?;
    /// let head = Head::of(&request);
    /// assert_eq!(extractor.address(head), Some("2001:db8:1:2::a".parse().unwrap()));
    /// assert_eq!(extractor.key(head), Some(Key::Ip("2001:db8:1:2::".parse().unwrap())));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn address(&self, head: Head<'_>) -> Option<IpAddr> {
        let peer = peer(head.extensions());
        self.client(head.headers(), peer).or(peer)
    }

    /// Returns the client's address; `None` if the headers cannot be trusted or understood.
    fn client(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<IpAddr> {
        match &self.trust {
            Trust::Hops(0) => peer,
            Trust::Hops(hops) => self.addresses(headers).nth(hops - 1)?,
            Trust::Nets(nets) => {
                // Without a known peer, no proxy is trusted.
                let mut client = peer?;
                if !nets.contain(client) {
                    return Some(client);
                }
                let mut addresses = self.addresses(headers).peekable();
                if addresses.peek().is_none() && headers.contains_key(self.field.name()) {
                    // A trusted proxy has written the field, but no address.
                    return None;
                }
                for address in addresses {
                    // An element that is no address ends the walk: beyond it any client may have
                    // written anything.
                    client = address?;
                    if !nets.contain(client) {
                        break;
                    }
                }
                Some(client)
            }
        }
    }

    /// Returns the addresses over all lines of the field, from the right; `None` for an element
    /// that is no address.
    fn addresses<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + 'a {
        let parse: fn(&str) -> Option<IpAddr> = match self.field {
            HeaderOfChain::XForwardedFor => address,
            HeaderOfChain::Forwarded => forwarded_for,
        };
        headers
            .get_all(self.field.name())
            .iter()
            .rev()
            .flat_map(|line: &HeaderValue| parts(line.as_bytes(), b','))
            .map(<[u8]>::trim_ascii)
            // An empty element of a list does not count (RFC 9110, 5.6.1.2).
            .filter(|element| !element.is_empty())
            .map(move |element| parse(std::str::from_utf8(element).ok()?))
    }
}

impl HeaderOfChain {
    const fn name(self) -> HeaderName {
        match self {
            HeaderOfChain::XForwardedFor => X_FORWARDED_FOR,
            HeaderOfChain::Forwarded => FORWARDED,
        }
    }
}

impl KeyExtractor for ForwardedIp {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let ip = self.address(head)?;
        Some(Key::Ip(cut_ip(ip, self.ipv6_prefix)))
    }
}

/// If the headers cannot be understood, the client is unknown. The key is then the peer, which is a
/// proxy and not the client.
impl ClientIp for ForwardedIp {
    fn client_ip(&self, head: Head<'_>) -> Option<IpAddr> {
        self.client(head.headers(), peer(head.extensions()))
    }
}

/// Returns an address with or without a port, brackets and quotes.
fn address(text: &str) -> Option<IpAddr> {
    unquoted_address(unquoted(text))
}

fn unquoted_address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let ip: IpAddr = text
        .parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
        .or_else(bracketed)?;
    Some(canonical(ip))
}

/// Returns the address in the `for` parameter of an element of `Forwarded`; `None` unless there is
/// exactly one.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut values = parts(element.as_bytes(), b';').filter_map(|parameter| {
        let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value)
    });
    let only = values.next()?;
    let node = without_hidden_port(unquoted(only.trim()));
    values.next().is_none().then(|| unquoted_address(node))?
}

/// Returns `node` without a port that the proxy has obfuscated, such as `_http`.
fn without_hidden_port(node: &str) -> &str {
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match node.rsplit_once(":_") {
        Some((address, name)) if !name.is_empty() && name.bytes().all(is_of_a_name) => address,
        _ => node,
    }
}

/// Splits `text` at separators, from the right, except at those in quoted strings: a proxy can
/// write values of the client into them, such as its host. The right end was written by the proxy
/// itself, so quotes are matched from there, and nothing to the left of an element changes how it
/// is read.
fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let is_end = |&(at, &byte): &(usize, &u8)| {
            if byte == b'"' {
                let before = text[..at].iter().rev();
                let escapes = before.take_while(|byte| **byte == b'\\').count();
                // From the right, a quote begins a string, and an unescaped quote ends it.
                is_quoted = !is_quoted || escapes % 2 == 1;
            }
            byte == separator && !is_quoted
        };
        let end = text.iter().enumerate().rev().find(is_end);
        let (left, part) = match end {
            Some((at, _)) => (Some(&text[..at]), &text[at + 1..]),
            None => (None, text),
        };
        rest = left;
        Some(part)
    })
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::key::ClientAddr;

    fn request(peer: Option<&str>, lines: &[(&str, &str)]) -> http::Request<()> {
        let mut request = http::Request::new(());
        if let Some(peer) = peer {
            let peer = SocketAddr::new(peer.parse().unwrap(), 1234);
            request.extensions_mut().insert(ClientAddr(peer));
        }
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request
                .headers_mut()
                .append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request
    }

    fn key_of(extractor: &impl KeyExtractor, request: &http::Request<()>) -> Option<String> {
        extractor.key(Head::of(request)).map(|key| key.to_string())
    }

    const XFF: &str = "x-forwarded-for";

    /// A peer, the lines of the header, and the key.
    type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], Option<&'a str>);

    #[test]
    fn the_walk_goes_from_the_right_over_all_lines_and_stops_at_an_untrusted_address() {
        let nets = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let extractor = ForwardedIp::behind(nets);
        let cases: &[Case] = &[
            // The client wrote the leftmost address.
            (
                Some("10.0.0.1"),
                &[(XFF, "6.6.6.6, 1.2.3.4")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "6.6.6.6, 1.2.3.4, 10.0.0.2")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "6.6.6.6"), (XFF, "1.2.3.4 ,10.0.0.2")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4:55, 10.0.0.2:80")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "::ffff:1.2.3.4")],
                Some("1.2.3.4"),
            ),
            (
                Some("::ffff:10.0.0.1"),
                &[(XFF, "1.2.3.4")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "[2001:db8::1:2]:99, fd00::1")],
                Some("2001:db8::"),
            ),
            // If all addresses are trusted proxies, the leftmost address counts.
            (
                Some("10.0.0.1"),
                &[(XFF, "10.0.0.9, 10.0.0.2")],
                Some("10.0.0.9"),
            ),
            // The peer is no trusted proxy, so the header is ignored.
            (Some("9.9.9.9"), &[(XFF, "1.2.3.4")], Some("9.9.9.9")),
            (None, &[(XFF, "1.2.3.4")], None),
            // An element that is no address is not skipped: it ends the walk.
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4, unknown, 10.0.0.2")],
                Some("10.0.0.1"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4, _hidden")],
                Some("10.0.0.1"),
            ),
            // Empty elements and lines do not count, wherever they are.
            (Some("10.0.0.1"), &[(XFF, "1.2.3.4,")], Some("1.2.3.4")),
            (Some("10.0.0.1"), &[(XFF, ",1.2.3.4")], Some("1.2.3.4")),
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4, ,\t,, 10.0.0.2 , ")],
                Some("1.2.3.4"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4"), (XFF, ""), (XFF, "10.0.0.2"), (XFF, ", ")],
                Some("1.2.3.4"),
            ),
            (Some("10.0.0.1"), &[(XFF, ", ,")], Some("10.0.0.1")),
            // But an element in quotes does count.
            (
                Some("10.0.0.1"),
                &[(XFF, "1.2.3.4, \"\"")],
                Some("10.0.0.1"),
            ),
            (
                Some("10.0.0.1"),
                &[(XFF, "64:ff9b::1.2.3.4, 64:ff9b::10.0.0.2")],
                Some("1.2.3.4"),
            ),
            (
                Some("64:ff9b::10.0.0.1"),
                &[(XFF, "[::ffff:0:1.2.3.4]:55")],
                Some("1.2.3.4"),
            ),
            (Some("10.0.0.1"), &[(XFF, "fe80::1%eth0")], Some("10.0.0.1")),
            (Some("10.0.0.1"), &[(XFF, "\u{e9}")], Some("10.0.0.1")),
            (Some("10.0.0.1"), &[], Some("10.0.0.1")),
            // The other field is not read.
            (
                Some("10.0.0.1"),
                &[("forwarded", "for=1.2.3.4")],
                Some("10.0.0.1"),
            ),
        ];
        for (peer, lines, expected) in cases {
            let request = request(*peer, lines);
            assert_eq!(
                key_of(&extractor, &request).as_deref(),
                *expected,
                "{peer:?} {lines:?}"
            );
        }
    }

    #[test]
    fn a_proxy_network_may_be_written_as_mapped_into_ipv6() {
        let extractor = ForwardedIp::behind(["::ffff:10.0.0.0/104".parse().unwrap()]);
        let request = request(Some("::ffff:10.0.0.1"), &[(XFF, "1.2.3.4, 10.0.0.2")]);
        assert_eq!(key_of(&extractor, &request).as_deref(), Some("1.2.3.4"));
    }

    #[test]
    fn hops_count_from_the_right_and_a_short_field_gives_the_peer() {
        let cases: &[(usize, &str, &str)] = &[
            (0, "1.1.1.1", "9.9.9.9"),
            (1, "6.6.6.6, 1.2.3.4", "1.2.3.4"),
            (2, "1.2.3.4, 5.5.5.5", "1.2.3.4"),
            (3, "1.2.3.4, 5.5.5.5", "9.9.9.9"),
            (1, "1.2.3.4, junk", "9.9.9.9"),
            (1, "6.6.6.6, 1.2.3.4, ,", "1.2.3.4"),
            (2, "6.6.6.6, 1.2.3.4, , 5.5.5.5,", "1.2.3.4"),
            (3, "1.2.3.4,, 5.5.5.5", "9.9.9.9"),
        ];
        for &(hops, line, expected) in cases {
            let request = request(Some("9.9.9.9"), &[(XFF, line)]);
            let key = key_of(&ForwardedIp::hops(hops), &request);
            assert_eq!(key.as_deref(), Some(expected), "{hops} {line}");
        }
    }

    #[test]
    fn over_a_unix_socket_only_hops_know_the_client() {
        let request = request(None, &[(XFF, "6.6.6.6, 1.2.3.4")]);
        let behind = ForwardedIp::behind(["0.0.0.0/0".parse().unwrap()]);
        assert_eq!(key_of(&behind, &request), None);
        let hops = key_of(&ForwardedIp::hops(1), &request);
        assert_eq!(hops.as_deref(), Some("1.2.3.4"));
    }

    #[test]
    fn forwarded_is_read_by_its_for_parameter() {
        let extractor = ForwardedIp::hops(1).rfc7239().ipv6_prefix(128);
        let cases = [
            ("for=1.2.3.4;proto=https", "1.2.3.4"),
            ("for=6.6.6.6, by=10.0.0.1; For=\"1.2.3.4:80\"", "1.2.3.4"),
            ("for=\"[2001:db8::17]:4711\"", "2001:db8::17"),
            // A hidden port does not hide the address.
            ("for=\"1.2.3.4:_http\"", "1.2.3.4"),
            ("for=\"[2001:db8::17]:_a.b_-1\"", "2001:db8::17"),
            ("for=\"1.2.3.4:_\"", "9.9.9.9"),
            ("for=\"1.2.3.4:_a b\"", "9.9.9.9"),
            ("for=\"1.2.3.4:80:_a\"", "1.2.3.4"),
            ("for=\"unknown:_http\"", "9.9.9.9"),
            ("for=unknown", "9.9.9.9"),
            ("for=_secret", "9.9.9.9"),
            ("proto=https", "9.9.9.9"),
            ("for=\"1.2.3.4", "9.9.9.9"),
            ("for=6.6.6.6;for=1.2.3.4", "9.9.9.9"),
            ("for=6.6.6.6, for=1.2.3.4,", "1.2.3.4"),
            ("for=1.2.3.4;, ,", "1.2.3.4"),
            // An element without a `for` means that the client is unknown.
            ("for=1.2.3.4, ;", "9.9.9.9"),
            ("for=\"[64:ff9b::c000:207]:80\"", "192.0.2.7"),
            // Values that a client sends as its host, or before the proxy's element.
            ("for=1.2.3.4;host=\"a,for=6.6.6.6;b=\"", "1.2.3.4"),
            ("for=1.2.3.4;host=\"a,for=6.6.6.6;b=\\\"c\"", "1.2.3.4"),
            ("for=1.2.3.4;host=\"a,for=6.6.6.6;b=\\\\\\\"c\"", "1.2.3.4"),
            ("for=1.2.3.4;host=\"a;for=6.6.6.6;b=\\\\\"", "1.2.3.4"),
            ("for=6.6.6.6;a=\", for=1.2.3.4;host=\"b\"", "1.2.3.4"),
            ("a=\", for=1.2.3.4;host=\",for=6.6.6.6;b=\\\"c\"", "1.2.3.4"),
        ];
        for (line, expected) in cases {
            let request = request(Some("9.9.9.9"), &[("forwarded", line)]);
            assert_eq!(
                key_of(&extractor, &request).as_deref(),
                Some(expected),
                "{line}"
            );
        }
    }

    #[test]
    fn a_thousand_elements_are_read() {
        let line = vec!["10.0.0.2"; 1_000].join(", ");
        let request = request(Some("10.0.0.1"), &[(XFF, &format!("1.2.3.4, {line}"))]);
        let extractor = ForwardedIp::behind(["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(key_of(&extractor, &request).as_deref(), Some("1.2.3.4"));
    }
}
