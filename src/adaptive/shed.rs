//! The bounds by class in atomics: calls read them, refusals make them stricter, and the closer of
//! a window relaxes them.
//!
//! An admitted call reads one bound, and notes its class if it is the first call of that class in
//! the window. The bounds are published one by one, in any order. While they are published, calls
//! can still be judged by an old bound of their class.
//!
//! # Changes of the strictness
//!
//! The word of the [`Strictness`] is changed by compare-and-swap only. A refusal shuts a class only
//! under three conditions: the class of the refused call is open in the word that is replaced, the
//! bounds of that word are published, and the calls in flight are still at the bound. So of a
//! thousand refusals in one burst only one shuts a class. A late refusal cannot shut a class that
//! has been reopened, as reopening raised the generation. The closer gives up its change if a
//! refusal changed the word in between, as only a refusal makes it stricter.
//!
//! # Publishing
//!
//! Several threads can publish at once, and a suspended thread can write old bounds over newer
//! ones. So each thread ends with a compare-and-swap that checks whether the word is still the one
//! it began with. If the word was changed before, the thread publishes again. If the word is
//! changed later, the thread that changes it sees all these stores, and its own stores come after
//! them. The closer changes the word in each window, so this also holds for learned values.

use super::bounds::{BoundsObserved, CLASSES, Frame, Strictness};
use super::estimate::LimiterSettings;
use crate::base::sync::{AtomicU32, AtomicU64, Bug, Ordering, planted};
use crate::call::Importance;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Shed {
    /// The bound of each class on the calls in flight.
    bounds: [AtomicU32; CLASSES],
    /// The difference between the bounds of the first and the last cohort of a class; 0 except for
    /// the marginal class.
    spreads: [AtomicU32; CLASSES],
    /// The generation of the published bounds and spreads.
    published: AtomicU32,
    /// The [`Strictness`] in force, as one word.
    word: AtomicU64,
    /// The classes of which calls arrived in this window, one bit each.
    seen: AtomicU32,
    /// The classes of which calls arrived in the previous windows, one bit each.
    recent: AtomicU32,
    /// The fewest calls in flight after the end of a call, in this window.
    lowest: AtomicU32,
    /// The refused calls of each class in this window.
    refused: [AtomicU32; CLASSES],
    /// Flags that refusals set for the next closer of a window of samples: [`REFUSED`] and
    /// [`BEGAN`].
    flags: AtomicU32,
    frame: FrameCell,
}

/// A call was refused since the last window of samples closed.
const REFUSED: u32 = 1;
/// A class was shut while all classes were open.
const BEGAN: u32 = 2;

/// A [`Frame`] in atomics that only the closer writes. The classes seen are in `Shed::recent`.
#[derive(Debug, Default)]
struct FrameCell {
    limit: AtomicU64,
    rate: AtomicU64,
    drain: AtomicU32,
    is_known: AtomicU32,
}

/// The counts of a window of bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowFigures {
    /// The fewest calls in flight after the end of a call.
    pub(super) lowest: u32,
    /// The refused calls of each class.
    refused: [u32; CLASSES],
    /// The classes of which calls arrived, one bit each.
    pub(super) seen: u32,
}

// === impl WindowFigures ===

impl WindowFigures {
    /// Returns the number of refused calls of the marginal class; 0 if all classes are open.
    pub(super) fn refused(&self, strictness: Strictness) -> u32 {
        let refused = self.refused.get(strictness.marginal());
        refused.copied().unwrap_or(0)
    }
}

// === impl Shed ===

impl Shed {
    /// Creates the state with all classes open, and no bounds published.
    pub(super) fn new() -> Self {
        Self {
            bounds: Default::default(),
            spreads: Default::default(),
            published: AtomicU32::new(0),
            word: AtomicU64::new(Strictness::default().word()),
            seen: AtomicU32::new(0),
            recent: AtomicU32::new(0),
            lowest: AtomicU32::new(u32::MAX),
            refused: Default::default(),
            flags: AtomicU32::new(0),
            frame: FrameCell::default(),
        }
    }

