//! Limits on what calls turn out to cost: what passes, what is charged however a call ends, and what
//! is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tower_sentinel::clock::TokioClock;
use tower_sentinel::read::BudgetSnapshot;
use tower_sentinel::{
    BlockKind, BoxError, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, KeyedRule,
    Meter, NotAdmitted, Rule, Rules, Sentinel, Verdict,
};

use crate::support::{assert_at_rest, configured, engine, enter, ms, poll_now, run};

const MINUTE: Duration = Duration::from_secs(60);

/// A limit of 100 tokens a minute.
fn tokens() -> FlowRule {
    FlowRule::per_minute("chat", 100).cost("tokens").id("tpm")
}

fn chat(most: u32) -> Call<'static> {
    Call::new("chat").reserve("tokens", most)
}

#[track_caller]
fn only_budget(sentinel: &Sentinel) -> BudgetSnapshot {
    let budgets = sentinel.node("chat").expect("it has been called").budgets();
    let [budget] = &budgets[..] else {
        panic!("one rule limits costs: {budgets:?}");
    };
    budget.clone()
}

/// What is used and what is reserved.
#[track_caller]
fn state(sentinel: &Sentinel) -> (u32, u32) {
    let budget = only_budget(sentinel);
    (budget.used(), budget.reserved())
}

fn retry_after(sentinel: &Sentinel, call: Call<'_>) -> Option<Duration> {
    let blocked = enter(sentinel, call).expect_err("nothing is left");
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Flow, "tpm"));
    assert_eq!(
        (blocked.limit(), blocked.interval()),
        (Some(100), Some(MINUTE))
    );
    blocked.retry_after()
}

// === admission ===

#[test]
fn a_call_passes_if_what_is_used_and_reserved_leaves_room_for_it() {
    let (sentinel, _clock) = engine(tokens());
    let mut first = run(&sentinel, chat(60));
    assert_eq!(state(&sentinel), (0, 60));
    assert!(enter(&sentinel, chat(41)).is_err());
    let second = run(&sentinel, chat(40));
    // No reservation: one unit must be left.
    assert!(enter(&sentinel, Call::new("chat")).is_err());
    first.settle("tokens", 20);
    assert_eq!(state(&sentinel), (20, 40));
    run(&sentinel, chat(40)).fail();
    drop((first, second));
    assert_eq!(state(&sentinel), (60, 0));
}

#[test]
fn requests_and_costs_are_limited_apart() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("chat", 3).id("rpm"))
        .with(tokens());
    let (sentinel, _clock) = engine(rules);
    for _ in 0..3 {
        run(&sentinel, chat(10)).settle("tokens", 1);
    }
    assert_eq!(enter(&sentinel, chat(10)).unwrap_err().rule(), "rpm");
    // A refused call leaves no trace.
    assert_eq!(state(&sentinel), (3, 0));
    let (sentinel, _clock) = engine(
        Rules::new()
            .with(tokens())
            .with(FlowRule::per_minute("chat", 3)),
    );
    run(&sentinel, chat(100)).settle("tokens", 100);
    assert_eq!(enter(&sentinel, chat(1)).unwrap_err().rule(), "tpm");
    // Nor does one that the costs refuse, after its slot and before its token.
    assert_eq!(sentinel.node("chat").unwrap().totals().pass(), 1);
}

