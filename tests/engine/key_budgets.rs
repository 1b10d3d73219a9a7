//! Limits on what the calls of each key turn out to cost.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tower_sentinel::call::Param;
use tower_sentinel::hook::FindingKind;
use tower_sentinel::read::KeyedView;
use tower_sentinel::{
    BlockKind, Call, Entry, FlowRule, KeyedRule, MissingKey, NotAdmitted, Rule, Rules, Sentinel,
    Verdict,
};

use crate::support::{assert_at_rest, engine, enter, ms, run};

const MINUTE: Duration = Duration::from_secs(60);

/// A limit of 100 tokens a minute for each value.
fn tokens() -> KeyedRule {
    KeyedRule::per_minute("chat", 100)
        .cost("tokens")
        .max_keys(100)
        .id("tpm")
}

/// Both ways to count.
fn both() -> [KeyedRule; 2] {
    [tokens(), tokens().window()]
}

fn chat(user: &str, most: u32) -> Call<'_> {
    Call::new("chat").param(user).reserve("tokens", most)
}

#[track_caller]
fn view(sentinel: &Sentinel, id: &str) -> KeyedView {
    let node = sentinel.node("chat").expect("it has been called");
    let rules = node.keyed_rules();
    let view = rules.iter().find(|it| it.rule() == id);
    view.expect("a keyed rule").clone()
}

#[track_caller]
fn left(sentinel: &Sentinel, user: &str) -> u32 {
    view(sentinel, "tpm").left(user)
}

/// What all values together have reserved, were charged, and how many calls told nothing.
#[track_caller]
fn totals(sentinel: &Sentinel) -> (u32, u64, u64) {
    let budgets = sentinel.node("chat").expect("it has been called").budgets();
    let budget = budgets.iter().find(|it| it.rule() == "tpm");
    let budget = budget.expect("a rule on costs");
    (
        budget.reserved(),
        budget.charged_total(),
        budget.untold_total(),
    )
}

#[test]
fn each_value_has_a_budget_of_its_own() {
    for rule in both() {
        let (sentinel, _clock) = engine(rule.tier("pro", 500).except("crawler", 10));
        let mut first = run(&sentinel, chat("ann", 60));
        assert!(enter(&sentinel, chat("ann", 41)).is_err());
        let mut second = run(&sentinel, chat("ann", 40));
        // No reservation: one unit must be left.
        assert!(enter(&sentinel, chat("ann", 0)).is_err());
        assert!(enter(&sentinel, chat("crawler", 11)).is_err());
        drop((
            run(&sentinel, chat("bob", 100)),
            run(&sentinel, chat("crawler", 10)),
            run(&sentinel, chat("eve", 500).tier("pro")),
        ));
        let of_values = ["ann", "bob", "crawler", "eve"].map(|user| left(&sentinel, user));
        assert_eq!(of_values, [0, 0, 0, 0]);
        first.settle("tokens", 20);
        assert_eq!(left(&sentinel, "ann"), 40);
        second.fail();
        drop(second);
        assert_eq!(left(&sentinel, "ann"), 80);
        assert_eq!(totals(&sentinel), (0, 630, 3));
        drop(first);
        assert_at_rest(&sentinel, "chat");
    }
}

#[test]
fn the_value_may_be_the_origin_or_a_named_parameter() {
    let rules = Rules::new()
        .with(tokens().by_origin().id("origin"))
        .with(tokens().param("team"));
    let (sentinel, _clock) = engine(rules);
    let call = Call::new("chat").origin("shop").reserve("tokens", 30);
    let _first = run(&sentinel, call);
    let params = [Param::new("team", "red")];
    let _second = run(&sentinel, call.params(&params));
    assert_eq!(view(&sentinel, "origin").left("shop"), 40);
    assert_eq!(left(&sentinel, "red"), 70);
    assert_eq!(view(&sentinel, "tpm").missing(), 1);
}

