//! Computes the bound of each class on the calls in flight, by pure functions of the learned
//! values.
//!
//! The limit keeps the service fast. The bound of each class, above or below the limit, decides
//! which calls are refused under overload. From the most important class down, the classes are
//!
//! * *open*: they may exceed the limit by a burst, which is larger for more important classes;
//! * *marginal*, at most one class: its bound is the limit and some room;
//! * *excess*: they get only idle workers, so that they never queue in front of other classes.
//!
//! Without overload, all classes are open. A service at nine tenths of its capacity occasionally
//! has queues of 150 calls, so a short queue does not indicate overload. Only a call that finds the
//! burst full is refused, and shuts the least important class. While no queue stands, the room of
//! that class doubles with each window. The class opens again when its room is as large as a burst.

use super::estimate::{LimiterSettings, TOLERANCE, small_queue};

/// The number of classes.
pub(crate) const CLASSES: usize = 4;
/// The maximum number of calls by which a burst exceeds the limit, while calls of several classes
/// arrive. It covers the queues of 150 calls that occur without overload.
const BURST: f64 = 160.0;
/// The same maximum while calls of only one class arrive. It is smaller than [`BURST`], as no less
/// important class can be refused instead, so a long queue only costs time.
const BURST_OF_ONE: f64 = 32.0;
/// The minimum number of calls by which a burst exceeds the limit. It lets a slow service, which
/// ends few calls per second, have a burst as well.
const SHORTEST_BURST: f64 = 8.0;

/// The classes that are shut, and the room of the marginal one. Stored in one word that refusals
/// and the closer of a window change.
///
/// ```text
/// [ generation:32 | clean:8 | shut:8 | room:16 ]
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strictness {
    /// The number of changes so far, modulo 2³².
    pub(super) generation: u32,
    /// The number of windows in a row in which no call of the marginal class was refused and a
    /// worker was free.
    pub(super) clean: u8,
    /// The number of classes that are shut, from the least important class up. The most important
    /// shut class is marginal, the other shut classes are excess.
    pub(super) shut: u8,
    /// The room of the marginal class above the limit, in 256ths of a call.
    room: u16,
}

/// The inputs from which bounds are computed, in addition to the strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Frame {
    /// The limit in force.
    pub(super) limit: f64,
    /// The calls that end per second.
    pub(super) rate: f64,
    /// The calls in flight at the end of a window in which their number fell or the limit was cut;
    /// otherwise 0. While the service drains, open classes may have this many calls in flight, so
    /// that a lower limit does not refuse their calls.
    pub(super) drain: u32,
    /// Whether the response time without a queue is known.
    pub(super) is_known: bool,
    /// The classes of which calls arrived recently, one bit each.
    pub(super) seen: u32,
}

/// The observations of a closed window of bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundsObserved {
    /// The calls that ended in the window.
    pub(super) ended: u64,
    /// The refused calls of the marginal class.
    pub(super) refused: u32,
    /// Whether a worker was free, so that no queue stands.
    pub(super) emptied: bool,
}

// === impl Strictness ===

impl Strictness {
    /// The units of `room` in one call.
    const ROOM: f64 = 256.0;

