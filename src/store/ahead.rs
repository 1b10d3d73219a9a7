//! The calls that ask for permits of the bucket after the present one.

use super::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) tickets: Vec<Asker>,
    /// The bucket after which they ask for: once that is over, theirs is the present one.
    pub(super) asked_in: u64,
    /// The bucket in which the store had too few for the next one: in it nobody asks again.
    pub(super) short_in: Option<u64>,
    /// Whether the last draw was for these calls: then those that wait for the present bucket are
    /// next.
    pub(super) was_last: bool,
}
