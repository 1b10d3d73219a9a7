//! A live page of a running engine: rates and refusals, breakers, rules, and likely mistakes in the
//! configuration.
//!
//! ```text
//! let app = Router::new()
//!     .route("/users/{id}", get(user))
//!     .layer(SentinelLayer::with(sentinel.clone()))
//!     // Routes that are added after the layer are not limited by it.
//!     .route_service("/sentinel", Page::new(&sentinel));
//! ```
//!
//! The page is one route: its files and its data are queries on the path of the page. So it works
//! under any path, behind `nest`, with a slash at the end or not, and without a router at all.
//!
//! # Who may look
//!
//! By default the page is only for callers on this machine. The address of the peer must be known,
//! which in axum needs [connect info](crate::key::PeerIp#if-no-address-is-there), and be a loopback
//! address. The request must be for `localhost`, for a name below `.localhost` or for a loopback
//! address, with HTTP/1.1 or later. It must have no header field in which proxies describe clients,
//! such as `Forwarded`, `Via`, `X-Forwarded-For` and `CF-Connecting-IP`. A proxy on this machine
//! that adds no such field and sends HTTP/1.1 to a loopback address, as nginx does with a bare
//! `proxy_pass` and `proxy_http_version 1.1`, cannot be distinguished from a caller on this
//! machine: if there can be one, set a [token](Page::token). All other callers get a 403 that names
//! the line of code to add:
//!
//! | for | write |
//! |---|---|
//! | a container, whose host connects over a bridge | [`allow`](Page::allow) with the bridge's network |
//! | a team | [`token`](Page::token), which the page asks for |
//! | a proxy that checks its callers | [`allow`](Page::allow) with the proxy's address, or [`open`](Page::open) |
//! | a page under a host name | [`host`](Page::host), with or without the lines above |
//!
//! In any case, also with [`open`](Page::open), the host in the request must be an address,
//! `localhost`, a name below `.localhost`, or a name that was [given](Page::host). A web site could
//! otherwise make its own name resolve to this server, and read the page in the browser of a
//! permitted caller. No answer allows other sites to read it, to frame it, or to run code in it.
//!
//! # What is shown
//!
//! The page shows names of resources, rules and their ids. By default it shows only resources that
//! a rule names or a router has matched: callers can make up other names, and these can contain
//! secrets. No answer contains an origin, a context, a key or a parameter, even if a rule names
//! one. Only a [finding](crate::Sentinel::findings) can show a name that was called in place of the
//! name in a rule.
//!
//! # The data, for scripts
//!
//! `?state` returns JSON. `n` is the number of resources (default 50, at most 500), and `sort` one
//! of `refused` (the default), `pass`, `failed`, `rt`, `in_flight` and `name`. `q` is a part that
//! names must contain. `focus`, with `direction` (`inbound` or `outbound`), is the resource whose
//! last minute is shown. A value that cannot be read is answered with 400 and a line that names it.
//!
//! Figures have the names of [`Snapshot::to_json`](crate::read::Snapshot::to_json). If a resource
//! keeps seconds, its rates and response times are those of the last whole second. Times are in
//! milliseconds. Lists of seconds have 60 entries. The last entry is the last whole second, which
//! ended `second_age` milliseconds ago. Members can be added at any time; `schema` changes if one
//! is removed.
//!
//! # Cost
//!
//! Calls pay nothing. The engine is read once for all requests, and again after a pause of 250 ms
//! and 0.1 ms for each resource: 10,000 resources are read at most every 1.25 s, for any number of
//! viewers. Within the pause, the first few requests get the last reading at once; further requests
//! wait for the end of the pause. The tasks that wait for a state read and write it, in small steps
//! between which other tasks run, and without a lock: with 10,000 resources no thread is held for a
//! millisecond.

mod access;
mod answer;
mod assets;
mod budgets;
#[cfg(feature = "serde")]
mod edits;
mod gather;
mod json;
mod limits;
mod lines;
mod minute;
#[cfg(feature = "serde")]
mod proposal;
mod query;
mod set_up;
mod state;
mod store;
#[cfg(feature = "serde")]
mod values;
mod words;

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::Body;
use super::rounds::Rounds;
use crate::base::pace::StepPace;
use crate::clock::Tick;
use crate::sentinel::Sentinel;
use access::Access;
use answer::finish;
use gather::{Gathered, KeptParts, PORTION};
use state::About;

#[cfg(feature = "serde")]
pub use edits::EditablePage;

/// The content security policy of every answer.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page as a service. It accepts requests with any body, and does not read the body. Clones are
/// handles of the same page. See the [module](self).
///
/// # Examples
///
/// ```
/// use http::{Request, StatusCode};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_sentinel::key::ClientAddr;
/// use tower_sentinel::observe::page::Page;
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(FlowRule::per_second("search", 0));
/// drop(sentinel.try_enter(Call::new("search")));
/// let page = Page::new(&sentinel).title("shop-7");
///
/// let get = async |target: &str, peer: &str| {
///     let peer = ClientAddr(peer.parse().unwrap());
///     let request = Request::get(target).header("host", "localhost:3000").extension(peer);
///     page.clone().oneshot(request.body(()).unwrap()).await.unwrap()
/// };
/// let answer = get("/sentinel?state", "127.0.0.1:4000").await;
/// assert_eq!(answer.status(), StatusCode::OK);
/// let state = answer.into_body().collect().await.unwrap().to_bytes();
/// let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
/// assert_eq!(state["resources"]["nodes"][0]["totals"]["block"], 1);
///
/// // Other machines have no access.
/// assert_eq!(get("/sentinel", "192.0.2.7:4000").await.status(), StatusCode::FORBIDDEN);
/// # });
/// ```
#[derive(Clone)]
#[doc(alias("dashboard", "admin", "ui"))]
pub struct Page {
    sentinel: Sentinel,
    settings: Arc<PageSettings>,
    rounds: Arc<Rounds<Arc<Gathered>>>,
}

#[derive(Clone, Debug)]
struct PageSettings {
    access: Access,
    about: About,
}

impl<B> Service<Request<B>> for Page {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.method().clone();
        let query = match self.answer(&request) {
            Ok(query) => query,
            Err(answer) => return Box::pin(ready(Ok(finish(*answer, &method)))),
        };
        let page = self.clone();
        Box::pin(async move { Ok(finish(page.state(query).await, &method)) })
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Returns the readings of `sentinel` that all requests for a page share.
fn rounds(sentinel: &Sentinel, all_resources: bool) -> Arc<Rounds<Arc<Gathered>>> {
    let (kept, clock) = (Arc::new(KeptParts::new()), sentinel.clone());
    let sentinel = sentinel.clone();
    let make = move |_| -> super::rounds::SteppedWork<_> {
        let (sentinel, kept) = (sentinel.clone(), kept.clone());
        Box::pin(async move {
            let pace = &mut StepPace::of(PORTION);
            let gathered = Gathered::of(&sentinel, all_resources, &kept, pace).await;
            let read = gathered.rows.len();
            (Arc::new(gathered), read)
        })
    };
    Arc::new(Rounds::new(make, move || now(&clock)))
}

/// Returns the present time of `sentinel`.
fn now(sentinel: &Sentinel) -> Tick {
    let time = &sentinel.registry().shared().time;
    time.check_for_creation(time.read())
}
