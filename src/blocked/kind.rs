//! The kinds of refusals, and how each is reported to clients and readers.

use std::fmt;

use http::StatusCode;

// Codes of gRPC's statuses.
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

/// What all refusals of one kind have in common.
#[derive(Debug)]
pub(crate) struct RefusalTerms {
    /// The name in texts, ids, documents and JSON.
    pub(crate) name: &'static str,
    /// The label in metrics and logs.
    pub(crate) label: &'static str,
    /// The status of the HTTP response.
    pub(crate) status: StatusCode,
    /// The code of the gRPC status.
    pub(crate) grpc: u8,
    pub(crate) retry: Retry,
    /// The type of a problem document, from IANA's registry; `None` if no type fits.
    pub(crate) problem: Option<&'static str>,
    /// How a sentence continues after "refused", up to the word "rule".
    pub(crate) phrase: &'static str,
}

/// When the client of a refused call should come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// At the time that the refusal names, if it names a time.
    OwnTime,
    /// At the time that the refusal names, else in a second, because the end of the cause is
    /// unknown.
    OneSecond,
    Never,
}

/// Makes the enum, its list of kinds and the table of terms from one list of rows, so that none
/// of them can lack a kind.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        pub enum $type:ident;
        $($(#[$doc:meta])* $kind:ident { $($row:tt)* })+
    ) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$doc])* $kind,)+
        }

        impl $type {
            /// All kinds, each at the index of its number.
            pub(crate) const ALL: [Self; TERMS.len()] = [$(Self::$kind),+];
        }

        const TERMS: &[RefusalTerms] = &[$(RefusalTerms { $($row)* }),+];
    };
}

kinds! {
    /// The kind of rule that refused a call.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::{BlockKind, Call, IsolationRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(IsolationRule::new("report", 1));
    /// let _running = sentinel.try_enter(Call::new("report"));
    /// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("report")) else {
    ///     panic!("one is running");
    /// };
    /// let advice = match blocked.kind() {
    ///     BlockKind::Flow | BlockKind::Keyed => "slow down",
    ///     BlockKind::Isolation => "come back soon",
    ///     BlockKind::Authority | BlockKind::MissingKey => "do not come back",
    ///     _ => "come back later",
    /// };
    /// assert_eq!(advice, "come back soon");
    /// assert_eq!(
    ///     blocked.to_string(),
    ///     "call to \"report\" refused by isolation rule \"isolation-0\"",
    /// );
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum BlockKind;

    /// A [`FlowRule`](crate::FlowRule): too many calls in its window.
    Flow {
        name: "flow",
        label: "flow",
        status: StatusCode::TOO_MANY_REQUESTS,
        grpc: RESOURCE_EXHAUSTED,
        retry: Retry::OwnTime,
        problem: Some("quota-exceeded"),
        phrase: " by flow",
    }
    /// An [`IsolationRule`](crate::IsolationRule) or an
    /// [`AdaptiveRule`](crate::AdaptiveRule): too many concurrent calls.
    Isolation {
        name: "isolation",
        label: "isolation",
        status: StatusCode::TOO_MANY_REQUESTS,
        grpc: RESOURCE_EXHAUSTED,
        retry: Retry::OneSecond,
        problem: Some("temporary-reduced-capacity"),
        phrase: " by isolation",
    }
    /// A [`KeyedRule`](crate::KeyedRule): too many calls for this value of
    /// a parameter.
    Keyed {
        name: "keyed",
        label: "keyed",
        status: StatusCode::TOO_MANY_REQUESTS,
        grpc: RESOURCE_EXHAUSTED,
        retry: Retry::OwnTime,
        problem: Some("quota-exceeded"),
        phrase: " by keyed",
    }
    /// A [`CircuitBreakerRule`](crate::CircuitBreakerRule): the resource fails or is slow.
    CircuitBreaker {
        name: "circuit-breaker",
        label: "circuit_breaker",
        status: StatusCode::SERVICE_UNAVAILABLE,
        grpc: UNAVAILABLE,
        retry: Retry::OwnTime,
        problem: None,
        phrase: " by circuit-breaker",
    }
    /// An [`AuthorityRule`](crate::AuthorityRule): this caller is not allowed.
    Authority {
        name: "authority",
        label: "authority",
        status: StatusCode::FORBIDDEN,
        grpc: PERMISSION_DENIED,
        retry: Retry::Never,
        problem: None,
        phrase: " by authority",
    }
    /// A [`SystemRule`](crate::SystemRule): all inbound calls together, or the
    /// machine, have reached a limit.
    System {
        name: "system",
        label: "system",
        status: StatusCode::SERVICE_UNAVAILABLE,
        grpc: UNAVAILABLE,
        retry: Retry::OneSecond,
        problem: None,
        phrase: " by system",
    }
    /// The call would have had to wait, and there is no timer to wait on: it
    /// runs outside of tokio, or the tokio runtime was built without a timer.
    ///
    /// A runtime without a timer panics when it is first asked for one, and the panic is caught. So
    /// the panic hook is called, once for the runtime, and a program that is compiled to abort on
    /// panics ends: build its runtime with `enable_time`.
    NoTimer {
        name: "no-timer",
        label: "no_timer",
        status: StatusCode::SERVICE_UNAVAILABLE,
        grpc: UNAVAILABLE,
        retry: Retry::OneSecond,
        problem: Some("temporary-reduced-capacity"),
        phrase: ": it has to wait, which needs tokio's timer",
    }
    /// The call has no key, and a rule refuses calls without a key.
    MissingKey {
        name: "missing-key",
        label: "missing_key",
        status: StatusCode::FORBIDDEN,
        grpc: PERMISSION_DENIED,
        retry: Retry::Never,
        problem: None,
        phrase: " for a missing key by",
    }
    /// A [shared](crate::FlowRule::shared) rule needs its store, which cannot be asked or has not
    /// answered in time, and the rule is set to refuse calls then.
    Store {
        name: "store",
        label: "store",
        status: StatusCode::SERVICE_UNAVAILABLE,
        grpc: UNAVAILABLE,
        retry: Retry::OwnTime,
        problem: None,
        phrase: " without its store by",
    }
}

impl BlockKind {
    /// Returns the name of the kind, which is the same in texts, ids, documents and JSON.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::BlockKind::Keyed.as_str(), "keyed");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.terms().name
    }

    /// Returns what all refusals of this kind have in common.
    #[inline]
    pub(crate) const fn terms(self) -> &'static RefusalTerms {
        &TERMS[self as usize]
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_a_label_of_its_own() {
        for (place, kind) in BlockKind::ALL.into_iter().enumerate() {
            let terms = kind.terms();
            assert_eq!(kind as usize, place, "{kind}");
            assert_eq!(terms.label, terms.name.replace('-', "_"));
            let own = BlockKind::ALL.map(|it| it.as_str() == terms.name);
            assert_eq!(own.into_iter().filter(|is_own| *is_own).count(), 1);
            if terms.phrase.starts_with(" by ") {
                assert_eq!(terms.phrase, format!(" by {kind}"));
            }
        }
    }
}
