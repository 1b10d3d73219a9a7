//! Rules in shadow mode: each refuses what a naive engine with it alone would, of the
//! calls that the enforced rules let pass.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{IsolationRule, Rule, ShadowView, Verdict};

use crate::asked::mild;
use crate::breakers::{Breaker, End, Part, breaker};
use crate::company::{self, Company, company, end};
use crate::crowd::Crowd;
use crate::hot::{Hot, hot, keep_two_at_once};
use crate::oracle::Naive;
use crate::setup::{BEGIN, Flow, NS, Op, RESOURCES, Setup, Whose, flow, op, setup};
use crate::support::bench::Bench;
use crate::system::{Limits, System, limits};
use crate::twists::waiting_rules;
use crate::wants::Wants;

fn lone_flow() -> impl Strategy<Value = Flow> {
    // Who the others are, all rules of a set say together.
    flow().prop_filter("stands alone", |flow| flow.whose != Whose::OtherOrigins)
}

/// A rule of another kind.
#[derive(Clone, Debug)]
enum Other {
    Hot(Hot),
    Breaker(Breaker),
    Isolation(&'static str, u32),
    System(Limits),
}

fn other() -> impl Strategy<Value = Other> {
    prop_oneof![
        hot().prop_map(Other::Hot),
        breaker().prop_map(Other::Breaker),
        (select(&RESOURCES[..]), 0_u32..4)
            .prop_map(|(resource, most)| Other::Isolation(resource, most)),
        limits()
            .prop_filter_map("knows no machine", Limits::without_machine)
            .prop_map(Other::System),
    ]
}

impl Other {
    fn hot(&self) -> Option<&Hot> {
        match self {
            Self::Hot(hot) => Some(hot),
            _ => None,
        }
    }

    fn rule(&self, index: usize) -> Rule {
        match self {
            Self::Hot(hot) => hot.rule().id(format!("hot-{index}")).into(),
            Self::Breaker(breaker) => breaker.rule().id(format!("breaker-{index}")).into(),
            Self::Isolation(resource, most) => IsolationRule::new(*resource, *most).into(),
            Self::System(limits) => limits.rule(index).into(),
        }
    }

    fn shadow(self) -> Shadow {
        let mut alone = Company {
            setup: Setup {
                flows: Vec::new(),
                isolation: None,
                denied: None,
            },
            hots: Vec::new(),
            breakers: Vec::new(),
        };
        let mut limits = Vec::new();
        match self {
            Self::Hot(hot) => alone.hots.push(hot),
            Self::Breaker(breaker) => alone.breakers.push(breaker),
            Self::Isolation(resource, most) => alone.setup.isolation = Some((resource, most)),
            Self::System(own) => limits.push(own),
        }
        Shadow {
            crowd: Crowd::new(&alone.into()),
            system: System::new(limits),
            blocked: 0,
        }
    }
}

/// A naive engine with one rule.
struct Shadow {
    crowd: Crowd,
    system: System,
    blocked: u64,
}

/// What a call has there.
type Seen = Option<(usize, Vec<Part>)>;

impl Shadow {
    fn enter(&mut self, wants: Wants, now: u64) -> Seen {
        let n = wants.call.n;
        if self.system.refuses(n, now).is_none() {
            if let Ok(parts) = self.crowd.enter(wants, now) {
                self.system.passes(n, now);
                return Some((self.crowd.seen.len() - 1, parts));
            }
        }
        self.blocked += u64::from(n);
        None
    }

    fn end(&mut self, seen: Seen, now: u64, how: End) {
        if let Some((index, parts)) = seen {
            let seen = self.crowd.seen[index];
            if self.system.is_there() {
                self.system.ends(seen.wants.call.n, now - seen.at, now, how);
            }
            self.crowd.end(index, parts, now, how);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_rule_in_shadow_mode_sees_what_it_would_if_it_were_enforced(
        enforced in setup(),
        flows in prop::collection::vec(lone_flow(), 1..4),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut rules = enforced.rules();
        let mut naive = Vec::new();
        for (index, flow) in flows.into_iter().enumerate() {
            rules = rules.with(flow.rule(100 + index).shadow());
            naive.push((Naive::new(Setup { flows: vec![flow], isolation: None, denied: None }), 0));
        }
        let bench = Bench::new(rules);
        let mut entries = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(index) if !entries.is_empty() => {
                    drop(entries.swap_remove(index % entries.len()));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    if let Verdict::Pass(entry) = bench.sentinel.try_enter(call.asked()) {
                        entries.push(entry);
                        for (naive, blocked) in &mut naive {
                            if naive.enter(call, now).is_err() {
                                *blocked += u64::from(call.n);
                            }
                        }
                    }
                }
            }
        }
        let found: Vec<_> = bench.sentinel.shadows().iter().map(ShadowView::would_block).collect();
        let expected: Vec<_> = naive.iter().map(|(_, blocked)| *blocked).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn rules_of_any_kind_in_shadow_mode_see_what_they_would_if_each_were_enforced(
        mut enforced in prop_oneof![company(), mild()],
        max_wait in 0_u64..1_000,
        mut others in prop::collection::vec(other(), 1..4),
        ops in prop::collection::vec(company::op(), 1..120),
    ) {
        let mut rules = waiting_rules(&mut enforced, max_wait);
        keep_two_at_once(&mut others, Other::hot);
        for (index, other) in others.iter().enumerate() {
            rules = rules.with(other.rule(100 + index).shadow());
        }
        let mut shadows: Vec<_> = others.into_iter().map(Other::shadow).collect();
        let bench = Bench::new(rules);
        let mut entries = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                company::Op::Advance(ns) => {
                    let ns = ns / 8_000 * 8_000;
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                company::Op::End(index, how) => if let Some(index) = index.checked_rem(entries.len()) {
                    let (entry, seen): (_, Vec<Seen>) = entries.swap_remove(index);
                    end(entry, how);
                    for (shadow, seen) in shadows.iter_mut().zip(seen) {
                        shadow.end(seen, now, how);
                    }
                },
                company::Op::Call(wants) => {
                    let verdict = wants.asked(|call| bench.sentinel.try_enter(call));
                    if matches!(verdict, Verdict::Block(_)) {
                        continue;
                    }
                    let seen: Vec<_> = shadows
                        .iter_mut()
                        .map(|shadow| shadow.enter(wants, now))
                        .collect();
                    match verdict {
                        Verdict::Pass(entry) => entries.push((entry, seen)),
                        // Nobody knows how it will end.
                        _ => for (shadow, seen) in shadows.iter_mut().zip(seen) {
                            shadow.end(seen, now, End::Cancelled);
                        },
                    }
                }
            }
            let found: Vec<_> = bench.sentinel.shadows().iter().map(ShadowView::would_block).collect();
            let expected: Vec<_> = shadows.iter().map(|shadow| shadow.blocked).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
