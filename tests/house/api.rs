//! What programs rely on without calling it: that types may be shared between
//! threads, sent to tasks, cloned and printed, that traits may be objects, and
//! that every item shows how it is used.
//!
//! Most are checks of the compiler; `ci/public-api.txt` lists all public items.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::{Debug, Display};
use std::fs;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::call::Direction;
use tower_sentinel::clock::{MonotonicClock, Tick};
use tower_sentinel::document::{Document, Format, Kind, Problem, Problems};
use tower_sentinel::hook::{BlockEvent, BreakerEvent, ExitEvent, Hooks, Interest, PassEvent};
use tower_sentinel::key::{
    Authority, Bearer, ClientAddr, ClientIp, Cookie, ForwardedIp, FromFn, Head, Header,
    KeyExtractor, MethodRoute, Or, Path, PathParam, PeerIp, Query, ResourceName, Route, Secret,
};
use tower_sentinel::keyed::KeyedLimiter;
use tower_sentinel::middleware::SentinelService;
use tower_sentinel::middleware::rejection::{Auto, Grpc, Http, RateLimitFields, Rejection};
use tower_sentinel::middleware::{
    AsError, AtHead, ByResult, ByStatus, CallFuture, CallLayer, CallService, Classify, Completion,
    Judgement, Respond, ResponseBody, ResponseFuture, ResponseHead, ServiceError,
};
use tower_sentinel::observe::dashboard::{Dashboard, DashboardHandle};
use tower_sentinel::observe::facade::Facade;
use tower_sentinel::observe::journal::Journal;
use tower_sentinel::observe::page::{EditablePage, Page};
use tower_sentinel::observe::{Family, FamilyKind, Metrics, Sample, TextFormat, Value};
use tower_sentinel::read::{
    BreakerState, BreakerView, InboundView, KeyedSnapshot, KeyedView, NodeSnapshot, NodeView,
    RuleSnapshot, Scope, ShadowView, Snapshot,
};
use tower_sentinel::rule::InvalidRule;
use tower_sentinel::source::{
    self, FileSource, InMemory, RuleFile, RuleSink, RuleSource, SourceError, SourceErrorKind,
    Watch, WatchEvent,
};
use tower_sentinel::stat::SlidingWindow;
use tower_sentinel::stat::{
    Event, Histogram, LeapArray, NodeBucket, Outcome, Quota, Refusal, Totals,
};
use tower_sentinel::system::{
    Capacity, ManualProbe, Memory, Probe, Readings, Sampler, SystemProbe, SystemReason,
};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, Blocked, BoxError, Builder, Call, CircuitBreakerRule,
    Clock, Entry, FlowRule, Hook, InvalidRules, InvalidSetting, IsolationRule, Key, KeyedRule,
    ManualClock, MissingKey, NotAdmitted, Rule, Rules, Sentinel, SentinelLayer, SystemRule,
    ThreadHandle, Verdict, Waiting, clock, keyed,
};

/// A service as programs have them.
type Service = tower::util::BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

macro_rules! all {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

fn shared<T: Debug + Send + Sync + Unpin + 'static>() {}
fn value<T: Debug + Clone + Send + Sync + Unpin>() {}
fn small<T: Debug + Copy + Send + Sync + Unpin>() {}
fn map_key<T: Debug + Clone + Eq + Hash + Send + Sync>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}
fn made_by_default<T: Default>() {}

