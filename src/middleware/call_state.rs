//! The states of a call within a response future: it waits for its turn or for the service,
//! runs, or was refused.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::base::timer::{NoTimer, Timer};
use crate::blocked::Blocked;
use crate::call::Importance;
use crate::engine::call::entry::{Entry, end_on_panic};
use crate::engine::call::meter::Meter;
use crate::engine::call::verdict::Verdict;
use crate::engine::call::waiting::Waiting;

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
            // The entry of the call; `None` if the call was skipped.
            entry: Option<Entry>,
        },
        Waiting {
            wait: Box<Wait<S, Req>>,
        },
        Refused {
            // The refusal, which is taken when the future becomes ready.
            refusal: Option<R>,
        },
    }
}

/// A call that waits, first for its turn and then for the service. Boxed, because only few calls
/// wait.
pub(super) struct Wait<S, Req> {
    service: S,
    /// The request, which is taken when the wait is over.
    request: Option<Req>,
    /// The call while it waits for its turn; `None` once it has started.
    waiting: Option<Waiting>,
    /// The entry of the call once it has started; always `None` for a skipped call.
    entry: Option<Entry>,
    sleep: Option<Timer>,
    /// Whether the call's turn has come.
    is_due: bool,
    /// Whether the call starts when it is due, instead of when the service is ready.
    judge_first: bool,
}

/// The functions by which a layer turns each possible end of a call into its answer.
pub(super) struct CallEnds<A, M, R, U, H> {
    /// Gets the service's answer and the call's entry, which is `None` for a skipped call. Both are
    /// large: the entry is lent, and the result is returned as it is. If the service fails to
    /// become ready for a call that has started, that error is its answer.
    pub(super) on_answer: A,
    /// Makes the refusal of a call that has waited.
    pub(super) refuse: M,
    /// Gets a refusal.
    pub(super) on_refusal: R,
    /// Gets the error of a service that fails to become ready for a call that has not started or
    /// was skipped: the call never ran.
    pub(super) on_unready: U,
    /// Gets the meter of a call that starts after a wait, to put it into the request.
    pub(super) on_start: H,
}

/// The state of a call after its wait.
enum AfterWait<F, Req, E> {
    Running(F, Option<Entry>),
    Refused(Blocked, Req),
    /// The service does not become ready. Without an entry the call never runs.
    Unready(E, Option<Entry>),
}

// === impl CallState ===

