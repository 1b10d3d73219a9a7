//! Texts for viewers, made once for all viewers and at a limited rate.
//!
//! A [`SharedRun`] is work that is done in steps by the tasks that wait for its result. One task
//! takes the steps; if it is dropped, another task continues. So a run needs no dedicated thread or
//! task, and stops when no task waits for it. [`Rounds`] are successive runs:
//!
//! ```text
//! time      ├─── run ────┼────────── pause ──────────┼─── run ────┼──
//! a request  joins it     gets the last text or waits  begins one
//! ```
//!
//! Only the first few requests of a pause get the last text at once. A client that asks in a loop
//! waits for the next text, so it costs no more processor time than a client that asks rarely.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::base::panics::catch_panic;
use crate::base::sync::Lock;
use crate::base::timer;
use crate::clock::Tick;

/// The minimum time between the end of a run and the start of the next run.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// The pause that each resource adds, so that making texts takes a small share of the time.
const PAUSE_OF_ONE: Duration = Duration::from_micros(100);
/// How many requests get the last text at once: enough for a page that several people have open,
/// too few for a client that asks in a loop.
const AT_ONCE: u32 = 16;

/// Work that is done in steps. It pauses only between two steps, and waits for nothing else.
pub(super) type SteppedWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A function that begins a run. Its argument is the result of the previous run, if any.
type BeginRun<T> = dyn Fn(Option<T>) -> SteppedWork<(T, usize)> + Send + Sync;

/// Successive runs, with a pause after each run.
pub(super) struct Rounds<T> {
    state: Lock<RoundState<T>>,
    make: Box<BeginRun<T>>,
    now: Arc<dyn Fn() -> Tick + Send + Sync>,
}

struct RoundState<T> {
    /// The newest run.
    run: Option<Arc<SharedRun<RunOutput<T>>>>,
    /// The number of further requests that get the result of `run` at once.
    left: u32,
}

/// The output of a run.
#[derive(Clone)]
struct RunOutput<T> {
    /// The text.
    it: T,
    /// When the text was complete.
    at: Tick,
    /// The number of resources that were read for it, which sets the length of the pause.
    read: usize,
}

/// What a request does next.
enum LookStep<T> {
    /// Take the last result at once.
    Take(T),
    /// Wait for the result of this run.
    Join(Arc<SharedRun<RunOutput<T>>>),
    /// Wait for this time and then join the next run; without a timer, take the last result.
    Wait(Duration, Arc<SharedRun<RunOutput<T>>>, T),
}

/// Work that the tasks which wait for its result do together.
pub(super) struct SharedRun<T>(Lock<RunState<T>>);

struct RunState<T> {
    /// `None` while a task takes a step of the work, and once the work is done.
    work: Option<SteppedWork<T>>,
    /// The result, once the work is done. The inner `None` means that it has panicked.
    done: Option<Option<T>>,
    /// The number of the viewer that takes the steps.
    driver: Option<u64>,
    /// The wakers of the viewers that wait, each with the number of its viewer.
    waiting: Vec<(u64, Waker)>,
    /// The number of tasks that wait for the result.
    viewers: usize,
    /// The number of the next viewer.
    next: u64,
}

/// A task that waits for a run.
struct Viewer<T> {
    run: Arc<SharedRun<T>>,
    number: u64,
}

// === impl Rounds ===

