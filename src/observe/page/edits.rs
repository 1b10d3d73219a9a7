//! Changes rules and operates breakers from the page.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use serde_json::Value;
use tower_service::Service;

use super::Page;
use super::answer::{finish, method_refusal, refusal, set, text};
use super::json::Json;
use super::proposal::{ShownProblem, read, report, tag, tag_of, written};
use super::values::NamedValue;
use crate::call::Direction;
use crate::observe::Body;
use crate::observe::diff::differences;
#[cfg(feature = "tracing")]
use crate::observe::journal::log_changed_rules;
use crate::source::{NotPut, RuleSink, SourceErrorKind, put};

/// The maximum length of a request's body, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// A [`Page`] on which rules can be changed and breakers operated; created by [`Page::edits`].
/// Besides the requests of the page it answers these requests, all of which need the token:
///
/// | request | body | answer |
/// |---|---|---|
/// | `GET ?rules` | | the rules in force as a JSON [document](crate::document), and their version as `ETag` |
/// | `POST ?rules&check` | rules as a JSON document | `problems` and `diff`; nothing changes |
/// | `POST ?rules`, `If-Match: version` | rules as a JSON document | 200 and `diff`: the rules are stored in the sink, and in force |
/// | `POST ?breaker` | `resource`, `direction`, `rule`, `set` | `state`; `open` holds until `close`, which also closes a breaker that has opened by itself |
/// | `POST ?left` | `resource`, `direction`, `rule`, `value` | `left`: the remaining tokens of a value, such as a user, a number or an [address](crate::guide::live_page); `null` without a limit |
/// | `POST ?reset` | as for `left` | gives the value its whole quota back; `reset` says whether it had spent any; of a [shared](crate::KeyedRule::shared) rule in all processes |
///
/// Bodies are JSON, with that content type, of at most 1 MiB. `direction` is `inbound` if it is
/// left out. `POST ?rules` replaces all rules: rules that are not in the document are removed. If
/// anything is wrong, the old rules stay, and the answer has the reason: 400 with all `problems`,
/// 409 if the sink has other rules than those in force, 412 if the version is not that of the rules
/// in force, 428 without a version, 500 if the sink fails. 503 means that the store of a shared
/// rule has not answered, so it is unknown whether the value is reset. Only `GET ?rules` shows the
/// names of origins and the values that rules contain.
///
/// A request that a browser sends for another site is refused, by its `Origin` and
/// `Sec-Fetch-Site`. `GET` changes nothing.
///
/// # Examples
///
/// ```
/// use http::{Request, StatusCode};
/// use tower::ServiceExt;
/// use tower_sentinel::observe::Body;
/// use tower_sentinel::observe::page::{EditablePage, Page};
/// use tower_sentinel::source::InMemory;
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
/// let token = "0123456789abcdef";
/// let page: EditablePage = Page::new(&sentinel).token(token)?.edits(InMemory)?;
///
/// let request = || {
///     let request = Request::builder().header("host", "localhost");
///     request.header("authorization", format!("Bearer {token}"))
/// };
/// let rules = page.clone().oneshot(request().uri("/?rules").body(Body::default())?).await?;
/// let version = rules.headers()["etag"].clone();
///
/// let six = r#"{"rules": [{"kind": "flow", "resource": "/search", "threshold": 6}]}"#;
/// let change = request().method("POST").uri("/?rules").header("if-match", version);
/// let change = change.header("content-type", "application/json").body(Body::from(six))?;
/// assert_eq!(page.oneshot(change).await?.status(), StatusCode::OK);
/// assert_eq!(sentinel.rules(), FlowRule::per_second("/search", 6).into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct EditablePage {
    page: Page,
    sink: Arc<dyn RuleSink>,
}

/// The action that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Replace,
    Check,
    Breaker,
    Value(ValueAction),
}

/// The action that a request asks for on one value of a keyed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueAction {
    Left,
    Reset,
}

// === impl EditablePage ===

impl EditablePage {
    pub(super) fn new(page: Page, sink: impl RuleSink) -> Self {
        Self {
            page,
            sink: Arc::new(sink),
        }
    }