    /// Returns the bound on calls in flight for a call of this importance, and notes the class of
    /// the call.
    #[inline]
    pub(super) fn bound(&self, importance: Importance, settings: &LimiterSettings) -> u32 {
        let class = importance.class();
        let is_new = self.seen.load(Ordering::Relaxed) & 1 << class == 0;
        if is_new || importance.has_cohort() {
            return self.bound_further(importance, settings);
        }
        self.bounds[class].load(Ordering::Relaxed)
    }

    /// The slow path of `bound`: notes a class that is new in this window, and lowers the bound by
    /// the cohort of the call. If the class becomes marginal, or ceases to be, between the two
    /// loads, the bound and the spread belong to different generations, which the next call
    /// corrects.
    #[cold]
    fn bound_further(&self, importance: Importance, settings: &LimiterSettings) -> u32 {
        let class = importance.class();
        let bit = 1 << class;
        if self.seen.load(Ordering::Relaxed) & bit == 0 {
            self.see(bit, settings);
        }
        let bound = self.bounds[class].load(Ordering::Relaxed);
        let Some(cohort) = importance.cohort() else {
            return bound;
        };
        let spread = self.spreads[class].load(Ordering::Relaxed);
        // If the bound of the class admits any call, so does the bound of each cohort.
        let least = bound.min(1);
        bound.saturating_sub(cohort.share(spread)).max(least)
    }

    /// Returns the bound of each class, for readers.
    pub(super) fn bounds(&self) -> [u32; CLASSES] {
        std::array::from_fn(|class| self.bounds[class].load(Ordering::Relaxed))
    }

    /// Returns the strictness in force.
    pub(super) fn strictness(&self) -> Strictness {
        Strictness::of_word(self.word.load(Ordering::Relaxed))
    }

    /// Notes the first call of a class in this window. `bit` is the bit of the class.
    #[cold]
    fn see(&self, bit: u32, settings: &LimiterSettings) {
        let before = self.seen();
        if planted(Bug::SeenByStore) {
            let seen = self.seen.load(Ordering::Relaxed);
            self.seen.store(seen | bit, Ordering::Relaxed);
        } else {
            self.seen.fetch_or(bit, Ordering::Relaxed);
        }
        if before & bit == 0 && before != 0 {
            // With a second class, bursts may be larger.
            self.publish(settings);
        }
    }