impl<T: Clone + Send + 'static> Rounds<T> {
    /// Creates rounds of the work that `make` begins. Its output is the text and the number of
    /// resources that were read for it. `make` gets the text of the round before, if any, to free
    /// it in steps. `now` reads the clock by which the pauses are measured.
    pub(super) fn new(
        make: impl Fn(Option<T>) -> SteppedWork<(T, usize)> + Send + Sync + 'static,
        now: impl Fn() -> Tick + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Lock::new(RoundState { run: None, left: 0 }),
            make: Box::new(make),
            now: Arc::new(now),
        }
    }

    /// Returns the text for a request; `None` if making it has panicked.
    pub(super) async fn look(&self) -> Option<T> {
        let run = match self.step() {
            LookStep::Take(made) => return Some(made),
            LookStep::Join(run) => run,
            LookStep::Wait(time, before, made) => {
                let Ok(timer) = timer::sleep(time) else {
                    return Some(made);
                };
                // Without a timer the pause is over at once.
                let _ = timer.await;
                self.after(&before)
            }
        };
        Some(run.wait().await?.it)
    }

    /// Forgets the last text, so that the next request begins a run.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(super) fn forget(&self) {
        self.state.lock().run = None;
    }

    /// Decides what a new request does, and begins a run if none is running and the pause is over.
    fn step(&self) -> LookStep<T> {
        let now = (self.now)();
        let state = &mut *self.state.lock();
        let Some(run) = state.run.clone().filter(|it| !it.is_abandoned()) else {
            return LookStep::Join(self.begin(state));
        };
        let made = match run.done() {
            Some(Some(made)) => made,
            Some(None) => return LookStep::Join(self.begin(state)),
            None => return LookStep::Join(run),
        };
        let age = Duration::from_nanos(now.as_nanos().saturating_sub(made.at.as_nanos()));
        let read = u32::try_from(made.read).unwrap_or(u32::MAX);
        let pause = SHORTEST_PAUSE.saturating_add(PAUSE_OF_ONE.saturating_mul(read));
        if age >= pause {
            return LookStep::Join(self.begin(state));
        }
        if state.left > 0 {
            state.left -= 1;
            return LookStep::Take(made.it);
        }
        LookStep::Wait(pause - age, run, made.it)
    }

    /// Returns the run for a request that has waited for the pause after `before`: the run that
    /// another request has begun in the meantime, or a new run.
    fn after(&self, before: &Arc<SharedRun<RunOutput<T>>>) -> Arc<SharedRun<RunOutput<T>>> {
        let state = &mut *self.state.lock();
        match &state.run {
            Some(run) if !Arc::ptr_eq(run, before) && !run.is_abandoned() => run.clone(),
            _ => self.begin(state),
        }
    }

    /// Begins a run, which gets the text of the previous run.
    fn begin(&self, state: &mut RoundState<T>) -> Arc<SharedRun<RunOutput<T>>> {
        let before = state.run.take().and_then(|run| run.done());
        let before = before.flatten().map(|made| made.it);
        let (work, now) = ((self.make)(before), self.now.clone());
        let run = SharedRun::new(Box::pin(async move {
            let (it, read) = work.await;
            let at = now();
            RunOutput { it, at, read }
        }));
        state.run = Some(run.clone());
        state.left = AT_ONCE;
        run
    }
}

// === impl SharedRun ===

impl<T: Clone> SharedRun<T> {
    pub(super) fn new(work: SteppedWork<T>) -> Arc<Self> {
        Arc::new(Self(Lock::new(RunState {
            work: Some(work),
            done: None,
            driver: None,
            waiting: Vec::new(),
            viewers: 0,
            next: 0,
        })))
    }

    /// Returns the result; `None` if the work is not done, and `Some(None)` if it has panicked.
    fn done(&self) -> Option<Option<T>> {
        self.0.lock().done.clone()
    }

    /// Returns whether all tasks that waited for the result were dropped before it was ready.
    pub(super) fn is_abandoned(&self) -> bool {
        let state = self.0.lock();
        state.done.is_none() && state.next > 0 && state.viewers == 0
    }

    /// Waits for the result; `None` if the work has panicked.
    pub(super) fn wait(self: &Arc<Self>) -> impl Future<Output = Option<T>> + Send + use<T>
    where
        T: Send + 'static,
    {
        let mut state = self.0.lock();
        let number = state.next;
        (state.next, state.viewers) = (number + 1, state.viewers + 1);
        drop(state);
        Viewer {
            run: self.clone(),
            number,
        }
    }
}