    /// Checks that the request `head` is permitted to change something, and returns the requested
    /// action.
    fn action(&self, head: &Request<()>) -> Result<Action, Box<Response<Bytes>>> {
        let access = &self.page.settings.access;
        let refused = |denied| Box::new(refusal(denied));
        access.check_page(head).map_err(refused)?;
        let action = match head.uri().query().unwrap_or_default() {
            "rules" => Action::Replace,
            "rules&check" => Action::Check,
            "breaker" => Action::Breaker,
            "left" => Action::Value(ValueAction::Left),
            "reset" => Action::Value(ValueAction::Reset),
            _ => return Err(Box::new(method_refusal("GET, HEAD"))),
        };
        if !is_same_origin(head) {
            return Err(Box::new(text(
                StatusCode::FORBIDDEN,
                "The request was sent for another site.\n",
            )));
        }
        access.check_state(head).map_err(refused)?;
        if !is_json(head.headers()) {
            return Err(Box::new(text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "The content type must be application/json.\n",
            )));
        }
        Ok(action)
    }

    /// Returns the answer to a request that changes nothing.
    async fn look(&self, head: &Request<()>) -> Response<Bytes> {
        let is_get = matches!(*head.method(), Method::GET | Method::HEAD);
        let access = &self.page.settings.access;
        match head.uri().query().unwrap_or_default() {
            "rules" if is_get => {
                let checked = access.check_page(head);
                match checked.and_then(|()| access.check_state(head)) {
                    Ok(()) => self.rules(),
                    Err(denied) => refusal(denied),
                }
            }
            _ => match self.page.answer(head) {
                Ok(query) => self.page.state(query).await,
                Err(answer) => *answer,
            },
        }
    }

    /// Returns the rules in force as a document, with their version.
    fn rules(&self) -> Response<Bytes> {
        let rules = self.page.sentinel.rules();
        let mut answer = answer(StatusCode::OK, written(&rules));
        tag(&mut answer, &rules);
        answer
    }

    /// Carries out `action` and returns its answer.
    async fn act(&self, action: Action, head: &HeaderMap, body: Vec<u8>) -> Response<Bytes> {
        let (this, head) = (self.clone(), head.clone());
        let answer = match action {
            Action::Replace => run_blocking(move || this.replace(&head, &body)).await,
            Action::Check => run_blocking(move || this.check(&body)).await,
            Action::Breaker => self.breaker(&body),
            Action::Value(action) => self.value_action(action, &body).await,
        };
        // The last state is forgotten, so that the next state shows the change.
        self.page.rounds.forget();
        answer
    }

    /// Reads what is left of the value that `body` names, or resets the value.
    async fn value_action(&self, action: ValueAction, body: &[u8]) -> Response<Bytes> {
        match (NamedValue::read(&self.page.sentinel, body), action) {
            (Ok(value), ValueAction::Left) => value.left(),
            (Ok(value), ValueAction::Reset) => value.reset().await,
            (Err(wrong), _) => *wrong,
        }
    }

    /// Returns the problems of the rules in `body`, and how they differ from the rules in force.
    fn check(&self, body: &[u8]) -> Response<Bytes> {
        let before = self.page.sentinel.rules();
        let checked = read(body).and_then(|(after, warnings)| {
            let checked = self.page.sentinel.check_store(&after);
            checked.map_err(|invalid| ShownProblem::of_each(invalid.problems()))?;
            Ok((after, warnings))
        });
        let mut answer = match checked {
            Ok((after, warnings)) => {
                let diff = differences(&before, &after);
                report(StatusCode::OK, &warnings, Some(&diff))
            }
            Err(problems) => report(StatusCode::OK, &problems, None),
        };
        tag(&mut answer, &before);
        answer
    }

    /// Puts the rules in `body` in force and stores them in the sink, or changes nothing.
    fn replace(&self, head: &HeaderMap, body: &[u8]) -> Response<Bytes> {
        let mut versions = head.get_all(header::IF_MATCH).iter();
        let (Some(version), None) = (versions.next(), versions.next()) else {
            let why = "If-Match is missing, must be the version of the rules in force";
            return error(StatusCode::PRECONDITION_REQUIRED, why);
        };
        let (after, warnings) = match read(body) {
            Ok(read) => read,
            Err(problems) => return report(StatusCode::BAD_REQUEST, &problems, None),
        };
        let sentinel = &self.page.sentinel;
        let _turn = sentinel.begin_change();
        let before = sentinel.rules();
        if version.as_bytes() != tag_of(&before).as_bytes() {
            let why = "other rules are in force by now; load them, and change these";
            return error(StatusCode::PRECONDITION_FAILED, why);
        }
        match put(sentinel, &*self.sink, &before, &after) {
            Ok(false) => {}
            Ok(true) => {
                #[cfg(feature = "tracing")]
                log_changed_rules("page", &before, &after);
            }
            Err(NotPut::Invalid(invalid)) => {
                let problems = ShownProblem::of_each(invalid.problems());
                return report(StatusCode::BAD_REQUEST, &problems, None);
            }
            Err(NotPut::NotKept(why)) => {
                let status = match why.kind() {
                    SourceErrorKind::Changed => StatusCode::CONFLICT,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                return error(status, &why.to_string());
            }
        }
        let mut answer = report(
            StatusCode::OK,
            &warnings,
            Some(&differences(&before, &after)),
        );
        tag(&mut answer, &after);
        answer
    }

    /// Opens or closes the breaker that `body` names.
    fn breaker(&self, body: &[u8]) -> Response<Bytes> {
        let Some((direction, name, body)) = target(body) else {
            return not_found();
        };
        let rule = body["rule"].as_str();
        let breakers = self.page.sentinel.breakers(direction, &*name);
        let Some(breaker) = breakers.iter().find(|it| Some(it.rule()) == rule) else {
            return not_found();
        };
        match body["set"].as_str() {
            Some("open") => breaker.force_open(),
            Some("close") => breaker.force_close(),
            _ => return error(StatusCode::BAD_REQUEST, "set must be \"open\" or \"close\""),
        };
        let mut json = Json::default();
        json.object(|json| json.text("state", &breaker.state().to_string()));
        answer(StatusCode::OK, json.into_text())
    }
}