#[test]
fn a_value_that_is_reset_has_its_budget_again_but_for_what_is_reserved() {
    for rule in both() {
        let (sentinel, _clock) = engine(rule);
        let mut running = run(&sentinel, chat("ann", 30));
        run(&sentinel, chat("ann", 0)).settle("tokens", 500);
        drop(run(&sentinel, chat("bob", 60)));
        let view = view(&sentinel, "tpm");
        assert_eq!((view.left("ann"), view.left("bob")), (0, 40));
        assert!(view.reset("ann"));
        assert!(!view.reset("ann"));
        assert_eq!((view.left("ann"), view.left("bob")), (70, 40));
        assert!(enter(&sentinel, chat("ann", 71)).is_err());
        running.settle("tokens", 20);
        assert_eq!((view.left("ann"), view.resets()), (80, 1));
        drop(running);
        assert_at_rest(&sentinel, "chat");
    }
}

// === ends ===

/// How a call that has reserved 40 tokens ends.
type End<'a> = &'a dyn Fn(&Sentinel, Entry);

#[test]
fn a_call_of_a_value_is_charged_however_it_ends() {
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
    let late = |_: &Sentinel, entry: Entry| {
        let meter = entry.meter();
        drop(entry);
        meter.settle("tokens", 9);
    };
    let reloaded = |sentinel: &Sentinel, mut entry: Entry| {
        sentinel.reload(Rules::from(tokens()).with(FlowRule::per_minute("other", 1)));
        run(sentinel, chat("ann", 0)).fail();
        entry.settle("tokens", 8);
    };
    let settled = told(|entry| entry.settle("tokens", 7));
    let charged = told(|entry| assert!(entry.charge("tokens", 5) && entry.charge("tokens", 6)));
    let more = told(|entry| assert!(entry.charge("tokens", 45)));
    let all = told(|entry| assert!(!entry.charge("tokens", 100)));
    let free = told(|entry| entry.settle("tokens", 0));
    let failed = told(Entry::fail);
    let failed_after = told(|entry| {
        entry.charge("tokens", 5);
        entry.fail();
    });
    let other_unit = told(|entry| entry.settle("token", 5));
    let cases: [(&str, End<'_>, u32, u64); 13] = [
        ("settled", &settled, 7, 0),
        ("charged", &charged, 11, 0),
        ("charged more than it reserved", &more, 45, 0),
        ("charged all", &all, 100, 0),
        ("settled at nothing", &free, 0, 0),
        ("dropped", &|_, entry| drop(entry), 40, 1),
        ("cancelled", &|_, entry| entry.cancel(), 40, 1),
        ("told in another unit", &other_unit, 40, 1),
        ("failed", &failed, 0, 0),
        ("failed, and charged before", &failed_after, 5, 0),
        ("panicked", &panics, 0, 0),
        ("told after its end", &late, 9, 0),
        ("told after a reload", &reloaded, 8, 0),
    ];
    for (name, end, expected, untold) in cases {
        let (sentinel, _clock) = engine(tokens());
        let entry = run(&sentinel, chat("ann", 40));
        assert_eq!(left(&sentinel, "ann"), 60);
        end(&sentinel, entry);
        assert_eq!(left(&sentinel, "ann"), 100 - expected, "{name}");
        assert_eq!(
            totals(&sentinel),
            (0, u64::from(expected), untold),
            "{name}"
        );
        assert_at_rest(&sentinel, "chat");
    }
}

#[test]
fn calls_without_a_value_are_treated_as_the_rule_says() {
    let call = Call::new("chat").reserve("tokens", 60);
    for (missing, passes) in [
        (MissingKey::Share, [true, false]),
        (MissingKey::Skip, [true, true]),
        (MissingKey::Refuse, [false, false]),
    ] {
        let (sentinel, _clock) = engine(tokens().missing(missing));
        let calls = [(); 2].map(|()| enter(&sentinel, call));
        assert_eq!(calls.each_ref().map(Result::is_ok), passes, "{missing:?}");
        let kinds = calls.iter().filter_map(|call| call.as_ref().err());
        let expected = match missing {
            MissingKey::Refuse => BlockKind::MissingKey,
            _ => BlockKind::Keyed,
        };
        assert!(kinds.into_iter().all(|blocked| blocked.kind() == expected));
        assert_eq!(view(&sentinel, "tpm").missing(), 2);
        // A call that is not asked is not charged.
        drop(calls);
        let charged = if missing == MissingKey::Share { 60 } else { 0 };
        assert_eq!(totals(&sentinel).1, charged);
    }
}

#[test]
fn a_rule_on_costs_whose_key_no_call_has_is_found() {
    let (sentinel, _clock) = engine(tokens().param("user").tier("gold", 500));
    for _ in 0..8 {
        run(&sentinel, chat("ann", 1).tier("golden")).fail();
    }
    let found = |kind| sentinel.findings().iter().any(|it| it.kind() == kind);
    assert!(found(FindingKind::KeyMissing), "{:?}", sentinel.findings());
    // Another call has the key, and reserves nothing that stays.
    let params = [Param::new("user", "ann")];
    run(&sentinel, Call::new("chat").params(&params)).fail();
    assert!(!found(FindingKind::KeyMissing), "{:?}", sentinel.findings());
}

// === other rules ===

#[test]
fn a_call_that_another_rule_refuses_reserves_nothing_of_its_value() {
    let other: [Rule; 4] = [
        FlowRule::per_minute("chat", 0).into(),
        FlowRule::per_minute("chat", 30).cost("tokens").into(),
        KeyedRule::per_minute("chat", 0).into(),
        tokens()
            .by_origin()
            .id("other")
            .missing(MissingKey::Refuse)
            .into(),
    ];
    for rule in other {
        let (sentinel, _clock) = engine(Rules::new().with(tokens()).with(rule.clone()));
        assert!(enter(&sentinel, chat("ann", 40)).is_err(), "{rule:?}");
        assert_eq!(left(&sentinel, "ann"), 100, "{rule:?}");
        assert_eq!(totals(&sentinel), (0, 0, 0), "{rule:?}");
    }
    // And a value without room takes nothing of the limit on all callers.
    let all = FlowRule::per_minute("chat", 500).cost("tokens").id("all");
    let (sentinel, _clock) = engine(Rules::new().with(all).with(tokens()));
    assert_eq!(
        enter(&sentinel, chat("ann", 101)).unwrap_err().rule(),
        "tpm"
    );
    let budgets = sentinel.node("chat").unwrap().budgets();
    assert_eq!((budgets[0].rule(), budgets[0].reserved_total()), ("all", 0));
    assert_eq!((budgets[1].rule(), budgets[1].is_by_key()), ("tpm", true));
}

#[test]
fn calls_and_costs_of_a_value_are_limited_apart() {
    let rules = Rules::new()
        .with(KeyedRule::per_minute("chat", 2).id("rpm"))
        .with(tokens());
    let (sentinel, _clock) = engine(rules);
    for _ in 0..2 {
        run(&sentinel, chat("ann", 10)).settle("tokens", 1);
    }
    assert_eq!(enter(&sentinel, chat("ann", 10)).unwrap_err().rule(), "rpm");
    assert_eq!(left(&sentinel, "ann"), 98);
    let rules = sentinel.node("chat").unwrap().keyed_rules();
    let shown: Vec<_> = rules.iter().map(|it| (it.rule(), it.left("ann"))).collect();
    assert_eq!(shown, [("rpm", 0), ("tpm", 98)]);
}

#[test]
fn a_call_that_waits_reserves_of_its_value_when_its_turn_comes() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_second("chat", 1).throttle(MINUTE));
    let (sentinel, clock) = engine(rules);
    let first = run(&sentinel, chat("ann", 40));
    let wait = |user, most| match sentinel.try_enter(chat(user, most)) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("the first one has just started: {other:?}"),
    };
    let (second, third) = (wait("ann", 40), wait("ann", 40));
    let other = wait("bob", 40);
    drop(wait("ann", 20));
    assert_eq!(totals(&sentinel).0, 40);
    clock.advance(ms(3_000));
    let second = second.admit().expect("its turn has come");
    assert_eq!(left(&sentinel, "ann"), 20);
    let Err(NotAdmitted::Blocked(blocked)) = third.admit() else {
        panic!("20 are left");
    };
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Keyed, "tpm"));
    assert_eq!(blocked.retry_after(), Some(ms(1_000)));
    let other = other.admit().expect("bob has all of his");
    drop((first, second, other));
    assert_eq!(totals(&sentinel), (0, 120, 3));
    assert_at_rest(&sentinel, "chat");
}

