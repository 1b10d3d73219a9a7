//! A shared rule in the form in which calls are judged: which calls it counts, under which name,
//! and how many it allows.

use std::time::Duration;

use super::keyed_rule::{MOST_WAITING_OF_VALUE, ParamOf};
use super::named::Named;
use super::sharing::{Identity, Sharing};
use super::{Basis, FlowRule, KeyedRule, MissingKey, Rule, RuleSelection, RuleSet, Who};
use crate::call::{Call, Direction, Key};
use crate::clock::{CalendarPeriod, Tick};
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
    /// The unit of costs that the rule counts; `None` if it counts calls.
    unit: Option<Box<str>>,
    /// The fraction of a limit that calls can borrow from the next bucket, and the maximum number
    /// of permits that they can borrow.
    lends: (f64, u32),
    /// The limits of exceptional values; infinite for a value without a limit.
    exceptions: Named<f64>,
    /// The limits of tiers; infinite for a tier without a limit.
    tiers: Named<f64>,
    /// The settings that all processes which count together must agree on, as text.
    pub(crate) identity: String,
    /// The maximum number of keys that have counters.
    pub(crate) max_keys: u32,
}

/// The calls that a rule counts, and whether it counts them together.
#[derive(Debug)]
enum Selects {
    All,
    /// The calls of the origin in this map of one entry; its value is always true.
    Origins(Named<bool>),
    /// The calls through the context in this map of one entry; its value is always true.
    Contexts(Named<bool>),
    /// All calls, separately for each key.
    Each(ParamOf),
}

/// How a rule counts a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selected<'c> {
    /// Not at all: the rule does not select the call.
    No,
    /// Together with all other calls that the rule selects.
    Together,
    /// Together with the calls of the same key.
    By(&'c Key<'c>),
    /// Not at all: the call has no key, and the rule refuses calls without a key.
    Missing,
}