#[test]
fn types_are_shared_cloned_and_printed() {
    all!(shared:
        Dashboard, DashboardHandle, Journal, Facade, ThreadHandle,
        Sentinel, Builder, Hooks, Entry, Waiting, Verdict, NotAdmitted, Blocked,
        LeapArray, SlidingWindow, KeyedLimiter, keyed::LimiterBuilder,
        SentinelLayer, SentinelLayer<AsError>, SentinelLayer<AtHead>, SentinelService<Service>,
        SentinelService<Service, AsError>, SentinelService<Service, AtHead>,
        CallLayer<fn(&String) -> Call<'_>>, CallService<Service, fn(&String) -> Call<'_>>,
        ResponseBody<Bytes>, FileSource, RuleFile, Arc<dyn RuleSink>, Watch, Sampler, SystemProbe,
    );
    all!(value:
        Sentinel, SentinelLayer, SentinelLayer<AsError>, SentinelService<Service>,
        SentinelService<Service, AsError>, CallLayer<fn(&String) -> Call<'_>>,
        CallService<Service, fn(&String) -> Call<'_>>,
        Rule, Rules, FlowRule, IsolationRule, CircuitBreakerRule, KeyedRule, AdaptiveRule,
        AuthorityRule, SystemRule, InvalidRule, InvalidRules, Blocked, Document, Problem, Problems,
        NodeView, BreakerView, KeyedView, ShadowView, Snapshot, NodeSnapshot,
        KeyedSnapshot, Scope, ManualClock, ManualProbe, clock::QuantaClock, Bearer, Secret<Header>, Cookie, Header,
        PathParam, Query, ResourceName, ForwardedIp, Auto, Grpc, Http, SourceError, WatchEvent,
        InvalidSetting, Watch, Histogram, tower_sentinel::observe::Body, Page, EditablePage,
        Metrics, Family, Sample, Value, InMemory,
    );
    all!(small:
        Call<'_>, Key<'_>, Direction, Tick, MonotonicClock, clock::TokioClock, BlockKind,
        BreakerState, MissingKey, Completion, Judgement, ByResult, ByStatus, AsError, AtHead, Respond, RateLimitFields,
        Format, Kind, Authority, MethodRoute, Path, Route, PeerIp, ClientAddr,
        Or<PeerIp, Route>, FromFn<fn()>, InboundView<'_>, BlockEvent<'_>,
        BreakerEvent<'_>, ExitEvent<'_>, PassEvent<'_>, ResponseHead<'_>,
        Event, NodeBucket, Outcome, Quota, Refusal, Totals, Capacity, Memory, Readings,
        SystemReason, SourceErrorKind, Interest, RuleSnapshot<'_>,
    );
    all!(map_key:
        Key<'_>, Direction, Tick, BlockKind, BreakerState, Event, Outcome, Kind,
        SystemReason, SourceErrorKind, MissingKey, Judgement, RateLimitFields, Format,
        Capacity, Completion, Scope, Interest, FamilyKind, TextFormat,
    );
    all!(error:
        Blocked, InvalidRules, InvalidRule, InvalidSetting, Refusal,
        Problems, SourceError,
    );
    all!(made_by_default:
        Rules, Builder, Hooks, ManualClock, MonotonicClock, clock::TokioClock, SystemRule, Auto,
        Grpc, Http, ByResult, ByStatus, PeerIp, Route, ManualProbe, Totals, Tick, ResponseBody<Bytes>,
    );
}

#[test]
fn states_and_kinds_are_printed_in_the_words_of_the_docs() {
    fn words<T: Display>(all: &[T]) -> String {
        let words: Vec<_> = all.iter().map(ToString::to_string).collect();
        words.join(" ")
    }
    use BreakerState::{Closed, HalfOpen, Open};
    assert_eq!(words(&[Closed, Open, HalfOpen]), "closed open half-open");
    let directions = [Direction::Inbound, Direction::Outbound];
    assert_eq!(words(&directions), "inbound outbound");
    let outcomes = [Outcome::Success, Outcome::Failure, Outcome::Ignore];
    assert_eq!(words(&outcomes), "success failure ignore");
    let events = [
        Event::Pass,
        Event::Block,
        Event::Complete,
        Event::Error,
        Event::Cancelled,
        Event::Occupied,
    ];
    assert_eq!(
        words(&events),
        "pass block complete error cancelled occupied"
    );
    let scopes = [
        Scope::Resource,
        Scope::Origin("a\n".to_owned()),
        Scope::OverflowOrigins,
        Scope::Context("b".to_owned()),
    ];
    assert_eq!(
        words(&scopes),
        "resource origin \"a\\n\" overflow-origins context \"b\""
    );
    // For the columns of a table.
    let row = format!("{:>6}|{:<9}|{:4}|", Open, BlockKind::Flow, SystemReason::Rt);
    assert_eq!(row, "  open|flow     |rt  |");
}

#[test]
fn an_engine_is_printed_in_short_and_without_its_seeds() {
    let rules = Rules::new()
        .with(KeyedRule::per_second("a", 9).id("each"))
        .with(CircuitBreakerRule::error_ratio("a", 0.5).id("failing"))
        .with(FlowRule::per_second("a", 1).id("tighter").shadow());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(ManualClock::new())
        .build();
    let _running = sentinel.try_enter(Call::new("a").param("ann"));
    let node = sentinel.node("a").unwrap();
    let layer = SentinelLayer::with(sentinel.clone());
    let shown = [
        (format!("{sentinel:?}"), "id: Some(\"failing\")"),
        (format!("{layer:?}"), "id: Some(\"failing\")"),
        (
            format!("{node:?}"),
            "concurrency: 1, totals: Totals { pass: 1,",
        ),
        (
            format!("{:?}", sentinel.inbound()),
            "totals: Totals { pass: 1,",
        ),
        (
            format!("{:?}", node.breakers()),
            "rule: \"failing\", state: Closed",
        ),
        (
            format!("{:?}", node.keyed_rules()),
            "rule: \"each\", values: 1, missing: 0",
        ),
        (
            format!("{:?}", sentinel.shadows()),
            "rule: \"tighter\", would_block: 0",
        ),
    ];
    for (text, part) in shown {
        assert!(text.contains(part), "{text}");
        assert!(!text.contains("seed") && text.len() < 1_500, "{text}");
    }
}

