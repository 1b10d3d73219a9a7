//! Keys from the address of the client.
//!
//! That is the peer of the connection; what proxies write about it is read by another
//! extractor.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::Extensions;

use super::{Head, KeyExtractor};
use crate::call::Key;

/// Addresses of IPv6 are told apart by this many bits: one customer usually has
/// a whole /64.
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
///     .origin(PeerIp::new());
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
/// It is called once for each request, again if the rules change meanwhile, and must not panic.
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
/// Then the request has no key, and **by default all such requests share one quota**:
/// the first few callers use it up for everybody. Three mistakes lead there:
///
/// * The feature `axum` or `tonic` of this crate is not on.
/// * The axum server is not served with
///   `into_make_service_with_connect_info::<SocketAddr>()`, or with connect info of
///   another type.
/// * The server listens on a Unix socket, whose peers have no address. Let an earlier layer
///   insert a [`ClientAddr`].
///
/// To notice the mistake at the first request, use
/// [`MissingKey::Refuse`](crate::MissingKey::Refuse): a rule with
/// `.missing(MissingKey::Refuse)` answers it with 403.
/// [`HotParamView::missing`](crate::HotParamView::missing) counts such requests; if it
/// grows with every call, no address is ever found.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::PeerIp;
/// use tower_sentinel::{FlowRule, MissingKey, Rules, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let rules = Rules::new()
///     .with(FlowRule::per_second("/search", 100).by_origin())
///     .with(FlowRule::per_second("/login", 5).by_origin().missing(MissingKey::Refuse));
/// let layer = SentinelLayer::new(rules).origin(PeerIp::new());
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
/// assert_eq!(sentinel.node("/search").unwrap().hot_params()[0].missing(), 1);
/// assert_eq!(status("/login").await, StatusCode::FORBIDDEN);
/// # });
/// ```
///
/// # Which addresses share a key
///
/// IPv6 addresses are distinguished by their first 64 bits. IPv4 addresses that are mapped
/// into IPv6 count as the IPv4 addresses.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::{ClientAddr, PeerIp};
/// use tower_sentinel::{FlowRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = SentinelLayer::new(FlowRule::per_second("/search", 1).by_origin())
///     .origin(PeerIp::new());
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
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    ipv6_prefix: u8,
}

impl PeerIp {
    /// Creates the extractor, with IPv6 addresses grouped by /64.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ipv6_prefix: IPV6_PREFIX,
        }
    }

    /// Sets how many leading bits distinguish IPv6 addresses; at most 128.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }
}

impl Default for PeerIp {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyExtractor for PeerIp {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        self.client_ip(head)
            .map(|ip| Key::Ip(grouped(ip, self.ipv6_prefix)))
    }
}

impl ClientIp for PeerIp {
    fn client_ip(&self, head: Head<'_>) -> Option<IpAddr> {
        peer(head.extensions())
    }
}

/// The connection's peer, from the best source that is there.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let addr = extensions.get::<ClientAddr>().map(|addr| addr.0);
    #[cfg(feature = "axum")]
    let addr = addr.or_else(|| {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        let info = extensions.get().map(|ConnectInfo(addr)| *addr);
        // A test without a server has this one, as axum's own extractor does.
        info.or_else(|| extensions.get().map(|MockConnectInfo(addr)| *addr))
    });
    #[cfg(feature = "tonic")]
    let addr = addr.or_else(|| {
        extensions
            .get::<tonic::transport::server::TcpConnectInfo>()?
            .remote_addr()
    });
    let addr = addr.or_else(|| extensions.get::<SocketAddr>().copied());
    addr.map(|addr| addr.ip().to_canonical())
}

/// `ip` without the bits of IPv6 that tell no clients apart.
pub(super) fn grouped(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V6(ip) if prefix < 128 => {
            let mask = !(u128::MAX >> prefix);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
        ip => ip,
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ipv6_clients_are_told_apart_by_their_network() {
        let of = |ip: &str, bits| {
            let mut request = http::Request::new(());
            let peer = SocketAddr::new(ip.parse().unwrap(), 1234);
            request.extensions_mut().insert(ClientAddr(peer));
            let extractor = PeerIp::new().ipv6_prefix(bits);
            extractor.key(Head::of(&request)).unwrap().to_string()
        };
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 48), "2001:db8:1::");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(of("2001:db8:1:2:3:4:5:6", 0), "::");
        assert_eq!(of("::ffff:1.2.3.4", 64), "1.2.3.4");
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
