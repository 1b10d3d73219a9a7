//! Compares the host names in requests with a server's own names.
//!
//! A web site can make its own name resolve to this server (DNS rebinding). Its scripts then run in
//! the browser of a permitted caller and can read the answers, unless the server checks the name in
//! the request.

use std::net::{IpAddr, Ipv6Addr};

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Request};

use crate::base::invalid::InvalidSetting;
#[cfg(feature = "page")]
use crate::call::canonical;

/// The names of a service, in lower case. Addresses and `localhost` are always among its names.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Vec<String>);

/// The name of a server, without its port.
enum HostName {
    Address(
        #[cfg_attr(
            not(feature = "page"),
            expect(dead_code, reason = "the page asks which machine it is")
        )]
        IpAddr,
    ),
    /// A host name, in lower case.
    Name(String),
}

// === impl Hosts ===

impl Hosts {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a name.
    ///
    /// # Errors
    ///
    /// If `name` is not a host name.
    pub(super) fn add(&mut self, name: &str) -> Result<(), InvalidSetting> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(InvalidSetting::because(format!(
                "host is {name:?}, must be a name without scheme, port and path"
            )));
        }
        self.0.push(without_dot(name).to_ascii_lowercase());
        Ok(())
    }

    /// Returns whether `request` has at least one name, at most one header `Host`, and only names
    /// of this service.
    pub(super) fn has_names_of<B>(&self, request: &Request<B>) -> bool {
        let mut names = names(request).peekable();
        names.peek().is_some()
            && request.headers().get_all(HOST).iter().count() <= 1
            && names.all(|name| name.is_some_and(|name| self.is_own(name)))
    }

    /// Returns whether `host`, with or without a port, is an address, `localhost` or one of the
    /// names.
    fn is_own(&self, host: &str) -> bool {
        match host_of(host) {
            Some(HostName::Address(_)) => true,
            Some(HostName::Name(name)) => is_localhost(&name) || self.0.contains(&name),
            None => false,
        }
    }
}

/// Returns the address or the name in `host`, without its port; `None` if it is malformed.
fn host_of(host: &str) -> Option<HostName> {
    let name = without_port(host)?;
    if let Some(address) = name.strip_prefix('[') {
        let address = address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
        return Some(HostName::Address(address.into()));
    }
    Some(match name.parse() {
        Ok(address) => HostName::Address(address),
        Err(_) => HostName::Name(without_dot(name).to_ascii_lowercase()),
    })
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns whether `host`, with or without a port, is `localhost` or a loopback address.
#[cfg(feature = "page")]
pub(super) fn is_loopback(host: &str) -> bool {
    match host_of(host) {
        Some(HostName::Address(address)) => canonical(address).is_loopback(),
        Some(HostName::Name(name)) => is_localhost(&name),
        None => false,
    }
}

/// Iterates over the host names in `request`, from its target and its `Host` headers. `None` stands
/// for a name that is not text.
pub(super) fn names<B>(request: &Request<B>) -> impl Iterator<Item = Option<&str>> {
    let authority = request.uri().authority().map(Authority::as_str);
    let fields = request.headers().get_all(HOST).iter();
    let fields = fields.map(|field: &HeaderValue| field.to_str().ok());
    authority.map(Some).into_iter().chain(fields)
}

/// Returns `host` without its port; `None` if something else follows the colon.
fn without_port(host: &str) -> Option<&str> {
    // The colons of an IPv6 address are inside brackets.
    let after = host.rfind(']').map_or(0, |end| end + 1);
    let Some(colon) = host[after..].find(':') else {
        return Some(host);
    };
    let (name, port) = host.split_at(after + colon);
    let is_port = port[1..].chars().all(|c| c.is_ascii_digit());
    is_port.then_some(name)
}

/// Returns `name` without the dot at its end, which a fully qualified name can have.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}
