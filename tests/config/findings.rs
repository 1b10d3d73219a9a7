//! Mistakes in the set-up that limit nobody, or everybody together, are told with the first calls.
#![allow(clippy::disallowed_types, reason = "a hook of a test keeps a list")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use tower::ServiceExt;
use tower_sentinel::call::Param;
use tower_sentinel::clock::Tick;
use tower_sentinel::hook::{Finding, FindingKind, Hook};
use tower_sentinel::key::{ForwardedIp, Header, KeyExtractor, MethodRoute, PeerIp, from_fn};
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Criticality, Entry, FlowRule,
    IsolationRule, Key, KeyedRule, ManualClock, MissingKey, Rule, Rules, Sentinel, SentinelLayer,
    SystemRule, Verdict,
};

#[derive(Debug, Default)]
struct Told(Mutex<Vec<Finding>>);

impl Hook for Told {
    fn on_finding(&self, finding: &Finding) {
        self.0.lock().unwrap().push(finding.clone());
    }
}

impl Told {
    fn all(&self) -> Vec<Finding> {
        self.0.lock().unwrap().clone()
    }
}

/// An engine with `rules`, and what its hooks are told.
fn engine<R: Into<Rule>>(rules: impl IntoIterator<Item = R>) -> (Sentinel, Arc<Told>) {
    let told = Arc::new(Told::default());
    let sentinel = Sentinel::builder()
        .rules(Rules::build(rules).unwrap())
        .clock(ManualClock::new())
        .hook("told", told.clone())
        .build();
    (sentinel, told)
}

fn router() -> Router {
    let hello = || async { "hello" };
    Router::new()
        .route("/users/{id}", get(hello))
        .route("/search", get(hello))
        .route("/api/orders", get(hello))
        .route("/api/{*rest}", get(hello))
}

/// Ten calls to each of the paths, from one client.
async fn call(app: &Router, paths: &[&str], peer: Option<&str>) -> Vec<StatusCode> {
    let mut statuses = Vec::new();
    for path in paths {
        for _ in 0..10 {
            let mut request = Request::get(*path).body(Body::empty()).unwrap();
            if let Some(peer) = peer {
                let peer: SocketAddr = peer.parse().unwrap();
                request.extensions_mut().insert(ConnectInfo(peer));
            }
            let response = app.clone().oneshot(request).await.unwrap();
            statuses.push(response.status());
        }
    }
    statuses
}

type Build = fn(SentinelLayer) -> Router;

/// A server with a mistake.
struct Case {
    mistake: &'static str,
    rule: Rule,
    build: Build,
    paths: &'static [&'static str],
    kind: FindingKind,
    /// Stands in the finding's sentence.
    says: &'static str,
    /// Whether hooks are told before anybody asks.
    is_told: bool,
}

fn plain(layer: SentinelLayer) -> Router {
    router().layer(layer)
}

