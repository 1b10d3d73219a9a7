//! `Criticality`: how much a call matters if there are too many calls.

use std::fmt;
use std::str::FromStr;

use crate::base::invalid::InvalidSetting;

/// The names of the classes, each at its [`index`](Criticality::index).
const NAMES: [&str; 4] = ["critical-plus", "critical", "sheddable-plus", "sheddable"];

/// How much a call matters if there are more calls than a service can handle: an
/// [`AdaptiveRule`](crate::AdaptiveRule) refuses the least important calls first. A call whose class
/// is not set is [`Critical`](Self::Critical).
///
/// In comparisons, a more important class is the smaller value. Only calls of one resource are
/// compared. A class is not a quota: if there is room for all calls, no call is refused because of
/// its class. The class is independent of [priority](crate::Call::prioritized), which allows a call
/// to borrow from a coming bucket.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, Criticality};
///
/// let class: Criticality = "Sheddable".parse()?;
/// assert_eq!(class, Criticality::Sheddable);
/// assert!(Criticality::CriticalPlus < class);
/// let report = Call::new("/report").criticality(class);
/// # let _ = report;
///
/// let error = "urgent".parse::<Criticality>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "criticality is \"urgent\", must be one of critical-plus, critical, sheddable-plus, sheddable",
/// );
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// # Source
///
/// The classes and their names are from chapter 21 of Google's book on site reliability
/// engineering, "Handling Overload".
#[doc(alias("priority", "importance", "load_shed"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Criticality {
    /// Users suffer badly and at once if the call fails. Examples are a payment and a login. Use it
    /// for few routes, and have enough machines for all calls of this class and the next one.
    CriticalPlus,
    /// Users notice if the call fails, as a person waits for it. The default.
    #[default]
    Critical,
    /// The call may fail for some minutes, as it is retried later: batch jobs, background
    /// synchronization.
    SheddablePlus,
    /// The call may fail often and for a long time: prefetching, suggestions, statistics.
    Sheddable,
}

impl Criticality {
    /// All classes, from the most important one down, each at its [`index`](Self::index).
    pub(crate) const ALL: [Self; 4] = [
        Self::CriticalPlus,
        Self::Critical,
        Self::SheddablePlus,
        Self::Sheddable,
    ];

    /// Returns the name of the class, which is used in texts, headers and JSON.
    ///
    /// ```
    /// use tower_sentinel::Criticality;
    ///
    /// assert_eq!(Criticality::SheddablePlus.as_str(), "sheddable-plus");
    /// assert_eq!(Criticality::default().as_str(), "critical");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        NAMES[self.index()]
    }

    /// Returns the position of the class in [`ALL`](Self::ALL): 0 for the most important one, up to
    /// 3.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the class called `name`, ignoring case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let is_named = |class: &Self| class.as_str().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(is_named)
    }
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Parses a [name](Criticality::as_str), ignoring case.
impl FromStr for Criticality {
    type Err = InvalidSetting;

    fn from_str(name: &str) -> Result<Self, InvalidSetting> {
        Self::named(name).ok_or_else(|| {
            let names = NAMES.join(", ");
            let allowed = format!("one of {names}");
            InvalidSetting::new("criticality", format!("{name:?}"), allowed)
        })
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_at_its_index_and_has_one_name() {
        for (index, class) in Criticality::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index);
            assert_eq!(Criticality::named(class.as_str()), Some(class));
            let capitals = class.to_string().to_uppercase();
            assert_eq!(capitals.parse(), Ok(class));
        }
        assert!(Criticality::ALL.is_sorted());
        for name in ["", "critical ", "critical_plus", "Critical-Plus;", "0"] {
            assert_eq!(Criticality::named(name), None, "{name:?}");
        }
    }
}
