//! The future of a call: it runs, waits for its turn, or was refused.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use crate::blocked::Blocked;
use crate::entry::{Entry, Verdict};
use crate::timer;
use crate::waiting::Waiting;

pin_project! {
    /// See the [module](self). Ready once, with an [`End`].
    pub(super) struct Guarded<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req>
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
            refusal: Option<(Blocked, Req)>,
        },
    }
}

/// What came of a call.
pub(super) enum End<T, E, Req> {
    /// The service has answered; without an entry, to a call that was skipped.
    Answered(Result<T, E>, Option<Entry>),
    /// The service was not ready after the wait: the call never ran.
    NotReady(E),
    /// The call was refused.
    Refused(Blocked, Req),
}

impl<S, Req> Guarded<S, Req>
where
    S: Service<Req>,
{
    /// Calls `service` with `request`, whatever the rules. `service` is ready.
    pub(super) fn skipped(service: &mut S, request: Req) -> Self {
        Self {
            state: State::Running {
                future: service.call(request),
                entry: None,
            },
        }
    }
}

/// A call that waits: apart from the future, because only few do.
struct Wait<S, Req> {
    service: S,
    /// Taken when the wait is over.
    call: Option<(Waiting, Req)>,
    sleep: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl<S, Req> Guarded<S, Req>
where
    S: Service<Req> + Clone,
{
    /// Calls `service` with `request` if `verdict` lets it. `service` is ready.
    #[inline]
    pub(super) fn new(service: &mut S, request: Req, verdict: Verdict) -> Self {
        let state = match verdict {
            Verdict::Pass(mut entry) => {
                // Without a response the call was cancelled. The entry is there
                // before the service is called, in case that panics.
                entry.expect_response();
                State::Running {
                    future: service.call(request),
                    entry: Some(entry),
                }
            }
            Verdict::Wait(waiting) => State::Waiting {
                wait: Wait::new(service, request, waiting),
            },
            Verdict::Block(blocked) => State::Refused {
                refusal: Some((blocked, request)),
            },
        };
        Self { state }
    }
}

impl<S, Req> Wait<S, Req>
where
    S: Service<Req> + Clone,
{
    #[cold]
    fn new(service: &mut S, request: Req, waiting: Waiting) -> Box<Self> {
        // Two clones, and the instance that is ready is dropped: left in place it
        // could hold the very permit that this call will wait for, and taken
        // along it would hold it for nothing.
        let own = service.clone();
        let fresh = service.clone();
        drop(mem::replace(service, fresh));
        Box::new(Self {
            service: own,
            call: Some((waiting, request)),
            sleep: None,
            is_over: false,
        })
    }
}

impl<S, Req> Future for Guarded<S, Req>
where
    S: Service<Req>,
{
    type Output = End<S::Response, S::Error, Req>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Running { future, entry } => {
                    let answer = ready!(end_on_panic(entry, || future.poll(cx)));
                    return Poll::Ready(End::Answered(answer, entry.take()));
                }
                StateProj::Refused { refusal } => {
                    let (blocked, request) = refusal.take().expect("polled after it was ready");
                    return Poll::Ready(End::Refused(blocked, request));
                }
                StateProj::Waiting { wait } => match ready!(wait.poll(cx)) {
                    Ok((future, entry)) => this.state.set(State::Running {
                        future,
                        entry: Some(entry),
                    }),
                    Err(end) => return Poll::Ready(end),
                },
            }
        }
    }
}

/// Runs `poll`. If it panics, what is in `call` ends right there, while the
/// thread unwinds: an outer layer may catch the panic and drop the rest later,
/// when it looks like a cancellation.
pub(super) fn end_on_panic<T, R>(call: &mut Option<T>, poll: impl FnOnce() -> R) -> R {
    struct OnUnwind<'a, T>(&'a mut Option<T>);

    impl<T> Drop for OnUnwind<'_, T> {
        fn drop(&mut self) {
            drop(self.0.take());
        }
    }

    let on_unwind = OnUnwind(call);
    let result = poll();
    mem::forget(on_unwind);
    result
}

/// A call that has begun after its wait, or the end of one that has not.
type Begun<S, Req> = Result<
    (<S as Service<Req>>::Future, Entry),
    End<<S as Service<Req>>::Response, <S as Service<Req>>::Error, Req>,
>;

impl<S, Req> Wait<S, Req>
where
    S: Service<Req>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Begun<S, Req>> {
        if !self.is_over {
            match self.poll_sleep(cx) {
                Ok(Poll::Ready(())) => self.is_over = true,
                Ok(Poll::Pending) => return Poll::Pending,
                Err(timer::NoTimer) => {
                    let (waiting, request) = self.take();
                    let blocked = waiting.refuse_without_timer();
                    return Poll::Ready(Err(End::Refused(blocked, request)));
                }
            }
        }
        // The readiness of this clone is part of the wait, not of the call.
        if let Err(error) = ready!(self.service.poll_ready(cx)) {
            // The call never runs: dropping gives its place up.
            drop(self.take());
            return Poll::Ready(Err(End::NotReady(error)));
        }
        let (waiting, request) = self.take();
        Poll::Ready(match waiting.begin() {
            Ok(mut entry) => {
                entry.expect_response();
                Ok((self.service.call(request), entry))
            }
            Err(blocked) => Err(End::Refused(blocked, request)),
        })
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, timer::NoTimer> {
        if self.sleep.is_none() {
            // Made here and not with the call: only now there must be a runtime.
            let left = self
                .call
                .as_ref()
                .map(|(waiting, _)| waiting.left())
                .unwrap_or_default();
            if left.is_zero() {
                return Ok(Poll::Ready(()));
            }
            self.sleep = Some(timer::sleep(left)?);
        }
        let sleep = self.sleep.as_mut().expect("it was just made");
        Ok(sleep.as_mut().poll(cx))
    }

    fn take(&mut self) -> (Waiting, Req) {
        self.call.take().expect("a wait ends once")
    }
}