#[test]
fn a_keyed_rule_in_shadow_mode_hears_all_costs_and_ends_no_work() {
    for enforced in [false, true] {
        let shadow = KeyedRule::per_minute("chat", 50).cost("tokens").id("fifty");
        let mut rules = Rules::new().with(Rule::from(shadow).shadow());
        if enforced {
            rules = rules.with(tokens());
        }
        let (sentinel, _clock) = engine(rules);
        let mut entry = run(&sentinel, chat("ann", 5));
        assert!(entry.charge("tokens", 40));
        drop(entry);
        let blocked = |sentinel: &Sentinel| sentinel.shadows()[0].would_block();
        drop(run(&sentinel, chat("ann", 10)));
        assert_eq!(blocked(&sentinel), 0);
        drop(run(&sentinel, chat("ann", 1)));
        drop(run(&sentinel, chat("bob", 50)));
        assert_eq!(blocked(&sentinel), 1);
        if enforced {
            assert_eq!(totals(&sentinel), (0, 101, 3));
        }
    }
}

// === what is told ===

#[test]
fn a_refusal_says_when_the_value_has_room() {
    for (rule, room) in [
        (tokens(), ms(6_000)),
        // Its bucket leaves the window.
        (tokens().window(), MINUTE),
    ] {
        let (sentinel, clock) = engine(rule);
        let retry_after = |most| {
            let blocked = enter(&sentinel, chat("ann", most)).unwrap_err();
            assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Keyed, "tpm"));
            let limit = (blocked.limit(), blocked.interval());
            assert_eq!(limit, (Some(100), Some(MINUTE)));
            blocked.retry_after()
        };
        let mut running = run(&sentinel, chat("ann", 80));
        // Only reservations are in the way: their end is unknown.
        assert_eq!(retry_after(30), Some(ms(1_000)));
        assert_eq!(retry_after(101), None);
        running.settle("tokens", 80);
        assert_eq!(retry_after(30), Some(room));
        clock.advance(room);
        run(&sentinel, chat("ann", 30)).fail();
    }
}