#[test]
fn a_report_has_the_words_that_are_printed() {
    let rules = [
        FlowRule::per_second("a", 9).for_origin("other"),
        FlowRule::per_second("b", 9).in_context("job"),
    ];
    let sentinel = Sentinel::builder()
        .rules(Rules::build(rules).unwrap())
        .origins(true)
        .clock(ManualClock::new())
        .build();
    for call in [
        Call::new("a").origin("ann"),
        Call::new("a"),
        Call::new("b").context("job").outbound(),
    ] {
        drop(sentinel.try_enter(call));
    }
    let snapshot = sentinel.snapshot();
    let report: serde_json::Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    let written = report["nodes"].as_array().unwrap();
    let mut kinds = BTreeSet::new();
    for (node, written) in snapshot.nodes().iter().zip(written) {
        assert_eq!(written["direction"], node.direction().to_string());
        let mut scope = written["scope"].as_str().unwrap().to_owned();
        kinds.insert(scope.clone());
        if let Some(name) = written["name"].as_str() {
            scope += &format!(" {name:?}");
        }
        assert_eq!(scope, node.scope().to_string());
        for event in [Event::Pass, Event::Block, Event::Complete, Event::Error] {
            let name = format!("{event}_qps");
            assert_eq!(written[&name].as_f64(), Some(node.qps(event)), "{name}");
        }
    }
    let expected = ["context", "origin", "resource"];
    assert!(kinds.iter().eq(expected), "{kinds:?}");
}

/// Futures that a task may take along, whatever thread it runs on.
#[test]
fn futures_are_sent_between_threads() {
    fn sent<T: Send + 'static>(_: &T) {}
    fn sent_type<T: Debug + Send>() {}
    all!(sent_type:
        ResponseFuture<Service, Request<Body>, Respond>,
        ResponseFuture<Service, Request<Body>, AsError>,
        ResponseFuture<Service, Request<Body>, AtHead>,
        CallFuture<Service, Request<Body>>,
    );
    let sentinel = Sentinel::new(Rules::new());
    let entered = {
        let sentinel = sentinel.clone();
        async move { sentinel.enter(Call::new("/")).await }
    };
    sent(&entered);
    assert!(entered.now_or_never().unwrap().is_ok());
    let work = async { Ok::<_, BoxError>(7) };
    let ran = async move { sentinel.run(Call::new("/"), work).await };
    sent(&ran);
    assert_eq!(ran.now_or_never().unwrap().unwrap(), 7);
}

#[derive(Debug)]
struct Silent;

impl Hook for Silent {}

/// Every public trait as an object, where the crate takes one.
#[test]
fn traits_are_objects() {
    let time: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let probe: Arc<dyn Probe> = Arc::new(ManualProbe::new());
    let hook: Arc<dyn Hook> = Arc::new(Silent);
    let key: Arc<dyn KeyExtractor> = Arc::new(PeerIp);
    let ip: Box<dyn ClientIp> = Box::new(PeerIp);
    let rejection: Box<dyn Rejection> = Box::new(Http::new());
    let classify: Box<dyn Classify> = Box::new(ByStatus);
    let mut rules: Box<dyn RuleSource> = Box::new(source::from_fn(|| Ok(Some(Rules::new()))));

    let sentinel = Sentinel::builder()
        .clock(time)
        .sampler(Sampler::new(probe))
        .hook("silent", hook)
        .rules(FlowRule::per("/", 1, Duration::from_secs(1)).by_origin())
        .build();
    assert_eq!(rules.poll().unwrap().map(|rules| rules.len()), Some(0));
    let error = ServiceError::of(&"it is away");
    assert_eq!(classify.error(error), Outcome::Failure);
    assert_eq!(classify.trailers(None), ByStatus.trailers(None));

    let seen_by = Arc::clone(&key);
    let layer = SentinelLayer::with(sentinel).origin(key).reject(
        move |head: Head<'_>, blocked: &Blocked| {
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            assert_eq!(seen_by.key(head), Some(Key::Ip(client)));
            assert_eq!(ip.client_ip(head), Some(client));
            rejection.reject(head, blocked)
        },
    );
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, BoxError>(Response::new(Body::empty()))
    }));
    let statuses = [(), ()].map(|()| {
        let mut request = Request::new(Body::empty());
        let client = (Ipv4Addr::LOCALHOST, 80).into();
        request.extensions_mut().insert(ClientAddr(client));
        let response = service.clone().oneshot(request).now_or_never();
        response.unwrap().unwrap().status()
    });
    assert_eq!(statuses, [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]);
}

