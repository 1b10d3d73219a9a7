//! A live page of a running engine: rates and refusals, breakers, rules, and what looks like a
//! mistake in the set-up.
//!
//! ```text
//! let app = Router::new()
//!     .route("/users/{id}", get(user))
//!     .layer(SentinelLayer::with(sentinel.clone()))
//!     // What is routed below the layer is not limited by it.
//!     .route_service("/sentinel", Page::new(&sentinel));
//! ```
//!
//! The page is one route: its files and its data are queries on its own path. So it works under
//! any path, behind `nest`, with a slash at the end or not, and without a router at all.
//!
//! # Who may look
//!
//! By default only callers on this machine: the address of the peer must be known, which in axum
//! needs [connect info](crate::key::PeerIp#if-no-address-is-there), and be a loopback one; the page
//! must be asked for as `localhost`, as a name below `.localhost` or by a loopback address, with
//! HTTP/1.1 or later; and no header field may be there in which proxies speak of clients, such as
//! `Forwarded`, `Via`, `X-Forwarded-For` and `CF-Connecting-IP`. A proxy on this machine that adds
//! no such field and speaks HTTP/1.1 to a loopback address, as nginx does with a bare `proxy_pass`
//! and `proxy_http_version 1.1`, cannot be told from a caller on it: where there may be one, set a
//! [token](Page::token). Everybody else gets a 403 that names the line to write:
//!
//! | for | write |
//! |---|---|
//! | a container, whose host comes in by a bridge | [`allow`](Page::allow) with the bridge's network |
//! | a team | [`token`](Page::token), which the page asks for |
//! | a proxy that checks its callers | [`allow`](Page::allow) with the proxy's address, or [`open`](Page::open) |
//! | a name of its own | [`host`](Page::host), beside any of these |
//!
//! Always, and also with [`open`](Page::open), the name under which the page is asked for must be
//! an address, `localhost`, a name below `.localhost`, or one that was [given](Page::host). A web
//! site could otherwise let its own name lead to this server, and read the page in the browser of
//! a permitted caller. No answer allows other sites to read it, to frame it, or to run code in
//! it.
//!
//! # What is shown
//!
//! Names of resources, rules and their ids. By default only resources that a rule names or a
//! router has matched: other names may be made up by callers, and have secrets in them. There is
//! no origin, context, key or parameter in any answer, also where a rule names one. Only a
//! [finding](crate::Sentinel::findings) may show a name that was called instead of that of a rule.
//!
//! # The data, for scripts
//!
//! `?state` is JSON. `n` is how many resources (default 50, at most 500), `sort` one of `refused`
//! (the default), `pass`, `failed`, `rt`, `in_flight` and `name`, `q` a part that names must have,
//! and `focus` with `direction` (`inbound` or `outbound`) the resource whose minute is shown. A
//! value that cannot be read is answered with 400 and a line that names it. Figures have the names
//! of [`Snapshot::to_json`](crate::Snapshot::to_json), but rates and response times are those of
//! the last whole second where a resource keeps seconds. Times are in milliseconds. Lists of
//! seconds have 60 entries, of which the last is the second before the present one; it ended
//! `second_age` milliseconds ago. Members may be added at any time, and
//! `schema` changes if one is taken away.
//!
//! # Cost
//!
//! Calls pay nothing. The state is read once for all requests, and the next time after a pause of
//! 250 ms and 0.1 ms for each resource: 10,000 resources are read every 1.25 s, however many look.
//! Within the pause a few requests have at once what was read before, and more of them wait for its
//! end. Reading and writing is done by the tasks that wait for it, in small steps between which
//! other tasks run, and holds no lock: with 10,000 resources no thread is held for a millisecond.

mod access;
mod assets;
#[cfg(feature = "serde")]
mod edits;
mod gather;
mod json;
mod lines;
mod minute;
#[cfg(feature = "serde")]
mod proposal;
mod query;
mod state;
mod store;
mod words;

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ipnet::IpNet;
use tower_service::Service;

use super::Body;
use super::rounds::Rounds;
use crate::base::invalid::InvalidSetting;
use crate::base::pace::StepPace;
use crate::clock::Tick;
use crate::sentinel::Sentinel;
#[cfg(feature = "serde")]
use crate::source::RuleSink;
use crate::source::Watch;
use access::{Access, AccessDenied};
use gather::{Gathered, KeptParts, PORTION};
use query::StateQuery;
use state::{About, StateWriter};

#[cfg(feature = "serde")]
pub use edits::EditablePage;

/// The content security policy of every answer.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page as a service, for every kind of request body, which it does not read. A clone is a
/// handle of the same page. See the [module](self).
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
/// // From elsewhere nobody may look.
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

// === impl Page ===

impl Page {
    /// Creates a page of `sentinel` for callers on this machine.
    #[must_use]
    pub fn new(sentinel: &Sentinel) -> Self {
        let settings = PageSettings {
            access: Access::local(),
            about: About {
                title: String::new(),
                all_resources: false,
                since: now(sentinel),
                edits: None,
                watches: Vec::new(),
            },
        };
        Self {
            sentinel: sentinel.clone(),
            settings: Arc::new(settings),
            rounds: rounds(sentinel, false),
        }
    }

