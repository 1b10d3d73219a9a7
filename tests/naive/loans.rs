//! Prioritized calls beside a naive engine: who borrows, and which bucket, as the rules
//! lend all of what leaves their windows, a part, or nothing.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{NotAdmitted, Rules, Verdict, Waiting};

use crate::oracle::Naive;
use crate::setup::{Asks, BEGIN, Flow, NS, Setup, Whose, advance, asks, flow, ratio};
use crate::support::bench::Bench;
use crate::support::ms;

const RESOURCE: &str = "a";

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    /// Prioritized or not, and its own patience, in ms.
    Call(Asks, bool, Option<u64>),
    /// One that waits.
    Admit(usize),
    Drop(usize),
    /// Other limits, and other parts.
    Reload(Vec<(u32, f64)>),
}

/// What a call is told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Pass,
    /// Until then, in ns.
    Wait(u64),
    Block,
}

/// Where a rule counts.
#[derive(Clone, Copy, PartialEq)]
enum Node {
    Resource,
    Origin,
    Context,
}

/// Windows of one resource, and whether each was told to lend.
#[derive(Clone, Debug)]
struct Lenders {
    flows: Vec<Flow>,
    lend: Vec<Option<bool>>,
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![1 => 0_u32..8, 2 => 4_u32..24]
}

fn lenders() -> impl Strategy<Value = Lenders> {
    let lend = select(&[None, None, None, Some(false), Some(true), Some(true)][..]);
    let of_all = prop::bool::weighted(0.5);
    let lender = (flow(), limit(), 0..4, lend, of_all);
    let lender = lender.prop_map(|(mut flow, limit, strict, lend, of_all)| {
        flow.resource = RESOURCE;
        (flow.limit, flow.queue, flow.is_strict) = (limit, None, strict == 0);
        flow.whose = match flow.whose {
            _ if of_all => Whose::All,
            Whose::Related(_) => Whose::All,
            // A table does not lend.
            Whose::Each(_) => Whose::OtherOrigins,
            whose => whose,
        };
        (flow, lend)
    });
    prop::collection::vec(lender, 1..5).prop_map(|lenders| {
        let (flows, lend) = lenders.into_iter().unzip();
        Lenders { flows, lend }
    })
}

impl Lenders {
    fn rules(&self) -> Rules {
        let flows = self.flows.iter().zip(&self.lend).enumerate();
        let rules = flows.map(|(index, (flow, lend))| {
            let rule = flow.rule(index);
            match lend {
                Some(lend) => rule.lend(*lend),
                None => rule,
            }
        });
        rules.fold(Rules::new(), |rules, rule| rules.with(rule))
    }
}

