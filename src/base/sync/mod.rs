//! The only module through which the crate uses atomics, shared pointers, locks and thread-locals.
//!
//! Everything that the models of `src/stat/models/mod.rs` check takes its atomics from here. A
//! normal build gets the types of the standard library; a test build with `--cfg sentinel_loom`
//! gets those of loom, which runs a model through every interleaving that its bounds allow.

#[cfg(not(all(test, sentinel_loom)))]
mod imp {
    pub(super) use std::sync::MutexGuard;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
    pub(crate) use std::sync::{Arc, Weak};

    #[expect(clippy::disallowed_types, reason = "this is the door")]
    pub(super) type Mutex<T> = std::sync::Mutex<T>;

    #[inline]
    pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
        Arc::downgrade(arc)
    }

    /// Returns whether `weak` refers to `value`.
    pub(crate) fn is_reference<T>(weak: &Weak<T>, value: &T) -> bool {
        std::ptr::eq(weak.as_ptr(), value)
    }
}

#[cfg(all(test, sentinel_loom))]
mod imp {
    pub(crate) use super::paused::{AtomicU32, AtomicU64};
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, fence};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    /// A stand-in for `Weak`, which loom lacks: it never upgrades. No model keeps a `Weak`.
    pub(crate) struct Weak<T>(std::marker::PhantomData<T>);

    pub(crate) fn downgrade<T>(_: &Arc<T>) -> Weak<T> {
        Weak(std::marker::PhantomData)
    }

    pub(crate) fn is_reference<T>(_: &Weak<T>, _: &T) -> bool {
        false
    }

    impl<T> Weak<T> {
        pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
            None
        }

        pub(crate) fn strong_count(&self) -> usize {
            0
        }
    }
}

#[cfg(all(test, sentinel_loom))]
mod paused;

pub(crate) use imp::*;
use std::sync::PoisonError;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::thread_local;

/// Returns the bytes on the heap of the value in an [`Arc`], with its two counts.
pub(crate) const fn shared_size<T>() -> usize {
    size_of::<(usize, usize, T)>()
}
use std::time::Duration;

/// Returns a list of `count` words. The word at each place starts with the value of `first(place)`.
pub(crate) fn words(count: usize, first: &mut dyn FnMut(usize) -> u64) -> Box<[AtomicU64]> {
    let mut words = Vec::with_capacity(count);
    for place in 0..count {
        words.push(AtomicU64::new(first(place)));
    }
    words.into()
}

/// A mutual exclusion lock without poison: the guarded value is changed in steps that each leave it
/// whole, so a panic while it is held does no harm.
///
/// Locks are taken for new keys, reloads, snapshots, changes of hooks, probes and watches. A call
/// with known keys takes one only during a reload or to read a probe. It tries to take one, without
/// waiting, when the clock has stepped back, and when a window of an adaptive limit is due at the
/// end of the call. A call that rules in shadow mode judge takes one more lock, which no other call
/// uses.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(imp::Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> imp::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the guard, or `None` while another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<imp::MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A one-shot stop flag that a thread can wait on with a timeout. Models do not look at it.
#[derive(Debug, Default)]
#[expect(clippy::disallowed_types, reason = "this is the door")]
pub(crate) struct StopSignal {
    is_set: std::sync::Mutex<bool>,
    changed: std::sync::Condvar,
}