#[test]
fn several_units_are_counted_apart_and_several_rules_of_one_unit_together() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_hour("chat", 150).cost("tokens").id("tph"))
        .with(FlowRule::per_minute("chat", 7).cost("rows").id("rows"));
    let (sentinel, clock) = engine(rules);
    let all = [("tokens", 90), ("other", 9_999), ("rows", 3), ("tokens", 2)];
    let mut entry = run(&sentinel, Call::new("chat").reserves(&all));
    let shown = |sentinel: &Sentinel| {
        let budgets = sentinel.node("chat").unwrap().budgets();
        let shown = |it: &BudgetSnapshot| (it.rule().to_owned(), it.used(), it.reserved());
        budgets.iter().map(shown).collect::<Vec<_>>()
    };
    let row = |rule: &str, used, reserved| (rule.to_owned(), used, reserved);
    let expected = [row("tpm", 0, 90), row("tph", 0, 90), row("rows", 0, 3)];
    assert_eq!(shown(&sentinel), expected);
    assert!(entry.charge("tokens", 90));
    assert!(entry.charge("other", 1_000_000));
    entry.settle("rows", 7);
    let expected = [row("tpm", 90, 0), row("tph", 90, 0), row("rows", 7, 0)];
    assert_eq!(shown(&sentinel), expected);
    drop(entry);
    clock.advance(MINUTE);
    // A rule that refuses after others have reserved lets go of what they have.
    assert_eq!(enter(&sentinel, chat(61)).unwrap_err().rule(), "tph");
    let expected = [row("tpm", 0, 0), row("tph", 90, 0), row("rows", 0, 0)];
    assert_eq!(shown(&sentinel), expected);
}

#[test]
fn a_strict_rule_counts_one_bucket_more() {
    let plain = FlowRule::per_minute("chat", 100);
    for (rule, passes) in [(plain.clone(), true), (plain.strict(), false)] {
        let (sentinel, clock) = engine(rule.cost("tokens"));
        drop(run(&sentinel, chat(100)));
        clock.advance(MINUTE);
        assert_eq!(enter(&sentinel, chat(1)).is_ok(), passes);
    }
}

// === ends ===

/// How a call that has reserved 40 tokens ends.
type End<'a> = &'a dyn Fn(&Sentinel, Entry);

