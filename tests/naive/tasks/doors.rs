//! The layers that tasks call, before a service that needs a while to get ready.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{Request, Response, Version};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream;
use tokio::time::{Sleep, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_sentinel::call::Param;
use tower_sentinel::key::{Head, from_fn};
use tower_sentinel::middleware::{CallLayer, CallService, SentinelService};
use tower_sentinel::{Blocked, BoxError, Call, Key, Sentinel, SentinelLayer};

use super::{Other, Table};
use crate::generator::{Asked, Way};
use crate::oracle::{End, value};
use crate::support::ms;

/// What a request is about.
#[derive(Clone)]
struct Job {
    id: usize,
    asked: Asked,
    params: [Param<'static>; 2],
}

pub(super) fn request(id: usize, asked: Asked) -> Request<Body> {
    let params = asked.asks.params();
    let mut request =
        Request::builder()
            .version(Version::HTTP_2)
            .extension(Job { id, asked, params });
    if let Some(most) = asked.asks.patience {
        request = request.header("grpc-timeout", format!("{most}m"));
    }
    request.body(Body::empty()).unwrap()
}

fn job(request: &Request<Body>) -> &Job {
    request.extensions().get().unwrap()
}

fn asked(head: Head<'_>) -> &Asked {
    &head.extensions().get::<Job>().unwrap().asked
}

type Describe = fn(&Request<Body>) -> Call<'_>;

fn describe(request: &Request<Body>) -> Call<'_> {
    let job = job(request);
    job.asked.asks.call(&job.params)
}

/// Each clone is ready some time after it is asked first, and again after each call.
struct Late<O: Other> {
    table: Rc<Table<O>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// One of each layer.
pub(super) struct Doors<O: Other> {
    call: CallService<Late<O>, Describe>,
    sentinel: SentinelService<Late<O>>,
}

pub(super) type Answer = Result<Response<Body>, BoxError>;

impl<O: Other> Clone for Late<O> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            sleep: None,
        }
    }
}

impl<O: Other> Service<Request<Body>> for Late<O> {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = LocalBoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.table.delay > 0 {
            let delay = ms(self.table.delay);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(delay)));
            ready!(sleep.as_mut().poll(cx));
        }
        if self.table.is_broken.replace(false) {
            return Poll::Ready(Err("broken".into()));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.sleep = None;
        let Job { id, asked, .. } = *job(&request);
        self.table.starts(id, End::Cancelled);
        let table = self.table.clone();
        Box::pin(async move {
            if asked.work > 0 {
                sleep(ms(asked.work)).await;
            }
            if let Some(millis) = asked.body {
                table.responds(id, asked.end);
                return Ok(streaming(asked.end, millis));
            }
            table.will_end(id, asked.end);
            match asked.end {
                End::Failed => Err("failed".into()),
                _ => Ok(Response::new(Body::empty())),
            }
        })
    }
}

/// A response whose body is there after so many milliseconds.
fn streaming(end: End, millis: u64) -> Response<Body> {
    let data = stream::once(async move {
        sleep(ms(millis)).await;
        Ok::<_, BoxError>(Bytes::from_static(b"data"))
    });
    let status = if end == End::Failed { 500 } else { 200 };
    let response = Response::builder().status(status);
    response.body(Body::from_stream(data)).unwrap()
}

impl<O: Other> Clone for Doors<O> {
    fn clone(&self) -> Self {
        Self {
            call: self.call.clone(),
            sentinel: self.sentinel.clone(),
        }
    }
}

impl<O: Other> Doors<O> {
    pub(super) fn new(table: &Rc<Table<O>>, sentinel: &Sentinel) -> Self {
        let (table, sleep) = (table.clone(), None);
        let late = Late { table, sleep };
        let calls: CallLayer<Describe> = CallLayer::with(sentinel.clone(), describe);
        let param = |at: usize| from_fn(move |head| asked(head).asks.values()[at].map(value));
        let sentinel = SentinelLayer::with(sentinel.clone())
            .blocked_in_extensions()
            .resource(from_fn(|head| Some(Key::Str(asked(head).asks.resource))))
            .origin(from_fn(|head| asked(head).asks.origin.map(Key::Str)))
            .context(from_fn(|head| asked(head).asks.context.map(Key::Str)))
            .tier(from_fn(|head| {
                asked(head).asks.has_tier.then_some(Key::Str("pro"))
            }))
            .param_named("item", param(0))
            .param_named("user", param(1))
            .weight(|head| asked(head).asks.weight)
            .prioritize(|head| asked(head).asks.is_prioritized);
        Self {
            call: calls.layer(late.clone()),
            sentinel: sentinel.layer(late),
        }
    }

    pub(super) async fn ready(&mut self, way: Way) -> Result<(), BoxError> {
        match way {
            Way::SentinelLayer => self.sentinel.ready().await.map(drop),
            _ => self.call.ready().await.map(drop),
        }
    }

    /// Calls the one that is ready.
    pub(super) fn call(
        &mut self,
        way: Way,
        request: Request<Body>,
    ) -> LocalBoxFuture<'static, Answer> {
        match way {
            Way::SentinelLayer => {
                let answer = self.sentinel.call(request);
                Box::pin(async { Ok(answer.await?.map(Body::new)) })
            }
            _ => {
                let answer = self.call.call(request);
                Box::pin(async { Ok(answer.await?.map(Body::new)) })
            }
        }
    }
}

/// Why the call was refused, if it was.
pub(super) fn refusal(answer: &Answer) -> Option<&Blocked> {
    match answer {
        Ok(response) => response.extensions().get(),
        Err(error) => error.downcast_ref(),
    }
}