    /// Sets a name for the head of the page, such as that of the instance. Default: none.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings_mut().about.title = title.into();
        self
    }

    /// Sets networks whose callers may look, beside this machine. A network that contains the
    /// address of a proxy lets everybody in whom the proxy lets through: requests are judged by
    /// the peer of the connection, and not by what header fields say. Replaces an earlier call.
    ///
    /// ```
    /// # use http::{Request, StatusCode};
    /// # use tower::ServiceExt;
    /// # use tower_sentinel::key::ClientAddr;
    /// use tower_sentinel::observe::page::Page;
    /// # use tower_sentinel::{FlowRule, Sentinel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let sentinel = Sentinel::new(FlowRule::per_second("search", 5));
    /// let page = Page::new(&sentinel).allow(["172.17.0.0/16".parse().unwrap()]);
    /// # let status = async |peer: &str| {
    /// #     let peer = ClientAddr(peer.parse().unwrap());
    /// #     let request = Request::get("/").header("host", "172.17.0.2").extension(peer);
    /// #     page.clone().oneshot(request.body(()).unwrap()).await.unwrap().status()
    /// # };
    /// assert_eq!(status("172.17.0.1:4000").await, StatusCode::OK);
    /// assert_eq!(status("172.18.0.1:4000").await, StatusCode::FORBIDDEN);
    /// # });
    /// ```
    #[must_use]
    pub fn allow(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.settings_mut().access.allow(nets);
        self
    }

    /// Lets callers from anywhere look. This is for a page behind an authentication of your own:
    /// a layer, or a proxy that is the only way to this server.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.settings_mut().access.open();
        self
    }

    /// Asks callers for a token before they get any data. The page itself, which tells nothing of
    /// the engine, then comes to everybody, unless [`allow`](Self::allow) was called: it asks for
    /// the token and keeps it for as long as its tab is open. Scripts send it as
    /// `Authorization: Bearer`. There are no cookies, so no other site can use it.
    ///
    /// Wrong tokens get 401, and keep nobody with the right one out: 16 random characters cannot be
    /// guessed. The token is sent as it is: use TLS wherever others may listen.
    ///
    /// # Errors
    ///
    /// Unless `token` has 16 to 1,024 characters of ASCII, without blanks.
    pub fn token(mut self, token: impl Into<String>) -> Result<Self, InvalidSetting> {
        self.settings_mut().access.token(&token.into())?;
        Ok(self)
    }

    /// Adds a name under which the page may be asked for, such as `ops.example.com`: without
    /// scheme, port and path. Capitals do not matter. Addresses and `localhost` need no call.
    ///
    /// # Errors
    ///
    /// Unless `name` is one: letters, digits, `-`, `.` and `_`.
    pub fn host(mut self, name: &str) -> Result<Self, InvalidSetting> {
        self.settings_mut().access.host(name)?;
        Ok(self)
    }

    /// Sets whether to show also resources whose names callers may have made up, and with them
    /// whatever stands in their paths. Default: no.
    #[must_use]
    pub fn all_resources(mut self, all: bool) -> Self {
        self.settings_mut().about.all_resources = all;
        self.rounds = rounds(&self.sentinel, all);
        self
    }

    /// Shows what has come of the polls of a [watch](crate::source::Watch), under a name such as
    /// that of the file: when it was read, and the error while it cannot be. An error is shown as
    /// it is, also if it has a value of the file in it. May be called for each watch.
    /// The page does not keep the watch alive.
    #[must_use]
    pub fn watch(mut self, name: impl Into<String>, watch: &Watch) -> Self {
        let watch = (name.into(), watch.status.clone());
        self.settings_mut().about.watches.push(watch);
        self
    }

    /// Lets callers with the token change rules and operate breakers; `sink` keeps the rules.
    ///
    /// # Errors
    ///
    /// Without a [token](Self::token).
    #[cfg(feature = "serde")]
    pub fn edits(mut self, sink: impl RuleSink) -> Result<EditablePage, InvalidSetting> {
        if !self.settings.access.has_token() {
            return Err(InvalidSetting::because(
                "edits need a token, and there is none",
            ));
        }
        self.settings_mut().about.edits = Some(sink.note());
        Ok(EditablePage::new(self, sink))
    }

    fn settings_mut(&mut self) -> &mut PageSettings {
        // What others share was written with other settings.
        self.rounds = rounds(&self.sentinel, self.settings.about.all_resources);
        Arc::make_mut(&mut self.settings)
    }

    /// The answer to `request`, or what state it asks for.
    fn answer<B>(&self, request: &Request<B>) -> Result<StateQuery, Box<Response<Bytes>>> {
        let access = &self.settings.access;
        if let Err(denied) = access.check_page(request) {
            return Err(refusal(denied).into());
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(method_refusal("GET, HEAD").into());
        }
        let query = request.uri().query().unwrap_or_default();
        let name = query.split(['&', '=']).next().unwrap_or_default();
        if name == "state" {
            access.check_state(request).map_err(refusal)?;
            let bad = |why| text(StatusCode::BAD_REQUEST, why).into();
            return StateQuery::of(query).map_err(bad);
        }
        Err(match assets::named(name) {
            Some(asset) => file(asset, request.headers()),
            None => text(StatusCode::NOT_FOUND, "There is no such query.\n"),
        }
        .into())
    }

    /// The state, which is read and written in small steps.
    async fn state(&self, query: StateQuery) -> Response<Bytes> {
        let state = async {
            let gathered = self.rounds.look().await?;
            let write = || {
                let writer = StateWriter {
                    sentinel: self.sentinel.clone(),
                    about: self.settings.about.clone(),
                    gathered: gathered.clone(),
                };
                Box::pin(writer.write(query.clone())) as super::rounds::SteppedWork<Bytes>
            };
            gathered.text(&query, write).wait().await
        };
        let Some(state) = state.await else {
            return text(StatusCode::INTERNAL_SERVER_ERROR, "It panicked.\n");
        };
        let mut answer = Response::new(state);
        set(&mut answer, header::CONTENT_TYPE, "application/json");
        set(&mut answer, header::CACHE_CONTROL, "no-store");
        answer
    }
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