#[test]
fn a_call_is_charged_however_it_ends() {
    let told = |tell: fn(&mut Entry)| {
        move |_: &Sentinel, mut entry: Entry| {
            tell(&mut entry);
            drop(entry);
        }
    };
    let panics = |_: &Sentinel, entry: Entry| {
        let call = AssertUnwindSafe(|| {
            let _entry = entry;
            std::panic::panic_any("a bug");
        });
        assert!(catch_unwind(call).is_err());
    };
    let settled = told(|entry| entry.settle("tokens", 7));
    let charged = told(|entry| assert!(entry.charge("tokens", 5) && entry.charge("tokens", 6)));
    let more = told(|entry| assert!(entry.charge("tokens", 45)));
    let free = told(|entry| entry.settle("tokens", 0));
    let failed = told(Entry::fail);
    let ignored = told(Entry::ignore);
    let failed_after = told(|entry| {
        entry.charge("tokens", 5);
        entry.fail();
    });
    let other_unit = told(|entry| entry.settle("token", 5));
    let cases: [(&str, End<'_>, u32, u64); 11] = [
        ("settled", &settled, 7, 0),
        ("charged", &charged, 11, 0),
        ("charged more than it reserved", &more, 45, 0),
        ("settled at nothing", &free, 0, 0),
        ("dropped", &|_, entry| drop(entry), 40, 1),
        ("cancelled", &|_, entry| entry.cancel(), 40, 1),
        ("told in another unit", &other_unit, 40, 1),
        ("ignored", &ignored, 40, 1),
        ("failed", &failed, 0, 0),
        ("failed, and charged before", &failed_after, 5, 0),
        ("panicked", &panics, 0, 0),
    ];
    for (name, end, expected, untold) in cases {
        let (sentinel, _clock) = engine(tokens());
        let entry = run(&sentinel, chat(40));
        end(&sentinel, entry);
        let budget = only_budget(&sentinel);
        assert_eq!((budget.used(), budget.reserved()), (expected, 0), "{name}");
        assert_eq!(budget.untold_total(), untold, "{name}");
        assert_eq!(budget.charged_total(), u64::from(expected), "{name}");
        assert_at_rest(&sentinel, "chat");
    }
}

#[test]
fn a_call_that_told_nothing_and_reserved_nothing_is_counted() {
    let (sentinel, _clock) = engine(tokens());
    drop(run(&sentinel, Call::new("chat")));
    let budget = only_budget(&sentinel);
    assert_eq!((budget.used(), budget.untold_total()), (0, 1));
}

#[test]
fn a_meter_that_outlives_its_call_keeps_the_reservation() {
    for (has_failed, told, used) in [
        (false, Some(3), 3),
        (false, None, 40),
        (true, None, 0),
        (true, Some(3), 3),
    ] {
        let (sentinel, clock) = engine(tokens());
        let mut entry = run(&sentinel, chat(40));
        let meters = [entry.meter(), entry.meter()];
        if has_failed {
            entry.fail();
        }
        drop(entry);
        assert_eq!(state(&sentinel), (0, 40));
        assert_at_rest(&sentinel, "chat");
        clock.advance(MINUTE);
        let [first, second] = meters;
        drop(first);
        if let Some(total) = told {
            second.settle("tokens", total);
            assert_eq!(state(&sentinel), (total, 0));
        }
        drop(second);
        // At that time, and not at that of the call.
        assert_eq!(state(&sentinel), (used, 0));
        clock.advance(MINUTE / 2);
        assert_eq!(state(&sentinel), (used, 0));
    }
}

#[test]
fn a_meter_may_be_used_on_another_thread() {
    let (sentinel, _clock) = engine(tokens());
    let entry = run(&sentinel, chat(40));
    let meter = entry.meter();
    drop(entry);
    let left = std::thread::spawn(move || [meter.charge("tokens", 39), meter.charge("tokens", 61)]);
    // Nothing is left of the reservation, nor of the limit.
    assert_eq!(left.join().unwrap(), [true, false]);
    assert_eq!(state(&sentinel), (100, 0));
}

#[test]
fn a_meter_without_a_rule_counts_nothing() {
    let (sentinel, _clock) = engine(FlowRule::per_minute("chat", 1));
    let mut entry = run(&sentinel, chat(40));
    for meter in [entry.meter(), Meter::default()] {
        assert!(meter.charge("tokens", u32::MAX));
        meter.settle("tokens", 1);
        meter.left("tokens", 0, MINUTE);
    }
    assert!(entry.charge("tokens", 1));
    entry.settle("tokens", 1);
    assert!(sentinel.node("chat").unwrap().budgets().is_empty());
}

#[test]
fn work_that_is_dropped_or_fails_is_charged_as_its_end_says() {
    let (sentinel, _clock) = engine(tokens());
    let pending = std::future::pending::<Result<(), BoxError>>();
    let mut running = Box::pin(sentinel.run(chat(40), pending));
    assert!(poll_now(running.as_mut()).is_pending());
    assert_eq!(state(&sentinel), (0, 40));
    drop(running);
    assert_eq!(state(&sentinel), (40, 0));
    let mut failing =
        Box::pin(sentinel.run(chat(40), async { Err::<(), BoxError>("down".into()) }));
    assert!(poll_now(failing.as_mut()).is_ready());
    assert_eq!(state(&sentinel), (40, 0));
}

// === other rules ===

#[test]
fn a_call_that_another_rule_refuses_reserves_nothing() {
    let other: [Rule; 4] = [
        FlowRule::per_minute("chat", 0).into(),
        IsolationRule::new("chat", 0).into(),
        KeyedRule::per_minute("chat", 0).into(),
        FlowRule::per_minute("chat", 1).warm_up(MINUTE).into(),
    ];
    for rule in other {
        let (sentinel, _clock) = engine(Rules::new().with(tokens()).with(rule.clone()));
        let calls: Vec<_> = (0..3)
            .map(|_| enter(&sentinel, chat(40).param("ann")))
            .collect();
        let running = calls.iter().filter(|it| it.is_ok()).count() as u32;
        assert!(calls.iter().any(Result::is_err), "{rule:?}");
        assert_eq!(state(&sentinel), (0, 40 * running), "{rule:?}");
    }
}

#[test]
fn a_probe_that_costs_refuse_is_free_for_the_next_call() {
    let breaker = CircuitBreakerRule::error_count("chat", 1).min_calls(1);
    let (sentinel, clock) = engine(Rules::new().with(tokens()).with(breaker.open_for(ms(500))));
    run(&sentinel, chat(1)).fail();
    clock.advance(ms(500));
    let blocked = enter(&sentinel, chat(101)).unwrap_err();
    assert_eq!(blocked.rule(), "tpm");
    run(&sentinel, chat(100)).settle("tokens", 1);
}

#[test]
fn a_call_that_waits_reserves_when_its_turn_comes() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_second("chat", 1).throttle(MINUTE));
    let (sentinel, clock) = engine(rules);
    let first = run(&sentinel, chat(40));
    let wait = |most| match sentinel.try_enter(chat(most)) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("the first one has just started: {other:?}"),
    };
    let (second, third) = (wait(40), wait(40));
    let dropped = wait(40);
    assert_eq!(state(&sentinel), (0, 40));
    drop(dropped);
    clock.advance(ms(2_000));
    let second = second.admit().expect("its turn has come");
    assert_eq!(state(&sentinel), (0, 80));
    let Err(NotAdmitted::Blocked(blocked)) = third.admit() else {
        panic!("20 are left");
    };
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Flow, "tpm"));
    assert_eq!(blocked.retry_after(), Some(ms(1_000)));
    drop((first, second));
    assert_eq!(state(&sentinel), (80, 0));
    assert_at_rest(&sentinel, "chat");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_slot_keeps_what_it_wants_to_reserve() {
    let rules = Rules::new()
        .with(tokens())
        .with(IsolationRule::new("chat", 1).queue(MINUTE));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(TokioClock::new())
        .build();
    let first = run(&sentinel, chat(40));
    let mut second = Box::pin(sentinel.enter(chat(50)));
    assert!(poll_now(second.as_mut()).is_pending());
    assert_eq!(state(&sentinel), (0, 40));
    drop(first);
    let _second = second.await.expect("60 are left");
    assert_eq!(state(&sentinel), (40, 50));
}