/// Types of other crates that signatures may name: a head's parts are theirs.
#[test]
fn a_closure_is_an_extractor_and_a_rejection() {
    fn extractor(_: &impl KeyExtractor) {}
    fn rejection(_: &impl Rejection) {}
    extractor(&tower_sentinel::key::from_fn(|head| {
        let headers: &HeaderMap = head.headers();
        headers.get("x-tenant")?.to_str().ok().map(Key::from)
    }));
    rejection(&|_: Head<'_>, _: &Blocked| Response::new(Bytes::new()));
}

/// The name of the public type, trait or free function that begins in `line`.
///
/// An item is public if it says `pub`: the compiler warns of one that is not.
fn public_item(line: &str) -> Option<&str> {
    const TYPES: [&str; 4] = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    const FUNCTIONS: [&str; 3] = ["pub fn ", "pub const fn ", "pub async fn "];

    // A type may stand in a macro; a function that is indented is a method.
    let types = TYPES.iter().find_map(|it| line.trim().strip_prefix(it));
    let functions = FUNCTIONS.iter().find_map(|it| line.strip_prefix(it));
    // What seals a trait is public to the compiler and to nobody else.
    types
        .or(functions)
        .map(first_name)
        .filter(|name| *name != "Sealed")
}

fn first_name(code: &str) -> &str {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &code[..end.unwrap_or(code.len())]
}

/// Whether `docs` have an example that runs and asserts something.
fn has_example(docs: &str) -> bool {
    let mut blocks = docs.split("```").skip(1).step_by(2);
    // Behind the mark of another block stands what it is: `text`, `no_run`.
    blocks.any(|block| block.starts_with('\n') && block.contains("assert"))
}

/// The public items of `source`, and whether each has an example.
fn items(source: &str) -> Vec<(&str, bool)> {
    let (mut items, mut docs, mut before) = (Vec::new(), String::new(), "");
    for line in source.lines() {
        let code = line.trim();
        if let Some(doc) = code.strip_prefix("///") {
            docs.push_str(doc);
            docs.push('\n');
        } else if !code.starts_with("#[") {
            // This macro makes a type of a name alone.
            let made = (before == "event! {").then(|| first_name(code));
            let name = public_item(line).or(made).filter(|name| !name.is_empty());
            items.extend(name.map(|name| (name, has_example(&docs))));
            docs.clear();
            before = code;
        }
    }
    items
}

#[test]
fn every_public_item_has_an_example_that_asserts() {
    fn inspect(folder: &FilePath, seen: &mut usize, lacking: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // What is public there is so for the fuzzer alone.
                if !path.ends_with("tests") {
                    inspect(&path, seen, lacking);
                }
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            for (name, has_example) in items(&source) {
                *seen += 1;
                if !has_example {
                    lacking.push(format!("{}: {name}", path.display()));
                }
            }
        }
    }
    let (mut seen, mut lacking) = (0, Vec::new());
    let sources = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src");
    inspect(&sources, &mut seen, &mut lacking);
    assert!(lacking.is_empty(), "{lacking:#?}");
    assert!(seen > 100, "only {seen} items were found");
}

#[test]
fn an_item_without_an_example_is_found() {
    let source = r#"
/// ```
/// assert_eq!(Good::new().left(), 1);
/// ```
#[derive(Debug)]
pub struct Good;

impl Good {
    /// A method may stand without.
    pub fn left(&self) {}
}

/// Says nothing.
pub enum Mute {}

/// ```
/// let _ = shown();
/// ```
pub fn shown() {}

/// ```no_run
/// assert!(unrun().is_ok());
/// ```
pub async fn unrun() {}

/// ```text
/// assert = drawn
/// ```
pub trait Drawn {}

pin_project! {
    /// Says nothing.
    pub struct Projected<F> {}
}

event! {
    /// Says nothing.
    MadeEvent {
        /// Who calls.
        origin: u32,
    }
}

pub(crate) struct Inner;

mod sealed {
    pub trait Sealed {}
}
"#;
    let expected = [
        ("Good", true),
        ("Mute", false),
        ("shown", false),
        ("unrun", false),
        ("Drawn", false),
        ("Projected", false),
        ("MadeEvent", false),
    ];
    assert_eq!(items(source), expected);
}
