//! The calls of one counter that ask for permits of the bucket after the present one.

use super::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Waiting calls in the order in which they asked.
    pub(super) tickets: Vec<Asker>,
    /// The bucket that was the present one when the calls asked; they want permits of the bucket
    /// after it.
    pub(super) asked_in: u64,
    /// Set when the store had too few permits for the next bucket: the bucket that was then the
    /// present one. Until it ends, no call asks ahead again.
    pub(super) short_in: Option<u64>,
    /// Whether the last draw was for these calls. If so, the next draw is for the calls that wait
    /// for permits of the present bucket.
    pub(super) was_last: bool,
}
