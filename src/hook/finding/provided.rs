//! The keys and parameters that calls bring with them, as the layers of an engine extract them.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::base::sync::{AtomicBool, AtomicU32, Lock, Ordering};

/// The part of a call that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need<'a> {
    Origin,
    Context,
    Tier,
    /// The parameter at this index; from the end if negative.
    ParamAt(i32),
    ParamNamed(&'a str),
}

/// What one layer extracts from each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerFacts<'a, E> {
    pub(crate) has_origin: bool,
    pub(crate) has_context: bool,
    pub(crate) has_tier: bool,
    pub(crate) has_criticality: bool,
    /// The name that the layer gives all its calls; `None` if its calls can have several names.
    pub(crate) only_name: Option<&'a Arc<str>>,
    /// The parameters, each with its name, which is empty for a parameter without one.
    pub(crate) params: &'a [(Arc<str>, E)],
}

/// What all layers of an engine together extract from requests.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    by_layers: Lock<ByLayers>,
    /// Whether the program also enters calls itself, with any keys.
    has_direct_calls: AtomicBool,
    /// The number of requests that a proxy has forwarded, of the requests whose callers are
    /// distinguished by the address of the peer.
    forwarded: AtomicU32,
    /// Whether any request whose caller is distinguished by the address of the peer came without a
    /// proxy.
    has_unforwarded: AtomicBool,
}

/// After this many requests, all forwarded by a proxy, a proxy is assumed to stand in front.
const SUSPICIOUS: u32 = 8;
/// The most layers with different parameters that are remembered. The list is searched for each
/// layer, so it must stay short.
const MOST_LAYERS: usize = 16;

#[derive(Clone, Debug, Default)]
struct ByLayers {
    has_layers: bool,
    has_origin: bool,
    has_context: bool,
    has_tier: bool,
    has_criticality: bool,
    /// The largest number of parameters of a layer.
    most_params: usize,
    /// The names of all parameters of all layers.
    names: Vec<Arc<str>>,
    /// The parameters of each layer by their names, which may be empty.
    params: Vec<Box<[Arc<str>]>>,
    /// The names of calls, as long as every layer gives all of its calls one name.
    only_names: Vec<Arc<str>>,
    /// Whether a layer gives its calls several names.
    has_other_names: bool,
}

// === impl Provided ===

impl Provided {
    /// Records a layer that was put around a service.
    pub(crate) fn note_layer<E>(&self, facts: &LayerFacts<'_, E>) {
        let mut all = self.by_layers.lock();
        all.has_layers = true;
        all.has_origin |= facts.has_origin;
        all.has_context |= facts.has_context;
        all.has_tier |= facts.has_tier;
        all.has_criticality |= facts.has_criticality;
        all.most_params = all.most_params.max(facts.params.len());
        match facts.only_name {
            Some(name) if !all.only_names.contains(name) => all.only_names.push(name.clone()),
            Some(_) => {}
            None => all.has_other_names = true,
        }
        let params: Box<[_]> = facts.params.iter().map(|(name, _)| name.clone()).collect();
        if all.params.len() < MOST_LAYERS && !all.params.contains(&params) {
            all.params.push(params);
        }
        for (name, _) in facts.params {
            if !name.is_empty() && !all.names.contains(name) {
                all.names.push(name.clone());
            }
        }
    }

    /// Records that the program itself enters a call, whose resource is not known yet.
    pub(crate) fn note_direct_call(&self) {
        self.has_direct_calls.store(true, Ordering::Relaxed);
    }

    /// Records a request whose caller is known by the address of the peer, and whether a proxy
    /// forwarded it. Returns true for the request with which a proxy is first assumed to stand in
    /// front.
    pub(crate) fn note_peer(&self, is_forwarded: bool) -> bool {
        if !is_forwarded {
            self.has_unforwarded.store(true, Ordering::Relaxed);
            return false;
        }
        let seen = self.forwarded.fetch_add(1, Ordering::Relaxed) + 1;
        seen == SUSPICIOUS && self.is_behind_proxy()
    }

