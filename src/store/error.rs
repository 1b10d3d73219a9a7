//! The errors with which requests to a store fail.

use std::fmt;

/// The reason why a store gave no answer.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{StoreError, StoreErrorKind};
///
/// let error = StoreError::new(StoreErrorKind::ReadOnly, "a replica answered");
/// assert_eq!(error.kind(), StoreErrorKind::ReadOnly);
/// assert_eq!(error.to_string(), "the store is read-only: a replica answered");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: Box<str>,
}

/// The kinds of a [`StoreError`]. The engine treats all kinds alike, as a missing answer. They
/// serve as labels in logs and metrics.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::StoreErrorKind;
///
/// assert_eq!(StoreErrorKind::Unreachable.to_string(), "unreachable");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// There is no connection, or it broke.
    Unreachable,
    /// There was no answer in time.
    Late,
    /// The store accepts no writes: it is a replica, or is still loading its data.
    ReadOnly,
    /// The store has no memory left.
    Full,
    /// The store has refused the request: the password or a permission is missing, the key holds a
    /// value of another type, or no Redis Sentinel knows the master.
    Refused,
    /// The key is on another server, and the store could not reach it there.
    Moved,
}

impl StoreError {
    /// Creates an error. `detail` must not contain passwords, addresses with passwords, or
    /// keys of users: it is logged and shown.
    #[must_use]
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into().into_boxed_str(),
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl StoreErrorKind {
    /// All kinds, in the order of their [indices](Self::index).
    pub(crate) const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Late,
        Self::ReadOnly,
        Self::Full,
        Self::Refused,
        Self::Moved,
    ];

    /// Returns the position of the kind in [`ALL`](Self::ALL), which is also the position of its
    /// count in `StoreFigures::errors`.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the kind as a label: `unreachable`, `late`, `read-only`, `full`,
    /// `refused` or `moved`.
    ///
    /// ```
    /// use tower_sentinel::store::StoreErrorKind;
    ///
    /// assert_eq!(StoreErrorKind::ReadOnly.as_str(), "read-only");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Late => "late",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Moved => "moved",
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.kind {
            StoreErrorKind::Unreachable => "the store cannot be reached",
            StoreErrorKind::Late => "the store did not answer in time",
            StoreErrorKind::ReadOnly => "the store is read-only",
            StoreErrorKind::Full => "the store has no memory left",
            StoreErrorKind::Refused => "the store refused",
            StoreErrorKind::Moved => "the key is on another server",
        };
        write!(f, "{problem}: {}", self.detail)
    }
}

impl std::error::Error for StoreError {}
