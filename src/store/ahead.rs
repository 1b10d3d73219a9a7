//! The calls that ask for permits of the bucket after the present one.

use super::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) tickets: Vec<Asker>,
    /// The bucket in which the calls have asked; they ask for the one after it.
    pub(super) asked_in: u64,
    /// The bucket in which the store had too few permits for the next one: no call asks again
    /// before it ends.
    pub(super) short_in: Option<u64>,
    /// Whether the last draw was for these calls: then those that wait for the present bucket are
    /// next.
    pub(super) was_last: bool,
}
