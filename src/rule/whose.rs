//! The calls that a rule counts: of all callers, of single callers, or of another resource.

use super::problem::Inspector;

/// Alibaba Sentinel's name for all origins together.
const DEFAULT_ORIGIN: &str = "default";
/// Alibaba Sentinel's name for each origin that no rule of the resource names.
pub(super) const OTHER_ORIGIN: &str = "other";

/// The callers whose calls a rule counts together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Who {
    /// The calls of all callers together.
    Anyone,
    /// The calls of each origin separately.
    Each,
    /// The calls of one origin.
    Only(String),
    /// The calls of each origin that no other rule of the resource names, separately.
    Other,
}

/// The calls that fill the rule's window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Basis {
    /// The calls that the rule limits.
    Own,
    /// The calls of another resource.
    Related(String),
    /// The calls through one context, which are also the only calls that the rule limits.
    Context(String),
}

// === impl Who ===

impl Who {
    /// Returns the selection of `origin`, which can be one of Alibaba Sentinel's two special names.
    pub(super) fn of_origin(origin: String) -> Self {
        match origin.as_str() {
            DEFAULT_ORIGIN => Self::Anyone,
            OTHER_ORIGIN => Self::Other,
            _ => Self::Only(origin),
        }
    }

    /// The name from which [`of_origin`](Self::of_origin) creates this value; `None` if it does not
    /// select single origins.
    pub(super) fn origin(&self) -> Option<&str> {
        match self {
            Self::Only(origin) => Some(origin),
            Self::Other => Some(OTHER_ORIGIN),
            Self::Anyone | Self::Each => None,
        }
    }

    /// Reports what is wrong with the origin's name, and with the name in another `field`, if there
    /// is one.
    pub(super) fn inspect(&self, other: Option<(&'static str, &str)>, inspector: &mut Inspector) {
        if let Self::Only(origin) = self {
            inspector.name("origin", origin);
        }
        if let Some((field, name)) = other {
            inspector.name(field, name);
            if *self != Self::Anyone {
                let allowed = "without an origin where the rule counts origins apart";
                inspector.refuse(field, format_args!("{name:?}"), allowed);
            }
        }
    }
}