impl SharedRule {
    /// Creates the shared form of a flow `rule`, for calls of the resource `text` in this
    /// direction.
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
        let window = Window::new(Duration::from_nanos(rule.bucket_ns()), counted);
        let (window, identity, lends) = match rule.calendar() {
            Some(period) => in_period(identity, period, rule.get_utc_offset()),
            None => (
                window,
                identity.window(interval, counted),
                rule.borrow_limits(),
            ),
        };
        Self {
            sharing,
            selects,
            missing: rule.missing.unwrap_or_default(),
            interval,
            window,
            limit: rule.limit(),
            unit: rule.get_cost().map(Into::into),
            lends,
            exceptions: Named::default(),
            tiers: Named::default(),
            identity,
            max_keys: most_origins,
        }
    }

    /// Creates the shared form of a keyed `rule`, for calls of the resource `text` in this
    /// direction.
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
            // No shared rule counts all values as one.
            ParamOf::Anyone => {}
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
        let interval = rule.interval();
        let (window, identity, lends) = match rule.calendar() {
            Some(period) => in_period(identity, period, rule.get_utc_offset()),
            None => {
                let lends = match rule.get_cost() {
                    None => (1.0, MOST_WAITING_OF_VALUE),
                    Some(_) => (0.0, 0),
                };
                let window = Window::new(interval / 2, 2);
                (window, identity.window(interval, 2), lends)
            }
        };
        Self {
            sharing,
            selects: Selects::Each(rule.of.clone()),
            missing: rule.missing,
            interval,
            window,
            limit: rule.threshold() as u32,
            unit: rule.get_cost().map(Into::into),
            lends,
            exceptions: own(&rule.exceptions, &rule.unlimited_values),
            tiers: own(&rule.tiers, &rule.unlimited_tiers),
            identity,
            max_keys: rule.max_keys.get(),
        }
    }

    /// Returns the rule in shadow mode, where it takes nothing from the quota of an enforced rule.
    /// `owner` is what was set to that mode: the rule, or the whole engine.
    fn in_shadow(self, owner: &str) -> Self {
        let identity = Identity::from(self.identity).shadow(owner);
        Self { identity, ..self }
    }

    /// Returns whether each key has a separate counter.
    pub(crate) const fn is_by_key(&self) -> bool {
        matches!(self.selects, Selects::Each(_))
    }

    /// Returns whether the rule counts all calls together, and no costs.
    pub(crate) const fn is_of_all(&self) -> bool {
        self.unit.is_none() && matches!(self.selects, Selects::All)
    }

    /// The unit of costs that the rule counts; `None` if it counts calls.
    pub(crate) fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// How many permits `call` takes: its weight; under a rule on costs, the units that it
    /// reserves, but at least one.
    pub(crate) fn wanted(&self, call: &Call<'_>) -> u32 {
        match &self.unit {
            None => call.weight,
            Some(unit) => call.reserves.of(unit).max(1),
        }
    }

    /// Returns how the rule counts `call`.
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
            ParamOf::Anyone => None,
        };
        match (given, self.missing) {
            // Each process hashes a secret in its own way, so the processes would not count the
            // same secret together.
            (Some(Key::Digest(..)), _) => Selected::Missing,
            (Some(key), _) => Selected::By(key),
            (None, MissingKey::Share) => Selected::By(&Key::MISSING),
            (None, MissingKey::Skip) => Selected::No,
            (None, MissingKey::Refuse) => Selected::Missing,
        }
    }

    /// The limit of all calls together, or of each key to which no exception or tier applies.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// The smallest limit above zero of any key; 0 if all limits are 0.
    pub(crate) fn least_limit(&self) -> u32 {
        let own = self.exceptions.values().chain(self.tiers.values());
        let own = own.filter(|own| own.is_finite());
        let own = own.map(|own| *own as u32).filter(|own| *own > 0);
        own.fold(self.limit, |least, own| match least {
            0 => own,
            _ => least.min(own),
        })
    }

    /// The limit of calls with this `key` and `tier`; `None` if they have no limit.
    pub(crate) fn limit_of(&self, key: &Key<'_>, tier: Option<&Key<'_>>) -> Option<u32> {
        let own = self.exceptions.get(key);
        match own.or_else(|| self.tiers.get(tier?)) {
            Some(own) if own.is_infinite() => None,
            Some(own) => Some(*own as u32),
            None => Some(self.limit),
        }
    }

    /// Returns the terms of a counter with this `limit`.
    pub(crate) fn terms(&self, limit: u32, settings: &StoreSettings) -> Terms {
        let (part, most) = self.lends;
        // The last factor makes up for rounding errors: without it, a product just below the
        // intended whole number would be truncated.
        let ahead = (f64::from(limit) * part * (1.0 + 4.0 * f64::EPSILON)) as u32;
        Terms {
            by_key: self.is_by_key(),
            by_cost: self.unit.is_some(),
            ..self.sharing.terms(limit, ahead.min(most), settings)
        }
    }

    /// `limit` as response headers advertise it: a number of calls, and the time in which they may
    /// be made.
    pub(crate) fn advertised(&self, limit: u32, now: Tick) -> (u32, Duration) {
        let calendar = self.window.calendar;
        (limit, calendar.map_or(self.interval, |it| it.length(now)))
    }
}

/// Returns the window of a rule by the calendar, its complete identity, and its limits on
/// borrowing. These are zero: no call waits for the next period.
fn in_period(
    identity: Identity,
    period: CalendarPeriod,
    utc_offset: i32,
) -> (Window, String, (f64, u32)) {
    let window = Window::of_calendar(period, utc_offset);
    (window, identity.calendar(period, utc_offset), (0.0, 0))
}

/// Makes calls of the two directions count separately.
fn add_direction(identity: &mut Identity, direction: Direction) {
    if direction == Direction::Outbound {
        identity.part("direction", direction.as_str());
    }
}

/// Makes calls and costs, and costs of different units, count separately.
fn add_unit(identity: &mut Identity, unit: Option<&str>) {
    if let Some(unit) = unit {
        identity.part("cost", unit);
    }
}

// === impl RuleSet ===

impl RuleSet {
    /// Returns the rule at `index` in the form that counts calls of the resource `text`; `None` if
    /// it is not shared.
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
    /// Returns the identity under which the rule counts; `None` if it is not shared.
    pub(super) fn shared_identity(&self) -> Option<String> {
        let part = RuleSelection::Enforced;
        let rule = self.as_shared(self.resource(), Direction::Inbound, 1, part)?;
        Some(rule.identity)
    }

    /// Returns the rule in the form that counts calls of the resource `text`; `None` if it is not
    /// shared. `most_origins` is the engine's limit on origins, and `part` is the selection of
    /// rules by which the engine judges.
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