    /// Returns whether a proxy has forwarded all requests that were recorded, and enough were.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.forwarded.load(Ordering::Relaxed) >= SUSPICIOUS
            && !self.has_unforwarded.load(Ordering::Relaxed)
    }

    /// Returns the names of all calls, if every layer gives one name and the program enters no
    /// calls itself.
    pub(crate) fn only_names(&self) -> Option<Vec<Arc<str>>> {
        let all = self.by_layers.lock();
        let has_others = all.has_other_names || self.has_direct_calls.load(Ordering::Relaxed);
        (all.has_layers && !has_others).then(|| all.only_names.clone())
    }

    /// Returns the parameters that layers extract although, by `is_used`, no rule looks at them:
    /// all with a name, and those without a name except the first parameter, which hooks receive.
    /// Each is written as in the code of the layer.
    pub(crate) fn unused_params(&self, is_used: &dyn Fn(Need<'_>) -> bool) -> Vec<String> {
        let mut unused = Vec::new();
        for params in &self.by_layers.lock().params {
            for (index, name) in params.iter().enumerate() {
                let from_end = index as i32 - params.len() as i32;
                let is_named = !name.is_empty();
                let is_hidden = index > 0 || is_named;
                let is_read = is_used(Need::ParamAt(index as i32))
                    || is_used(Need::ParamAt(from_end))
                    || is_named && is_used(Need::ParamNamed(name));
                if is_hidden && !is_read {
                    unused.push(if is_named {
                        format!("`.param_named({name:?}, …)`")
                    } else {
                        format!("`.param(…)`, number {}", index + 1)
                    });
                }
            }
        }
        unused
    }

    /// Returns whether a layer names the classes of its calls.
    pub(crate) fn has_criticality(&self) -> bool {
        self.by_layers.lock().has_criticality
    }

    /// Returns whether a layer was put around a service.
    pub(crate) fn has_layers(&self) -> bool {
        self.by_layers.lock().has_layers
    }

    /// Returns why no call can have `need`; `None` if a call can have it. No call can have it if
    /// there are layers, no layer extracts it, and the program enters no calls itself.
    pub(crate) fn lacks(&self, need: Need<'_>) -> Option<String> {
        let all = self.by_layers.lock().clone();
        if !all.has_layers || self.has_direct_calls.load(Ordering::Relaxed) {
            return None;
        }
        let is_provided = match need {
            Need::Origin => all.has_origin,
            Need::Context => all.has_context,
            Need::Tier => all.has_tier,
            Need::ParamAt(index) if index < 0 => index.unsigned_abs() as usize <= all.most_params,
            Need::ParamAt(index) => (index as usize) < all.most_params,
            Need::ParamNamed(name) => all.names.iter().any(|known| **known == *name),
        };
        (!is_provided).then(|| format!("no layer has {need}{}", all.instead(need)))
    }
}

impl ByLayers {
    /// Describes what layers extract instead of `need`.
    fn instead(&self, need: Need<'_>) -> String {
        match need {
            Need::ParamNamed(_) if !self.names.is_empty() => {
                let mut text = "; the named parameters are ".to_owned();
                for (place, name) in self.names.iter().enumerate() {
                    let separator = if place == 0 { "" } else { ", " };
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{separator}{name:?}");
                }
                text
            }
            Need::ParamNamed(_) | Need::ParamAt(_) if self.most_params > 0 => {
                format!("; the most that a layer has is {}", self.most_params)
            }
            _ => String::new(),
        }
    }
}

// === impl Need ===

impl Need<'_> {
    /// Returns whether the need is a key, which distinguishes callers.
    pub(crate) const fn is_key(&self) -> bool {
        !matches!(self, Self::Context | Self::Tier)
    }

    /// Returns the part of a rule that the need belongs to. Mistakes in different parts are
    /// different findings.
    pub(super) const fn part(&self) -> u8 {
        match self {
            Self::Context => 1,
            Self::Tier => 2,
            Self::Origin | Self::ParamAt(_) | Self::ParamNamed(_) => 3,
        }
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Origin => f.write_str("`.origin(…)`"),
            Need::Context => f.write_str("`.context(…)`"),
            Need::Tier => f.write_str("`.tier(…)`"),
            Need::ParamAt(0 | -1) => f.write_str("`.param(…)`"),
            Need::ParamAt(index) => write!(f, "a `.param(…)` at index {index}"),
            Need::ParamNamed(name) => write!(f, "`.param_named({name:?}, …)`"),
        }
    }
}