#[test]
fn a_default_rule_is_replaced_by_one_of_its_kind_and_unit() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("*", 2).id("requests"))
        .with(FlowRule::per_minute("*", 50).cost("tokens").id("tokens"))
        .with(FlowRule::per_minute("*", 10).cost("rows").id("rows"))
        .with(FlowRule::per_minute("chat", 100).cost("tokens").id("chat"));
    let (sentinel, _clock) = engine(rules);
    let budgets = |name: &str| {
        let mut running = run(&sentinel, Call::new(name));
        running.settle("tokens", 1);
        let budgets = sentinel.node(name).unwrap().budgets();
        budgets
            .iter()
            .map(|it| it.rule().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(budgets("chat"), ["chat", "rows"]);
    assert_eq!(budgets("other"), ["tokens", "rows"]);
    for name in ["chat", "other"] {
        run(&sentinel, Call::new(name)).fail();
        assert_eq!(
            enter(&sentinel, Call::new(name)).unwrap_err().rule(),
            "requests"
        );
    }
}

#[test]
fn a_rule_in_shadow_mode_hears_all_costs_and_ends_no_work() {
    let shadow = |limit, id: &str| {
        FlowRule::per_minute("chat", limit)
            .cost("tokens")
            .id(id)
            .shadow()
    };
    for enforced in [false, true] {
        let mut rules = Rules::new()
            .with(shadow(10, "ten"))
            .with(shadow(50, "fifty"));
        if enforced {
            rules = rules.with(tokens());
        }
        let (sentinel, _clock) = engine(rules);
        let mut entry = run(&sentinel, chat(5));
        assert!(entry.charge("tokens", 40));
        drop(entry);
        let blocked = |sentinel: &Sentinel| {
            let shadows = sentinel.shadows();
            shadows
                .iter()
                .map(tower_sentinel::read::ShadowView::would_block)
                .collect::<Vec<_>>()
        };
        drop(run(&sentinel, chat(5)));
        assert_eq!(blocked(&sentinel), [1, 0]);
        drop(run(&sentinel, chat(7)));
        assert_eq!(blocked(&sentinel), [2, 1]);
        if enforced {
            // 40, and what two calls had reserved.
            assert_eq!(state(&sentinel), (52, 0));
        }
    }
}

// === what is told ===

#[test]
fn a_refusal_says_when_the_window_has_room() {
    let (sentinel, clock) = engine(tokens());
    let start = run(&sentinel, chat(0));
    let mut running = run(&sentinel, chat(80));
    // Only reservations are in the way: their end is unknown.
    assert_eq!(retry_after(&sentinel, chat(30)), Some(ms(1_000)));
    // Never.
    assert_eq!(retry_after(&sentinel, chat(101)), None);
    running.settle("tokens", 80);
    clock.advance(ms(20_000));
    assert_eq!(retry_after(&sentinel, chat(30)), Some(ms(40_000)));
    drop(start);
    clock.advance(ms(40_000));
    run(&sentinel, chat(100)).fail();
}

#[test]
fn a_refusal_by_another_rule_waits_for_the_costs_as_well() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_second("chat", 1).id("rps"));
    let (sentinel, _clock) = engine(rules);
    run(&sentinel, chat(90)).settle("tokens", 90);
    let retry_after = |most| {
        let blocked = enter(&sentinel, chat(most)).unwrap_err();
        assert_eq!(blocked.rule(), "rps");
        blocked.retry_after()
    };
    assert_eq!(retry_after(10), Some(ms(1_000)));
    assert_eq!(retry_after(11), Some(MINUTE));
    assert_eq!(retry_after(101), None);
}

