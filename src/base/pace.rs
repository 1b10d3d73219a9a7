//! Work in small steps: a future that pauses now and then, so that it holds no thread for long.
//!
//! An `async` function that reads a whole engine counts its work by a [`StepPace`], which returns
//! to the executor after each bounded amount of work, so that a server's worker runs other tasks in
//! between. A caller that can block runs the same function [at once](at_once), by a pace without
//! pauses.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Counts work, and pauses after each portion.
#[derive(Debug)]
pub(crate) struct StepPace {
    /// The work between two pauses; `None` for no pauses.
    portion: Option<usize>,
    /// The work that is left before the next pause.
    left: usize,
}

/// A future that yields to the executor once, and is polled again soon.
#[derive(Debug)]
struct Pause {
    has_paused: bool,
}

// === impl StepPace ===

impl StepPace {
    /// Creates a pace that pauses after each `portion`.
    pub(crate) const fn of(portion: usize) -> Self {
        Self {
            portion: Some(portion),
            left: portion,
        }
    }

    /// Creates a pace that never pauses.
    pub(crate) const fn without_pauses() -> Self {
        Self {
            portion: None,
            left: 0,
        }
    }

    /// Returns how much work can be done before the next pause.
    pub(crate) const fn left(&self) -> usize {
        match self.portion {
            Some(_) => self.left,
            None => usize::MAX,
        }
    }

    /// Counts `work` that was done, and pauses if the portion is used up.
    pub(crate) async fn spend(&mut self, work: usize) {
        let Some(portion) = self.portion else {
            return;
        };
        self.left = self.left.saturating_sub(work);
        if self.left == 0 {
            self.left = portion;
            Pause { has_paused: false }.await;
        }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_paused {
            return Poll::Ready(());
        }
        self.has_paused = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Returns the output of `work`, which must wait for nothing but pauses.
pub(crate) fn at_once<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = work.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    async fn count(mut pace: StepPace, upto: usize) -> usize {
        for _ in 0..upto {
            pace.spend(1).await;
        }
        upto
    }

    #[test]
    fn work_pauses_after_each_portion_and_without_pauses_is_done_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut work = pin!(count(StepPace::of(3), 10));
        let polls = (0..9).take_while(|_| work.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.count(), 3);
        let mut work = pin!(count(StepPace::without_pauses(), 1_000));
        assert!(work.as_mut().poll(&mut cx).is_ready());
        assert_eq!(at_once(count(StepPace::of(3), 10)), 10);
    }
}
