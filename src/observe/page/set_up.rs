//! Configures a page, and routes its requests by their queries.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self};
use http::{Method, Request, Response, StatusCode};
use ipnet::IpNet;

use super::access::Access;
use super::answer::{file, method_refusal, refusal, set, text};
use super::assets;
#[cfg(feature = "serde")]
use super::edits::EditablePage;
use super::query::StateQuery;
use super::state::{About, StateWriter};
use super::{Page, PageSettings, now, rounds};
use crate::base::invalid::InvalidSetting;
use crate::sentinel::Sentinel;
#[cfg(feature = "serde")]
use crate::source::RuleSink;
use crate::source::Watch;

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

    /// Sets a title for the top of the page, such as the name of the instance. Default: none.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.settings_mut().about.title = title.into();
        self
    }

    /// Sets the networks whose callers can see the page, in addition to this machine. A network
    /// that contains the address of a proxy admits everybody whom the proxy admits: requests are
    /// judged by the peer of the connection, and not by header fields. Replaces the networks of an
    /// earlier call.
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

    /// Admits callers from anywhere. Use this for a page behind your own authentication: a layer,
    /// or a proxy that is the only way to this server.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.settings_mut().access.open();
        self
    }

    /// Requires a token for all data. The page itself, which contains nothing of the engine, is
    /// then served to everybody, unless [`allow`](Self::allow) was called. It asks for the token
    /// and keeps it while its tab is open. Scripts send it as `Authorization: Bearer`. There are no
    /// cookies, so another site cannot make a browser send the token.
    ///
    /// Wrong tokens get 401. There is no lock-out after wrong tokens, because 16 random characters
    /// cannot be guessed. The token is sent in plain text: use TLS on networks where others can
    /// listen.
    ///
    /// # Errors
    ///
    /// Unless `token` has 16 to 1,024 characters of ASCII, without blanks.
    pub fn token(mut self, token: impl Into<String>) -> Result<Self, InvalidSetting> {
        self.settings_mut().access.token(&token.into())?;
        Ok(self)
    }

    /// Adds a host name under which the page is served, such as `ops.example.com`, without scheme,
    /// port and path. The case of letters is ignored. Addresses and `localhost` need no call.
    ///
    /// # Errors
    ///
    /// If `name` is empty, or has other characters than letters, digits, `-`, `.` and `_`.
    pub fn host(mut self, name: &str) -> Result<Self, InvalidSetting> {
        self.settings_mut().access.host(name)?;
        Ok(self)
    }

    /// Sets whether resources whose names callers can make up are shown as well. Such a name can be
    /// the path of a request, with secrets in it. Default: no.
    #[must_use]
    pub fn all_resources(mut self, all: bool) -> Self {
        self.settings_mut().about.all_resources = all;
        self.rounds = rounds(&self.sentinel, all);
        self
    }

    /// Shows the outcome of the polls of a [watch](crate::source::Watch), under a name, such as the
    /// name of its file: when the rules were last read, or the error if they cannot be read. The
    /// text of an error is shown in full, and can contain a value of the file. Call it once for
    /// each watch. The page does not keep the watch alive.
    #[must_use]
    pub fn watch(mut self, name: impl Into<String>, watch: &Watch) -> Self {
        let watch = (name.into(), watch.status.clone());
        self.settings_mut().about.watches.push(watch);
        self
    }

    /// Lets callers with the token change rules and operate breakers. `sink` stores the rules.
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

    /// Returns the settings, to change them.
    fn settings_mut(&mut self) -> &mut PageSettings {
        // New rounds, because clones of this page still share states that were written with the old
        // settings.
        self.rounds = rounds(&self.sentinel, self.settings.about.all_resources);
        Arc::make_mut(&mut self.settings)
    }

    /// Returns the query of a `request` for the state. The error is the answer to any other
    /// request, or to a request that is refused.
    pub(super) fn answer<B>(
        &self,
        request: &Request<B>,
    ) -> Result<StateQuery, Box<Response<Bytes>>> {
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

    /// Returns the state, which is read and written in small steps.
    pub(super) async fn state(&self, query: StateQuery) -> Response<Bytes> {
        let state = async {
            let gathered = self.rounds.look().await?;
            let write = || {
                let writer = StateWriter {
                    sentinel: self.sentinel.clone(),
                    about: self.settings.about.clone(),
                    gathered: gathered.clone(),
                };
                Box::pin(writer.write(query.clone())) as crate::observe::rounds::SteppedWork<Bytes>
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