#[test]
fn a_reservation_above_the_limit_is_told_with_both_numbers() {
    let (sentinel, _clock) = engine(tokens());
    let message = |most| enter(&sentinel, chat(most)).unwrap_err().to_string();
    let running = run(&sentinel, chat(100));
    assert_eq!(
        message(100),
        "call to \"chat\" refused by flow rule \"tpm\""
    );
    drop(running);
    assert_eq!(
        message(4_096),
        "call to \"chat\" refused by flow rule \"tpm\": it reserves 4096 of 100"
    );
}

#[test]
fn no_reservation_and_no_cost_is_too_large_to_be_handled() {
    let (sentinel, _clock) = engine(FlowRule::per_minute("chat", 1 << 30).cost("tokens"));
    let meter = run(&sentinel, chat(0)).meter();
    assert!(meter.charge("tokens", u32::MAX));
    let budget = only_budget(&sentinel);
    assert_eq!(budget.used(), Call::MAX_WEIGHT);
    assert_eq!(budget.cut_total(), u64::from(u32::MAX - Call::MAX_WEIGHT));
    assert!(enter(&sentinel, chat(u32::MAX)).is_err());
    meter.settle("tokens", u32::MAX);
    for _ in 0..100 {
        meter.charge("tokens", u32::MAX);
    }
    assert!(only_budget(&sentinel).used() <= (1 << 30) + Call::MAX_WEIGHT);
    assert!(enter(&sentinel, chat(0)).is_err());
}

// === reloads ===