impl<T: Clone> Future for Viewer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let number = self.number;
        let mut state = self.run.0.lock();
        if let Some(done) = &state.done {
            return Poll::Ready(done.clone());
        }
        let is_driver = *state.driver.get_or_insert(number) == number;
        state.waiting.retain(|(viewer, _)| *viewer != number);
        state.waiting.push((number, cx.waker().clone()));
        let Some(mut work) = state.work.take_if(|_| is_driver) else {
            return Poll::Pending;
        };
        drop(state);
        // Work that pauses has already arranged that this task is woken again.
        let polled = catch_panic(|| work.as_mut().poll(cx));
        let mut state = self.run.0.lock();
        let done = match polled {
            Some(Poll::Pending) => {
                state.work = Some(work);
                return Poll::Pending;
            }
            Some(Poll::Ready(made)) => Some(made),
            None => None,
        };
        state.done = Some(done.clone());
        for (viewer, waker) in std::mem::take(&mut state.waiting) {
            if viewer != number {
                waker.wake();
            }
        }
        Poll::Ready(done)
    }
}

impl<T> Drop for Viewer<T> {
    fn drop(&mut self) {
        let mut state = self.run.0.lock();
        state.viewers -= 1;
        state.waiting.retain(|(viewer, _)| *viewer != self.number);
        let is_last = state.viewers == 0;
        let abandoned = state.work.take_if(|_| is_last);
        if state.driver == Some(self.number) {
            state.driver = None;
            if let Some((_, waker)) = state.waiting.first() {
                waker.wake_by_ref();
            }
        }
        drop(state);
        drop(abandoned);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::base::pace::StepPace;
    use crate::clock::ManualClock;

    /// Counts the runs. Each run takes three polls, and the second run panics.
    fn rounds(runs: &Arc<AtomicUsize>, clock: &ManualClock) -> Rounds<usize> {
        let (runs, clock) = (runs.clone(), clock.clone());
        let make = move |_| -> SteppedWork<_> {
            let number = runs.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                let mut pace = StepPace::of(1);
                pace.spend(1).await;
                assert_ne!(number, 1, "the second one");
                pace.spend(1).await;
                (number, 100)
            })
        };
        Rounds::new(make, move || crate::clock::Clock::now(&clock))
    }

    fn poll<T>(look: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
        look.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_viewer_takes_the_steps_until_it_is_dropped() {
        let (runs, clock) = (Arc::default(), ManualClock::new());
        let rounds = rounds(&runs, &clock);
        let mut viewers = [(); 3].map(|()| Box::pin(rounds.look()));
        assert!(viewers.iter_mut().all(|viewer| poll(viewer).is_pending()));
        let [first, mut second, mut third] = viewers;
        drop(first);
        // The viewer that was dropped took the first step.
        assert!(poll(&mut third).is_ready() || poll(&mut second).is_pending());
        let (mut polls, mut done) = (0, Poll::Pending);
        while done.is_pending() {
            polls += 1;
            assert!(polls < 3, "steps were taken twice");
            done = poll(&mut second);
            if done.is_pending() {
                done = poll(&mut third);
            }
        }
        assert_eq!(done, Poll::Ready(Some(0)));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_text_is_old_once_the_pause_after_its_run_is_over() {
        let (runs, clock) = (Arc::default(), ManualClock::new());
        let rounds = rounds(&runs, &clock);
        let look = |rounds: &Rounds<usize>| {
            let mut look = Box::pin(rounds.look());
            while poll(&mut look).is_pending() {}
        };
        look(&rounds);
        // The pause begins at the end of the run, and not at the next request.
        clock.advance(Duration::from_millis(259));
        look(&rounds);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        clock.advance(Duration::from_millis(1));
        look(&rounds);
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn work_that_nobody_waits_for_is_not_continued() {
        let (runs, clock) = (Arc::default(), ManualClock::new());
        let rounds = rounds(&runs, &clock);
        let mut look = Box::pin(rounds.look());
        assert!(poll(&mut look).is_pending());
        drop(look);
        let mut look = Box::pin(rounds.look());
        assert!(poll(&mut look).is_pending());
        assert_eq!(runs.load(Ordering::Relaxed), 2, "it begins anew");
        // The second run panics, and the next request begins the third.
        assert_eq!(poll(&mut look), Poll::Ready(None));
        let mut look = Box::pin(rounds.look());
        while poll(&mut look).is_pending() {}
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
