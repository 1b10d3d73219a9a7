//! Reads what one value of a keyed rule has left, or gives the value its whole quota back.

use std::cmp::Reverse;
use std::net::IpAddr;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use super::edits::{answer, error, not_found, target};
use super::json::Json;
use crate::call::{Direction, Key};
use crate::key::cut_ip;
use crate::read::{KeyedView, NodeView, SharedKeyedView};
use crate::sentinel::Sentinel;
use crate::store::StoreError;

/// The number of leading bits of an IPv6 address that form its key.
const IPV6_PREFIX: u8 = 64;

/// The value of a keyed rule that a request names.
pub(super) struct NamedValue {
    rule: NamedRule,
    value: String,
}

/// A rule that counts each value separately.
enum NamedRule {
    /// In this process.
    Here(KeyedView),
    /// In all processes of a store.
    Shared(SharedKeyedView),
}

impl NamedValue {
    /// Finds the value that `body` names, or returns the answer that says what is wrong.
    pub(super) fn read(sentinel: &Sentinel, body: &[u8]) -> Result<Self, Box<Response<Bytes>>> {
        let (view, body) = node(sentinel, body).ok_or_else(|| Box::new(not_found()))?;
        let named = body["rule"].as_str();
        let rule = named.and_then(|name| NamedRule::find(&view, name));
        let rule = rule.ok_or_else(|| Box::new(not_found()))?;
        let Some(value) = body["value"].as_str() else {
            let why = "value is missing, must be a text";
            return Err(Box::new(error(StatusCode::BAD_REQUEST, why)));
        };
        let value = value.to_owned();
        Ok(Self { rule, value })
    }

    /// Returns the keys for which the value may stand, one at least. Those that are in use come
    /// first.
    fn readings(&self) -> Vec<Key<'_>> {
        let ip = self.value.parse::<IpAddr>().ok();
        let cut = ip.map(|ip| Key::Ip(cut_ip(ip, IPV6_PREFIX)));
        let spelled = Key::spellings(&self.value).filter(|key| Some(*key) != cut);
        let mut readings: Vec<_> = cut.into_iter().chain(spelled).collect();
        readings.sort_by_cached_key(|key| Reverse(self.rule.spent(key)));
        readings
    }

    /// Returns how much the value has left.
    pub(super) fn left(&self) -> Response<Bytes> {
        let key = self.readings()[0];
        let left = match &self.rule {
            NamedRule::Here(view) => view.rest(&key),
            NamedRule::Shared(view) => view.left(key),
        };
        let left = left.map_or_else(|| "null".to_owned(), |left| left.to_string());
        figure("left", &left)
    }

    /// Gives the value its whole quota back, by the first reading that has spent anything.
    pub(super) async fn reset(&self) -> Response<Bytes> {
        for key in self.readings() {
            let reset = match &self.rule {
                NamedRule::Here(view) => Ok::<_, StoreError>(view.reset(key)),
                NamedRule::Shared(view) => view.reset(key).await,
            };
            match reset {
                Ok(true) => return figure("reset", "true"),
                Ok(false) => {}
                Err(why) => return error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
            }
        }
        figure("reset", "false")
    }
}

impl NamedRule {
    fn find(view: &NodeView, name: &str) -> Option<Self> {
        let mut here = view.keyed_rules().into_iter();
        if let Some(rule) = here.find(|rule| rule.rule() == name) {
            return Some(Self::Here(rule));
        }
        let mut shared = view.shared_keyed_rules().into_iter();
        shared.find(|rule| rule.rule() == name).map(Self::Shared)
    }

    /// Returns a figure that is higher for a key that is in use. For a shared rule it is what this
    /// process knows to be spent, and what it cannot have while the store is down.
    fn spent(&self, key: &Key<'_>) -> u32 {
        match self {
            Self::Here(view) => view.is_in_use(key).into(),
            Self::Shared(view) => {
                let limit = view.limit(*key).unwrap_or(0);
                limit.saturating_sub(view.left(*key).unwrap_or(limit))
            }
        }
    }
}

/// Returns a view of the resource that `body` names, and the parsed `body`.
fn node(sentinel: &Sentinel, body: &[u8]) -> Option<(NodeView, Value)> {
    let (direction, name, body) = target(body)?;
    let view = match direction {
        Direction::Outbound => sentinel.outbound_node(&*name),
        Direction::Inbound => sentinel.node(&*name),
    };
    Some((view?, body))
}

/// Returns an answer with the member `name`, whose value is JSON.
fn figure(name: &str, value: &str) -> Response<Bytes> {
    let mut json = Json::default();
    json.object(|json| json.plain(name, value));
    answer(StatusCode::OK, json.into_text())
}
