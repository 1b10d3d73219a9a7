//! The states of a call within a response future: it waits for its turn, runs, or was
//! refused.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::blocked::Blocked;
use crate::entry::{Entry, end_on_panic};
use crate::timer::{self, NoTimer, Timer};
use crate::waiting::Waiting;

pin_project! {
    /// See the [module](self). A refusal is kept as an `R` until the future is polled.
    #[project = CallStateProj]
    pub(super) enum CallState<S, Req, R>
    where
        S: Service<Req>,
    {
        Running {
            #[pin]
            future: S::Future,
            // None if the call was skipped.
            entry: Option<Entry>,
        },
        Waiting {
            wait: Box<Wait<S, Req>>,
        },
        Refused {
            // Taken when the future is ready.
            refusal: Option<R>,
        },
    }
}

/// A call that waits: in a box of its own, because only few do.
pub(super) struct Wait<S, Req> {
    service: S,
    /// Taken when the wait is over.
    call: Option<(Waiting, Req)>,
    sleep: Option<Timer>,
    is_over: bool,
}

/// What becomes of a call after its wait.
enum AfterWait<F, Req, E> {
    Running(F, Entry),
    Refused(Blocked, Req),
    /// The service does not become ready: the call never runs.
    Unready(E),
}

// === impl CallState ===

impl<S, Req, R> CallState<S, Req, R>
where
    S: Service<Req>,
{
    /// A call that begins to run.
    pub(super) fn running(future: S::Future, entry: Entry) -> Self {
        Self::Running {
            future,
            entry: Some(entry.expecting_response()),
        }
    }

    /// A call that was refused.
    #[inline]
    pub(super) fn refused(refusal: R) -> Self {
        Self::Refused {
            refusal: Some(refusal),
        }
    }

    /// A call that waits. `service` is ready.
    pub(super) fn waiting(waiting: Waiting, service: &mut S, request: Req) -> Self
    where
        S: Clone,
    {
        // Two clones: if the ready instance stayed in place, it could hold the very permit
        // that this call will wait for.
        let own = service.clone();
        drop_readiness(service);
        Self::Waiting {
            wait: Box::new(Wait {
                service: own,
                call: Some((waiting, request)),
                sleep: None,
                is_over: false,
            }),
        }
    }

    /// Polls the call, through its wait if it waits. It is ready once, with what one of
    /// these makes of its end:
    ///
    /// * `on_answer`, of the service's answer and the call's entry, which a call that was
    ///   skipped has none of. Both are large: the entry is lent, and the result is returned as
    ///   it is.
    /// * `on_refusal`, of a refusal, which after a wait is made by `refuse`.
    /// * `on_unready`, of the error of a service that was not ready after the wait: then the
    ///   call never ran.
    #[inline]
    pub(super) fn poll<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        on_answer: impl FnOnce(Result<S::Response, S::Error>, &mut Option<Entry>) -> Poll<T>,
        refuse: impl FnOnce(Blocked, &Req) -> R,
        on_refusal: impl FnOnce(R) -> T,
        on_unready: impl FnOnce(S::Error) -> T,
    ) -> Poll<T> {
        if let CallStateProj::Waiting { wait } = self.as_mut().project() {
            match ready!(wait.poll(cx)) {
                AfterWait::Running(future, entry) => self.set(Self::running(future, entry)),
                AfterWait::Refused(blocked, request) => {
                    // Drops the ready instance now, even if the future lives on.
                    self.set(Self::Refused { refusal: None });
                    return Poll::Ready(on_refusal(refuse(blocked, &request)));
                }
                AfterWait::Unready(error) => return Poll::Ready(on_unready(error)),
            }
        }
        match self.project() {
            CallStateProj::Running { future, entry } => end_on_panic(entry, |entry| {
                let answer = ready!(future.poll(cx));
                on_answer(answer, entry)
            }),
            CallStateProj::Refused { refusal } => {
                let refusal = refusal.take().expect("polled after it was ready");
                Poll::Ready(on_refusal(refusal))
            }
            CallStateProj::Waiting { .. } => unreachable!("its wait is over"),
        }
    }
}

// === impl Wait ===

impl<S, Req> Wait<S, Req>
where
    S: Service<Req>,
{
    /// Sleeps until the call's turn, then waits until the service is ready, then starts the
    /// call.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AfterWait<S::Future, Req, S::Error>> {
        if !self.is_over {
            if let Err(NoTimer) = ready!(self.poll_sleep(cx)) {
                let (waiting, request) = self.take();
                let blocked = waiting.refuse_without_timer();
                return Poll::Ready(AfterWait::Refused(blocked, request));
            }
            self.is_over = true;
        }
        // The readiness of this clone is part of the wait, not of the call.
        if let Err(error) = ready!(self.service.poll_ready(cx)) {
            // Dropping the call gives its place up.
            drop(self.take());
            return Poll::Ready(AfterWait::Unready(error));
        }
        let (waiting, request) = self.take();
        Poll::Ready(match waiting.begin() {
            Ok(entry) => AfterWait::Running(self.service.call(request), entry),
            Err(blocked) => AfterWait::Refused(blocked, request),
        })
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NoTimer>> {
        loop {
            // Made here and not with the call: a runtime is needed only from now on.
            if self.sleep.is_none() {
                let waiting = self.call.as_mut().map(|(waiting, _)| waiting);
                let Some(duration) = waiting.and_then(Waiting::next_sleep) else {
                    return Poll::Ready(Ok(()));
                };
                self.sleep = Some(timer::sleep(duration)?);
            }
            let sleep = self.sleep.as_mut().expect("it was just made");
            ready!(Pin::new(sleep).poll(cx))?;
            self.sleep = None;
        }
    }

    fn take(&mut self) -> (Waiting, Req) {
        self.call.take().expect("a wait ends once")
    }
}

/// Puts a fresh clone in the place of `service`, which is ready and will not be called: a
/// permit that it holds would be kept for nothing until its owner calls again.
#[cold]
pub(super) fn drop_readiness<S: Clone>(service: &mut S) {
    let fresh = service.clone();
    drop(mem::replace(service, fresh));
}
