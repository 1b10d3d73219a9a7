//! Keys from the address of the client.
//!
//! The address here is the peer of the connection. [`ForwardedIp`](super::ForwardedIp) reads what
//! proxies write about the client instead.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::Extensions;

use super::{Head, KeyExtractor};
use crate::call::{Key, canonical};

/// The number of bits that distinguish IPv6 addresses: one customer usually has a whole /64.
pub(super) const IPV6_PREFIX: u8 = 64;

/// The address of the client, as a request extension for servers that know it in another
/// way, such as from the PROXY protocol. It takes precedence over all other sources.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use std::net::SocketAddr;
/// use tower_sentinel::key::{ClientAddr, PeerIp};
/// use tower_sentinel::{AuthorityRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(AuthorityRule::deny("/search", ["192.0.2.7"]))
///     .origin(PeerIp);
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// // Every connection comes from the balancer, which says who the client is.
/// let balancer: SocketAddr = "10.0.0.1:443".parse().unwrap();
/// let status = async |client: &str| {
///     let client = ClientAddr(client.parse().unwrap());
///     let request = Request::get("/search").extension(balancer).extension(client);
///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
/// };
/// assert_eq!(status("192.0.2.7:4000").await, StatusCode::FORBIDDEN);
/// assert_eq!(status("192.0.2.8:4000").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

/// Finds the full address of a client, whereas a key may stand for a network.
///
/// It is called once for each request, and again if the rules change meanwhile. It must not panic.
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use std::net::IpAddr;
/// use tower_sentinel::key::{ClientIp, Head};
/// use tower_sentinel::middleware::skip;
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// /// The address of the calling pod, which the server adds to each request.
/// #[derive(Clone, Copy)]
/// struct MeshPeer(IpAddr);
///
/// struct Mesh;
///
/// impl ClientIp for Mesh {
///     fn client_ip(&self, head: Head<'_>) -> Option<IpAddr> {
///         head.extensions().get::<MeshPeer>().map(|peer| peer.0)
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let own = "10.1.0.0/16".parse().unwrap();
/// let layer = SentinelLayer::new(FlowRule::per_second("/orders", 0))
///     .skip(skip::nets(Mesh, [own]));
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// let status = async |peer: [u8; 4]| {
///     let request = Request::get("/orders").extension(MeshPeer(peer.into()));
///     service.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
/// };
/// assert_eq!(status([10, 1, 2, 3]).await, StatusCode::OK);
/// assert_eq!(status([10, 9, 2, 3]).await, StatusCode::TOO_MANY_REQUESTS);
/// # });
/// ```
pub trait ClientIp: Send + Sync + 'static {
    /// Returns the address, or `None` if it is not known for sure.
    fn client_ip(&self, head: Head<'_>) -> Option<IpAddr>;
}

