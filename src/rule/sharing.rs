//! Shared rules, which count the calls of all processes of a store: their settings, and the
//! identity under which the store counts them.

use std::fmt::Write;
use std::time::Duration;

use super::problem::Inspector;
use crate::base::number::WholeNumber;
use crate::clock::CalendarPeriod;
use crate::stat::MAX_TOKENS;
use crate::store::WhenDown;
#[cfg(feature = "shared")]
use crate::store::{StoreSettings, Terms};

/// The maximum number of buckets of a shared window: a store visits all of them at each draw.
pub(super) const MOST_SHARED_BUCKETS: u32 = 128;
/// The shortest bucket of a shared window: it must be much longer than a round trip to the store.
const SHORTEST_SHARED_BUCKET: Duration = Duration::from_millis(10);
/// The longest valid wait for the store.
const LONGEST_STORE_WAIT: Duration = Duration::from_secs(10);

/// The settings of a shared rule. The default is a rule that is not shared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sharing {
    pub(super) is_shared: bool,
    pub(super) is_exact: bool,
    pub(super) is_per_node: bool,
    pub(super) when_down: Option<WhenDown>,
    pub(super) local_limit: Option<WholeNumber>,
    pub(super) store_wait: Option<Duration>,
}

impl Sharing {
    /// Completes settings from a form of Alibaba Sentinel's dashboard: settings that the form does
    /// not have are taken from `old`. The form can only say whether a rule falls back to a limit of
    /// each process.
    #[cfg(feature = "dashboard")]
    pub(super) fn carried(self, old: &Self) -> Self {
        if !self.is_shared || !old.is_shared {
            return self;
        }
        let falls_back = |it: &Self| it.when_down.unwrap_or_default() == WhenDown::LocalShare;
        let is_same = falls_back(&self) == falls_back(old);
        Self {
            is_exact: old.is_exact,
            when_down: if is_same {
                old.when_down
            } else {
                self.when_down
            },
            local_limit: old.local_limit.filter(|_| falls_back(&self)),
            store_wait: old.store_wait,
            ..self
        }
    }

    /// Returns the terms of a counter with this `limit`. One process can borrow up to `ahead`
    /// permits.
    #[cfg(feature = "shared")]
    pub(super) fn terms(&self, limit: u32, ahead: u32, settings: &StoreSettings) -> Terms {
        let wait = self.store_wait.unwrap_or(settings.store_wait);
        Terms {
            limit,
            per_node: self.is_per_node,
            exact: self.is_exact,
            when_down: self.when_down.unwrap_or(settings.when_down),
            local_limit: self.local_limit.map(WholeNumber::get),
            ahead,
            by_key: false,
            by_cost: false,
            // Fits into 32 bits, as it is at most ten seconds.
            wait_us: wait.min(settings.store_wait).as_micros() as u32,
        }
    }

    /// Reports the problems of these settings by themselves. Returns whether the rule is shared.
    pub(super) fn inspect(&self, inspector: &mut Inspector) -> bool {
        if !self.is_shared {
            let without = "left out without `shared`";
            if self.is_exact {
                inspector.refuse("exact", true, without);
            }
            if self.is_per_node {
                inspector.refuse("per_node", true, without);
            }
            if let Some(when_down) = self.when_down {
                inspector.refuse("when_down", when_down, without);
            }
            if let Some(limit) = self.local_limit {
                inspector.refuse("local_limit", limit.get(), without);
            }
            if let Some(wait) = self.store_wait {
                inspector.refuse("store_wait", format_args!("{wait:?}"), without);
            }
            return false;
        }
        if let Some(limit) = self.local_limit {
            inspector.number("local_limit", limit, 0..=MAX_TOKENS);
            if self.when_down.is_some_and(|it| it != WhenDown::LocalShare) {
                let allowed = "left out unless `when_down` is local-share";
                inspector.refuse("local_limit", limit.get(), allowed);
            }
        }
        if let Some(wait) = self.store_wait {
            let least = Duration::from_millis(1);
            if !(least..=LONGEST_STORE_WAIT).contains(&wait) {
                let allowed = "between 1 ms and 10 s";
                inspector.refuse("store_wait", format_args!("{wait:?}"), allowed);
            }
        }
        true
    }
}

/// Reports why the rule cannot be shared.
pub(super) fn refuse_shared(inspector: &mut Inspector, why: &str) {
    inspector.refuse("shared", true, why);
}