fn cases() -> Vec<Case> {
    let case = |mistake, rule: Rule, build: Build, paths, kind, says, is_told| Case {
        mistake,
        rule,
        build,
        paths,
        kind,
        says,
        is_told,
    };
    vec![
        case(
            "layer before the route",
            FlowRule::per_second("/search", 5).into(),
            |layer| {
                let hello = || async { "hello" };
                Router::new().layer(layer).route("/search", get(hello))
            },
            &["/search"],
            FindingKind::NoCalls,
            "`.layer(…)` applies to the routes that were added before it",
            false,
        ),
        case(
            "typo",
            FlowRule::per_second("/serach", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "\"/search\" was called",
            true,
        ),
        case(
            "another parameter name",
            FlowRule::per_second("/users/{user}", 5).into(),
            plain,
            &["/users/7"],
            FindingKind::RuleNotMet,
            "\"/users/{id}\" was called",
            true,
        ),
        case(
            "a template for a group",
            FlowRule::per_second("/api/{*all}", 5).into(),
            plain,
            &["/api/orders"],
            FindingKind::RuleNotMet,
            "the name of one route, and not of all below it",
            true,
        ),
        case(
            "trailing slash",
            FlowRule::per_second("/search/", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "the names differ by the slash at the end",
            true,
        ),
        case(
            "method in the name",
            FlowRule::per_second("GET /search", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "`.resource(MethodRoute)`",
            true,
        ),
        case(
            "no method in the name",
            FlowRule::per_second("/search", 5).into(),
            |layer| router().layer(layer.resource(MethodRoute)),
            &["/search"],
            FindingKind::RuleNotMet,
            "\"GET /search\" was called",
            true,
        ),
        case(
            "no connect info",
            FlowRule::per_second("/search", 100).by_origin().into(),
            |layer| router().layer(layer.origin(PeerIp)),
            &["/search"],
            FindingKind::KeyMissing,
            "is connect info on?",
            true,
        ),
        case(
            "no connect info, as a parameter",
            KeyedRule::per_second("/search", 100).into(),
            |layer| router().layer(layer.param(PeerIp)),
            &["/search"],
            FindingKind::KeyMissing,
            "they share one quota",
            true,
        ),
        case(
            "a layer without the parameter",
            KeyedRule::per_second("/search", 5).into(),
            plain,
            &["/search"],
            FindingKind::NotProvided,
            "no layer has `.param(…)`; all callers share one quota",
            true,
        ),
        case(
            "names of a parameter that differ",
            KeyedRule::per_second("/search", 5).param("user").into(),
            |layer| router().layer(layer.param_named("usr", Header::from_static("x-user"))),
            &["/search"],
            FindingKind::NotProvided,
            "the named parameters are \"usr\"",
            true,
        ),
        case(
            "by origin without an origin",
            FlowRule::per_second("/search", 5).by_origin().into(),
            plain,
            &["/search"],
            FindingKind::NotProvided,
            "no layer has `.origin(…)`; all callers share one quota",
            true,
        ),
        case(
            "a list of callers without an origin",
            AuthorityRule::deny("/search", ["mallory"]).into(),
            plain,
            &["/search"],
            FindingKind::NotProvided,
            "no layer has `.origin(…)`; it limits no call by that",
            true,
        ),
        case(
            "a context that no layer knows",
            FlowRule::per_second("/search", 5).in_context("web").into(),
            plain,
            &["/search"],
            FindingKind::NotProvided,
            "no layer has `.context(…)`",
            true,
        ),
        case(
            "tiers that no layer knows",
            KeyedRule::per_second("/search", 5).tier("paid", 50).into(),
            |layer| router().layer(layer.param(from_fn(|_| Some(Key::Str("ann"))))),
            &["/search"],
            FindingKind::NotProvided,
            "no layer has `.tier(…)`; all callers have the default quota",
            true,
        ),
        case(
            "limits by CPU without a sampler",
            SystemRule::new().cpu(0.9).into(),
            plain,
            &["/search"],
            FindingKind::NoSampler,
            "Builder::sampler",
            false,
        ),
        case(
            "a related resource with a typo",
            FlowRule::per_second("/search", 5).when("/api/oders").into(),
            plain,
            &["/search", "/api/orders"],
            FindingKind::RelatedNotCalled,
            "\"/api/orders\" was called 10 times",
            false,
        ),
        case(
            "a related resource of calls at once with a typo",
            IsolationRule::new("/search", 5).when("/api/oders").into(),
            plain,
            &["/search", "/api/orders"],
            FindingKind::RelatedNotCalled,
            "\"/api/orders\" was called 10 times",
            false,
        ),
        case(
            "calls at once of one origin, and no layer that knows any",
            IsolationRule::new("/search", 5).for_origin("shop").into(),
            plain,
            &["/search"],
            FindingKind::NotProvided,
            "it limits no call by that",
            true,
        ),
        case(
            "a breaker and a rule in shadow mode with a typo",
            CircuitBreakerRule::error_ratio("/Search", 0.5).shadow(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "the names differ by capitals",
            true,
        ),
        case(
            "one name for all calls, and a rule for a route",
            FlowRule::per_second("/search", 5).into(),
            |layer| router().layer(layer.named("api")),
            &["/search"],
            FindingKind::RuleNotMet,
            "every layer names all its calls alike, by `.named(…)`: \"api\"",
            true,
        ),
        case(
            "callers of a list who never say their name",
            AuthorityRule::deny("/search", ["mallory"]).into(),
            |layer| router().layer(layer.origin(Header::from_static("x-user"))),
            &["/search"],
            FindingKind::KeyMissing,
            "10 calls, and it has refused none of them; if the key",
            true,
        ),
        case(
            "callers of a list of friends who never say their name",
            AuthorityRule::allow("/search", ["ann"])
                .deny_unknown()
                .into(),
            |layer| router().layer(layer.origin(Header::from_static("x-user"))),
            &["/search"],
            FindingKind::KeyMissing,
            "10 calls, and all of them were refused; if the key",
            true,
        ),
        case(
            "a rule for a caller who never says its name",
            FlowRule::per_second("/search", 50).for_origin("ann").into(),
            |layer| router().layer(layer.origin(Header::from_static("x-user"))),
            &["/search"],
            FindingKind::KeyMissing,
            "10 calls, and it has limited none of them; if the key",
            true,
        ),
        case(
            "a context that no call has",
            FlowRule::per_second("/search", 50).in_context("web").into(),
            |layer| router().layer(layer.context(Header::from_static("x-entry"))),
            &["/search"],
            FindingKind::KeyMissing,
            "10 calls, and it has limited none of them",
            true,
        ),
        case(
            "a tier in other capitals",
            KeyedRule::per_second("/search", 50).tier("pro", 90).into(),
            |layer| {
                let tier = from_fn(|_| Some(Key::Str("Pro")));
                router().layer(layer.param(from_fn(|_| Some(Key::Str("ann")))).tier(tier))
            },
            &["/search"],
            FindingKind::UnknownTier,
            "the rule has \"pro\"; calls of \"Pro\" have the default quota",
            true,
        ),
        case(
            "a second parameter that no rule looks at",
            KeyedRule::per_second("/search", 50).into(),
            |layer| {
                let ann = || from_fn(|_| Some(Key::Str("ann")));
                router().layer(layer.param(ann()).param(ann()))
            },
            &["/search"],
            FindingKind::UnusedParam,
            "`.param(…)`, number 2; a rule looks at it by `KeyedRule::param_at` or `KeyedRule::param`",
            true,
        ),
        case(
            "a pattern for all",
            FlowRule::per_second("**", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "names are no patterns",
            true,
        ),
        case(
            "a regular expression",
            FlowRule::per_second("^/api/.*$", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "names are no regular expressions",
            true,
        ),
        case(
            "a query",
            FlowRule::per_second("/search?x=1", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "the query is no part of a name",
            true,
        ),
        case(
            "an address",
            FlowRule::per_second("http://shop.example/search", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "requests are named by their path",
            true,
        ),
        case(
            "a method as Sentinel for Java writes it",
            FlowRule::per_second("GET:/search", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "a name such as \"GET /search\"",
            true,
        ),
        case(
            "a method as an adapter writes it",
            FlowRule::per_second("HttpGet#/search", 5).into(),
            plain,
            &["/search"],
            FindingKind::RuleNotMet,
            "a name such as \"GET /search\"",
            true,
        ),
    ]
}

#[tokio::test]
async fn each_mistake_of_a_table_yields_its_finding() {
    for case in cases() {
        let mistake = case.mistake;
        let (sentinel, told) = engine([case.rule]);
        let app = (case.build)(SentinelLayer::with(sentinel.clone()));
        call(&app, case.paths, None).await;

        let at_once = told.all();
        let found = sentinel.findings();
        let kinds: Vec<_> = found.iter().map(Finding::kind).collect();
        assert_eq!(kinds, [case.kind], "{mistake}: {found:#?}");
        let sentence = found[0].to_string();
        assert!(sentence.contains(case.says), "{mistake}: {sentence}");
        let kinds: Vec<_> = at_once.iter().map(Finding::kind).collect();
        let expected: &[_] = if case.is_told { &[case.kind] } else { &[] };
        assert_eq!(kinds, expected, "{mistake} at once");
        // Asking has hooks told of the rest, and of nothing twice.
        let _ = sentinel.snapshot();
        assert_eq!(told.all().len(), 1, "{mistake}");
    }
}

/// What cannot be right is refused before there is a call.
#[test]
fn other_mistakes_are_errors_when_rules_are_made() {
    let mistakes: [(Rule, &str); 4] = [
        (FlowRule::per_second("/users/:id", 5).into(), "/users/{id}"),
        (FlowRule::per_second("/files/*", 5).into(), "{*"),
        (
            FlowRule::per_second("/a", 5)
                .missing(MissingKey::Refuse)
                .into(),
            "by_origin",
        ),
        (FlowRule::per_second("/a", 0.5).into(), "0.5"),
    ];
    for (rule, cure) in mistakes {
        let error = Rules::build([rule]).unwrap_err().to_string();
        assert!(error.contains(cure), "{error}");
    }
}

/// A misspelt parameter, no connect info, and a slash too many.
#[tokio::test]
async fn the_program_of_the_readme_tells_each_of_three_mistakes() {
    let per_client = KeyedRule::per_minute("/login", 5).missing(MissingKey::Refuse);
    let rules = Rules::new()
        .with(FlowRule::per_second("/users/{user}", 5))
        .with(per_client)
        .with(IsolationRule::new("/report/", 2));
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let layer = SentinelLayer::new(rules)
        .param(PeerIp)
        .on_finding(move |finding| log.lock().unwrap().push(finding.to_string()));
    let app = Router::new()
        .route("/users/{id}", get(|| async { "hello" }))
        .route("/login", get(|| async { "welcome" }))
        .route("/report", get(|| async { "done" }))
        .layer(layer);
    call(&app, &["/users/7", "/login", "/report"], None).await;
    let told = told.lock().unwrap();
    let words = [
        "\"/users/{user}\" has met no call, although calls came: \"/users/{id}\" was called",
        "\"/login\" without its key: 8 calls, and all of them were refused",
        "\"/report/\" has met no call, although calls came: \"/report\" was called",
    ];
    assert_eq!(told.len(), words.len(), "{told:#?}");
    for (told, words) in told.iter().zip(words) {
        assert!(told.contains(words), "{told}");
    }
}

#[tokio::test]
async fn a_server_without_mistakes_has_no_findings() {
    let rules: Vec<Rule> = vec![
        FlowRule::per_second("/users/{id}", 5).into(),
        FlowRule::per_second("/search", 50).by_origin().into(),
        KeyedRule::per_second("/api/{*rest}", 50)
            .param("user")
            .into(),
        IsolationRule::new("*", 100).into(),
        SystemRule::new().cpu(0.9).into(),
    ];
    let told = Arc::new(Told::default());
    let sentinel = Sentinel::builder()
        .rules(Rules::build(rules).unwrap())
        .sampler(Sampler::new(ManualProbe::new()))
        .hook("told", told.clone())
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(PeerIp)
        .param_named("user", PeerIp);
    let app = router().layer(layer);
    let paths = ["/users/7", "/search", "/api/x/y", "/nowhere"];
    call(&app, &paths, Some("192.0.2.7:4000")).await;
    assert_eq!(sentinel.findings(), []);
    assert_eq!(told.all(), []);
    assert_eq!(sentinel.snapshot().findings(), []);
    assert!(sentinel.snapshot().to_json().contains("\"findings\":[]"));
}

#[tokio::test]
async fn some_calls_without_a_key_are_no_mistake() {
    let (sentinel, told) = engine([FlowRule::per_second("/search", 100).by_origin()]);
    let layer = SentinelLayer::with(sentinel.clone()).origin(PeerIp);
    let app = router().layer(layer);
    call(&app, &["/search"], Some("192.0.2.7:4000")).await;
    call(&app, &["/search"], None).await;
    assert_eq!(sentinel.findings(), []);
    assert_eq!(told.all(), []);
}

#[tokio::test]
async fn refusals_for_want_of_a_key_are_told_with_their_number() {
    let rule = FlowRule::per_second("/search", 100).by_origin();
    let (sentinel, _) = engine([rule.missing(MissingKey::Refuse)]);
    let layer = SentinelLayer::with(sentinel.clone()).origin(PeerIp);
    let statuses = call(&router().layer(layer), &["/search"], None).await;
    assert!(statuses.iter().all(|it| *it == StatusCode::FORBIDDEN));
    let found = sentinel.findings();
    assert_eq!(found.len(), 1, "{found:?}");
    let cause = found[0].cause();
    assert!(
        cause.starts_with("10 calls, and all of them were refused; "),
        "{cause}"
    );
}

#[test]
fn calls_that_the_program_enters_may_have_any_key() {
    let rules: [Rule; 2] = [
        AuthorityRule::deny("job", ["mallory"]).into(),
        KeyedRule::per_second("job", 5).tier("paid", 50).into(),
    ];
    let (sentinel, told) = engine(rules);
    let _service = tower::Layer::layer(&SentinelLayer::with(sentinel.clone()), ());
    let call = || Call::new("job").origin("ann").param("x").tier("paid");
    drop(sentinel.try_enter(call()));
    assert_eq!(sentinel.findings(), []);
    assert_eq!(told.all(), []);
}

#[test]
fn a_default_rule_that_others_keep_away_is_told() {
    let rules = [FlowRule::per_second("*", 5), FlowRule::per_second("job", 5)];
    let (sentinel, _) = engine(rules);
    drop(sentinel.try_enter(Call::new("job")));
    let found = sentinel.findings();
    assert_eq!((found.len(), found[0].rule()), (1, "flow-0"), "{found:?}");
    drop(sentinel.try_enter(Call::new("other")));
    assert_eq!(sentinel.findings(), []);
}

#[test]
fn made_up_names_add_bounded_work_and_findings() {
    let (sentinel, told) = engine((0..50).map(|n| FlowRule::per_second(format!("/route{n}"), 5)));
    for n in 0..20_000 {
        drop(sentinel.try_enter(Call::new(&*format!("/rout{n}"))));
    }
    assert!(told.all().len() <= 50, "{}", told.all().len());
    assert!(sentinel.findings().len() <= 50);
    let rules = (0..2_000).map(|n| FlowRule::per_second(format!("/silent{n}"), 5));
    let (sentinel, _) = engine(rules);
    drop(sentinel.try_enter(Call::new("/x")));
    assert_eq!(sentinel.findings().len(), 1_000);
}

#[test]
fn a_snapshot_before_the_first_calls_alarms_nobody() {
    let rules: [Rule; 3] = [
        FlowRule::per_second("/search", 5).into(),
        FlowRule::per_second("/report", 5).into(),
        SystemRule::new().cpu(0.9).into(),
    ];
    let (sentinel, told) = engine(rules);
    let kinds = |found: &[Finding]| found.iter().map(Finding::kind).collect::<Vec<_>>();
    let snapshot = sentinel.snapshot();
    let expected = [FindingKind::NoSampler, FindingKind::NoCalls];
    assert_eq!(kinds(snapshot.findings()), expected);
    assert_eq!(kinds(&told.all()), [FindingKind::NoSampler]);
    drop(sentinel.try_enter(Call::new("/search")));
    let _ = sentinel.snapshot();
    assert_eq!(kinds(&told.all()), [FindingKind::NoSampler]);
    // The program asks.
    assert_eq!(sentinel.findings().len(), 2);
    let expected = [FindingKind::NoSampler, FindingKind::RuleNotMet];
    assert_eq!(kinds(&told.all()), expected);
}

#[test]
fn after_a_reload_findings_are_of_the_rules_in_force() {
    let (sentinel, told) = engine([FlowRule::per_second("/serach", 5)]);
    drop(sentinel.try_enter(Call::new("/search")));
    assert_eq!(sentinel.findings().len(), 1);
    sentinel.reload(FlowRule::per_second("/search", 5).into());
    assert_eq!(sentinel.findings(), []);
    // The same id with the same mistake is not told again.
    sentinel.reload(FlowRule::per_second("/serach", 7).into());
    assert_eq!(sentinel.findings().len(), 1);
    assert_eq!(told.all().len(), 1);
}

#[test]
fn a_hook_that_panics_or_asks_again_harms_nobody() {
    #[derive(Debug)]
    struct Curious(Mutex<Option<Sentinel>>);
    impl Hook for Curious {
        fn on_finding(&self, _: &Finding) {
            let sentinel = self.0.lock().unwrap().clone().unwrap();
            assert_eq!(sentinel.findings().len(), 1);
            panic!("no log");
        }
    }
    let curious = Arc::new(Curious(Mutex::new(None)));
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("/serach", 5))
        .hook("curious", curious.clone())
        .build();
    *curious.0.lock().unwrap() = Some(sentinel.clone());
    drop(sentinel.try_enter(Call::new("/search")));
    assert_eq!(sentinel.hooks().panics(), 1);
    curious.0.lock().unwrap().take();
}

/// The number of nanoseconds at whose multiple, and this more, the layer looks at a request: one in
/// 1,024 by a clock that counts single ones.
const LOOKED_AT: u64 = 777;

#[tokio::test]
async fn after_a_thousand_calls_to_others_a_rule_without_any_is_told() {
    let rules = [
        FlowRule::per_second("api", 9),
        FlowRule::per_second("/report", 9),
    ];
    let told = Arc::new(Told::default());
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(Rules::build(rules).unwrap())
        .clock(clock.clone())
        .hook("told", told.clone())
        .build();
    let app = plain(SentinelLayer::with(sentinel.clone()));
    for _ in 0..99 {
        call(&app, &["/search"], None).await;
    }
    clock.set(Tick::from_nanos(LOOKED_AT));
    for _ in 0..9 {
        let request = Request::get("/search").body(Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap();
    }
    // It is no finding yet for a reader that comes at any time.
    assert_eq!(sentinel.snapshot().findings(), []);
    assert_eq!(told.all(), []);
    call(&app, &["/search"], None).await;
    let told: Vec<_> = told.all().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "rule \"flow-0\" for \"api\" has met no call, although calls came: requests are named \
             by their route; a layer with `.named(\"api\")` gives all of its requests this name",
            "rule \"flow-1\" for \"/report\" has met no call, although calls came",
        ],
    );
    assert_eq!(sentinel.snapshot().findings().len(), 2);
}

#[test]
fn findings_with_evidence_come_first() {
    let rules = [
        FlowRule::per_second("/report", 9),
        FlowRule::per_second("/oders", 9),
        FlowRule::per_second("/cart", 9),
    ];
    let (sentinel, _) = engine(rules);
    drop(sentinel.try_enter(Call::new("/orders")));
    let found = sentinel.findings();
    let rules: Vec<_> = found.iter().map(Finding::rule).collect();
    assert_eq!(rules, ["flow-1", "flow-0", "flow-2"]);
}

#[test]
fn a_name_that_has_a_rule_is_not_the_misspelt_name_of_another() {
    let rules = [
        FlowRule::per_second("/order", 9),
        FlowRule::per_second("/orders", 9),
    ];
    let (sentinel, told) = engine(rules);
    drop(sentinel.try_enter(Call::new("/orders")));
    let found = sentinel.findings();
    assert_eq!((found.len(), found[0].cause()), (1, ""), "{found:?}");
    // Hooks hear of it, as the program asks.
    assert_eq!(told.all(), found);
}

#[tokio::test]
async fn of_two_mistakes_in_one_rule_both_are_told() {
    let rule = KeyedRule::per_second("/search", 50)
        .param("user")
        .tier("pro", 90);
    let (sentinel, told) = engine([rule]);
    let app = router().layer(SentinelLayer::with(sentinel.clone()));
    call(&app, &["/search"], None).await;
    let told: Vec<_> = told.all().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("`.param_named(\"user\", …)`"), "{told:?}");
    assert!(told[1].contains("`.tier(…)`"), "{told:?}");

    // One that no layer provides, and one that no call has.
    let rule = KeyedRule::per_second("/search", 50).tier("pro", 90);
    let (sentinel, told) = engine([rule]);
    let layer = SentinelLayer::with(sentinel.clone()).param(Header::from_static("x-user"));
    call(&router().layer(layer), &["/search"], None).await;
    let kinds: Vec<_> = told.all().iter().map(Finding::kind).collect();
    assert_eq!(kinds, [FindingKind::NotProvided, FindingKind::KeyMissing]);
    assert_eq!(sentinel.findings().len(), 2);
}

#[tokio::test]
async fn names_of_tiers_without_a_quota_are_no_mistake() {
    let rules = [
        KeyedRule::per_second("/search", 50).tier("pro", 90),
        KeyedRule::per_second("/search", 60).tier("prom", 90),
    ];
    let (sentinel, told) = engine(rules);
    for tier in ["free", "prom", "trial", "enterprise", "guest", "Prom"] {
        drop(sentinel.try_enter(Call::new("/search").param("ann").tier(tier)));
    }
    // The fifth unknown name is not looked at, and the second is known to another rule.
    assert_eq!(sentinel.findings(), []);
    assert_eq!(told.all(), []);
}

#[tokio::test]
async fn peers_that_are_a_proxy_are_told() {
    let told_with = async |forwarded: &[&str], knows_proxies: bool| {
        let (sentinel, told) = engine([FlowRule::per_second("*", 90)]);
        let layer = SentinelLayer::with(sentinel);
        let app = if knows_proxies {
            router().layer(layer.origin(ForwardedIp::hops(1)))
        } else {
            router().layer(layer.origin(Header::from_static("x-user").or(PeerIp)))
        };
        for (path, forwarded) in forwarded.iter().enumerate() {
            let mut request = Request::get(format!("/api/{path}"));
            if !forwarded.is_empty() {
                request = request.header(*forwarded, "192.0.2.7");
            }
            // Only the first call to each resource is looked at.
            let app = Router::new().nest(&format!("/{path}"), app.clone());
            let uri = format!("/{path}/api/x");
            let mut request = request.uri(uri).body(Body::empty()).unwrap();
            let peer: SocketAddr = "10.0.0.1:4000".parse().unwrap();
            request.extensions_mut().insert(ConnectInfo(peer));
            app.oneshot(request).await.unwrap();
        }
        told.all().iter().map(Finding::kind).collect::<Vec<_>>()
    };
    let all = ["x-forwarded-for"; 8];
    assert_eq!(told_with(&all, false).await, [FindingKind::BehindProxy]);
    assert_eq!(
        told_with(&["forwarded"; 8], false).await,
        [FindingKind::BehindProxy]
    );
    assert_eq!(told_with(&all[1..], false).await, []);
    assert_eq!(told_with(&all, true).await, []);
    let mut some = all;
    some[3] = "";
    assert_eq!(told_with(&some, false).await, []);
}

#[tokio::test]
async fn an_outbound_layer_gets_no_advice_on_the_addresses_of_peers() {
    let (sentinel, told) = engine([KeyedRule::per_second("/search", 50)]);
    let layer = SentinelLayer::with(sentinel).outbound();
    let app = router().layer(layer.param(Header::from_static("x-user")));
    call(&app, &["/search"], None).await;
    let told = told.all();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].cause(), "8 calls, and they share one quota");
}

#[test]
fn classes_that_no_other_call_competes_with_are_found() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(AdaptiveRule::new("/search").id("learned"))
        .clock(clock)
        .build();
    let call = |class| drop(sentinel.try_enter(Call::new("/search").criticality(class)));
    for _ in 0..1_000 {
        call(Criticality::Sheddable);
    }
    assert_eq!(sentinel.findings(), [], "nobody names classes");
    let layer = SentinelLayer::with(sentinel.clone()).criticality(|_| None);
    let _service = tower::Layer::layer(&layer, router());
    let found = sentinel.findings();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind(), FindingKind::OneCriticality);
    assert_eq!(
        found[0].to_string(),
        "rule \"learned\" has met calls to \"/search\" of one class only: all are sheddable; \
         rules compare the calls of one resource, so give those that compete one name by \
         `.named(…)`"
    );
    call(Criticality::Critical);
    assert_eq!(sentinel.findings(), []);
}

#[test]
fn a_ceiling_that_refuses_calls_for_nothing_is_found() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(AdaptiveRule::new("/search").ceiling(4).id("low"))
        .clock(clock.clone())
        .build();
    for _ in 0..400 {
        let running: Vec<_> = (0..5)
            .map(|_| sentinel.try_enter(Call::new("/search")))
            .collect();
        clock.advance(Duration::from_millis(50));
        drop(running);
    }
    let found = sentinel.findings();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind(), FindingKind::CeilingReached);
    assert!(
        found[0]
            .cause()
            .ends_with("raise it by `AdaptiveRule::ceiling`"),
        "{found:?}"
    );
}

