//! Whose calls a rule counts: of all callers, of single ones, or of another resource.

use super::problem::Inspector;

/// The origin that Sentinel calls "any".
const DEFAULT_ORIGIN: &str = "default";
/// The origin that Sentinel calls "none of those that have a rule".
pub(super) const OTHER_ORIGIN: &str = "other";

/// Whose calls a rule counts together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Who {
    /// The calls of all callers together.
    Anyone,
    /// Each origin's apart.
    Each,
    /// The calls of one origin.
    Only(String),
    /// The calls of each origin that no other rule of the resource names, apart.
    Other,
}

/// Which calls fill the rule's window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Basis {
    /// The calls that it limits.
    Own,
    /// The calls of another resource.
    Related(String),
    /// Those through one context, which alone it limits.
    Context(String),
}

// === impl Who ===

impl Who {
    /// The calls of `origin`, which may be one of Sentinel's two special names.
    pub(super) fn of_origin(origin: String) -> Self {
        match origin.as_str() {
            DEFAULT_ORIGIN => Self::Anyone,
            OTHER_ORIGIN => Self::Other,
            _ => Self::Only(origin),
        }
    }

    /// The name that makes this of [`of_origin`](Self::of_origin), if it is for single origins.
    pub(super) fn origin(&self) -> Option<&str> {
        match self {
            Self::Only(origin) => Some(origin),
            Self::Other => Some(OTHER_ORIGIN),
            Self::Anyone | Self::Each => None,
        }
    }

    /// Notes what is wrong with the name, and with a `field` that names something else beside it.
    pub(super) fn inspect(&self, beside: Option<(&'static str, &str)>, inspector: &mut Inspector) {
        if let Self::Only(origin) = self {
            inspector.name("origin", origin);
        }
        if let Some((field, name)) = beside {
            inspector.name(field, name);
            if *self != Self::Anyone {
                let allowed = "without an origin where the rule counts origins apart";
                inspector.refuse(field, format_args!("{name:?}"), allowed);
            }
        }
    }
}
