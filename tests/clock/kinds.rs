//! Rules of every kind under clocks that step back, lie or panic.

use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tower_sentinel::call::Param;
use tower_sentinel::clock::{Clock, Tick};
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule,
    KeyedRule, ManualClock, NotAdmitted, Rule, Rules, Sentinel, SystemRule, Verdict,
};

const LIMIT: u32 = 5;
/// More than are called by: tables are made for each engine, of which there are thousands.
const KEYS: u32 = 64;
const MICROSECOND: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Ten hours, at which buckets of every length begin.
const BEGIN: Tick = Tick::from_millis(36_000_000);

/// Rules that refuse calls to "r".
struct Case {
    name: &'static str,
    rules: Rules,
    /// How many calls pass until they refuse, at most, and for how long they do so then.
    limit: u32,
    lasts: Duration,
    /// Whether calls run on, or fail.
    holds: bool,
    fails: bool,
}

fn case(name: &'static str, rule: impl Into<Rule>) -> Case {
    Case {
        name,
        rules: Rules::new().with(rule),
        limit: LIMIT,
        lasts: HOUR,
        holds: false,
        fails: false,
    }
}

fn breaker(name: &'static str, rule: CircuitBreakerRule) -> Case {
    Case {
        fails: true,
        ..case(name, rule.open_for(HOUR))
    }
}

fn holding(name: &'static str, rule: impl Into<Rule>) -> Case {
    Case {
        holds: true,
        ..case(name, rule)
    }
}

/// Every kind of rule, and every way in which one counts.
fn cases() -> Vec<Case> {
    let hour = || FlowRule::per("r", LIMIT, HOUR);
    let values = || KeyedRule::per("r", LIMIT, HOUR).max_keys(KEYS);
    let errors = || CircuitBreakerRule::error_count("r", 3);
    let mut cases = vec![
        case("flow", hour()),
        case("many buckets", hour().buckets(60)),
        case("strict", hour().buckets(60).strict()),
        case("warm-up", hour().warm_up(HOUR)),
        case("queue", hour().throttle(SECOND)),
        case("warm queue", hour().warm_up(HOUR).throttle(SECOND)),
        case("origins in a table", hour().by_origin()),
        case("origins with nodes", hour().for_origin("other").strict()),
        case("one origin", hour().for_origin("o")),
        case("other origins", hour().for_origin("other")),
        case("context", hour().in_context("c")),
        case("related", FlowRule::per("r", LIMIT, HOUR).when("other")),
        case("values", values()),
        case("values in a window", values().window()),
        case(
            "values by the day",
            KeyedRule::per_calendar_day("r", LIMIT).max_keys(KEYS),
        ),
        case("calls by the day", FlowRule::per_calendar_day("r", LIMIT)),
        case("values in a queue", values().throttle(SECOND)),
        case("named values", values().param("user")),
        case("values by origin", values().by_origin()),
        holding(
            "values at once",
            KeyedRule::concurrency("r", LIMIT).max_keys(KEYS),
        ),
        holding("isolation", IsolationRule::new("r", LIMIT)),
        holding(
            "isolation of one origin",
            IsolationRule::new("r", LIMIT).for_origin("o"),
        ),
        holding(
            "isolation of other origins",
            IsolationRule::new("r", LIMIT).for_origin("other"),
        ),
        holding(
            "adaptive",
            AdaptiveRule::new("r").ceiling(LIMIT).start(LIMIT),
        ),
        breaker("errors", errors()),
        breaker("errors of the last", errors().last_calls(10)),
        breaker(
            "errors in a row",
            CircuitBreakerRule::consecutive_errors("r", 3),
        ),
        breaker(
            "ratio of errors",
            CircuitBreakerRule::error_ratio("r", 0.5).min_calls(3),
        ),
        breaker(
            "slow calls",
            CircuitBreakerRule::slow_ratio("r", Duration::ZERO, 0.5).min_calls(3),
        ),
        Case {
            fails: true,
            ..case(
                "pushback",
                CircuitBreakerRule::pushback("r").open_up_to(HOUR),
            )
        },
        case("deny", AuthorityRule::deny("r", ["o"])),
        case("allow", AuthorityRule::allow("r", ["another"])),
        holding("all at once", SystemRule::new().concurrency(LIMIT)),
        Case {
            lasts: SECOND,
            ..case("all calls", SystemRule::new().qps(LIMIT))
        },
        Case {
            lasts: SECOND,
            fails: true,
            ..case("all times", SystemRule::new().rt(MICROSECOND))
        },
        Case {
            // One more than what is taken for the capacity while nothing is known.
            limit: 11,
            ..holding("the load", SystemRule::new().load(8))
        },
        case("the CPU", SystemRule::new().cpu(0.8)),
    ];
    // Where numbers of buckets come round soonest.
    for interval in [MS, MS * 10, SECOND] {
        let window = KeyedRule::per("r", LIMIT, interval).max_keys(KEYS).window();
        cases.push(Case {
            lasts: interval,
            ..case("a short window of values", window)
        });
    }
    let shadows = Rules::new().with(hour().shadow()).with(hour());
    cases.push(Case {
        rules: shadows,
        ..case("shadow", hour())
    });
    cases
}

