//! A shared rule in the form that calls are judged by: which calls it counts, under which name,
//! and how many it allows.

use std::time::Duration;

use super::keyed_rule::{MOST_WAITING_OF_VALUE, ParamOf};
use super::named::Named;
use super::sharing::{Identity, Sharing};
use super::{Basis, FlowRule, KeyedRule, MissingKey, Rule, RuleSelection, RuleSet, Who};
use crate::call::{Call, Direction, Key};
use crate::store::{StoreSettings, Terms, Window};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SharedRule {
    sharing: Sharing,
    selects: Selects,
    missing: MissingKey,
    interval: Duration,
    pub(crate) window: Window,
    limit: u32,
    /// The unit of costs that it counts; `None`: calls.
    unit: Option<Box<str>>,
    /// Which part of a limit calls may borrow, and how many permits at most.
    lends: (f64, u32),
    /// Infinite without a limit, as in `tiers`.
    exceptions: Named<f64>,
    tiers: Named<f64>,
    /// The settings on which all processes that count together agree.
    pub(crate) identity: String,
    /// For how many keys there are places.
    pub(crate) max_keys: u32,
}

/// Which calls a rule counts together.
#[derive(Debug)]
enum Selects {
    All,
    /// The calls of some origins.
    Origins(Named<bool>),
    /// Those through some contexts.
    Contexts(Named<bool>),
    /// The calls of each key apart.
    Each(ParamOf),
}

/// A rule's answer to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selected<'c> {
    /// It is not one of the rule's.
    No,
    /// It counts with all others.
    Together,
    /// It counts with those of this key.
    By(&'c Key<'c>),
    /// It has no key, and the rule refuses such calls.
    Missing,
}

impl SharedRule {
    pub(super) fn of_flow(
        rule: &FlowRule,
        sharing: Sharing,
        text: &str,
        direction: Direction,
        most_origins: u32,
    ) -> Self {
        let named = |name: &str| {
            let mut named = Named::default();
            named.change(name, |is_named| *is_named = true);
            named
        };
        let mut identity = Identity::new("flow", rule.id.as_deref(), text, rule.is_for_any());
        let selects = match (rule.basis(), &rule.who) {
            (Basis::Context(context), _) => {
                identity.part("context", context);
                Selects::Contexts(named(context))
            }
            (_, Who::Each) => {
                identity.part("by", "origin");
                Selects::Each(ParamOf::Origin)
            }
            (_, Who::Only(origin)) => {
                identity.part("origin", origin);
                Selects::Origins(named(origin))
            }
            (_, Who::Anyone | Who::Other) => Selects::All,
        };
        add_direction(&mut identity, direction);
        add_unit(&mut identity, rule.get_cost());
        let (interval, counted) = (rule.interval(), rule.counted_buckets());
        Self {
            sharing,
            selects,
            missing: rule.missing.unwrap_or_default(),
            interval,
            window: Window {
                bucket: Duration::from_nanos(rule.bucket_ns()),
                buckets: counted,
            },
            limit: rule.limit(),
            unit: rule.get_cost().map(Into::into),
            lends: rule.lends_of_next(),
            exceptions: Named::default(),
            tiers: Named::default(),
            identity: identity.window(interval, counted),
            max_keys: most_origins,
        }
    }

    pub(super) fn of_keyed_rule(
        rule: &KeyedRule,
        sharing: Sharing,
        text: &str,
        direction: Direction,
    ) -> Self {
        let mut identity = Identity::new("keyed", rule.id.as_deref(), text, false);
        match &rule.of {
            ParamOf::Index(index) => identity.part("param_at", &index.to_string()),
            ParamOf::Named(name) => identity.part("param", name),
            ParamOf::Origin => identity.part("by", "origin"),
        }
        add_direction(&mut identity, direction);
        add_unit(&mut identity, rule.get_cost());
        let own = |list: &[(String, f64)], unlimited: &[String]| {
            let mut named = Named::<f64>::default();
            for name in unlimited {
                named.change(name, |own| *own = f64::INFINITY);
            }
            for (name, threshold) in list {
                named.change(name, |own| *own = *threshold);
            }
            named
        };
        Self {
            sharing,
            selects: Selects::Each(rule.of.clone()),
            missing: rule.missing,
            interval: rule.interval(),
            window: Window {
                bucket: rule.interval() / 2,
                buckets: 2,
            },
            limit: rule.threshold() as u32,
            unit: rule.get_cost().map(Into::into),
            lends: match rule.get_cost() {
                None => (1.0, MOST_WAITING_OF_VALUE),
                Some(_) => (0.0, 0),
            },
            exceptions: own(&rule.exceptions, &rule.unlimited_values),
            tiers: own(&rule.tiers, &rule.unlimited_tiers),
            identity: identity.window(rule.interval(), 2),
            max_keys: rule.max_keys.get(),
        }
    }

    /// The rule in shadow mode: what it takes is not taken from the quota of an enforced one. Its
    /// `owner` is in that mode: the rule, or the whole engine.
    fn in_shadow(self, owner: &str) -> Self {
        let identity = Identity::from(self.identity).shadow(owner);
        Self { identity, ..self }
    }

    /// Returns whether each key has a counter.
    pub(crate) const fn is_by_key(&self) -> bool {
        matches!(self.selects, Selects::Each(_))
    }