impl StopSignal {
    /// Sets the flag, and wakes the threads that wait for it.
    pub(crate) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until the flag is set, for at most `time`. Returns whether it is set: at once if it
    /// was before.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_set, time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// As a waker, it wakes the thread that waits for it.
impl std::task::Wake for StopSignal {
    fn wake(self: std::sync::Arc<Self>) {
        self.set();
    }
}

/// Bugs that a model plants on purpose, to show that it would find them.
///
/// Outside of tests [`planted`] is a constant `false`, and the compiler removes
/// the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A taker adds without comparing the word that it judged.
    BlindTake,
    /// An addition does not open the bucket of its clock first.
    AddWithoutRoll,
    /// An opener does not seal the bucket that it closes.
    OpenWithoutSeal,
    /// An opener continues although another opener has written its checkpoint first.
    SkipPublish,
    /// A thread that misses a checkpoint waits for the thread whose jump is under way.
    WaitInGap,
    /// A reader does not look whether the head has moved on meanwhile.
    ReadAcrossBuckets,
    /// A slow reader helps the head on from a bucket that it has left.
    HelpFromBehind,
    /// A reader accepts a sum of taken tokens that is below the newest bucket's checkpoint.
    TakenBelowCut,
    /// A refund does not look whether its bucket is still open.
    BlindRefund,
    /// A call with a reading from the day before moves the count of its key back to that day.
    PeriodGoesBack,
    /// The checkpoint of a new bucket leaves the held tokens in the old bucket.
    HeldStayBehind,
    /// A cancelled loan refunds its tokens before it releases them.
    CancelBackwards,
    /// A loan in a future window is not judged again after it was placed.
    LoanLooksOnce,
    /// A count that begins to spread moves its word to a stripe.
    SpreadMovesWord,
    /// A statistic head moves before the checkpoint is taken.
    HeadBeforeCut,
    /// An evictor reads an entry before all other threads have released it.
    ReadBeforeLast,
    /// An evictor that has the only reference to an entry does not look at it again.
    LetGoAtFirstLook,
    /// In a full table, a call does not wait for another call that is adding the same name.
    SameKeyIsAnother,
    /// In a full table, a call that finds another name being added does not look for its own name
    /// again.
    PlaceWithoutSecondLook,
    /// The opener of a second checks by a plain load whether its checkpoint is needed.
    MinuteByLoad,
    /// A gauge is raised first, and lowered again if that was too much.
    ClaimThenCheck,
    /// A gauge is raised without comparing the value that was judged.
    CheckThenClaim,
    /// A breaker opens at a pushback before it is known for how long.
    PushbackAfterState,
    /// A slot is released without publishing the work that was done with it.
    FreeRelaxed,
    /// A call that has a slot but no tokens yet is treated as a running call.
    EnterAsStarted,
    /// A call that lines up for a slot does not look whether one has become free.
    WaitWithoutLook,
    /// A call that lines up for a slot does not touch the counts of ended calls, so a call that
    /// ends may miss it.
    WaitUnseen,
    /// A call records by a plain store that it stands in line, and so may miss a reload.
    LineUpByStore,
    /// A reload checks by a plain load whether calls stand in line, so a call may miss the reload.
    LineLookByLoad,
    /// A call that leaves the line does not look whether it has got a slot.
    LeaveBlindly,
    /// A call that lines up for its key marks the word before it has the lock, and not again.
    MarkBeforeLock,
    /// A new call counts the running calls of its key, and not the waiting calls.
    OvertakeLine,
    /// An extreme is written without comparing the extreme that it was merged with.
    BlindExtreme,
    /// A late opener starts the extremes of a bucket whose place has a newer bucket.
    OpenLate,
    /// A freeze does not mark the word, so that late takers still pass there.
    FreezeWithoutMark,
    /// A checkpoint of passes comes from a ring that has ended.
    CutFromOldRing,
    /// A call that finds a throttle's queue empty writes its turn without comparing.
    StoreAtIdle,
    /// A caller moves a throttle's queue first, and back if it is refused.
    MoveThenCheck,
    /// A turn is cancelled without looking whether others stand behind it.
    BlindLeave,
    /// A warm-up is also refilled by callers that have lost the claim.
    FillUnclaimed,
    /// A refill of a warm-up overwrites that of another step.
    FillBlind,
    /// A refill of a warm-up writes its count of passes over that of a later step.
    PassedGoesBack,
    /// A breaker counts a call without checking to which generation the call belongs.
    CountInAnyGeneration,
    /// A breaker counts a call in a bucket that is no longer the newest.
    CountBehindHead,
    /// A breaker empties a cell without looking whether it has gone to a newer bucket.
    SkipBehindHead,
    /// A breaker's head leaps so far that old stamps look new, before the ring is emptied.
    LeapWithStamps,
    /// A breaker notes that there is a bad call only after it has counted the call.
    NoteBadAfter,
    /// A breaker writes its count without comparing the count that it added to.
    BlindStamped,
    /// A probe is taken without comparing the state in which it was promised.
    BlindProbe,
    /// Places of probes are passed on before the start of the period is written.
    PeriodAfterPlaces,
    /// The start of a period is written without looking whether it is late.
    BlindPeriod,
    /// The end of a probe is not tried again if another change of the word came first.
    EndTriesOnce,
    /// A call reads the epoch after the states that it passes in.
    EpochAfterStates,
    /// A probe looks at the states before it draws its epoch, and not again.
    ProbeLooksOnce,
    /// A thread that empties cells for a generation continues after another change of state.
    ForgetLate,
    /// A change of state is reported by a thread that did not make it.
    TellWithoutWinning,
    /// A retry time is written without looking whether it is late.
    BlindMoment,
    /// The first retry time stands, also if it is the retry time of a reader with an old clock
    /// reading.
    FirstMomentStands,
    /// The longest distance of a retry time is read before the retry time itself.
    LongestBeforeMoment,
    /// A closer reads the samples first, and empties the window in a second step.
    CloseInTwoSteps,
    /// A call that found a sampling window due closes the present window without another check.
    CloseByHint,
    /// A refusal shuts a class without comparing the word that it read.
    ShutByAdd,
    /// A refusal does not look whether its class is open.
    ShutWithoutLook,
    /// A refusal does not look whether its class has been reopened.
    ShutAnyGeneration,
    /// The closer of a window overwrites what a refusal has shut.
    RelaxByStore,
    /// The closer reads the fewest calls in flight first, and resets them in a second step.
    LowestInTwoSteps,
    /// The first call of a class overwrites the classes that have been seen.
    SeenByStore,
    /// A check for a crowd of refusing threads overwrites the check of another thread.
    BlindLook,
    /// A thread that finds a reading due takes it without claiming it first.
    SampleWithoutClaim,
    /// The next due time is published before the readings are stored.
    DueBeforeReadings,
    /// A call that has waited for the lock of a new key does not look for it again.
    InsertWithoutSecondLook,
    /// A call that has read a word does not check again to which key the word belongs.
    HitWithoutSecondLook,
    /// A call that is refused does not look whether the word is still the word that it judged.
    RefusalWithoutThirdLook,
    /// A slot that had no owner is free, even if its word says otherwise by now.
    SpareByTag,
    /// The mark of a slot that changes hands is judged like a word when a new key needs a slot.
    SpareClaimed,
    /// The tag of a new owner is stored before the word of the last owner is claimed.
    TagBeforeClaim,
    /// The word of a new owner is stored before its tag.
    WordBeforeTag,
    /// A reader takes the mark of a slot that changes hands for a word.
    ReadClaimed,
    /// A debt that ends just now is at rest.
    RestTooSoon,
    /// A call that is refunded reads the clock before the word.
    RefundByEarlierTime,
    /// A key is reset by a time that was read before its word.
    ResetByEarlierTime,
    /// A debt is shortened by a time that was read before its word.
    NewRateByEarlierTime,
    /// A key is blocked for a call that has been refused, even if it has room by now.
    BlockBlindly,
    /// A call treats a debt at another rate like a debt at its own rate.
    OtherRateAsOwn,
    /// The owners of a slot count from one common zero, without an epoch for each owner.
    OwnersWithoutEpoch,
    /// A taker of a lease subtracts without comparing the word that it judged.
    LeaseBareTake,
    /// New permits are stored over a lease.
    LeaseBlindPut,
    /// A lease that has ended is emptied by an atomic store instead of a swap.
    LeaseBlindClose,
    /// A refund does not check which bucket the lease belongs to.
    LeaseBlindRefund,
    /// A cell is exhausted even if it holds permits.
    LeaseBlindExhaust,
    /// Permits of a bucket that has not begun are refunded to calls of the present bucket.
    RefundBeforeBucket,
    /// A call that leaves looks for its answer before it records that it leaves.
    TicketLooksThenLeaves,
    /// A call that finds no answer does not look again before it waits.
    TicketLooksThenWaits,
    /// A call that has left counts as answered.
    TicketAnswersGone,
    /// A call that is to be judged late looks for its answer before it has the lock.
    LateLooksThenKeeps,
    /// A gauge of reservations that is lowered and raised again has its old value.
    GaugeWithoutVersion,
    /// A provider's remaining quota is recorded, but calls that have read the old quota are
    /// admitted.
    TellWithoutVersion,
    /// A settlement releases its reservation before it books its cost.
    ReleaseBeforeBook,
    /// A charge or a settlement does not compare the account that it changes.
    RestReleasedTwice,
    /// A key that has reserved something may lose its slot.
    RestIgnoresPin,
    /// The unused part of a reservation is returned to the present bucket.
    BackToPresent,
    /// The refiller is notified of returned permits before they are counted.
    LookBeforeBack,
    /// The one permit of a call that has reserved nothing is taken without a swap.
    SpareTakenTwice,
}

