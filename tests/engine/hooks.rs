//! Hooks: who is told what, in which order, and what a bad hook can do.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tower_sentinel::hook::{BlockEvent, BreakerEvent, ExitEvent, Finding, Interest, PassEvent};
use tower_sentinel::read::BreakerState;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    Call, CircuitBreakerRule, Entry, FlowRule, Hook, IsolationRule, KeyedRule, Rule, Rules,
    Sentinel, Verdict, Waiting,
};

use crate::support::{configured, run};

const MS: Duration = Duration::from_millis(1);

/// Tells what it is told to whoever listens.
#[derive(Debug)]
struct Teller(&'static str, mpsc::Sender<String>);

impl Hook for Teller {
    fn on_pass(&self, event: &PassEvent<'_>) {
        let Self(name, sender) = self;
        let (resource, weight) = (event.resource(), event.weight());
        let origin = event.origin().map(|origin| origin.to_string());
        let text = format!(
            "{name}: pass {resource} {weight} {origin:?} {:?}",
            event.waited()
        );
        sender.send(text).unwrap();
    }

    fn on_block(&self, event: &BlockEvent<'_>) {
        let text = format!(
            "{}: block {} {}",
            self.0,
            event.resource(),
            event.blocked().kind()
        );
        self.1.send(text).unwrap();
    }

    fn on_exit(&self, event: &ExitEvent<'_>) {
        let text = format!("{}: exit {:?} {:?}", self.0, event.outcome(), event.rt());
        self.1.send(text).unwrap();
    }
}

#[test]
fn however_a_call_ends_it_is_booked_and_told_once() {
    type End = fn(Entry);
    let panics: End = |entry| {
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _entry = entry;
            panic!("the call panics");
        }));
        assert!(unwound.is_err());
    };
    // Complete, error, cancelled and panicked; and the outcome that is told.
    let cases: [(End, [u64; 4], Option<Outcome>); 7] = [
        (drop, [1, 0, 0, 0], Some(Outcome::Success)),
        (
            |mut entry| entry.fail(),
            [1, 1, 0, 0],
            Some(Outcome::Failure),
        ),
        (
            |mut entry| entry.ignore(),
            [1, 0, 0, 0],
            Some(Outcome::Ignore),
        ),
        (Entry::cancel, [0, 0, 1, 0], None),
        (panics, [1, 1, 0, 1], Some(Outcome::Failure)),
        // The last word counts.
        (
            |mut entry| {
                entry.fail();
                entry.ignore();
            },
            [1, 0, 0, 0],
            Some(Outcome::Ignore),
        ),
        (
            |mut entry| {
                entry.fail();
                entry.cancel();
            },
            [0, 0, 1, 0],
            None,
        ),
    ];
    for (index, (end, expected, outcome)) in cases.into_iter().enumerate() {
        let (sender, told) = mpsc::channel();
        let (sentinel, clock) = configured(IsolationRule::new("r", 1), |builder| {
            builder
                .origins(true)
                .hook("teller", Arc::new(Teller("t", sender)))
        });
        let entry = run(&sentinel, Call::new("r").origin("app"));
        clock.advance(MS * 30);
        end(entry);
        for node in sentinel.snapshot().nodes() {
            let totals = node.totals();
            let booked = [
                totals.complete(),
                totals.error(),
                totals.cancelled(),
                totals.panicked(),
            ];
            assert_eq!((booked, totals.pass()), (expected, 1), "case {index}");
            assert_eq!(node.concurrency(), 0, "case {index}");
        }
        assert_eq!(
            sentinel.node("r").unwrap().slots_in_use(),
            0,
            "case {index}"
        );
        let expected = [
            "t: pass r 1 Some(\"app\") 0ns".to_owned(),
            format!("t: exit {outcome:?} 30ms"),
        ];
        assert_eq!(
            told.try_iter().collect::<Vec<_>>(),
            expected,
            "case {index}"
        );
    }
}

