//! Access: which callers get the page, and which can read the engine's state.
//!
//! Three checks are made, in this order: the host name in the request, the peer's address, and the
//! token. The first check keeps out a web site whose name resolves to this server's address: its
//! scripts run in the browser of a permitted caller, so their requests would pass the second check.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Version};
use ipnet::IpNet;

use crate::base::invalid::InvalidSetting;
use crate::key::{ClientIp, Head, Nets, PeerIp};
use crate::observe::host::{Hosts, is_loopback, names};

/// The minimum length of a token. A token of 16 random characters cannot be guessed.
const LEAST_TOKEN: usize = 16;
/// The maximum length of a token.
const MOST_TOKEN: usize = 1_024;

/// The prefixes of header fields in which proxies and content delivery networks describe a client
/// or its request.
const FROM_PROXIES: [&str; 18] = [
    "akamai-",
    "ali-cdn-",
    "cdn-",
    "cf-",
    "fastly-",
    "fly-",
    "forwarded",
    "true-client-",
    "via",
    "x-akamai-",
    "x-amz",
    "x-appengine-",
    "x-azure-",
    "x-client-",
    "x-envoy-",
    "x-forward",
    "x-original-",
    "x-real-",
];
/// The suffixes of header fields in which proxies describe a client.
const OF_CLIENTS: [&str; 9] = [
    "-for",
    "-proto",
    "client-ip",
    "clientip",
    "connecting-ip",
    "real-ip",
    "remote-addr",
    "remote-ip",
    "source-ip",
];

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// The host name in the request is not a name of the page.
    Host,
    /// The address of the peer is unknown.
    UnknownPeer,
    /// The address of the peer is not permitted.
    ForeignPeer,
    /// A proxy on this machine can have sent the request, on behalf of any client.
    Forwarded,
    /// The request has no token, or a wrong token.
    Token,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Access {
    hosts: Hosts,
    peers: Peers,
    token: Option<AccessToken>,
}

/// The peers that requests are accepted from.
#[derive(Clone, Debug)]
enum Peers {
    /// Only this machine, or any peer if there is a token.
    Default,
    /// This machine and these networks.
    Networks(Nets),
    /// Any peer.
    Anywhere,
}

/// The text that a caller must present. It is too long to be found by guessing.
#[derive(Clone)]
struct AccessToken(Arc<str>);

// === impl Access ===

impl Access {
    /// Permits callers on this machine, without a token.
    pub(super) const fn local() -> Self {
        Self {
            hosts: Hosts::new(),
            peers: Peers::Default,
            token: None,
        }
    }

    /// Permits peers in `nets`, in addition to this machine.
    pub(super) fn allow(&mut self, nets: impl IntoIterator<Item = IpNet>) {
        self.peers = Peers::Networks(Nets::new(nets));
    }

    /// Permits any peer.
    pub(super) fn open(&mut self) {
        self.peers = Peers::Anywhere;
    }

    /// Adds a host name under which requests are accepted.
    pub(super) fn host(&mut self, name: &str) -> Result<(), InvalidSetting> {
        self.hosts.add(name)
    }

    /// Requires the token `text` from callers that read the state.
    pub(super) fn token(&mut self, text: &str) -> Result<(), InvalidSetting> {
        let length = text.chars().count();
        if !(LEAST_TOKEN..=MOST_TOKEN).contains(&length) {
            return Err(InvalidSetting::because(format!(
                "token has {length} characters, must have between {LEAST_TOKEN} and {MOST_TOKEN}"
            )));
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            let problem = "token has blanks, control characters or characters outside of ASCII, \
                           must have none of them";
            return Err(InvalidSetting::because(problem.to_owned()));
        }
        self.token = Some(AccessToken(text.into()));
        Ok(())
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks that `request` is permitted to get the page, which contains nothing of the engine.
    pub(super) fn check_page<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        if !self.hosts.has_names_of(request) {
            return Err(AccessDenied::Host);
        }
        let nets = match &self.peers {
            Peers::Anywhere => return Ok(()),
            Peers::Default if self.has_token() => return Ok(()),
            Peers::Default => None,
            Peers::Networks(nets) => Some(nets),
        };
        let peer = PeerIp.client_ip(Head::of(request));
        let peer = peer.ok_or(AccessDenied::UnknownPeer)?;
        if nets.is_some_and(|nets| nets.contain(peer)) {
            return Ok(());
        }
        if !peer.is_loopback() {
            return Err(AccessDenied::ForeignPeer);
        }
        // The peer is on this machine, and can be a proxy for a client elsewhere. A local caller
        // asks for a loopback name; a proxy usually sends HTTP/1.0, another name, or header fields
        // about its client.
        let is_direct = request.version() >= Version::HTTP_11
            && names(request).flatten().all(is_loopback)
            && !is_forwarded(request.headers());
        if is_direct {
            Ok(())
        } else {
            Err(AccessDenied::Forwarded)
        }
    }

    /// Checks that `request`, which is permitted to get the page, is also permitted to read the
    /// state.
    pub(super) fn check_state<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        let Some(AccessToken(token)) = &self.token else {
            return Ok(());
        };
        let mut given = request.headers().get_all(AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else {
            return Err(AccessDenied::Token);
        };
        let is_right = bearer(given).is_some_and(|given| is_same(token.as_bytes(), given));
        is_right.then_some(()).ok_or(AccessDenied::Token)
    }
}

// === impl AccessToken ===

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

/// Returns whether `headers` has a field in which a proxy describes its client.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(HeaderName::as_str);
    names.any(|name| {
        FROM_PROXIES.iter().any(|start| name.starts_with(start))
            || OF_CLIENTS.iter().any(|end| name.ends_with(end))
    })
}

/// Returns the token in a field value such as `Bearer abc`.
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Returns whether `given` is the token, in a time that depends only on the length of `given`.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(token.len() != given.len());
    for (byte, expected) in given.iter().zip(token.iter().cycle()) {
        difference |= black_box(byte ^ expected);
    }
    black_box(difference) == 0
}