/// Returns whether the running model has planted `bug`.
#[cfg(not(all(test, sentinel_loom)))]
#[inline(always)]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(all(test, sentinel_loom))]
pub(crate) use fault::planted;

#[cfg(all(test, sentinel_loom))]
pub(crate) mod fault {
    //! The bug that the model on this thread has planted.

    use super::Bug;
    use std::cell::Cell;

    std::thread_local! {
        // loom runs all threads of a model on the thread that called it.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.with(|planted| planted.get() == Some(bug))
    }

    /// Plants `bug` until this thread ends. Each test runs on its own thread.
    pub(crate) fn plant(bug: Bug) {
        PLANTED.with(|planted| planted.set(Some(bug)));
    }

    /// Runs `model` through all interleavings with at most `bound` preemptions.
    ///
    /// `SENTINEL_LOOM_MORE` is added to the bound of each model; `LOOM_MAX_PREEMPTIONS` sets one
    /// bound for all models instead.
    pub(crate) fn check(bound: usize, model: impl Fn() + Sync + Send + 'static) {
        let more = std::env::var("SENTINEL_LOOM_MORE").map_or(0, |more| {
            more.parse().expect("SENTINEL_LOOM_MORE is a number")
        });
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(bound + more));
        // A normal run has far fewer branches. Only a run in which a thread waits for another
        // reaches this number.
        builder.max_branches = 2_000;
        builder.check(model);
    }

    /// Declares a model with a bound on preemptions, and its twins with planted bugs, which must
    /// fail. For a model without a twin, a patch of `ci/mutants` that names it plants the bug.
    macro_rules! model {
        ($name:ident at $bound:literal; $body:expr) => {
            #[test]
            fn $name() {
                $crate::base::sync::fault::check($bound, $body);
            }
        };
        ($name:ident at $bound:literal fails with $($twin:ident: $bug:ident),+; $body:expr) => {
            $crate::base::sync::fault::model!($name at $bound; $body);

            $(
                #[test]
                #[should_panic]
                fn $twin() {
                    $crate::base::sync::fault::plant($crate::base::sync::Bug::$bug);
                    $crate::base::sync::fault::check($bound, $body);
                }
            )+
        };
    }

    pub(crate) use model;
}