fn op() -> impl Strategy<Value = Op> {
    let patience = prop::option::weighted(0.2, 0_u64..2_000);
    let call = (asks(), prop::bool::weighted(0.6), patience);
    let call = call.prop_map(|(mut call, is_prioritized, patience)| {
        call.resource = RESOURCE;
        Op::Call(call, is_prioritized, patience)
    });
    let limits = prop::collection::vec((limit(), ratio()), 4);
    prop_oneof![
        10 => advance().prop_map(Op::Advance),
        40 => call,
        4 => any::<usize>().prop_map(Op::Admit),
        4 => any::<usize>().prop_map(Op::Drop),
        1 => limits.prop_map(Op::Reload),
    ]
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// All that was taken and is held, each with the time that it is for.
struct Loans {
    lend: Vec<Option<bool>>,
    naive: Naive,
}

impl Loans {
    fn new(lenders: &Lenders) -> Self {
        let flows = lenders.flows.clone();
        let setup = Setup {
            flows,
            ..Setup::NONE
        };
        Self {
            lend: lenders.lend.clone(),
            naive: Naive::new(setup),
        }
    }

    fn rules(&self) -> Rules {
        let (flows, lend) = (self.naive.setup.flows.clone(), self.lend.clone());
        Lenders { flows, lend }.rules()
    }

    /// The rules that count `call`, and how finely time is cut where each of them counts,
    /// in ns: the rules of one node share their buckets with its figures, unless those
    /// were too many.
    fn lanes(&self, call: &Asks) -> Vec<(usize, u64)> {
        let mut lanes = Vec::new();
        for (node, most) in [
            (Node::Origin, 32),
            (Node::Context, 32),
            (Node::Resource, 256),
        ] {
            let flows = self.naive.setup.flows.iter().enumerate();
            let flows = flows.filter(|(_, flow)| {
                let own = match flow.whose {
                    Whose::Each(..) | Whose::Origin(_) | Whose::OtherOrigins => Node::Origin,
                    Whose::Context(_) => Node::Context,
                    Whose::All | Whose::Related(_) => Node::Resource,
                };
                own == node && self.naive.key(flow, call).is_some()
            });
            let (mut step, mut span) = (500 * NS, 1_000 * NS);
            let mut shared = Vec::new();
            for (index, flow) in flows {
                let (length, counted) = flow.window();
                let wider = (gcd(step, length), span.max(length * counted));
                if wider.1 / wider.0 <= most {
                    (step, span) = wider;
                    shared.push(index);
                } else {
                    lanes.push((index, length));
                }
            }
            lanes.extend(shared.into_iter().map(|index| (index, step)));
        }
        lanes
    }

    fn lends(&self, index: usize) -> bool {
        self.lend[index].unwrap_or(!self.naive.setup.flows[index].is_strict)
    }

    /// Whether the rule lets `call`, which comes `now`, hold its tokens for then.
    fn agrees(&self, (index, step): (usize, u64), call: &Asks, now: u64, at: u64) -> bool {
        let flow = &self.naive.setup.flows[index];
        let (length, counted) = flow.window();
        let tokens = self.naive.counted_with(flow, call).unwrap();
        let (present, bucket, n) = (now / length, at / length, call.n);
        if flow.fits(present, n, &tokens) {
            return true;
        }
        if !self.lends(index) {
            return false;
        }
        let sum = |inside: &dyn Fn(u64) -> bool| -> u32 {
            let inside = tokens.iter().filter(|(at, _)| inside(*at));
            inside.map(|(_, n)| n).sum()
        };
        let leaving = if bucket + 1 > present + counted {
            // All of that window is to come.
            let is_kept = (bucket + 1 - counted..=bucket).all(|begin| {
                let window = begin..begin + counted;
                sum(&|at| window.contains(&(at / length))) + n <= flow.limit
            });
            if !is_kept {
                return false;
            }
            flow.limit
        } else if flow.fits(bucket, n, &tokens) {
            sum(&|at| at / length + counted == bucket)
        } else {
            return false;
        };
        // Who takes nothing borrows nothing.
        if flow.ratio >= 1.0 || n == 0 {
            return true;
        }
        let leaves = at / step * step % length == 0;
        let lent = sum(&|other| other / step == at / step);
        // Parts are whole hundredths here: exactly so many of what leaves.
        let hundredths = (flow.ratio * 100.0).round() as u32;
        leaves && lent + n <= leaving * hundredths / 100
    }

    fn judge(&self, call: &Asks, now: u64, patience: Option<u64>) -> Told {
        let flows = &self.naive.setup.flows;
        if flows.iter().any(|flow| flow.misses_key(call)) {
            return Told::Block;
        }
        let lanes = self.lanes(call);
        let has_room = |&(index, _): &(usize, u64)| {
            let flow = &flows[index];
            let tokens = self.naive.counted_with(flow, call).unwrap();
            flow.fits(now / flow.window().0, call.n, &tokens)
        };
        if lanes.iter().all(has_room) {
            return Told::Pass;
        }
        let Some(patience) = patience else {
            return Told::Block;
        };
        let mut starts: Vec<_> = lanes
            .iter()
            .flat_map(|(index, _)| {
                let (length, _) = flows[*index].window();
                let buckets = now / length + 1..;
                let starts = buckets.map(move |bucket| bucket * length);
                starts.take_while(|start| *start < now + patience)
            })
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let agree = |at: &u64| lanes.iter().all(|lane| self.agrees(*lane, call, now, *at));
        starts
            .into_iter()
            .find(agree)
            .map_or(Told::Block, Told::Wait)
    }

    fn give_back(&mut self, at: u64, call: &Asks) {
        let mut passed = self.naive.passed.iter();
        let known = |(time, other): &(u64, Asks)| {
            let same = (other.origin, other.context) == (call.origin, call.context);
            *time == at && other.n == call.n && same
        };
        let place = passed.position(known).unwrap();
        self.naive.passed.swap_remove(place);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn prioritized_calls_borrow_the_bucket_that_a_naive_engine_says(
        lenders in lenders(),
        most in prop_oneof![Just(500_u64), 1_u64..3_000],
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let bench = Bench::with(lenders.rules(), |builder| builder.occupy_timeout(ms(most)));
        let mut loans = Loans::new(&lenders);
        let mut waiting: Vec<(Asks, Waiting)> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::Call(call, is_prioritized, patience) => {
                    let mut asked = call.asked().prioritized(is_prioritized);
                    if let Some(patience) = patience {
                        asked = asked.patience(ms(patience));
                    }
                    let patience = patience.map_or(most, |own| own.min(most)) * NS;
                    let expected = loans.judge(&call, now, is_prioritized.then_some(patience));
                    let found = match bench.sentinel.try_enter(asked) {
                        Verdict::Pass(_) => {
                            loans.naive.passed.push((now, call));
                            Told::Pass
                        }
                        Verdict::Wait(its) => {
                            let at = its.start().as_nanos();
                            loans.naive.passed.push((at, call));
                            waiting.push((call, its));
                            Told::Wait(at)
                        }
                        Verdict::Block(_) => Told::Block,
                        other => panic!("{other:?}"),
                    };
                    prop_assert_eq!(found, expected, "{:?} at {}", call, now);
                }
                Op::Admit(index) if !waiting.is_empty() => {
                    let (call, its) = waiting.swap_remove(index % waiting.len());
                    let start = its.start().as_nanos();
                    match its.admit() {
                        Ok(_) => prop_assert!(start <= now),
                        Err(NotAdmitted::TooEarly(its)) => {
                            prop_assert!(start > now);
                            waiting.push((call, its));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                // What is given back later may be spent.
                Op::Drop(index) if !waiting.is_empty() => {
                    let index = index % waiting.len();
                    let at = waiting[index].1.start().as_nanos();
                    if at > now {
                        let (call, its) = waiting.swap_remove(index);
                        drop(its);
                        loans.give_back(at, &call);
                    }
                }
                Op::Reload(parts) => {
                    for (flow, (limit, ratio)) in loans.naive.setup.flows.iter_mut().zip(parts) {
                        (flow.limit, flow.ratio) = (limit, ratio);
                    }
                    bench.sentinel.reload(loans.rules());
                }
                Op::Admit(_) | Op::Drop(_) => {}
            }
        }
    }
}