#[test]
fn hooks_are_told_in_their_order_and_a_new_one_takes_the_place_of_its_name() {
    let (sender, told) = mpsc::channel();
    let teller = |name| Arc::new(Teller(name, sender.clone()));
    let (sentinel, _clock) = configured(FlowRule::per_second("r", 0), |builder| {
        builder
            .hook("first", teller("a"))
            .hook("second", teller("b"))
    });
    let hooks = sentinel.hooks();
    let told = || {
        let _ = sentinel.try_enter(Call::new("r"));
        told.try_iter()
            .map(|text| text[..1].to_owned())
            .collect::<String>()
    };
    assert_eq!(told(), "ab");
    hooks.register("third", teller("c"));
    hooks.register("first", teller("d"));
    assert_eq!(told(), "dbc");
    assert_eq!(
        hooks.names().iter().map(|name| &**name).collect::<Vec<_>>(),
        ["first", "second", "third"]
    );
    assert!(hooks.remove("second"));
    assert!(!hooks.remove("second"));
    assert_eq!(told(), "dc");
    assert!(hooks.remove("first") && hooks.remove("third"));
    assert_eq!(told(), "");
}

#[derive(Debug)]
struct Panics;

impl Hook for Panics {
    fn on_pass(&self, _: &PassEvent<'_>) {
        panic!("on_pass");
    }

    fn on_block(&self, _: &BlockEvent<'_>) {
        panic!("on_block");
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        panic!("on_exit");
    }
}

