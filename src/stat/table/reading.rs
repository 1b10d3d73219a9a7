//! The handle of a reading of all entries of a table, in steps.

use super::{Resident, Table};

/// A reading in progress. It must run to its end or be [ended](Table::end_reading).
#[derive(Debug)]
pub(super) struct TableReading {
    pub(super) number: u64,
}

/// Ends a reading when dropped, also in a panic.
pub(super) struct EndReading<'a, V: Resident>(pub(super) &'a Table<V>, pub(super) TableReading);

impl<V: Resident> Drop for EndReading<'_, V> {
    fn drop(&mut self) {
        self.0.end_reading(&self.1);
    }
}