/// The `answer` as it is sent.
fn finish(mut answer: Response<Bytes>, method: &Method) -> Response<Body> {
    protect(answer.headers_mut());
    if *method == Method::HEAD {
        let length = HeaderValue::from(answer.body().len());
        answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        *answer.body_mut() = Bytes::new();
    }
    answer.map(Body::from)
}

/// Readings of `sentinel` for a page.
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

/// The present of `sentinel`.
fn now(sentinel: &Sentinel) -> Tick {
    let time = &sentinel.registry().shared().time;
    time.check_making(time.read())
}

/// The answer to a request that may not look, with the line that would let it.
fn refusal(denied: AccessDenied) -> Response<Bytes> {
    let (status, why) = match denied {
        AccessDenied::Host => (
            StatusCode::FORBIDDEN,
            "The page is not served under this name. If it is a name of this server, write \
             `.host(\"the.name\")?`; or use the address.\n",
        ),
        AccessDenied::UnknownPeer => (
            StatusCode::FORBIDDEN,
            "Nobody knows where this request comes from. With axum, serve \
             `app.into_make_service_with_connect_info::<SocketAddr>()`. Otherwise give the page \
             `.token(…)?`, or `.open()` if something in front of it checks who may look.\n",
        ),
        AccessDenied::ForeignPeer => (
            StatusCode::FORBIDDEN,
            "Only callers on this machine may look. To let others in, give the page \
             `.allow([\"10.0.0.0/8\".parse()?])` with their network, or `.token(…)?`.\n",
        ),
        AccessDenied::Forwarded => (
            StatusCode::FORBIDDEN,
            "A proxy on this machine may have sent this request for somebody elsewhere: a caller \
             on this machine asks for localhost, by HTTP/1.1 or later, and without fields in which \
             proxies speak of clients. Give the page `.token(…)?`, or \
             `.allow([\"127.0.0.1/32\".parse()?])` if the proxy checks who may look.\n",
        ),
        AccessDenied::Token => (StatusCode::UNAUTHORIZED, "The data needs the token.\n"),
    };
    let mut answer = text(status, why);
    if denied == AccessDenied::Token {
        set(&mut answer, header::WWW_AUTHENTICATE, "Bearer");
    }
    answer
}

/// The answer to a request with a method other than those that are `allowed`.
fn method_refusal(allowed: &'static str) -> Response<Bytes> {
    let mut answer = text(
        StatusCode::METHOD_NOT_ALLOWED,
        "There is no such method here.\n",
    );
    set(&mut answer, header::ALLOW, allowed);
    answer
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    set(&mut answer, header::CACHE_CONTROL, "no-store");
    answer
}

/// The `asset`, unless the browser has it already.
fn file(asset: &'static assets::Asset, headers: &HeaderMap) -> Response<Bytes> {
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = known.filter_map(|value| value.to_str().ok());
    let is_known = tags.any(|tags| {
        let mut tags = tags.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == asset.etag())
    });
    let mut answer = if is_known {
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        let mut answer = Response::new(asset.body());
        set(&mut answer, header::CONTENT_TYPE, asset.content_type);
        answer
    };
    // Kept, and asked for again each time: the next version of the program has others.
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    if let Ok(etag) = HeaderValue::from_str(asset.etag()) {
        answer.headers_mut().insert(header::ETAG, etag);
    }
    answer
}

/// Adds the fields that say what a browser must not do with the answer.
fn protect(headers: &mut HeaderMap) {
    let fields = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn set(answer: &mut Response<Bytes>, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    answer.headers_mut().insert(name, value);
}