/// Notes everything that it is told.
#[derive(Debug)]
struct Wants(Interest, mpsc::Sender<&'static str>);

impl Hook for Wants {
    fn interest(&self) -> Interest {
        self.0
    }

    fn on_pass(&self, _: &PassEvent<'_>) {
        self.1.send("pass").unwrap();
    }

    fn on_block(&self, _: &BlockEvent<'_>) {
        self.1.send("block").unwrap();
    }

    fn on_shadow_block(&self, _: &BlockEvent<'_>) {
        self.1.send("shadow").unwrap();
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        self.1.send("exit").unwrap();
    }

    fn on_breaker(&self, _: &BreakerEvent<'_>) {
        self.1.send("breaker").unwrap();
    }

    fn on_finding(&self, _: &Finding) {
        self.1.send("finding").unwrap();
    }
}

#[test]
fn a_hook_is_told_of_what_it_wants_and_of_nothing_else() {
    let cases: [(Interest, &[&str], &str); 9] = [
        (Interest::PASS, &["pass", "pass"], "PASS"),
        (Interest::BLOCK, &["block"], "BLOCK"),
        (
            Interest::SHADOW_BLOCK,
            &["shadow", "shadow"],
            "SHADOW_BLOCK",
        ),
        (Interest::EXIT, &["exit", "exit"], "EXIT"),
        (Interest::BREAKER, &["breaker"], "BREAKER"),
        (Interest::FINDING, &["finding"], "FINDING"),
        (
            Interest::BREAKER | Interest::BLOCK,
            &["breaker", "block"],
            "BLOCK | BREAKER",
        ),
        (Interest::NONE, &[], "NONE"),
        (
            Interest::ALL,
            &[
                "finding", "shadow", "pass", "exit", "shadow", "pass", "breaker", "exit", "block",
            ],
            "ALL",
        ),
    ];
    for (interest, told, printed) in cases {
        let (sender, receiver) = mpsc::channel();
        let rules = Rules::new()
            .with(CircuitBreakerRule::error_count("r", 1))
            .with(Rule::from(FlowRule::per_second("r", 0)).shadow())
            .with(FlowRule::per_second("rr", 5));
        let (sentinel, _clock) = configured(rules, |builder| {
            builder.hook("wants", Arc::new(Wants(interest, sender)))
        });
        // Two calls run, and the first one that fails has the next one refused.
        drop(run(&sentinel, Call::new("r")));
        run(&sentinel, Call::new("r")).fail();
        assert!(matches!(
            sentinel.try_enter(Call::new("r")),
            Verdict::Block(_)
        ));
        // A name that looks like another rule's is found at its first call.
        let _ = sentinel.findings();
        let mut seen: Vec<_> = receiver.try_iter().collect();
        let mut told = told.to_vec();
        // In which order findings come is not promised here.
        seen.sort_unstable();
        told.sort_unstable();
        assert_eq!(seen, told, "{interest:?}");
        assert_eq!(format!("{interest:?}"), printed);
    }
}

#[test]
fn what_is_wanted_changes_with_the_hooks() {
    let (sender, receiver) = mpsc::channel();
    let (sentinel, _clock) = configured(Rules::new(), |builder| builder);
    let hooks = sentinel.hooks();
    let wants = |interest| Arc::new(Wants(interest, sender.clone()));
    let told = || {
        drop(run(&sentinel, Call::new("r")));
        receiver.try_iter().collect::<Vec<_>>()
    };
    assert_eq!(told(), [""; 0]);
    hooks.register("a", wants(Interest::PASS));
    hooks.register("b", wants(Interest::EXIT));
    assert_eq!(told(), ["pass", "exit"]);
    hooks.register("a", wants(Interest::NONE));
    assert_eq!(told(), ["exit"]);
    hooks.remove("b");
    assert_eq!(told(), [""; 0]);
}

#[test]
fn what_becomes_of_a_call_after_its_wait_is_told_once() {
    let cases = [
        (true, ["t: block r isolation"].as_slice()),
        (
            false,
            &["t: pass r 3 None 400ms", "t: exit Some(Success) 0ns"],
        ),
    ];
    for (is_busy, expected) in cases {
        let rules = Rules::new()
            .with(FlowRule::per_second("r", 4))
            .with(IsolationRule::new("r", 1));
        let (sentinel, clock) = configured(rules, |builder| builder);
        drop(run(&sentinel, Call::new("r").batch(3)));
        clock.advance(MS * 600);
        let call = Call::new("r").batch(3).prioritized(true);
        let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
            panic!("three leave the window in 400 ms");
        };
        clock.advance(MS * 400);
        let _running = is_busy.then(|| run(&sentinel, Call::new("r")));
        let (sender, told) = mpsc::channel();
        let teller = Arc::new(Teller("t", sender));
        sentinel.hooks().register("teller", teller);
        assert_eq!(waiting.admit().is_err(), is_busy);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_hook_that_panics_harms_neither_the_call_nor_the_other_hooks() {
    let (sender, told) = mpsc::channel();
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 2))
        .with(IsolationRule::new("r", 1));
    let (sentinel, _clock) = configured(rules, |builder| {
        builder
            .hook("panics", Arc::new(Panics))
            .hook("teller", Arc::new(Teller("t", sender)))
    });
    drop(run(&sentinel, Call::new("r")));
    // Also if the call itself panics, and the hook panics on top of that.
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _entry = run(&sentinel, Call::new("r"));
        panic!("the call panics");
    }));
    assert_eq!(
        *unwound.unwrap_err().downcast::<&str>().unwrap(),
        "the call panics"
    );
    assert!(matches!(
        sentinel.try_enter(Call::new("r")),
        Verdict::Block(_)
    ));
    assert_eq!(sentinel.hooks().panics(), 5);
    assert_eq!(told.try_iter().count(), 5);
    let node = sentinel.node("r").unwrap();
    assert_eq!((node.concurrency(), node.slots_in_use()), (0, 0));
    assert_eq!((node.totals().complete(), node.totals().block()), (2, 1));
}

/// Does with its engine whatever a program can do, from within.
#[derive(Debug, Default)]
struct Meddler {
    sentinel: OnceLock<Sentinel>,
    turn: AtomicU64,
}