/// The address of the peer of the connection.
///
/// It is taken from the request's extensions: [`ClientAddr`], or else axum's
/// `ConnectInfo<SocketAddr>` or, in tests, its `MockConnectInfo` (feature `axum`),
/// or else tonic's connect info, also behind TLS (feature `tonic`), or else a bare
/// [`SocketAddr`].
///
/// # If no address is there
///
/// A request without an address has no key, and **by default all such requests share one quota**:
/// the first few callers use it up for all. Three mistakes cause this:
///
/// * The feature `axum` or `tonic` of this crate is not on.
/// * The axum server is not served with
///   `into_make_service_with_connect_info::<SocketAddr>()`, or with connect info of
///   another type.
/// * The server listens on a Unix socket, whose peers have no address. Let an earlier layer
///   insert a [`ClientAddr`].
///
/// To notice the mistake at the first request, use
/// [`MissingKey::Refuse`](crate::MissingKey::Refuse): a rule with `.missing(MissingKey::Refuse)`
/// answers the request with 403. [`KeyedView::missing`](crate::read::KeyedView::missing) counts
/// requests without an address; if it grows with every call, no address is ever found.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::PeerIp;
/// use tower_sentinel::{KeyedRule, MissingKey, Rules, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let rules = Rules::new()
///     .with(KeyedRule::per_second("/search", 100))
///     .with(KeyedRule::per_second("/login", 5).missing(MissingKey::Refuse));
/// let layer = SentinelLayer::new(rules).param(PeerIp);
/// # let sentinel = layer.sentinel().clone();
/// # let service = layer.layer(service_fn(|_: Request<()>| async {
/// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// # }));
/// // From a server that does not pass the address on:
/// # let status = async |path: &str| {
/// #     let request = Request::get(path).body(()).unwrap();
/// #     service.clone().oneshot(request).await.unwrap().status()
/// # };
/// assert_eq!(status("/search").await, StatusCode::OK);
/// assert_eq!(sentinel.node("/search").unwrap().keyed_rules()[0].missing(), 1);
/// assert_eq!(status("/login").await, StatusCode::FORBIDDEN);
/// # });
/// ```
///
/// # Which addresses share a key
///
/// IPv6 addresses are distinguished by their first 64 bits. A client that is seen under an
/// IPv6 address with an IPv4 address inside, such as one behind NAT64, is known by the IPv4
/// address; see [`cut_ip`]. [`ipv6_prefix`](Self::ipv6_prefix) sets another number of bits.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{ClientAddr, PeerIp};
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(KeyedRule::per_second("/search", 1)).param(PeerIp);
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |peer: &str| {
///     let peer = ClientAddr(peer.parse().unwrap());
///     let request = Request::get("/search").extension(peer).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("192.0.2.7:4000").await, StatusCode::OK);
/// assert_eq!(status("192.0.2.7:4001").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("[2001:db8::1]:4000").await, StatusCode::OK);
/// // The same network.
/// assert_eq!(status("[2001:db8::2]:4000").await, StatusCode::TOO_MANY_REQUESTS);
/// # });
/// ```
#[doc(alias("ConnectInfo", "PeerIpKeyExtractor"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerIp;

/// [`PeerIp`] with another number of leading bits of IPv6 addresses than 64.
#[derive(Clone, Copy, Debug)]
struct PeerNetwork {
    ipv6_prefix: u8,
}

impl PeerIp {
    /// Returns an extractor of the same address that distinguishes IPv6 addresses by `bits`
    /// leading bits instead of 64; at most 128.
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::key::{ClientAddr, PeerIp};
    /// use tower_sentinel::{KeyedRule, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// // What a provider gives to one customer.
    /// let customer = PeerIp.ipv6_prefix(48);
    /// let layer = SentinelLayer::new(KeyedRule::per_minute("/login", 1)).param(customer);
    /// # let service = layer.layer(service_fn(|_: Request<()>| async {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    /// # }));
    /// # let status = async |peer: &str| {
    /// #     let peer = ClientAddr(peer.parse().unwrap());
    /// #     let request = Request::post("/login").extension(peer).body(()).unwrap();
    /// #     service.clone().oneshot(request).await.unwrap().status()
    /// # };
    /// assert_eq!(status("[2001:db8:1:2::1]:4000").await, StatusCode::OK);
    /// assert_eq!(status("[2001:db8:1:3::1]:4000").await, StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!(status("[2001:db8:2:2::1]:4000").await, StatusCode::OK);
    /// # });
    /// ```
    #[must_use]
    pub const fn ipv6_prefix(self, bits: u8) -> impl KeyExtractor + ClientIp + Copy + fmt::Debug {
        let ipv6_prefix = if bits > 128 { 128 } else { bits };
        PeerNetwork { ipv6_prefix }
    }
}

impl KeyExtractor for PeerIp {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        self.ipv6_prefix(IPV6_PREFIX).key(head)
    }

    fn reads_peer(&self) -> bool {
        true
    }
}

impl ClientIp for PeerIp {
    fn client_ip(&self, head: Head<'_>) -> Option<IpAddr> {
        peer(head.extensions())
    }
}

impl KeyExtractor for PeerNetwork {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let ip = self.client_ip(head)?;
        Some(Key::Ip(cut_ip(ip, self.ipv6_prefix)))
    }

    fn reads_peer(&self) -> bool {
        true
    }
}

/// Returns the full address.
impl ClientIp for PeerNetwork {
    fn client_ip(&self, head: Head<'_>) -> Option<IpAddr> {
        peer(head.extensions())
    }
}

