//! The state in which a file was last read, and whether it must be read again.
//!
//! A file is read again when its [`Stamp`] differs from the stamp that was seen last. A stamp alone
//! does not show every change: a file system may keep times in steps of up to two seconds, so a
//! second write in the same step, of the same length and in place, leaves the stamp as it is. Such
//! a write comes less than a step after the stamp was first seen. So a stamp is trusted only after
//! the file was read again, with the same result, at least [`SETTLE`] after the stamp was first
//! seen. Until then the file is read at each poll, and the content decides.
//!
//! ```text
//! stamp first seen ├──── 2 s: may still be written under this stamp ────┤ settled
//! looks            ×      ×       ×        ×        ×                     ×   ·   ·
//!                  × reads, and compares the content       · looks at the stamp
//! ```
//!
//! Only the monotonic clock is read, so it does not matter whether the clock of
//! a file server agrees with this machine's.

use std::fs::Metadata;
use std::time::{Duration, SystemTime};

use crate::clock::Tick;

/// The coarsest step of modification times in use, that of FAT.
const SETTLE: Duration = Duration::from_secs(2);

/// Distinguishes two states of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: Inode,
}

/// The identity of a file and the time of its last change of any kind, where the system reports
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
    /// The time of the last change, in seconds and nanoseconds. Writers cannot set it back.
    changed: (i64, i64),
    /// How many hard links lead to it.
    links: Option<u64>,
}

/// The content that was read last.
#[derive(Debug)]
pub(super) struct LastRead {
    stamp: Stamp,
    digest: u64,
    /// When this content was first seen under this stamp.
    since: Tick,
    /// Whether this stamp alone shows that the content is unchanged.
    is_settled: bool,
}

// === impl Stamp ===

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            inode: Inode::of(metadata),
        }
    }

    /// Returns whether the file can be opened although it has no hard link left.
    pub(super) fn is_unlinked(&self) -> bool {
        self.inode.links == Some(0)
    }
}

#[cfg(unix)]
impl Inode {
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            links: Some(metadata.nlink()),
        }
    }
}

#[cfg(not(unix))]
impl Inode {
    fn of(_: &Metadata) -> Self {
        Self::default()
    }
}

// === impl LastRead ===

impl LastRead {
    /// Notes content with `digest`, read at `now` from a file that had `stamp` before the reading.
    pub(super) const fn new(stamp: Stamp, digest: u64, now: Tick) -> Self {
        Self {
            stamp,
            digest,
            since: now,
            is_settled: false,
        }
    }

    /// Returns whether a file with `stamp` certainly still has the content that was read.
    pub(super) fn is_settled_for(&self, stamp: &Stamp) -> bool {
        self.is_settled && self.stamp == *stamp
    }

    /// Compares the last reading with another. Returns whether the content has changed.
    pub(super) fn update(&mut self, stamp: Stamp, digest: u64, now: Tick) -> bool {
        let has_changed = digest != self.digest;
        if has_changed || stamp != self.stamp {
            *self = Self::new(stamp, digest, now);
        } else {
            self.is_settled = now - self.since >= SETTLE;
        }
        has_changed
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn stamp(second: u64) -> Stamp {
        Stamp {
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(second)),
            bytes: 10,
            inode: Inode::default(),
        }
    }

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    #[test]
    fn a_stamp_is_believed_only_after_a_reading_two_seconds_later() {
        let mut last = LastRead::new(stamp(1), 7, at(0));
        for ms in [0, 1_000, 1_999] {
            assert!(!last.update(stamp(1), 7, at(ms)));
            assert!(!last.is_settled_for(&stamp(1)), "{ms}");
        }
        // Time alone is not enough: the file must have been read after that time.
        assert!(!last.update(stamp(1), 7, at(2_000)));
        assert!(last.is_settled_for(&stamp(1)));
        assert!(!last.is_settled_for(&stamp(2)));
    }

    #[test]
    fn other_content_under_the_same_stamp_is_seen_and_begins_anew() {
        let mut last = LastRead::new(stamp(1), 7, at(0));
        assert!(last.update(stamp(1), 8, at(1_500)));
        assert!(!last.update(stamp(1), 8, at(3_499)));
        assert!(!last.is_settled_for(&stamp(1)));
        assert!(!last.update(stamp(1), 8, at(3_500)));
        assert!(last.is_settled_for(&stamp(1)));
    }

    #[test]
    fn another_stamp_with_the_same_content_is_no_change_and_begins_anew() {
        let mut last = LastRead::new(stamp(1), 7, at(0));
        assert!(!last.update(stamp(2), 7, at(5_000)));
        assert!(!last.is_settled_for(&stamp(2)));
        assert!(!last.update(stamp(2), 7, at(7_000)));
        assert!(last.is_settled_for(&stamp(2)) && !last.is_settled_for(&stamp(1)));
    }
}