/// Reports the buckets of a shared window if they are too short or too many.
pub(super) fn inspect_window(inspector: &mut Inspector, interval: Duration, buckets: u32) {
    if buckets > MOST_SHARED_BUCKETS {
        let allowed = format!("at most {MOST_SHARED_BUCKETS} with `shared`");
        inspector.refuse("buckets", buckets, allowed);
    } else if buckets > 0 && interval / buckets < SHORTEST_SHARED_BUCKET {
        let allowed = "so long that a bucket lasts 10 ms, with `shared`";
        inspector.refuse("interval", format_args!("{interval:?}"), allowed);
    }
}

/// The settings on which processes must agree to count together. The index of a rule and its limit
/// are not among them, so that a rollout with another limit continues the count.
pub(super) struct Identity(String);

impl From<String> for Identity {
    /// Reopens an identity to add parts.
    fn from(identity: String) -> Self {
        Self(identity)
    }
}

impl Identity {
    /// Starts the identity of a rule of this `kind` with its id, or else its resource.
    pub(super) fn new(kind: &str, id: Option<&str>, resource: &str, is_default: bool) -> Self {
        let mut identity = Self(String::new());
        identity.part("kind", kind);
        match id {
            Some(id) => identity.part("id", id),
            None => identity.part("resource", resource),
        }
        // A default rule gives each resource a separate quota.
        if is_default && id.is_some() {
            identity.part("resource", resource);
        }
        identity
    }

    /// Adds a part. Its length is written as well, so that two different lists of parts never give
    /// the same text.
    pub(super) fn part(&mut self, name: &str, value: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{name}={}:{value};", value.len());
    }

    /// Adds that the rule is in shadow mode. `owner` is what was set to that mode: the rule or the
    /// engine.
    pub(super) fn shadow(mut self, owner: &str) -> String {
        self.part("shadow", owner);
        self.0
    }

    /// Adds the calendar period in which the rule counts, and by how many minutes the period begins
    /// before the same period of UTC.
    pub(super) fn calendar(mut self, period: CalendarPeriod, utc_offset: i32) -> String {
        self.part("calendar", period.as_str());
        self.part("utc_offset", &utc_offset.to_string());
        self.0
    }

    /// Adds the window.
    pub(super) fn window(mut self, interval: Duration, counted: u32) -> String {
        self.part("ns", &interval.as_nanos().to_string());
        self.part("buckets", &counted.to_string());
        self.0
    }
}