#[test]
fn calls_without_a_key_that_block_each_other_are_found() {
    let rule = |missing| {
        let rule = KeyedRule::per_minute("/login", 3)
            .param("address")
            .id("address");
        let day = Duration::from_secs(24 * 60 * 60);
        Rules::from(rule.missing(missing).block_for(day))
    };
    for missing in [MissingKey::Share, MissingKey::Skip, MissingKey::Refuse] {
        let sentinel = Sentinel::builder()
            .rules(rule(missing))
            .clock(ManualClock::new())
            .build();
        let params = [Param::new("address", "192.0.2.1")];
        drop(sentinel.try_enter(Call::new("/login").params(&params)));
        for calls in 1..=8 {
            assert_eq!(sentinel.findings(), [], "{calls}");
            drop(sentinel.try_enter(Call::new("/login")));
        }
        let found: Vec<_> = sentinel
            .findings()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = "rule \"address\" blocks all calls to \"/login\" without its key at once: \
                        8 calls; one of them beyond the limit of one value keeps all of them out: \
                        `KeyedRule::missing` skips or refuses them";
        let is_shared = missing == MissingKey::Share;
        assert_eq!(
            found,
            is_shared.then_some(expected).as_slice(),
            "{missing:?}"
        );
    }
}

/// What is found after `calls`, each of which reserves and tells what `tell` says.
fn cost_findings(
    rule: impl Into<Rule>,
    calls: u32,
    (unit, reserved): (&str, u32),
    tell: fn(&mut Entry),
) -> Vec<String> {
    let sentinel = Sentinel::builder()
        .rules(Rules::from(rule.into()))
        .clock(ManualClock::new())
        .build();
    for _ in 0..calls {
        let call = Call::new("/chat").param("ann").reserve(unit, reserved);
        let Verdict::Pass(mut entry) = sentinel.try_enter(call) else {
            panic!("a thousand are left");
        };
        tell(&mut entry);
    }
    let found = sentinel.findings();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_on_costs_that_no_call_tells_is_found() {
    let flow = || {
        FlowRule::per_minute("/chat", 1_000)
            .cost("tokens")
            .id("tpm")
    };
    let keyed = || {
        KeyedRule::per_minute("/chat", 1_000)
            .cost("tokens")
            .id("tpm")
    };
    let none = [""; 0];
    for rule in [Rule::from(flow()), keyed().into()] {
        let of = |calls, reserved, tell| cost_findings(rule.clone(), calls, reserved, tell);
        let found = |calls, reserved, tell| of(calls, ("tokens", reserved), tell);
        assert_eq!(found(7, 10, |_| ()), none);
        assert_eq!(
            found(8, 10, |_| ()),
            [
                "rule \"tpm\" has met calls to \"/chat\" that cost something, and none told how much: \
              it limits what they reserve; tell \"tokens\" by `Meter::settle`, or by \
              `SentinelLayer::cost`"
            ]
        );
        assert_eq!(
            found(8, 0, |_| ()),
            [
                "rule \"tpm\" has met calls to \"/chat\" that cost something, and none told how much: \
              it limits nobody; tell \"tokens\" by `Meter::settle`, or by `SentinelLayer::cost`"
            ]
        );
        // A failure may tell nothing, and one call that tells a cost is enough.
        assert_eq!(found(20, 10, Entry::fail), none);
        assert_eq!(found(20, 10, |entry| entry.settle("tokens", 0)), none);
        let other_unit = "rule \"tpm\" for \"/chat\" counts a unit that no call tells: it counts \
             \"tokens\", and calls name \"token\"";
        assert_eq!(found(8, 10, |entry| entry.settle("token", 3)), [other_unit]);
        assert_eq!(of(8, ("token", 10), |_| ()), [other_unit]);
        assert_eq!(
            found(1, 10, |entry| entry.settle("tokens", 1_001)),
            [
                "rule \"tpm\" has met a call to \"/chat\" that cost more than its whole limit: 1001 \
              \"tokens\", of 1000: is the unit right?"
            ]
        );
    }
    // The plan of the caller may have a larger limit.
    let plans = keyed().tier("pro", 5_000);
    assert_eq!(
        cost_findings(plans, 1, ("tokens", 10), |entry| entry
            .settle("tokens", 1_001)),
        none
    );
}