/// The variants of the enum `name` in a file of `src`.
fn variants(file: &str, name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = fs::read_to_string(path).unwrap();
    let start = text.find(&format!("enum {name} {{")).unwrap();
    let body = text[start..].split("\n}").next().unwrap();
    let lines = body.lines().skip(1).map(str::trim);
    let lines = lines.filter(|line| line.starts_with(char::is_uppercase));
    lines
        .map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect())
        .collect()
}

#[test]
fn every_kind_of_rule_has_its_case() {
    let texts: Vec<_> = cases().iter().map(|it| format!("{:?}", it.rules)).collect();
    let kinds = [
        ("rule/mod.rs", "Rule"),
        ("rule/whose.rs", "Who"),
        ("rule/whose.rs", "Basis"),
        ("rule/keyed_rule/mod.rs", "ParamOf"),
        ("rule/authority/mod.rs", "Treatment"),
        ("rule/circuit_breaker/mod.rs", "TripThreshold"),
        ("breaker/spec.rs", "Strategy"),
        ("keyed/keys.rs", "Counting"),
    ];
    for (file, name) in kinds {
        let variants = variants(file, name);
        assert!(variants.len() > 1, "{file}: {name}");
        for variant in variants {
            let has = |text: &String| {
                let mut rest = text.split(&variant).skip(1);
                rest.any(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            assert!(
                texts.iter().any(has),
                "{file}: no case for {name}::{variant}"
            );
        }
    }
    // Each limit of a system rule is a field of it.
    for reason in variants("blocked/reason.rs", "SystemReason") {
        let field = format!(" {}: Some(", reason.to_lowercase());
        let has = texts.iter().any(|text| text.contains(&field));
        assert!(has, "no case for a system rule with{field}…)");
    }
}

fn engine(clock: impl Clock, rules: Rules) -> Sentinel {
    let probe = ManualProbe::new();
    probe.set_load(9.0);
    probe.set_cpu(0.9);
    Sentinel::builder()
        .rules(rules)
        .clock(clock)
        .sampler(Sampler::new(probe))
        .max_origins(KEYS as usize)
        .build()
}

/// Calls `f` with a call to "r" of the value and the origin `who`.
fn with_call<R>(who: &str, f: impl FnOnce(Call<'_>) -> R) -> R {
    let params = [Param::new("value", who), Param::new("user", who)];
    f(Call::new("r").origin(who).context("c").params(&params))
}

impl Case {
    /// How many of ten calls of `who` pass. Those that hold something are kept in `running`.
    fn passed(
        &self,
        (clock, sentinel): &(ManualClock, Sentinel),
        who: &str,
        running: &mut Vec<Entry>,
    ) -> usize {
        let mut passed = 0;
        for _ in 0..10 {
            // A resource that a rule looks at.
            drop(sentinel.try_enter(Call::new("other").outbound()));
            if self.name == "related" {
                drop(sentinel.try_enter(Call::new("other")));
            }
            match with_call(who, |call| sentinel.try_enter(call)) {
                Verdict::Pass(mut entry) => {
                    passed += 1;
                    if self.fails {
                        // It is slow as well.
                        clock.advance(MICROSECOND);
                        entry.fail();
                        entry.push_back(HOUR);
                    }
                    if self.holds {
                        running.push(entry);
                    }
                }
                Verdict::Wait(waiting) => {
                    passed += 1;
                    drop(waiting);
                }
                _ => {}
            }
        }
        passed
    }
}

fn back(tick: Tick, by: Duration) -> Tick {
    Tick::ZERO + (tick - (Tick::ZERO + by))
}

/// By how much a clock steps back.
const STEPS: [Duration; 12] = [
    MS,
    MS.saturating_mul(499),
    MS.saturating_mul(700),
    SECOND,
    MS.saturating_mul(1_001),
    MS.saturating_mul(1_499),
    MS.saturating_mul(1_999),
    MS.saturating_mul(2_499),
    SECOND.saturating_mul(30),
    // More than 1 024 buckets of any window here.
    SECOND.saturating_mul(600),
    HOUR,
    HOUR.saturating_mul(9),
];

#[test]
fn after_a_step_back_no_rule_of_any_kind_lets_more_pass() {
    for case in cases() {
        for step in STEPS {
            // At the start of its buckets and steps, and in the middle.
            for begin in [BEGIN, BEGIN + MS * 433] {
                let clock = ManualClock::starting_at(begin);
                let sentinel = engine(clock.clone(), case.rules.clone());
                let stage = (clock.clone(), sentinel);
                let mut running = Vec::new();
                for _ in 0..3 {
                    case.passed(&stage, "o", &mut running);
                }
                let name = case.name;
                assert_eq!(case.passed(&stage, "o", &mut running), 0, "{name}");
                clock.set(back(clock.now(), step));
                let mut total = 0;
                let most = |elapsed: Duration| {
                    // What begins within that time, a window that has begun before included.
                    let windows = elapsed.as_nanos() / case.lasts.as_nanos();
                    let windows = windows + u128::from(elapsed >= case.lasts / 2);
                    windows as usize * case.limit as usize
                };
                for tenth in 0..40 {
                    total += case.passed(&stage, "o", &mut running);
                    let most = most(MS * 100 * tenth);
                    assert!(
                        total <= most,
                        "{name}: {total} after {tenth} tenths and a step of {step:?}"
                    );
                    clock.advance(MS * 100);
                }
                let is_short = case.lasts <= SECOND;
                assert_eq!(total > 0, is_short, "{name}: {step:?}");
            }
        }
    }
}

#[test]
fn what_is_first_called_after_a_step_back_has_one_quota_of_any_kind() {
    // While time stands still no call is slow.
    let is_meant = |case: &&Case| case.lasts == HOUR && case.name != "slow calls";
    for case in cases().iter().filter(is_meant) {
        for step in STEPS {
            let clock = ManualClock::starting_at(BEGIN + MS * 433);
            let sentinel = engine(clock.clone(), case.rules.clone());
            let elsewhere = || drop(sentinel.try_enter(Call::new("elsewhere").outbound()));
            elsewhere();
            clock.set(back(clock.now(), step));
            let stage = (clock.clone(), sentinel.clone());
            let mut running = Vec::new();
            let mut total = 0;
            for _ in 0..40 {
                total += case.passed(&stage, "o", &mut running);
                elsewhere();
                clock.advance(MS * 100);
            }
            assert!(
                total <= case.limit as usize,
                "{}: {total}, {step:?}",
                case.name
            );
        }
    }
}

#[test]
fn after_a_step_back_a_breaker_is_open_as_long_as_it_shall_be() {
    for step in STEPS {
        let clock = ManualClock::starting_at(BEGIN);
        let rule = CircuitBreakerRule::consecutive_errors("r", 1).open_for(SECOND * 3);
        let sentinel = engine(clock.clone(), rule.into());
        let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("r")) else {
            panic!("the first call passes");
        };
        clock.set(back(BEGIN, step));
        entry.fail();
        drop(entry);
        for ms in 0..3_000 {
            let verdict = sentinel.try_enter(Call::new("r"));
            assert!(
                matches!(verdict, Verdict::Block(_)),
                "{step:?}: after {ms} ms"
            );
            clock.advance(MS);
        }
        clock.advance(SECOND);
        let verdict = sentinel.try_enter(Call::new("r"));
        assert!(matches!(verdict, Verdict::Pass(_)), "{step:?}");
    }
}

#[test]
fn after_a_step_back_a_short_window_has_room_again_soon() {
    let interval = MS * 200;
    let mut latest = [0; 2];
    for step in (10..4_000).step_by(30) {
        for into in (0..1_000).step_by(90) {
            let clock = ManualClock::starting_at(BEGIN + MS * into);
            let rule = FlowRule::per("r", LIMIT, interval);
            let sentinel = engine(clock.clone(), rule.into());
            let passes = || matches!(sentinel.try_enter(Call::new("r")), Verdict::Pass(_));
            while passes() {}
            clock.set(back(clock.now(), MS * step));
            let waits = (0..300).find(|_| {
                let passes = passes();
                clock.advance(MS * 10);
                passes
            });
            let is_long = usize::from(step > 1_500);
            latest[is_long] = latest[is_long].max(waits.unwrap());
        }
    }
    // In hundredths of a second.
    assert!(latest[0] <= 170 && latest[1] <= 120, "{latest:?}");
}

// === single readings ===

/// What a clock does at one reading.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Ahead(Duration),
    Behind(Duration),
    Panic,
    /// At all from that one on.
    PanicOn,
}

/// A clock with a fault at one reading.
#[derive(Clone, Debug)]
struct Faulty {
    clock: ManualClock,
    fault: Fault,
    at: u64,
    readings: Arc<AtomicU64>,
    is_healed: Arc<AtomicBool>,
}

impl Clock for Faulty {
    fn now(&self) -> Tick {
        let (now, nth) = (self.clock.now(), self.readings.fetch_add(1, Relaxed));
        let is_it = nth == self.at && !self.is_healed.load(Relaxed);
        let is_over = nth > self.at && !self.is_healed.load(Relaxed);
        match self.fault {
            Fault::Ahead(by) if is_it => now + by,
            Fault::Behind(by) if is_it => back(now, by),
            Fault::Panic if is_it => resume_unwind(Box::new("the clock panics")),
            Fault::PanicOn if is_it || is_over => resume_unwind(Box::new("the clock panics")),
            _ => now,
        }
    }
}

/// Calls of all sorts for a second and a half: what they were told, and how often the clock
/// was read.
fn story(case: &Case, fault: Fault, at: u64) -> (Vec<String>, u64) {
    let clock = Faulty {
        clock: ManualClock::starting_at(BEGIN + MS * 10),
        fault,
        at,
        readings: Arc::default(),
        is_healed: Arc::default(),
    };
    // So that calls are refused that have claimed something, borrow and wait.
    let rules = case.rules.clone();
    let all = rules
        .with(FlowRule::per("r", 4, SECOND))
        .with(IsolationRule::new("r", 9));
    let sentinel = engine(clock.clone(), all.clone());
    let (mut log, mut running, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..12 {
        for (nth, who) in ["o", "p", "o", "q"].into_iter().enumerate() {
            let is_prioritized = nth % 2 == 1;
            let verdict = with_call(who, |call| {
                sentinel.try_enter(call.prioritized(is_prioritized))
            });
            let told = match &verdict {
                Verdict::Block(blocked) => {
                    format!("{:?} {:?}", blocked.kind(), blocked.retry_after())
                }
                Verdict::Wait(waiting) => format!("waits {:?}", waiting.delay()),
                _ => "passes".into(),
            };
            log.push(format!("{round}.{nth}: {told}"));
            match verdict {
                Verdict::Pass(mut entry) => {
                    if nth == 0 {
                        entry.fail();
                    }
                    running.push(entry);
                }
                Verdict::Wait(wait) => waiting.push(wait),
                _ => {}
            }
        }
        // Some give up, and some start.
        if waiting.len() > 1 {
            drop(waiting.remove(0));
        }
        for wait in std::mem::take(&mut waiting) {
            match wait.admit() {
                Ok(entry) => running.push(entry),
                Err(NotAdmitted::TooEarly(wait)) => waiting.push(wait),
                Err(other) => log.push(format!("{round}: {other:?}")),
            }
        }
        running.drain(..running.len() / 2);
        if round == 6 {
            assert!(sentinel.reload(all.clone().with(FlowRule::per_second("new", 1))));
        }
        if round % 3 == 2 {
            let snapshot = sentinel.snapshot();
            let totals = snapshot.totals();
            log.push(format!("{round}: {} {}", totals.pass(), totals.block()));
        }
        clock.clock.advance(MS * 130);
    }
    running.clear();
    waiting.clear();
    let readings = clock.readings.load(Relaxed);
    clock.is_healed.store(true, Relaxed);
    assert_whole(case, &clock.clock, &sentinel);
    (log, readings)
}

/// All that calls held is there again.
fn assert_whole(case: &Case, clock: &ManualClock, sentinel: &Sentinel) {
    let name = case.name;
    let node = sentinel.node("r").unwrap();
    assert_eq!(
        (node.concurrency(), node.waiting(), node.held()),
        (0, 0, 0),
        "{name}"
    );
    assert_eq!(sentinel.inbound().concurrency(), 0, "{name}");
    // Longer than any rule remembers, and probes have been sent.
    clock.advance(HOUR * 25);
    drop(with_call("o", |call| sentinel.try_enter(call)));
    clock.advance(HOUR * 25);
    let first = engine(clock.clone(), sentinel.rules());
    let [now, then] = [sentinel, &first].map(|sentinel| {
        let mut running = Vec::new();
        for who in ["o", "p", "o", "q", "o", "o", "o", "p", "p", "p"] {
            if let Verdict::Pass(entry) = with_call(who, |call| sentinel.try_enter(call)) {
                running.push(entry);
            }
        }
        running.len()
    });
    assert_eq!(now, then, "{name}: as many pass as on the first day");
}

#[test]
fn one_wrong_reading_anywhere_changes_nothing_for_any_kind_of_rule() {
    let wrong = [
        Fault::Ahead(MS * 1_600),
        Fault::Behind(MS * 2_600),
        Fault::Ahead(HOUR),
        Fault::Behind(HOUR),
        Fault::Ahead(YEAR * 30),
        Fault::Behind(YEAR),
    ];
    for case in cases() {
        let (right, readings) = story(&case, Fault::None, 0);
        for at in 0..readings {
            let fault = wrong[at as usize % wrong.len()];
            let (log, _) = story(&case, fault, at);
            assert_eq!(log, right, "{}: {fault:?} at {at}", case.name);
        }
    }
}

#[test]
fn a_clock_that_panics_anywhere_leaves_nothing_behind() {
    for case in cases() {
        let (_, readings) = story(&case, Fault::None, 0);
        for at in 0..readings {
            story(&case, Fault::Panic, at);
            if at % 4 == 0 {
                story(&case, Fault::PanicOn, at);
            }
        }
    }
}