impl Meddler {
    fn meddle(&self, resource: &str) {
        if resource != "r" {
            return;
        }
        let sentinel = self.sentinel.get().unwrap();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        drop(sentinel.try_enter(Call::new("inner").origin(turn)));
        let rule = FlowRule::per_second("r", 2);
        sentinel.reload(
            Rules::new()
                .with(rule)
                .with(FlowRule::per_second("inner", turn as u32)),
        );
        let _ = sentinel.snapshot().to_json();
        assert!(sentinel.inbound().totals().pass() > 0);
        let _ = sentinel.node("r").map(|node| node.totals());
        sentinel
            .hooks()
            .register(format!("h{turn}"), Arc::new(Nothing));
        sentinel.hooks().remove(&format!("h{turn}"));
    }
}

#[derive(Debug)]
struct Nothing;

impl Hook for Nothing {}

impl Hook for Meddler {
    fn on_pass(&self, event: &PassEvent<'_>) {
        self.meddle(event.resource());
    }

    fn on_block(&self, event: &BlockEvent<'_>) {
        self.meddle(event.resource());
    }

    fn on_exit(&self, event: &ExitEvent<'_>) {
        self.meddle(event.resource());
    }
}

#[test]
fn a_hook_may_do_with_the_engine_whatever_a_program_may() {
    let meddler = Arc::new(Meddler::default());
    let (sentinel, _clock) = configured(FlowRule::per_second("r", 2), |builder| {
        builder.origins(true).hook("meddler", meddler.clone())
    });
    meddler.sentinel.set(sentinel.clone()).unwrap();
    let passes = |_: &u32| matches!(sentinel.try_enter(Call::new("r")), Verdict::Pass(_));
    assert_eq!((0..5).filter(passes).count(), 2);
    // Two that passed and ended, and three that were refused.
    assert_eq!(meddler.turn.load(Ordering::Relaxed), 7);
    assert_eq!(sentinel.hooks().panics(), 0);
    assert_eq!(&*sentinel.hooks().names()[0], "meddler");
    // Each is judged by the limit that the one before has left: none, and then 0, 1, 2 …
    let inner = sentinel.node("inner").unwrap().totals();
    assert_eq!((inner.pass(), inner.block(), inner.complete()), (5, 2, 5));
}

/// Puts other rules in force once, when a breaker becomes half-open: while the probe is on
/// its way.
#[derive(Debug, Default)]
struct Reloader {
    next: OnceLock<(Sentinel, Rules)>,
    times: AtomicU64,
}

impl Hook for Reloader {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let is_first = || self.times.fetch_add(1, Ordering::Relaxed) == 0;
        if event.to() == BreakerState::HalfOpen && is_first() {
            let (sentinel, rules) = self.next.get().unwrap();
            assert!(sentinel.reload(rules.clone()));
            // Who asks for the resource has it count in the new buckets.
            assert!(sentinel.node("r").is_some());
        }
    }
}

#[test]
fn a_call_whose_rules_change_on_its_way_claims_everything_once() {
    let claiming: [Rule; 2] = [
        KeyedRule::per_second("r", 2).into(),
        FlowRule::per_second("r", 1).throttle(2_000 * MS).into(),
    ];
    for rule in claiming {
        let reloader = Arc::new(Reloader::default());
        let rules = |buckets| {
            Rules::new()
                .with(FlowRule::per_second("r", 9).buckets(buckets))
                .with(CircuitBreakerRule::consecutive_errors("r", 1).open_for(1_000 * MS))
                .with(rule.clone())
        };
        let (sentinel, clock) = configured(rules(2), |builder| {
            builder.hook("reloader", reloader.clone())
        });
        let call = || sentinel.try_enter(Call::new("r").param("a"));
        run(&sentinel, Call::new("r").param("b")).fail();
        clock.advance(2_000 * MS);
        reloader.next.set((sentinel.clone(), rules(4))).unwrap();
        // A second turn would come a second later.
        assert!(matches!(call(), Verdict::Pass(_)), "{rule:?}");
        // Once before it found its tokens moved, and once when it was judged again.
        assert_eq!(reloader.times.load(Ordering::Relaxed), 2);
        // A second share would be the last one.
        if matches!(rule, Rule::Keyed(_)) {
            assert!(matches!(call(), Verdict::Pass(_)));
            assert!(matches!(call(), Verdict::Block(_)));
        }
    }
}

