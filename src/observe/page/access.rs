//! Access: the callers that may look at the page, and those that may read the engine's state.
//!
//! Three questions, asked in this order: under which name the page was asked for, from where, and
//! with which token. The first one keeps a web site out whose name leads to this server's
//! address: its scripts run in the browser of a permitted caller, and would be local callers.

use std::fmt;
use std::hint::black_box;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::header::{AUTHORIZATION, FORWARDED, HOST, VIA};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request};
use ipnet::IpNet;

use crate::base::invalid::InvalidSetting;
use crate::call::Key;
use crate::clock::Tick;
use crate::key::{ClientIp, Head, KeyExtractor, Nets, PeerIp};
use crate::keyed::KeyedLimiter;

/// Fewest characters of a token.
const LEAST_TOKEN: usize = 16;
/// Most characters of a token.
const MOST_TOKEN: usize = 1_024;
/// Wrong tokens that a caller may send in a minute.
const WRONG_TOKENS: u32 = 10;
/// Callers whose wrong tokens are counted apart. All others share their number.
const CALLERS: u32 = 1_024;

/// The header fields, beside those by name, with which proxies tell whom they speak for.
const FORWARDING: &str = "x-forwarded-";

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// The page has no such name.
    Host,
    /// Nobody knows where the request comes from.
    UnknownPeer,
    /// It comes from elsewhere.
    ForeignPeer,
    /// A proxy on this machine sent it, for anybody.
    Forwarded,
    /// It has no token, or not that one.
    Token,
    /// Too many had another one.
    TooManyTokens,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The names, in lower case, beside addresses and `localhost`.
    hosts: Vec<String>,
    peers: Peers,
    token: Option<Arc<AccessToken>>,
}

/// Where requests may come from.
#[derive(Clone, Debug)]
enum Peers {
    /// This machine; from anywhere, if there is a token.
    Default,
    /// This machine and these networks.
    NumberedRules(Nets),
    Anywhere,
}

/// The text that a caller must present, and how many callers did not.
struct AccessToken {
    text: String,
    wrong: KeyedLimiter,
}

// === impl Access ===

impl Access {
    pub(super) const fn local() -> Self {
        Self {
            hosts: Vec::new(),
            peers: Peers::Default,
            token: None,
        }
    }

    pub(super) fn allow(&mut self, nets: impl IntoIterator<Item = IpNet>) {
        self.peers = Peers::NumberedRules(Nets::new(nets));
    }

    pub(super) fn open(&mut self) {
        self.peers = Peers::Anywhere;
    }

    pub(super) fn host(&mut self, name: &str) -> Result<(), InvalidSetting> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(InvalidSetting::because(format!(
                "host is {name:?}, must be a name without scheme, port and path"
            )));
        }
        self.hosts.push(without_dot(name).to_ascii_lowercase());
        Ok(())
    }

    /// Asks for `text` from `now` on.
    pub(super) fn token(&mut self, text: String, now: Tick) -> Result<(), InvalidSetting> {
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
        let wrong = KeyedLimiter::per_minute(WRONG_TOKENS)
            .window()
            .max_keys(CALLERS)
            .build(now);
        let wrong = wrong.expect("its figures are constant and in range");
        self.token = Some(Arc::new(AccessToken { text, wrong }));
        Ok(())
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether `request` may have the page, which tells nothing of the engine.
    pub(super) fn check_page<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        if !self.is_own_name(request) {
            return Err(AccessDenied::Host);
        }
        let nets = match &self.peers {
            Peers::Anywhere => return Ok(()),
            Peers::Default if self.has_token() => return Ok(()),
            Peers::Default => None,
            Peers::NumberedRules(nets) => Some(nets),
        };
        let peer = PeerIp.client_ip(Head::of(request));
        let peer = peer.ok_or(AccessDenied::UnknownPeer)?;
        if nets.is_some_and(|nets| nets.contain(peer)) {
            return Ok(());
        }
        if !peer.is_loopback() {
            return Err(AccessDenied::ForeignPeer);
        }
        // All that a proxy on this machine passes on would be local.
        if is_forwarded(request.headers()) {
            return Err(AccessDenied::Forwarded);
        }
        Ok(())
    }

    /// Whether `request`, which may have the page, may have the state as well.
    pub(super) fn check_state<B>(
        &self,
        request: &Request<B>,
        now: Tick,
    ) -> Result<(), AccessDenied> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let peer = PeerIp.key(Head::of(request)).unwrap_or(Key::Str(""));
        // Also a caller that knows the token now: else every guess would have its answer.
        if token.wrong.left(now, peer) == 0 {
            return Err(AccessDenied::TooManyTokens);
        }
        let mut given = request.headers().get_all(AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else {
            return Err(AccessDenied::Token);
        };
        if bearer(given).is_some_and(|given| is_same(token.text.as_bytes(), given)) {
            return Ok(());
        }
        match token.wrong.try_acquire(now, peer, 1) {
            Ok(()) => Err(AccessDenied::Token),
            Err(_) => Err(AccessDenied::TooManyTokens),
        }
    }

    /// Whether every name in `request` is one of the page's, and there is one.
    fn is_own_name<B>(&self, request: &Request<B>) -> bool {
        let authority = request.uri().authority().map(Authority::as_str);
        let mut fields = request.headers().get_all(HOST).iter();
        let (field, more) = (fields.next(), fields.next());
        if more.is_some() {
            return false;
        }
        let Ok(field) = field.map(HeaderValue::to_str).transpose() else {
            return false;
        };
        let mut names = authority.into_iter().chain(field).peekable();
        names.peek().is_some() && names.all(|name| self.is_own(name))
    }

    /// Whether `host`, with or without a port, is an address or a name of the page.
    fn is_own(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        if let Some(address) = name.strip_prefix('[') {
            let address = address.strip_suffix(']');
            return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        if name.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = without_dot(name).to_ascii_lowercase();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local || self.hosts.contains(&name)
    }
}

// === impl AccessToken ===

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

/// `host` without its port, if what follows the last colon is one.
fn without_port(host: &str) -> Option<&str> {
    // The colons of an address stand in brackets.
    let after = host.rfind(']').map_or(0, |end| end + 1);
    let Some(colon) = host[after..].find(':') else {
        return Some(host);
    };
    let (name, port) = host.split_at(after + colon);
    let is_port = port[1..].chars().all(|c| c.is_ascii_digit());
    is_port.then_some(name)
}

/// `name` without the dot that may end a full name.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a proxy says that it speaks for somebody else.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|name| {
        name == FORWARDED
            || name == VIA
            || name == "x-real-ip"
            || name.as_str().starts_with(FORWARDING)
    })
}

/// The token in a field such as `Bearer abc`.
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Whether the two are the same, found out in a time that depends on the length of `given` alone.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let mut difference = u8::from(token.len() != given.len());
    for (byte, expected) in given.iter().zip(token.iter().cycle()) {
        difference |= black_box(byte ^ expected);
    }
    black_box(difference) == 0
}
