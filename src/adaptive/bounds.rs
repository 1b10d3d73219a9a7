//! How many calls of each class may be in flight: pure functions of what was learned.
//!
//! A limit keeps the service fast; a bound for each class above or below that limit decides which
//! calls are refused when there are too many. From the most important class down, the classes are
//!
//! * *open*: they may go a burst over the limit, the more important the further;
//! * *marginal*, one of them: it gets the limit and some room;
//! * *excess*: they get idle workers only, so that they never queue before the others.
//!
//! As long as nothing is wrong all classes are open. At nine tenths of its capacity a service has
//! queues of 150 calls now and then, and a test on the length of the queue is the sharpest there
//! is: only a call that finds the burst full is refused, and shuts the least class. It opens again
//! when its room, which doubles as long as no queue stands, is as large as a burst.

use super::estimate::{LimiterSettings, TOLERANCE, small_queue};

/// How many classes there are.
pub(crate) const CLASSES: usize = 4;
/// Most calls of a burst beyond the limit, while calls of more than one class come, and of one:
/// then there is nobody below to refuse instead, and a long queue only costs time.
const BURST: f64 = 160.0;
const BURST_OF_ONE: f64 = 32.0;
const SHORTEST_BURST: f64 = 8.0;

/// How strict it is: one word that refusals and the closer of a window change.
///
/// ```text
/// [ generation:32 | clean:8 | shut:8 | room:16 ]
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strictness {
    /// Goes up with each change.
    pub(super) generation: u32,
    /// How many windows in a row the marginal class was not refused and a worker was free.
    pub(super) clean: u8,
    /// How many classes are shut, from the least important one: the last of them is marginal, the
    /// others are excess.
    pub(super) shut: u8,
    /// The room of the marginal class above the limit, in 256ths of a call.
    room: u16,
}

/// What bounds are made of, beside the strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Frame {
    /// The limit in force.
    pub(super) limit: f64,
    /// Calls that end in a second.
    pub(super) rate: f64,
    /// Calls in flight at the end of a window in which they became fewer, else 0: bounds that
    /// sink refuse no call that is not to blame.
    pub(super) drain: u32,
    /// Whether the response time without a queue is known.
    pub(super) is_known: bool,
    /// The classes of which calls came of late, a bit for each.
    pub(super) seen: u32,
}

/// What a closed window of bounds has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Calls that ended in it.
    pub(super) ended: u64,
    /// Refused calls of the marginal class.
    pub(super) refused: u32,
    /// A worker was free: no queue stands.
    pub(super) emptied: bool,
}

// === impl Strictness ===

impl Strictness {
    const ROOM: f64 = 256.0;

    pub(super) const fn of_word(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            clean: (word >> 24) as u8,
            shut: (word >> 16) as u8,
            room: word as u16,
        }
    }

    pub(super) const fn word(self) -> u64 {
        (self.generation as u64) << 32
            | (self.clean as u64) << 24
            | (self.shut as u64) << 16
            | self.room as u64
    }

    pub(super) fn room(self) -> f64 {
        f64::from(self.room) / Self::ROOM
    }

    fn with_room(mut self, room: f64) -> Self {
        self.room = (room * Self::ROOM).min(f64::from(u16::MAX)) as u16;
        self
    }

    /// The marginal class; [`CLASSES`] if all are open.
    pub(super) const fn marginal(self) -> usize {
        CLASSES - self.shut as usize
    }

    pub(super) const fn next(mut self) -> Self {
        self.generation = self.generation.wrapping_add(1);
        self
    }

    pub(super) const fn all_open(self) -> Self {
        Self {
            clean: 0,
            shut: 0,
            room: 0,
            ..self
        }
        .next()
    }

    /// One more class is shut, and all those above it of which no call is `seen`.
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

    /// One class less is shut, and all those below it of which no call is `seen`, but `least` stay.
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

    /// What follows from a window.
    pub(super) fn after(self, shown: Shown, frame: &Frame, settings: &LimiterSettings) -> Self {
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
            // The marginal class has room: the next one is to blame.
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
    /// How many calls beyond the limit are a burst.
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

    /// By how many calls in flight the bounds of the first and the last cohort of the marginal class
    /// differ: the number of calls in flight varies by about as much, so the calls of a cohort mostly
    /// pass or are refused together. With more, workers are idle while calls are refused.
    pub(super) fn spread(&self) -> u32 {
        self.limit.max(0.0).sqrt() as u32
    }

    /// The bound of each class.
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