/// Returns the direction and the name of the resource in `body`, and the parsed `body`.
pub(super) fn target(body: &[u8]) -> Option<(Direction, String, Value)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let name = body["resource"].as_str()?.to_owned();
    let direction = match body["direction"].as_str() {
        Some("outbound") => Direction::Outbound,
        _ => Direction::Inbound,
    };
    Some((direction, name, body))
}

impl<B> Service<Request<B>> for EditablePage
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts, ());
        let this = self.clone();
        Box::pin(async move {
            let method = head.method().clone();
            let answer = if method == Method::POST {
                match this.action(&head) {
                    Ok(action) => match receive_body(body).await {
                        Ok(body) => this.act(action, head.headers(), body).await,
                        Err(refused) => refused,
                    },
                    Err(refused) => *refused,
                }
            } else {
                this.look(&head).await
            };
            Ok(finish(answer, &method))
        })
    }
}

impl fmt::Debug for EditablePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditablePage")
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

/// Returns the answer of `act`, which can block. If there is a tokio runtime, `act` runs on a
/// thread for blocking work.
async fn run_blocking(act: impl FnOnce() -> Response<Bytes> + Send + 'static) -> Response<Bytes> {
    if cfg!(target_family = "wasm") {
        return act();
    }
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return act();
    };
    let acted = runtime.spawn_blocking(act).await;
    acted.unwrap_or_else(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "it panicked"))
}

/// Receives the whole `body`, or returns the answer to a body that is too large or incomplete.
async fn receive_body<B: HttpBody>(body: B) -> Result<Vec<u8>, Response<Bytes>> {
    let too_large = || text(StatusCode::PAYLOAD_TOO_LARGE, "At most 1 MiB.\n");
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_large());
    }
    let (mut body, mut bytes) = (pin!(body), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(frame) = frame else {
            return Err(text(StatusCode::BAD_REQUEST, "The body has broken off.\n"));
        };
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        if data.remaining() > MOST_BYTES - bytes.len() {
            return Err(too_large());
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            let length = chunk.len();
            bytes.extend_from_slice(chunk);
            data.advance(length);
        }
    }
    Ok(bytes)
}

/// Returns whether no header field names another site. This holds for requests of the page itself,
/// and of clients that are no browsers.
fn is_same_origin(head: &Request<()>) -> bool {
    let headers = head.headers();
    let mut sites = headers.get_all("sec-fetch-site").iter();
    if !sites.all(|site| site.as_bytes() == b"same-origin") {
        return false;
    }
    let own = match head.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok()),
    };
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok()?;
        let (scheme, name) = origin.split_once("://")?;
        let is_web = matches!(scheme, "http" | "https");
        Some(is_web && name.eq_ignore_ascii_case(own?))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    origins.all(|origin| is_own(origin) == Some(true))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = value.map(|value| value.split(';').next().unwrap_or_default().trim());
    media.is_some_and(|media| media.eq_ignore_ascii_case("application/json"))
}

pub(super) fn not_found() -> Response<Bytes> {
    let why = "resource and rule must be those of a resource that was called, as in the state, or of \
               one that a rule names";
    error(StatusCode::NOT_FOUND, why)
}

pub(super) fn error(status: StatusCode, why: &str) -> Response<Bytes> {
    let mut json = Json::default();
    json.object(|json| json.text("error", why));
    answer(status, json.into_text())
}

/// Returns an answer with `text`, which is JSON.
pub(super) fn answer(status: StatusCode, text: String) -> Response<Bytes> {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    set(&mut answer, header::CONTENT_TYPE, "application/json");
    set(&mut answer, header::CACHE_CONTROL, "no-store");
    answer
}
