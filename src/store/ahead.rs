//! The calls of one counter that ask for permits of the next bucket.

use super::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Waiting calls in the order in which they asked.
    pub(super) tickets: Vec<Asker>,
    /// The number of the bucket in which the calls asked. They wait for permits of the bucket after
    /// it.
    pub(super) asked_in: u64,
    /// The bucket in which the store has refused permits of the next bucket, as it had too few.
    /// Until this bucket ends, no call asks ahead again.
    pub(super) short_in: Option<u64>,
    /// Whether the last draw was for these calls. The next draw is then for the calls that wait for
    /// permits of the present bucket, so that both kinds take turns.
    pub(super) was_last: bool,
}