    /// Unpacks `word`.
    pub(super) const fn of_word(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            clean: (word >> 24) as u8,
            shut: (word >> 16) as u8,
            room: word as u16,
        }
    }

    /// Packs the strictness into one word.
    pub(super) const fn word(self) -> u64 {
        (self.generation as u64) << 32
            | (self.clean as u64) << 24
            | (self.shut as u64) << 16
            | self.room as u64
    }

    /// Returns the room of the marginal class, in calls.
    pub(super) fn room(self) -> f64 {
        f64::from(self.room) / Self::ROOM
    }

    /// Sets the room of the marginal class, in calls.
    fn with_room(mut self, room: f64) -> Self {
        self.room = (room * Self::ROOM).min(f64::from(u16::MAX)) as u16;
        self
    }

    /// Returns the marginal class; [`CLASSES`] if all classes are open.
    pub(super) const fn marginal(self) -> usize {
        CLASSES - self.shut as usize
    }

    /// Begins a new generation.
    pub(super) const fn next(mut self) -> Self {
        self.generation = self.generation.wrapping_add(1);
        self
    }

    /// Opens all classes.
    pub(super) const fn all_open(self) -> Self {
        Self {
            clean: 0,
            shut: 0,
            room: 0,
            ..self
        }
        .next()
    }

    /// Shuts one more class. If no calls of it arrive, also shuts the classes above it, up to the
    /// first class in `seen`.
    pub(super) fn shut_more(self, seen: u32) -> Self {
        let mut shut = self.shut;
        loop {
            shut += 1;
            let marginal = CLASSES - usize::from(shut);
            if marginal == 0 || seen & 1 << marginal != 0 {
                break;
            }
        }
        Self {
            shut,
            clean: 0,
            ..self
        }
        .next()
        .with_room(0.0)
    }

    /// Opens one class. If no calls of the next marginal class arrive, also opens that class and
    /// further classes down to the first class in `seen`. At least `least` classes stay shut.
    fn open_one(self, seen: u32, least: u8) -> Self {
        let mut shut = self.shut - 1;
        while shut > least && seen & 1 << (CLASSES - usize::from(shut)) == 0 {
            shut -= 1;
        }
        Self {
            shut: shut.max(least),
            clean: 0,
            ..self
        }
        .with_room(0.0)
    }

    /// Returns the strictness after a window of bounds with the observations `shown`.
    pub(super) fn after(
        self,
        shown: BoundsObserved,
        frame: &Frame,
        settings: &LimiterSettings,
    ) -> Self {
        let mut next = self.next();
        if self.shut == 0 {
            return next;
        }
        let (refused, ended) = (f64::from(shown.refused), shown.ended as f64);
        let is_clean = shown.refused == 0 && shown.emptied;
        next.clean = if is_clean {
            self.clean.saturating_add(1)
        } else {
            0
        };
        if next.clean >= 2 && next.shut > 1 {
            // The marginal class has room, so a less important one causes the load.
            return next.open_one(frame.seen, 1);
        }
        if refused > 0.1 * ended {
            return next.with_room(0.0);
        }
        if shown.emptied {
            if refused > 0.05 * ended {
                return next;
            }
            let room = (2.0 * self.room()).max(small_queue(frame.limit));
            if room >= frame.burst(settings) {
                return next.open_one(frame.seen, 0);
            }
            return next.with_room(room);
        }
        let room = if shown.refused > 0 {
            0.0
        } else {
            self.room() / 2.0
        };
        next.with_room(room)
    }
}

// === impl Frame ===

impl Frame {
    /// Returns the number of calls by which a burst exceeds the limit.
    pub(super) fn burst(&self, settings: &LimiterSettings) -> f64 {
        if settings.burst.is_zero() {
            return 0.0;
        }
        let most = if self.seen.count_ones() >= 2 {
            BURST
        } else {
            BURST_OF_ONE
        };
        if self.is_known {
            let calls = self.rate * settings.burst.as_secs_f64();
            calls.clamp(SHORTEST_BURST, most)
        } else {
            most
        }
    }

    /// Returns the difference between the bounds of the first and the last cohort of the marginal
    /// class. The number of calls in flight varies by about this amount, so the calls of a cohort
    /// mostly pass or are refused together. With a larger spread, workers would be idle while calls
    /// are refused.
    pub(super) fn spread(&self) -> u32 {
        self.limit.max(0.0).sqrt() as u32
    }

    /// Returns the bound of each class.
    pub(super) fn bounds(
        &self,
        strictness: Strictness,
        settings: &LimiterSettings,
    ) -> [u32; CLASSES] {
        let (limit, burst) = (self.limit, self.burst(settings));
        let (queue, drain) = (small_queue(limit), f64::from(self.drain));
        let marginal = strictness.marginal();
        std::array::from_fn(|class| {
            let (bound, least) = if class < marginal {
                let burst = burst * (1.0 + (CLASSES - 1 - class) as f64 / 2.0);
                ((limit + burst).max(drain + burst / 4.0), 1)
            } else if class == marginal {
                (limit + strictness.room(), 1)
            } else {
                (((limit - queue) / TOLERANCE).min(limit - 2.0), 0)
            };
            // A float below 0 becomes 0.
            (bound as u32).clamp(least, settings.ceiling)
        })
    }
}