/// Makes a call on its own engine whenever it is told of one, three deep at most.
#[derive(Debug, Default)]
struct Caller {
    sentinel: OnceLock<Sentinel>,
    depth: AtomicU64,
    deepest: AtomicU64,
}

impl Hook for Caller {
    fn on_block(&self, _: &BlockEvent<'_>) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        self.deepest.fetch_max(depth, Ordering::Relaxed);
        if depth < 3 {
            drop(self.sentinel.get().unwrap().try_enter(Call::new("line")));
        }
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_hook_is_told_of_its_own_calls_and_keeps_its_engine_until_it_is_removed() {
    let caller = Arc::new(Caller::default());
    let hook = Arc::downgrade(&caller);
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 0))
        .with(FlowRule::per_second("line", 0));
    let (sentinel, _clock) = configured(rules, |builder| builder.hook("caller", caller.clone()));
    caller.sentinel.set(sentinel.clone()).unwrap();
    drop(sentinel.try_enter(Call::new("r")));
    assert_eq!(caller.deepest.load(Ordering::Relaxed), 3);
    drop((sentinel, caller));
    let held = hook.upgrade().expect("they hold each other");
    assert!(held.sentinel.get().unwrap().hooks().remove("caller"));
    drop(held);
    assert!(hook.upgrade().is_none());
}

/// Takes its neighbour with it when it goes.
#[derive(Debug)]
struct Leaver(Sentinel, mpsc::Sender<bool>);

impl Hook for Leaver {}

impl Drop for Leaver {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.hooks().remove("neighbour"));
    }
}

#[test]
fn a_hook_that_changes_the_hooks_when_it_is_dropped_does_not_wait_for_itself() {
    let (sentinel, _clock) = configured(Rules::new(), |builder| builder);
    let (sender, told) = mpsc::channel();
    let both = move || {
        for is_replaced in [false, true] {
            let leaver = Leaver(sentinel.clone(), sender.clone());
            let hooks = sentinel.hooks();
            hooks.register("leaver", Arc::new(leaver));
            hooks.register("neighbour", Arc::new(Nothing));
            if is_replaced {
                hooks.register("leaver", Arc::new(Nothing));
            } else {
                assert!(hooks.remove("leaver"));
            }
        }
    };
    // Not in this thread, which would never know.
    let thread = thread::spawn(both);
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
    thread.join().unwrap();
}

/// Ends with its thread, after what others keep for each thread.
struct Last(Option<(Entry, Waiting, Sentinel)>);

impl Drop for Last {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
}

#[test]
fn a_call_may_end_with_its_thread() {
    let rules = Rules::new()
        .with(FlowRule::per_second("job", 1))
        .with(KeyedRule::concurrency("job", 2))
        .with(IsolationRule::new("job", 2))
        .with(CircuitBreakerRule::error_count("job", 1).min_calls(1));
    let hook = Arc::new(Panics);
    let (sentinel, clock) = configured(rules, |builder| builder.hook("panics", hook));
    let theirs = sentinel.clone();
    let thread = thread::spawn(move || {
        LAST.with(|last| {
            let call = Call::new("job").param("a").prioritized(true);
            let Verdict::Pass(entry) = theirs.try_enter(call) else {
                panic!("the first call passes");
            };
            clock.advance(600 * MS);
            let Verdict::Wait(waiting) = theirs.try_enter(call) else {
                panic!("the second waits");
            };
            let alone = Sentinel::new(FlowRule::per_second("job", 1));
            drop(alone.try_enter(call));
            last.borrow_mut().0 = Some((entry, waiting, alone));
        });
    });
    thread.join().unwrap();
    let node = sentinel.node("job").unwrap();
    assert_eq!((node.concurrency(), node.waiting()), (0, 0));
    assert_eq!(
        (node.totals().complete(), sentinel.hooks().panics()),
        (1, 2)
    );
}
