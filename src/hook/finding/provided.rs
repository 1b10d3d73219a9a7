//! The keys and parameters that calls bring with them, as the layers of an engine take them out of
//! requests.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::{AtomicBool, Lock, Ordering};

/// The part of a call that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need<'a> {
    Origin,
    Context,
    Tier,
    /// From the end, if negative.
    ParamAt(i32),
    ParamNamed(&'a str),
}

/// The parts that one layer takes out of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerFacts<'a, E> {
    pub(crate) has_origin: bool,
    pub(crate) has_context: bool,
    pub(crate) has_tier: bool,
    /// Each with its name, which is empty for a parameter without one.
    pub(crate) params: &'a [(Arc<str>, E)],
}

/// The parts that all layers of an engine together take out of requests.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    by_layers: Lock<ByLayers>,
    /// Whether the program also enters calls itself, with any keys.
    has_direct_calls: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct ByLayers {
    has_layers: bool,
    has_origin: bool,
    has_context: bool,
    has_tier: bool,
    most_params: usize,
    names: Vec<Arc<str>>,
}

// === impl Provided ===

impl Provided {
    /// A layer was put around a service.
    pub(crate) fn note_layer<E>(&self, facts: &LayerFacts<'_, E>) {
        let mut all = self.by_layers.lock();
        all.has_layers = true;
        all.has_origin |= facts.has_origin;
        all.has_context |= facts.has_context;
        all.has_tier |= facts.has_tier;
        all.most_params = all.most_params.max(facts.params.len());
        for (name, _) in facts.params {
            if !name.is_empty() && !all.names.contains(name) {
                all.names.push(name.clone());
            }
        }
    }

    /// The program itself enters a call, whose resource is not known yet.
    pub(crate) fn note_direct_call(&self) {
        self.has_direct_calls.store(true, Ordering::Relaxed);
    }

    /// Whether a layer was put around a service.
    pub(crate) fn has_layers(&self) -> bool {
        self.by_layers.lock().has_layers
    }

    /// Why no call can have `need`, if so: there are layers, none of them provides it, and the
    /// program enters no calls itself.
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
    /// The parts that layers take instead of `need`.
    fn instead(&self, need: Need<'_>) -> String {
        match need {
            Need::ParamNamed(_) if !self.names.is_empty() => {
                let names: Vec<_> = self.names.iter().map(|name| format!("{name:?}")).collect();
                format!("; the named parameters are {}", names.join(", "))
            }
            Need::ParamNamed(_) | Need::ParamAt(_) if self.most_params > 0 => {
                format!("; the most that a layer has is {}", self.most_params)
            }
            _ => String::new(),
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