    /// Returns the classes of which calls arrived in this window or in the previous ones.
    fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed) | self.recent.load(Ordering::Relaxed)
    }

    /// Counts a refused call of this `class`. Shuts one more class if `class` is open, the bounds
    /// of the current word are published, and `in_flight` is still at the bound of `class`.
    #[cold]
    pub(super) fn refuse(
        &self,
        class: usize,
        in_flight: impl Fn() -> u32,
        settings: &LimiterSettings,
    ) {
        self.refused[class].fetch_add(1, Ordering::Relaxed);
        self.flags.fetch_or(REFUSED, Ordering::Relaxed);
        if self.frame.is_known.load(Ordering::Relaxed) == 0 {
            // The response time without a queue is not yet known, so a queue cannot be recognised.
            return;
        }
        // Acquire: pairs with the swap that wrote the word. The load of `published` below pairs
        // with its store in `publish`.
        let word = self.word.load(Ordering::Acquire);
        let found = Strictness::of_word(word);
        let is_open = class < found.marginal();
        let is_published = self.published.load(Ordering::Acquire) == found.generation;
        let is_full = || in_flight() >= self.bounds[class].load(Ordering::Relaxed);
        let looks = !planted(Bug::ShutAnyGeneration);
        if (!is_open && !planted(Bug::ShutWithoutLook)) || looks && !(is_published && is_full()) {
            return;
        }
        let next = found.shut_more(self.seen());
        let is_won = if planted(Bug::ShutByAdd) {
            let step = next.word().wrapping_sub(word);
            self.word.fetch_add(step, Ordering::AcqRel);
            true
        } else if planted(Bug::ShutAnyGeneration) {
            self.word.store(next.word(), Ordering::Release);
            true
        } else {
            self.replace(word, next)
        };
        if is_won {
            if found.shut == 0 {
                self.flags.fetch_or(BEGAN, Ordering::Relaxed);
            }
            self.publish(settings);
        }
    }

    /// Replaces `word` by `next`. Returns false if the word has changed since it was read.
    fn replace(&self, word: u64, next: Strictness) -> bool {
        // Acquire and release: this thread sees all stores of the last thread that swapped the
        // word, and the next thread sees the stores of this one.
        let (won, lost) = (Ordering::AcqRel, Ordering::Acquire);
        self.word
            .compare_exchange(word, next.word(), won, lost)
            .is_ok()
    }

    /// Notes the end of a call, after which `in_flight` calls are in flight.
    #[inline]
    pub(super) fn ended(&self, in_flight: u32) {
        if in_flight < self.lowest.load(Ordering::Relaxed) {
            self.lowest.fetch_min(in_flight, Ordering::Relaxed);
        }
    }

    /// Takes the counts of the window, and begins the next window. Only the closer calls it.
    pub(super) fn gather(&self) -> WindowFigures {
        let lowest = if planted(Bug::LowestInTwoSteps) {
            let lowest = self.lowest.load(Ordering::Relaxed);
            self.lowest.store(u32::MAX, Ordering::Relaxed);
            lowest
        } else {
            self.lowest.swap(u32::MAX, Ordering::Relaxed)
        };
        WindowFigures {
            lowest,
            refused: std::array::from_fn(|class| self.refused[class].swap(0, Ordering::Relaxed)),
            seen: self.seen.swap(0, Ordering::Relaxed),
        }
    }

    /// Replaces the strictness `found` by the one that follows from the observations `shown` of a
    /// window, unless a refusal has changed it in between. Only the closer calls it, and then
    /// [publishes](Self::publish).
    pub(super) fn relax(
        &self,
        found: Strictness,
        shown: BoundsObserved,
        frame: &Frame,
        settings: &LimiterSettings,
    ) {
        let next = found.after(shown, frame, settings);
        if planted(Bug::RelaxByStore) {
            self.word.store(next.word(), Ordering::Release);
        } else if !self.replace(found.word(), next) {
            self.renew();
        }
    }

    /// Begins a new generation, because the learned values have changed.
    pub(super) fn renew(&self) {
        self.word
            .fetch_add(Strictness::default().next().word(), Ordering::AcqRel);
    }

    /// Opens all classes.
    pub(super) fn reset(&self) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if self.replace(word, Strictness::of_word(word).all_open()) {
                return;
            }
            word = self.word.load(Ordering::Acquire);
        }
    }

    /// Stores the inputs for the bounds. Only the closer calls it.
    pub(super) fn set_frame(&self, frame: &Frame) {
        let cell = &self.frame;
        cell.limit.store(frame.limit.to_bits(), Ordering::Relaxed);
        cell.rate.store(frame.rate.to_bits(), Ordering::Relaxed);
        cell.drain.store(frame.drain, Ordering::Relaxed);
        cell.is_known
            .store(frame.is_known.into(), Ordering::Relaxed);
        self.recent.store(frame.seen, Ordering::Relaxed);
    }

    /// Returns the inputs for the bounds, with the classes seen until now.
    fn frame(&self) -> Frame {
        let cell = &self.frame;
        Frame {
            limit: f64::from_bits(cell.limit.load(Ordering::Relaxed)),
            rate: f64::from_bits(cell.rate.load(Ordering::Relaxed)),
            drain: cell.drain.load(Ordering::Relaxed),
            is_known: cell.is_known.load(Ordering::Relaxed) != 0,
            seen: self.seen(),
        }
    }

    /// Publishes the bounds of the current word.
    pub(super) fn publish(&self, settings: &LimiterSettings) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let strictness = Strictness::of_word(word);
            let frame = self.frame();
            let bounds = frame.bounds(strictness, settings);
            for (class, bound) in bounds.into_iter().enumerate() {
                self.bounds[class].store(bound, Ordering::Relaxed);
                let is_marginal = class == strictness.marginal();
                let spread = if is_marginal { frame.spread() } else { 0 };
                self.spreads[class].store(spread, Ordering::Relaxed);
            }
            // Release: a refusal that reads this reads the bounds as well.
            self.published
                .store(strictness.generation, Ordering::Release);
            if self.replace(word, strictness) {
                return;
            }
        }
    }

    /// Takes the flags that refusals have set: whether a call was refused, and whether shedding
    /// began.
    pub(super) fn take_flags(&self) -> (bool, bool) {
        let flags = self.flags.swap(0, Ordering::Relaxed);
        (flags & REFUSED != 0, flags & BEGAN != 0)
    }
}