/// Implements the settings of a shared rule, for each kind that can be shared.
macro_rules! shared_settings {
    ($rule:ty) => {
        impl $rule {
            /// Makes the rule count the calls of all processes that use the engine's
            /// [store](crate::Builder::store), of the feature `shared`: together they admit at most
            /// the threshold.
            ///
            /// Permits are drawn from the store in advance, so most calls are decided without it; a
            /// call waits for the store at most [`store_wait`](Self::store_wait). The
            /// [guarantees](crate::guide::guarantees) list every promise and its limits; the
            /// [guide](crate::guide::replicas) shows how to set it
            /// up.
            ///
            /// Processes count together if their rules have the same kind, the same id or else the
            /// same resource, the same selection of calls, and the same window. The threshold may
            /// differ, as during a rollout: then each process applies its own threshold.
            ///
            /// In [shadow mode](crate::Rule::shadow) the rule counts in a separate counter, and no
            /// call waits for the store.
            ///
            /// A [prioritized](crate::Call::prioritized) call that finds the limit used up borrows
            /// from the next bucket, if that begins within the [occupy
            /// timeout](crate::Builder::occupy_timeout), and waits until then.
            ///
            /// A rule by a key that is a [`Secret`](crate::key::Secret) or a
            /// [`Bearer`](crate::key::Bearer) needs [`agreed`](crate::key::Secret::agreed): without
            /// it each process hashes the key differently, and the rule refuses the call as one
            /// without a key.
            #[must_use]
            pub const fn shared(mut self) -> Self {
                self.sharing.is_shared = true;
                self
            }

            /// Draws nothing ahead: every permit is requested when a call needs it, and calls that
            /// ask at the same time share a request. Only for a [shared](Self::shared) rule. A
            /// quota that a process uses less than about fifty times a second is exact also without
            /// this setting.
            #[must_use]
            pub const fn exact(mut self) -> Self {
                self.sharing.is_exact = true;
                self
            }

            /// Makes the threshold apply to each process: the limit of all processes together
            /// is the threshold times the number of processes that are alive. Only for a
            /// [shared](Self::shared) rule.
            #[must_use]
            pub const fn per_node(mut self) -> Self {
                self.sharing.is_per_node = true;
                self
            }

            /// Sets how the rule decides while the store cannot be asked. Default: as
            /// [set for the engine](crate::store::StoreSettings::when_down). Only for a
            /// [shared](Self::shared) rule.
            #[must_use]
            pub const fn when_down(mut self, when_down: crate::store::WhenDown) -> Self {
                self.sharing.when_down = Some(when_down);
                self
            }

            /// Sets how many calls this process admits in a window while the store cannot be
            /// asked: between 0 and 2³¹ − 1. Default: the threshold divided by the number of
            /// processes. Only for a [shared](Self::shared) rule.
            #[must_use]
            pub fn local_limit(
                mut self,
                limit: impl Into<crate::base::number::WholeNumber>,
            ) -> Self {
                self.sharing.local_limit = Some(limit.into());
                self
            }

            /// Sets the longest time that a call waits for the store: between 1 ms and 10 s, and at
            /// most the [wait of the engine](crate::store::StoreSettings::store_wait), which is the
            /// default. A call whose wait ends is decided as if the store could not be asked. Only
            /// for a [shared](Self::shared) rule.
            #[must_use]
            pub const fn store_wait(mut self, wait: std::time::Duration) -> Self {
                self.sharing.store_wait = Some(wait);
                self
            }

            /// Completes the rule, which was read from a form of Alibaba Sentinel's dashboard: the
            /// id and the sharing settings that the form does not have are taken from `old`.
            ///
            /// The dashboard assigns new numbers to shared rules whenever it reads them, so its
            /// numbers are no ids: without an id, processes count together by the resource.
            #[cfg(feature = "dashboard")]
            pub(crate) fn carry_sharing(mut self, old: Option<&Self>) -> Self {
                self.id = old.and_then(|old| old.id.clone());
                if let Some(old) = old {
                    self.sharing = self.sharing.carried(&old.sharing);
                }
                self
            }

            /// Returns whether the rule is [shared](Self::shared).
            #[must_use]
            pub const fn is_shared(&self) -> bool {
                self.sharing.is_shared
            }

            /// Returns whether the rule is [exact](Self::exact).
            #[must_use]
            pub const fn is_exact(&self) -> bool {
                self.sharing.is_exact
            }

            /// Returns whether the threshold applies to [each process](Self::per_node).
            #[must_use]
            pub const fn is_per_node(&self) -> bool {
                self.sharing.is_per_node
            }

            /// Returns what the rule does [without the store](Self::when_down), if that was set.
            #[must_use]
            pub const fn get_when_down(&self) -> Option<crate::store::WhenDown> {
                self.sharing.when_down
            }

            /// Returns how many calls this process admits [without the
            /// store](Self::local_limit), if that was set.
            #[must_use]
            pub const fn get_local_limit(&self) -> Option<u32> {
                match self.sharing.local_limit {
                    Some(limit) => Some(limit.get()),
                    None => None,
                }
            }

            /// Returns the longest time that a call [waits for the store](Self::store_wait), if
            /// that was set.
            #[must_use]
            pub const fn get_store_wait(&self) -> Option<std::time::Duration> {
                self.sharing.store_wait
            }
        }

        #[cfg(any(feature = "page", feature = "serde"))]
        impl $rule {
            /// The rows of the settings that shared rules have.
            pub(in crate::rule) const SHARING: &'static [crate::rule::field::Field<Self>] = {
                use crate::base::number::WholeNumber;
                use crate::rule::field::Accessor::{Choice, Count, Switch, Time};
                use crate::rule::field::Field;
                use crate::store::WhenDown;

                &[
                    Field::new("shared", Switch(|it| it.sharing.is_shared, Self::shared)),
                    Field::new("exact", Switch(|it| it.sharing.is_exact, Self::exact)),
                    Field::new(
                        "per_node",
                        Switch(|it| it.sharing.is_per_node, Self::per_node),
                    ),
                    Field::new(
                        "when_down",
                        Choice(
                            &WhenDown::NAMES,
                            |it| it.sharing.when_down.map(WhenDown::as_str),
                            |it, place| it.when_down(WhenDown::ALL[place]),
                        ),
                    ),
                    Field::new(
                        "local_limit",
                        Count(
                            |it| it.sharing.local_limit.map(WholeNumber::get),
                            Self::local_limit,
                        ),
                    ),
                    Field::new(
                        "store_wait",
                        Time(|it| it.sharing.store_wait, Self::store_wait),
                    ),
                ]
            };
        }
    };
}

pub(super) use shared_settings;
