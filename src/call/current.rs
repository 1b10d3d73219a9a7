//! The class and the cohort of the call that a thread is polling.
//!
//! A thread polls different calls in turn, so the class is set for each poll. After the poll, the
//! previous class is restored, even if the poll panics.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Cohort, Criticality, Importance};
use crate::base::sync::thread_local;

thread_local! {
    /// The class and cohort of the call that the thread polls; `None` if it polls no call with a
    /// known class.
    static CURRENT: Cell<Option<Importance>> = const { Cell::new(None) };
}

pin_project! {
    /// A future that runs as a part of a call of one class: see [`Criticality::scope`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    /// use tower_sentinel::Criticality;
    /// use tower_sentinel::call::InScope;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let report: InScope<_> = Criticality::Sheddable.scope(async { Criticality::current() });
    /// assert_eq!(report.await, Some(Criticality::Sheddable));
    /// assert_eq!(Criticality::current(), None);
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping it only drops the future inside.
    #[derive(Clone, Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InScope<F> {
        #[pin]
        future: F,
        importance: Importance,
    }
}

/// Restores the previous class and cohort on drop.
#[must_use]
pub(crate) struct Restore(Option<Importance>);

impl Criticality {
    /// Returns the class of the call that is being polled. It is set by the innermost
    /// [`scope`](Self::scope), or by a layer that
    /// [propagates](crate::SentinelLayer::propagate_criticality) the class. Returns `None`
    /// elsewhere, also in a task that the call has spawned.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.get().map(Importance::criticality)
    }

    /// Runs `future` as a part of a call of this class: while the future is polled, the class is
    /// [`current`](Self::current). The [cohort](Cohort) is that of the call that creates this
    /// future. A spawned task does not inherit the class of the call:
    ///
    /// ```
    /// use tower_sentinel::Criticality;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let handler = Criticality::Sheddable.scope(async {
    ///     let class = Criticality::current().unwrap_or_default();
    ///     let lost = tokio::spawn(async { Criticality::current() });
    ///     let kept = tokio::spawn(class.scope(async { Criticality::current() }));
    ///     (lost.await.unwrap(), kept.await.unwrap())
    /// });
    /// assert_eq!(handler.await, (None, Some(Criticality::Sheddable)));
    /// # });
    /// ```
    pub fn scope<F: Future>(self, future: F) -> InScope<F> {
        InScope {
            future,
            importance: Importance::of(self).with_cohort(Cohort::current()),
        }
    }
}

impl Cohort {
    /// Returns the cohort of the call that is being polled, see [`Criticality::current`].
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.get()?.cohort()
    }
}

impl Importance {
    /// Makes this class and cohort the current ones, until the value is dropped.
    pub(crate) fn enter(self) -> Restore {
        Restore(CURRENT.replace(Some(self)))
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _restore = this.importance.enter();
        this.future.poll(cx)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}