impl<S, Req, R> CallState<S, Req, R>
where
    S: Service<Req>,
{
    /// A call that begins to run; without an entry it was skipped.
    pub(super) fn running(future: S::Future, entry: Option<Entry>) -> Self {
        Self::Running {
            future,
            entry: entry.map(Entry::expecting_response),
        }
    }

    /// A call that was refused.
    #[inline]
    pub(super) fn refused(refusal: R) -> Self {
        Self::Refused {
            refusal: Some(refusal),
        }
    }

    /// A call that waits for its turn, whether `service` is ready or not. With `judge_first`
    /// it starts, or is refused, before it waits for the service.
    pub(super) fn waiting(
        waiting: Waiting,
        service: &mut S,
        request: Req,
        judge_first: bool,
    ) -> Self
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
                request: Some(request),
                waiting: Some(waiting),
                entry: None,
                sleep: None,
                is_due: false,
                judge_first,
            }),
        }
    }

    /// A call that has started, unless it was skipped, before `service` is ready. It takes the
    /// polled instance with it and leaves a clone: the polled instance has a place in the service's
    /// queue, and may get the next permit at any time.
    #[cold]
    pub(super) fn unready(entry: Option<Entry>, service: &mut S, request: Req) -> Self
    where
        S: Clone,
    {
        let fresh = service.clone();
        Self::Waiting {
            wait: Box::new(Wait {
                service: mem::replace(service, fresh),
                request: Some(request),
                waiting: None,
                entry: entry.map(Entry::expecting_response),
                sleep: None,
                is_due: true,
                judge_first: true,
            }),
        }
    }

    /// Polls the call: first its wait, if it waits, and then the service. Both run within `class`,
    /// if there is one. Becomes ready once, with the result of one of the functions of `ends`.
    #[inline]
    pub(super) fn poll<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        class: Option<Importance>,
        ends: CallEnds<
            impl FnOnce(Result<S::Response, S::Error>, &mut Option<Entry>) -> Poll<T>,
            impl FnOnce(Blocked, &Req) -> R,
            impl FnOnce(R) -> T,
            impl FnOnce(S::Error) -> T,
            impl Fn(Meter, &mut Req),
        >,
    ) -> Poll<T> {
        let CallEnds {
            on_answer,
            refuse,
            on_refusal,
            on_unready,
            on_start,
        } = ends;
        if let CallStateProj::Waiting { wait } = self.as_mut().project() {
            let restore = class.map(Importance::enter);
            let waited = ready!(wait.poll(cx, &on_start));
            drop(restore);
            match waited {
                AfterWait::Running(future, entry) => self.set(Self::Running { future, entry }),
                AfterWait::Refused(blocked, request) => {
                    // Drops the ready instance now, even if the future lives on.
                    self.set(Self::Refused { refusal: None });
                    return Poll::Ready(on_refusal(refuse(blocked, &request)));
                }
                AfterWait::Unready(error, None) => return Poll::Ready(on_unready(error)),
                AfterWait::Unready(error, mut entry) => {
                    return end_on_panic(&mut entry, |entry| on_answer(Err(error), entry));
                }
            }
        }
        match self.project() {
            CallStateProj::Running { future, entry } => {
                // The guard spans the whole expression, whose result is written in place: with a
                // guard around `poll` alone the answer would be copied.
                let _restore = class.map(Importance::enter);
                end_on_panic(entry, |entry| {
                    let answer = ready!(future.poll(cx));
                    on_answer(answer, entry)
                })
            }
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
    /// Waits for the call's turn or slot, and until the service is ready. Between the two, or
    /// after both, the call starts, is refused, or waits once more.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        on_start: &dyn Fn(Meter, &mut Req),
    ) -> Poll<AfterWait<S::Future, Req, S::Error>> {
        loop {
            if !self.is_due {
                let waiting = self.waiting.as_mut().expect("it has not started");
                if let Err(NoTimer) = ready!(waiting.poll_turn(cx, &mut self.sleep)) {
                    let waiting = self.waiting.take().expect("it has not started");
                    return self.refused(waiting.refuse_without_timer());
                }
                self.is_due = true;
            }
            if self.judge_first {
                if let Err(blocked) = self.start(on_start) {
                    return self.refused(blocked);
                }
                if !self.is_due {
                    continue;
                }
            }
            let service = &mut self.service;
            let is_ready = end_on_panic(&mut self.entry, |_| service.poll_ready(cx));
            if let Err(error) = ready!(is_ready) {
                // A call that has not started leaves the line, and never ran.
                drop((self.waiting.take(), self.request.take()));
                return Poll::Ready(AfterWait::Unready(error, self.entry.take()));
            }
            // A call that was not judged first starts only now: the time until this clone was ready
            // is part of its wait, and not of its response time.
            if let Err(blocked) = self.start(on_start) {
                return self.refused(blocked);
            }
            if !self.is_due {
                continue;
            }
            let request = self.take_request();
            let service = &mut self.service;
            let future = end_on_panic(&mut self.entry, |_| service.call(request));
            return Poll::Ready(AfterWait::Running(future, self.entry.take()));
        }
    }

    /// Starts the call, unless it has started or was skipped. If it has to wait once more, it
    /// is not due any longer.
    fn start(&mut self, on_start: &dyn Fn(Meter, &mut Req)) -> Result<(), Blocked> {
        match self.waiting.take().map(Waiting::begin) {
            Some(Verdict::Pass(entry)) => {
                if let (Some(meter), Some(request)) = (entry.own_meter(), &mut self.request) {
                    on_start(meter, request);
                }
                self.entry = Some(entry.expecting_response());
            }
            Some(Verdict::Block(blocked)) => return Err(blocked),
            Some(Verdict::Wait(waiting)) => {
                self.waiting = Some(waiting);
                self.is_due = false;
            }
            None => {}
        }
        Ok(())
    }

    /// Ends the wait with a refusal.
    fn refused(&mut self, blocked: Blocked) -> Poll<AfterWait<S::Future, Req, S::Error>> {
        Poll::Ready(AfterWait::Refused(blocked, self.take_request()))
    }

    /// Takes the request at the end of the wait.
    fn take_request(&mut self) -> Req {
        self.request.take().expect("a wait ends once")
    }
}

/// Puts a fresh clone in the place of `service`, which is ready and will not be called: a
/// permit that it holds would be kept for nothing until its owner calls again.
#[cold]
pub(super) fn drop_readiness<S: Clone>(service: &mut S) {
    let fresh = service.clone();
    drop(mem::replace(service, fresh));
}