    /// Returns whether it counts all calls together, by their number.
    pub(crate) const fn is_of_all(&self) -> bool {
        self.unit.is_none() && matches!(self.selects, Selects::All)
    }

    /// The unit of costs that it counts; `None`: calls.
    pub(crate) fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// How many permits `call` takes: its weight, or what it reserves and at least one.
    pub(crate) fn wanted(&self, call: &Call<'_>) -> u32 {
        match &self.unit {
            None => call.weight,
            Some(unit) => call.reserves.of(unit).max(1),
        }
    }

    /// The rule's answer to `call`.
    #[inline]
    pub(crate) fn select<'c>(&self, call: &'c Call<'_>) -> Selected<'c> {
        let is_one_of = |named: &Named<bool>, key: Option<&Key<'_>>| match key {
            Some(key) if named.has(key) => Selected::Together,
            _ => Selected::No,
        };
        let of = match &self.selects {
            Selects::All => return Selected::Together,
            Selects::Origins(named) => return is_one_of(named, call.origin.as_ref()),
            Selects::Contexts(named) => return is_one_of(named, call.context.as_ref()),
            Selects::Each(of) => of,
        };
        let given = match of {
            ParamOf::Index(index) => call.param_at(*index),
            ParamOf::Named(name) => call.param_named(name),
            ParamOf::Origin => call.origin.as_ref(),
        };
        match (given, self.missing) {
            // Another process knows it by another hash: each would count it apart.
            (Some(Key::Digest(..)), _) => Selected::Missing,
            (Some(key), _) => Selected::By(key),
            (None, MissingKey::Share) => Selected::By(&Key::MISSING),
            (None, MissingKey::Skip) => Selected::No,
            (None, MissingKey::Refuse) => Selected::Missing,
        }
    }

    /// The limit of all calls together, or of a key that has no other.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// The least limit above zero of any key.
    pub(crate) fn least_limit(&self) -> u32 {
        let own = self.exceptions.values().chain(self.tiers.values());
        let own = own.filter(|own| own.is_finite());
        let own = own.map(|own| *own as u32).filter(|own| *own > 0);
        own.fold(self.limit, |least, own| match least {
            0 => own,
            _ => least.min(own),
        })
    }

    /// The limit of calls with this `key` and `tier`; `None` if they have none.
    pub(crate) fn limit_of(&self, key: &Key<'_>, tier: Option<&Key<'_>>) -> Option<u32> {
        let own = self.exceptions.get(key);
        match own.or_else(|| self.tiers.get(tier?)) {
            Some(own) if own.is_infinite() => None,
            Some(own) => Some(*own as u32),
            None => Some(self.limit),
        }
    }

    /// The terms of a counter with this `limit`.
    pub(crate) fn terms(&self, limit: u32, settings: &StoreSettings) -> Terms {
        let (part, most) = self.lends;
        // A hair more than the product, which is rounded, and may fall short of the whole number
        // that was meant.
        let ahead = (f64::from(limit) * part * (1.0 + 4.0 * f64::EPSILON)) as u32;
        Terms {
            by_key: self.is_by_key(),
            by_cost: self.unit.is_some(),
            ..self.sharing.terms(limit, ahead.min(most), settings)
        }
    }

    /// `limit` as it is advertised: a number of calls, and the time in which they may be made.
    pub(crate) const fn advertised(&self, limit: u32) -> (u32, Duration) {
        (limit, self.interval)
    }
}

/// Calls of the two directions are counted apart.
fn add_direction(identity: &mut Identity, direction: Direction) {
    if direction == Direction::Outbound {
        identity.part("direction", direction.as_str());
    }
}

/// Calls and costs, and costs of two units, are counted apart.
fn add_unit(identity: &mut Identity, unit: Option<&str>) {
    if let Some(unit) = unit {
        identity.part("cost", unit);
    }
}

// === impl RuleSet ===

impl RuleSet {
    /// The rule at `index`, which is shared, as it counts on the resource `text`.
    pub(crate) fn shared(
        &self,
        index: u32,
        text: &str,
        direction: Direction,
        most_origins: u32,
    ) -> Option<SharedRule> {
        let rule = self.rule(index)?;
        rule.as_shared(text, direction, most_origins, self.part())
    }
}

// === impl Rule ===

impl Rule {
    /// The identity by which the rule counts, if it is shared.
    pub(super) fn shared_identity(&self) -> Option<String> {
        let part = RuleSelection::Enforced;
        let rule = self.as_shared(self.resource(), Direction::Inbound, 1, part)?;
        Some(rule.identity)
    }

    /// The rule, if it is shared, as it counts on the resource `text` in an engine that knows a
    /// limited number of origins and judges by this `part` of all rules.
    fn as_shared(
        &self,
        text: &str,
        direction: Direction,
        most_origins: u32,
        part: RuleSelection,
    ) -> Option<SharedRule> {
        let mut shared = match self.itself() {
            Self::Flow(rule) if rule.is_shared() => {
                SharedRule::of_flow(rule, rule.sharing, text, direction, most_origins)
            }
            Self::Keyed(rule) if rule.is_shared() => {
                SharedRule::of_keyed_rule(rule, rule.sharing, text, direction)
            }
            _ => return None,
        };
        if self.is_shadow() {
            shared = shared.in_shadow("rule");
        }
        if part == RuleSelection::Everything {
            shared = shared.in_shadow("engine");
        }
        Some(shared)
    }
}