#[test]
fn a_reservation_above_the_limit_of_a_value_is_told_with_both_numbers() {
    let (sentinel, _clock) = engine(tokens().burst(20).except("bob", 7));
    let message = |user, most| enter(&sentinel, chat(user, most)).unwrap_err().to_string();
    let running = run(&sentinel, chat("ann", 120));
    // It fits as soon as the other one has ended.
    assert_eq!(
        message("ann", 110),
        "call to \"chat\" refused by keyed rule \"tpm\""
    );
    drop(running);
    assert_eq!(
        message("ann", 121),
        "call to \"chat\" refused by keyed rule \"tpm\": it reserves 121 of 100"
    );
    assert_eq!(
        message("bob", 28),
        "call to \"chat\" refused by keyed rule \"tpm\": it reserves 28 of 7"
    );
}

#[test]
fn a_snapshot_shows_what_all_values_together_have_reserved() {
    let (sentinel, _clock) = engine(tokens());
    let _running = [
        run(&sentinel, chat("ann", 40)),
        run(&sentinel, chat("bob", 30)),
    ];
    run(&sentinel, chat("eve", 20)).settle("tokens", 5);
    let budgets = sentinel.node("chat").unwrap().budgets();
    let budget = &budgets[0];
    assert!(budget.is_by_key());
    assert_eq!(
        (budget.rule(), budget.unit(), budget.limit()),
        ("tpm", "tokens", 100)
    );
    assert_eq!((budget.reserved(), budget.charged_total()), (70, 5));
    // What is used and left is a value's own.
    assert_eq!((budget.used(), budget.left()), (0, 100));
}

