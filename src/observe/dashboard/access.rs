//! Checks who sends a command: the dashboard is admitted, browsers are not.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::{HOST, ORIGIN, REFERER};
use http::{Request, StatusCode};

use super::wire::{CommandRefused, single_value};
use crate::base::sync::Lock;
use crate::call::canonical;
use crate::key::Nets;

/// The peers from which commands are accepted.
#[derive(Debug)]
pub(super) struct KnownPeers {
    /// The addresses that the dashboard's name resolves to.
    dashboard: Lock<Vec<IpAddr>>,
    /// Further networks, from `Dashboard::allow`.
    others: Nets,
}

impl KnownPeers {
    pub(super) fn new(others: Nets) -> Self {
        Self {
            dashboard: Lock::default(),
            others,
        }
    }

    /// Records the current addresses of the dashboard.
    pub(super) fn set_dashboard(&self, addresses: &[SocketAddr]) {
        let addresses = addresses.iter().map(|it| canonical(it.ip())).collect();
        *self.dashboard.lock() = addresses;
    }

    /// Returns whether commands are accepted from `peer`.
    pub(super) fn admits(&self, peer: IpAddr) -> bool {
        let peer = canonical(peer);
        self.others.contain(peer) || self.dashboard.lock().contains(&peer)
    }
}

/// Refuses a request that a browser can have sent. The dashboard's client sends no `Origin`,
/// `Referer` or `Sec-Fetch-*`, and its `Host` is the IP address that the beat has reported.
pub(super) fn check(request: &Request<()>) -> Result<(), CommandRefused> {
    let forbidden = |text| Err(CommandRefused::new(StatusCode::FORBIDDEN, text));
    let fields = request.headers();
    let of_browser = |name: &str| name.starts_with("sec-fetch-");
    if fields.contains_key(ORIGIN)
        || fields.contains_key(REFERER)
        || fields.keys().any(|name| of_browser(name.as_str()))
    {
        return forbidden("requests of browsers are refused");
    }
    match single_value(fields, &HOST) {
        Ok(Some(host)) if is_address(host) => Ok(()),
        _ => forbidden("Host must be an address, such as 127.0.0.1:8719"),
    }
}

/// Returns whether `host` is an address, with or without a port.
fn is_address(host: &str) -> bool {
    let in_brackets = || host.strip_prefix('[')?.strip_suffix(']');
    host.parse::<SocketAddr>().is_ok()
        || host.parse::<IpAddr>().is_ok()
        || in_brackets().is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}