#[test]
fn a_rule_that_takes_over_goes_on_with_what_was_charged_and_reserved() {
    let cases = [
        ("equal", tokens(), 100),
        (
            "another limit",
            FlowRule::per_minute("chat", 60).cost("tokens").id("tpm"),
            60,
        ),
        ("another id", tokens().id("other"), 100),
        (
            "another window",
            FlowRule::per_hour("chat", 70).cost("tokens").id("tpm"),
            70,
        ),
        ("other buckets", tokens().buckets(6).strict(), 100),
        (
            "neither",
            FlowRule::per_hour("chat", 500).cost("tokens").id("other"),
            500,
        ),
    ];
    for (name, rule, limit) in cases {
        let (sentinel, clock) = engine(tokens());
        let mut running = run(&sentinel, chat(30));
        running.charge("tokens", 10);
        clock.advance(ms(1_000));
        sentinel.reload(Rules::from(rule).with(FlowRule::per_minute("other", 1)));
        let left = limit - 30;
        assert!(enter(&sentinel, chat(left + 1)).is_err(), "{name}");
        run(&sentinel, chat(left)).fail();
        assert_eq!(state(&sentinel), (10, 20), "{name}");
        running.settle("tokens", 25);
        drop(running);
        assert_eq!(state(&sentinel), (25, 0), "{name}");
    }
}

#[test]
fn a_charge_of_a_rule_that_is_gone_counts_nowhere() {
    let (sentinel, _clock) = engine(tokens());
    let mut running = run(&sentinel, chat(30));
    let rows = FlowRule::per_minute("chat", 100).cost("rows").id("tpm");
    for rules in [Rules::from(rows), Rules::new()] {
        sentinel.reload(rules);
        run(&sentinel, chat(0)).fail();
        running.charge("tokens", 1);
        let budgets = sentinel.node("chat").unwrap().budgets();
        assert!(budgets.iter().all(|it| it.used() == 0), "{budgets:?}");
    }
    // Nor does it come back with the rule.
    sentinel.reload(tokens().into());
    run(&sentinel, chat(0)).fail();
    drop(running);
    assert_eq!(state(&sentinel), (0, 0));
}

#[test]
fn a_resource_is_kept_while_what_it_has_charged_matters() {
    let rule = FlowRule::per_minute("*", 100).cost("tokens");
    let (sentinel, clock) = configured(rule, |builder| {
        builder.idle_after(ms(1_000)).max_resources(2)
    });
    run(&sentinel, Call::new("chat")).settle("tokens", 100);
    clock.advance(ms(30_000));
    for name in ["a", "b", "c", "d"] {
        run(&sentinel, Call::new(name)).settle("tokens", 1);
    }
    assert!(enter(&sentinel, Call::new("chat")).is_err());
}

// === how much is used ===

/// What calls that come without end are charged in a minute, on average over ten, if each reserves
/// `reserved`, costs 500 and takes this long: of 60 000.
fn used_in_a_minute(reserved: u32, seconds: u64) -> u64 {
    let (sentinel, clock) = engine(
        FlowRule::per_minute("chat", 60_000)
            .cost("tokens")
            .buckets(60),
    );
    let mut running = std::collections::VecDeque::new();
    let mut charged = 0;
    for second in 0..12 * 60 {
        while running.front().is_some_and(|(end, _)| *end <= second) {
            let (_, mut entry): (u64, Entry) = running.pop_front().expect("one is due");
            entry.settle("tokens", 500);
        }
        while let Ok(entry) = enter(&sentinel, chat(reserved)) {
            running.push_back((second + seconds, entry));
        }
        if second == 2 * 60 {
            charged = only_budget(&sentinel).charged_total();
        }
        clock.advance(Duration::from_secs(1));
    }
    (only_budget(&sentinel).charged_total() - charged) / 10
}

#[test]
fn a_reservation_far_above_the_cost_keeps_others_out_as_documented() {
    let used = [(4_096, 20), (4_096, 5), (1_000, 20), (500, 20)];
    let used = used.map(|(reserved, seconds)| used_in_a_minute(reserved, seconds));
    assert_eq!(used, [14_500, 34_600, 34_450, 42_000]);
}