/// Returns `ip` as the keys of addresses have it: the IPv4 address inside of it if there is
/// one, or else an IPv6 address with all bits after the first `ipv6_prefix` set to 0. An
/// IPv4 address stays as it is. [`PeerIp`] and [`ForwardedIp`](super::ForwardedIp) cut to 64
/// bits, unless set otherwise; 128 or more cuts nothing.
///
/// An IPv4 address is inside of the IPv6 addresses of `::ffff:0:0/96` (sockets for both
/// versions), `::ffff:0:0:0/96` and `64:ff9b::/96` (translators: SIIT and NAT64). If a
/// translator has a prefix of its own, let an earlier layer insert the IPv4 address as a
/// [`ClientAddr`].
///
/// Use it for an address that you give to a [`Call`](crate::Call) yourself. Otherwise a client with
/// an IPv6 network has a quota for each address in it.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tower_sentinel::key::cut_ip;
/// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(KeyedRule::per_second("login", 1))
///     .clock(ManualClock::new())
///     .build();
/// let passes = |ip: &str| {
///     let ip: IpAddr = ip.parse().unwrap();
///     let call = Call::new("login").param(cut_ip(ip, 64));
///     matches!(sentinel.try_enter(call), Verdict::Pass(_))
/// };
/// assert!(passes("2001:db8:1:2::a"));
/// assert!(!passes("2001:db8:1:2::b")); // the same network
/// assert!(passes("2001:db8:1:3::a"));
/// assert!(passes("192.0.2.7"));
/// assert!(!passes("64:ff9b::192.0.2.7")); // the same client, behind a translator
/// assert!(passes("64:ff9b::192.0.2.8"));
/// ```
#[must_use]
pub fn cut_ip(ip: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match canonical(ip) {
        IpAddr::V6(ip) if ipv6_prefix < 128 => {
            let mask = !(u128::MAX >> ipv6_prefix);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
        ip => ip,
    }
}

/// Returns the connection's peer, from the best source that has it.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let addr = extensions.get::<ClientAddr>().map(|addr| addr.0);
    #[cfg(feature = "axum")]
    let addr = addr.or_else(|| {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        let info = extensions.get().map(|ConnectInfo(addr)| *addr);
        // Tests without a server insert a `MockConnectInfo`, and axum's own extractor reads it too.
        info.or_else(|| extensions.get().map(|MockConnectInfo(addr)| *addr))
    });
    #[cfg(feature = "tonic")]
    let addr = addr.or_else(|| {
        extensions
            .get::<tonic::transport::server::TcpConnectInfo>()?
            .remote_addr()
    });
    let addr = addr.or_else(|| extensions.get::<SocketAddr>().copied());
    addr.map(|addr| canonical(addr.ip()))
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_network_or_the_ipv4_address_inside() {
        let cases = [
            ("192.0.2.7", 64, "192.0.2.7"),
            ("192.0.2.7", 0, "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::"),
            ("2001:db8:1:2:3:4:5:6", 0, "::"),
            ("2001:db8:1:2:3:4:5:6", 127, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:7", 127, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:7", 128, "2001:db8:1:2:3:4:5:7"),
            ("2001:db8:1:2:3:4:5:7", 255, "2001:db8:1:2:3:4:5:7"),
            // With any prefix, not a bit of the address inside is cut.
            ("::ffff:192.0.2.7", 64, "192.0.2.7"),
            ("::ffff:0:192.0.2.7", 64, "192.0.2.7"),
            ("64:ff9b::192.0.2.7", 64, "192.0.2.7"),
            ("64:ff9b::c000:207", 0, "192.0.2.7"),
            ("64:ff9b::192.0.2.7", 128, "192.0.2.7"),
            ("64:ff9b::255.255.255.255", 64, "255.255.255.255"),
            // One bit different from each of the three prefixes.
            ("::fffe:192.0.2.7", 64, "::"),
            ("::1:ffff:192.0.2.7", 64, "::"),
            ("::fffe:0:192.0.2.7", 64, "::"),
            ("::1:ffff:0:192.0.2.7", 64, "0:0:0:1::"),
            ("64:ff9a::192.0.2.7", 64, "64:ff9a::"),
            ("65:ff9b::192.0.2.7", 64, "65:ff9b::"),
            ("64:ff9b::1:0:192.0.2.7", 64, "64:ff9b::"),
            ("64:ff9b::1:192.0.2.7", 64, "64:ff9b::"),
            // For use within a site: only the site knows where the address is in it.
            ("64:ff9b:1::192.0.2.7", 64, "64:ff9b:1::"),
            ("::1", 128, "::1"),
        ];
        for (ip, prefix, expected) in cases {
            let [ip, expected] = [ip, expected].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(cut_ip(ip, prefix), expected, "{ip}/{prefix}");
        }
    }

    #[test]
    fn ipv6_clients_are_distinguished_by_their_network() {
        let of = |ip: &str, bits| {
            let mut request = http::Request::new(());
            let peer = SocketAddr::new(ip.parse().unwrap(), 1234);
            request.extensions_mut().insert(ClientAddr(peer));
            let extractor = PeerIp.ipv6_prefix(bits);
            extractor.key(Head::of(&request)).unwrap().to_string()
        };
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 48), "2001:db8:1::");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 0), "::");
        assert_eq!(of("::ffff:1.2.3.4", 64), "1.2.3.4");
        assert_eq!(of("64:ff9b::1.2.3.4", 64), "1.2.3.4");
    }

    #[test]
    fn the_best_source_of_the_peer_wins() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut extensions = Extensions::new();
        assert_eq!(peer(&extensions), None);
        extensions.insert(addr("1.1.1.1:1"));
        assert_eq!(peer(&extensions), Some(addr("1.1.1.1:1").ip()));
        #[cfg(feature = "axum")]
        {
            use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
            extensions.insert(MockConnectInfo(addr("4.4.4.4:4")));
            assert_eq!(peer(&extensions), Some(addr("4.4.4.4:4").ip()));
            extensions.insert(ConnectInfo(addr("2.2.2.2:2")));
            assert_eq!(peer(&extensions), Some(addr("2.2.2.2:2").ip()));
        }
        extensions.insert(ClientAddr(addr("3.3.3.3:3")));
        assert_eq!(peer(&extensions), Some(addr("3.3.3.3:3").ip()));
    }
}