// === reloads ===

#[test]
fn a_keyed_rule_that_takes_over_goes_on_with_what_was_charged_and_reserved() {
    let cases: [(&str, KeyedRule, Option<u32>); 7] = [
        ("equal", tokens(), Some(100)),
        (
            "another limit",
            KeyedRule::per_minute("chat", 60)
                .cost("tokens")
                .max_keys(100)
                .id("tpm"),
            Some(60),
        ),
        ("another id", tokens().id("other"), Some(100)),
        ("a tier", tokens().tier("pro", 5), Some(100)),
        ("another unit", tokens().cost("rows"), None),
        ("a window", tokens().window(), None),
        ("other keys", tokens().max_keys(200), None),
    ];
    for (name, rule, limit) in cases {
        let (sentinel, _clock) = engine(tokens().window());
        let rule = if name == "a window" {
            tokens()
        } else {
            rule.window()
        };
        let id = if name == "another id" { "other" } else { "tpm" };
        let mut running = run(&sentinel, chat("ann", 30));
        running.charge("tokens", 10);
        sentinel.reload(Rules::from(rule).with(FlowRule::per_minute("other", 1)));
        run(&sentinel, chat("bob", 0)).fail();
        let left = |sentinel: &Sentinel| view(sentinel, id).left("ann");
        assert_eq!(
            left(&sentinel),
            limit.map_or(100, |limit| limit - 30),
            "{name}"
        );
        running.settle("tokens", 25);
        drop(running);
        // The charge of a rule that is gone counts nowhere.
        assert_eq!(
            left(&sentinel),
            limit.map_or(100, |limit| limit - 25),
            "{name}"
        );
    }
}

#[test]
fn a_rule_on_calls_and_one_on_costs_keep_their_own_tables() {
    let calls = || KeyedRule::per_minute("chat", 100).max_keys(100).id("tpm");
    let (sentinel, _clock) = engine(calls());
    run(&sentinel, chat("ann", 1)).fail();
    sentinel.reload(tokens().into());
    assert_eq!(left(&sentinel, "ann"), 100);
    run(&sentinel, chat("ann", 7)).settle("tokens", 7);
    sentinel.reload(calls().into());
    run(&sentinel, chat("bob", 1)).fail();
    assert_eq!(left(&sentinel, "ann"), 100);
}

// === how much is used ===

/// What a value whose calls come without end is charged in a minute, on average over ten, if each
/// reserves 4096, costs 500 and takes five seconds: of 60 000.
fn used_in_a_minute(rule: KeyedRule) -> u64 {
    let (sentinel, clock) = engine(rule.cost("tokens").max_keys(100).id("tpm"));
    let mut running = VecDeque::new();
    let mut charged = 0;
    // Four times in a second.
    for step in 0..12 * 240_u64 {
        while running.front().is_some_and(|(end, _)| *end <= step) {
            let (_, mut entry): (u64, Entry) = running.pop_front().expect("one is due");
            entry.settle("tokens", 500);
        }
        while let Ok(entry) = enter(&sentinel, chat("ann", 4_096)) {
            running.push_back((step + 20, entry));
        }
        if step == 2 * 240 {
            charged = totals(&sentinel).1;
        }
        clock.advance(ms(250));
    }
    (totals(&sentinel).1 - charged) / 10
}

#[test]
fn a_saturated_value_uses_nearly_all_of_its_budget() {
    let refilled = used_in_a_minute(KeyedRule::per_minute("chat", 60_000));
    let window = used_in_a_minute(KeyedRule::per_minute("chat", 60_000).window());
    assert_eq!([refilled, window], [60_000, 39_450]);
}
