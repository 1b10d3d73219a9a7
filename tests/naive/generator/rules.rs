//! Rules of each kind, and sets of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::MissingKey;
use tower_sentinel::system::Capacity;

use super::{CONTEXTS, ORIGINS};
use crate::oracle::{
    Adaptive, Breaker, Count, Flow, Keyed, Limit, Limits, Of, RESOURCES, RuleSet, UNLIMITED,
    VALUES, Whose, named,
};

pub(super) fn ratio() -> impl Strategy<Value = f64> {
    let part = select(&[0.1, 0.25, 0.5, 0.75][..]);
    prop_oneof![2 => Just(1.0), 1 => part]
}

fn missing() -> impl Strategy<Value = MissingKey> {
    select(&[MissingKey::Share, MissingKey::Skip, MissingKey::Refuse][..])
}

pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    let whose = prop_oneof![
        3 => Just(Whose::All),
        3 => missing().prop_map(Whose::Each),
        2 => select(&ORIGINS[..]).prop_map(Whose::Origin),
        1 => Just(Whose::OtherOrigins),
        2 => select(&CONTEXTS[..]).prop_map(Whose::Context),
        2 => Just(Whose::Related("b")),
    ];
    const WINDOWS: [(u64, u64); 7] = [
        (2, 500),
        (2, 50),
        (1, 1_000),
        (10, 100),
        (5, 200),
        (4, 500),
        (3, 7),
    ];
    let kind = (0..4, 0..6);
    let of = (select(&RESOURCES[..]), whose);
    (of, 0_u32..8, select(&WINDOWS[..]), kind, ratio()).prop_map(
        |((resource, whose), limit, (buckets, bucket), (strict, queue), ratio)| {
            let mut flow = Flow {
                resource,
                whose,
                limit,
                buckets,
                bucket,
                is_strict: false,
                queue: None,
                ratio,
                lend: None,
            };
            if flow.is_table() {
                flow.buckets = 2;
                return flow;
            }
            flow.is_strict = strict == 0 && queue != 0;
            flow.queue = (queue == 0 && !flow.is_related()).then_some(0);
            flow
        },
    )
}

/// Half tokens of a value or a tier, below `most` if there is a limit.
fn own(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![5 => 0..most, 1 => Just(UNLIMITED)]
}

pub(super) fn keyed() -> impl Strategy<Value = Keyed> {
    let of = prop_oneof![
        4 => select(&[0, 0, 1, -1][..]).prop_map(Of::At),
        1 => Just(Of::Named),
        1 => Just(Of::Origin),
    ];
    let count = prop_oneof![
        2 => Just(Count::Refill),
        1 => Just(Count::Window),
        1 => Just(Count::Queue(0)),
        1 => Just(Count::Running),
    ];
    let missing = prop_oneof![1 => Just(MissingKey::Share), 3 => missing()];
    let interval = select(&[10_u64, 300, 1_000, 7, 2_000][..]);
    let exception = prop::option::weighted(0.3, (select(&VALUES[..]), own(9)));
    let tier = prop::option::weighted(0.3, own(14));
    let whose = (select(&RESOURCES[..]), of, missing);
    let quota = (0_u32..12, interval, 0_u32..4);
    (whose, count, quota, exception, tier).prop_map(
        |((resource, of, missing), count, (halves, interval, burst), exception, tier)| Keyed {
            resource,
            of,
            count,
            halves,
            interval,
            burst: if count == Count::Refill { burst } else { 0 },
            exception,
            tier,
            missing,
            keys: 16,
        },
    )
}

/// Queues of resource `a`, some with another quota for one value.
pub(crate) fn keyed_queue() -> impl Strategy<Value = Keyed> {
    let interval = select(&[10_u64, 300, 1_000][..]);
    let quota = (0_u32..12, prop::option::weighted(0.3, 0_u32..9));
    let keys = select(&[16_u32, 24][..]);
    (quota, 0_u64..4_000, interval, keys).prop_map(|((halves, own), max_wait, interval, keys)| {
        Keyed {
            resource: RESOURCES[0],
            of: Of::At(0),
            count: Count::Queue(max_wait),
            halves,
            interval,
            burst: 0,
            exception: own.map(|halves| (VALUES[0], halves)),
            tier: None,
            missing: MissingKey::Share,
            keys,
        }
    })
}

pub(crate) fn breaker() -> impl Strategy<Value = Breaker> {
    let ratio = select(&[(1, 10), (1, 4), (1, 3), (1, 2), (2, 3), (9, 10), (1, 1)][..]);
    let ratio = || ratio.clone().prop_map(|(bad, all)| Limit::Ratio(bad, all));
    let bad = prop_oneof![
        (0_u64..900, ratio()).prop_map(|(slow, limit)| (Some(slow), limit)),
        ratio().prop_map(|limit| (None, limit)),
        (1_usize..4).prop_map(|count| (None, Limit::Count(count))),
        (1_usize..4).prop_map(|count| (None, Limit::Consecutive(count))),
    ];
    let window = select(&[(1_000, 1), (1_000, 10), (100, 4), (3_000, 5), (20, 2)][..]);
    let calls = (1_usize..4, 1_u32..4, prop::bool::weighted(0.2));
    // More than are asked for, as that may have to be exceeded.
    let last_calls = prop::option::weighted(0.25, 4_usize..8);
    let open_for = prop_oneof![3 => 1_u64..800, 1 => 1_500_u64..9_000];
    let growth = prop::option::weighted(0.4, 0_u64..2_000);
    let open = (open_for, growth);
    (
        select(&RESOURCES[..]),
        bad,
        calls,
        open,
        (window, last_calls),
    )
        .prop_map(
            |(
                resource,
                (slow, limit),
                (min_calls, probes, exceeds),
                (open_for, growth),
                window,
            )| {
                let ((interval, buckets), last_calls) = window;
                Breaker {
                    resource,
                    slow,
                    limit,
                    exceeds,
                    min_calls,
                    last_calls,
                    open_for,
                    open_up_to: growth.map(|growth| open_for + growth),
                    interval,
                    buckets,
                    probes,
                }
            },
        )
}

pub(super) fn load() -> impl Strategy<Value = f64> {
    select(&[0.0, 1.0, 2.5, 4.0][..])
}

pub(super) fn cpu() -> impl Strategy<Value = f64> {
    select(&[0.25, 0.5, 0.9, 1.0][..])
}

pub(super) fn limits() -> impl Strategy<Value = Limits> {
    let capacity = select(&[Capacity::Robust, Capacity::Sentinel][..]);
    let limit = |weight| prop::option::weighted(weight, 0_u32..16);
    let rt = prop::option::weighted(0.3, 1_u64..600_000);
    let load = prop::option::weighted(0.4, load());
    let cpu = prop::option::weighted(0.3, cpu());
    let all = (limit(0.4), limit(0.4), rt, load, capacity, cpu);
    all.prop_map(|(halves, concurrency, rt, load, capacity, cpu)| Limits {
        halves: halves.map(|halves| 2 * halves + halves % 2),
        concurrency: concurrency.map(|most| most.min(8)),
        rt,
        load,
        capacity,
        cpu,
    })
    .prop_filter("limits something", |limits| !limits.is_empty())
}

pub(super) fn adaptive() -> impl Strategy<Value = Adaptive> {
    (1_u32..5, 0_u32..8, 0_u32..9).prop_map(|(floor, more, start)| Adaptive {
        floor,
        ceiling: floor + more,
        start: start.clamp(floor, floor + more),
    })
}

/// Rules that need no more than windows and counts of calls.
pub(crate) fn windows() -> impl Strategy<Value = RuleSet> {
    let isolation = prop::option::of((select(&RESOURCES[..]), 0_u32..4));
    let denied = prop::option::weighted(0.2, (select(&RESOURCES[..]), select(&ORIGINS[..])));
    (vec(flow(), 0..6), isolation, denied).prop_map(|(flows, isolation, denied)| RuleSet {
        flows,
        isolation,
        denied,
        ..RuleSet::default()
    })
}

/// The same with one window on "a" that is far longer than the others, and so counts in a ring of
/// its own.
pub(crate) fn long_windows() -> impl Strategy<Value = RuleSet> {
    let isolation = prop::option::weighted(0.3, (Just("a"), 0_u32..4));
    let long = (1_u32..8, any::<bool>());
    (vec(flow(), 0..3), isolation, long).prop_map(|(mut flows, isolation, (limit, is_strict))| {
        flows.push(Flow {
            resource: "a",
            whose: Whose::All,
            limit,
            buckets: 2,
            bucket: 100_000,
            is_strict,
            queue: None,
            ratio: 1.0,
            lend: None,
        });
        RuleSet {
            flows,
            isolation,
            ..RuleSet::default()
        }
    })
}

/// Rules of all kinds on one resource each.
pub(crate) fn all_kinds() -> impl Strategy<Value = RuleSet> {
    let others = (vec(keyed(), 0..4), vec(breaker(), 0..3));
    (windows(), others).prop_map(|(mut rules, (keyed, breakers))| {
        rules.keyed = named(keyed, 0);
        rules.breakers = named(breakers, 0);
        rules.keep_two_at_once();
        rules
    })
}

/// Rules that make more calls wait than they refuse.
pub(crate) fn mild() -> impl Strategy<Value = RuleSet> {
    all_kinds().prop_map(|mut rules| {
        for (index, flow) in rules.flows.iter_mut().enumerate() {
            flow.limit = flow.limit.max(2);
            if index % 2 == 0 && !flow.is_related() {
                flow.is_strict = false;
                flow.queue = (!flow.is_table()).then_some(0);
            }
        }
        rules.denied = None;
        rules.isolation = rules
            .isolation
            .map(|(resource, most)| (resource, most.max(1)));
        rules.keyed.truncate(1);
        rules
    })
}

/// The same with limits on all inbound calls, and such as find themselves.
pub(crate) fn whole_world() -> impl Strategy<Value = RuleSet> {
    let adaptives = prop::collection::btree_map(select(&RESOURCES[..]), adaptive(), 0..3);
    (all_kinds(), vec(limits(), 0..3), adaptives).prop_map(|(mut rules, limits, adaptives)| {
        (rules.limits, rules.adaptives) = (limits, adaptives);
        rules
    })
}

/// Nothing but queues, and what counts calls that run.
pub(crate) fn queues() -> impl Strategy<Value = RuleSet> {
    let found = prop::option::weighted(0.3, (select(&RESOURCES[..]), 1_u32..4));
    let limits = prop_oneof![2 => Just(Vec::new()), 1 => vec(limits(), 1..3)];
    let rules = prop_oneof![all_kinds(), mild()];
    (rules, limits, found).prop_map(|(mut rules, limits, found)| {
        rules.flows.retain(|flow| !flow.is_related());
        for flow in &mut rules.flows {
            flow.is_strict = false;
            if flow.is_table() {
                flow.whose = Whose::OtherOrigins;
            }
            flow.queue = Some(0);
        }
        for keyed in &mut rules.keyed {
            if keyed.count != Count::Running {
                keyed.rule.count = Count::Queue(0);
            }
        }
        rules.limits = limits;
        // Where a limit may only be, it is as good as a fixed one.
        let fixed = |most| Adaptive {
            floor: most,
            ceiling: most,
            start: most,
        };
        let found = found.into_iter();
        rules.adaptives = found
            .map(|(resource, most)| (resource, fixed(most)))
            .collect();
        rules
    })
}

/// Rules of all kinds to stand beside others in shadow mode, each of them alone: who the
/// others are, all rules of a set say together.
pub(crate) fn shadows() -> impl Strategy<Value = RuleSet> {
    let flow = flow().prop_filter("stands alone", |flow| flow.whose != Whose::OtherOrigins);
    let isolation = prop::option::weighted(0.3, (select(&RESOURCES[..]), 0_u32..4));
    let limits = limits().prop_filter_map("knows no machine", Limits::without_machine);
    let others = (vec(keyed(), 0..3), vec(breaker(), 0..2));
    (vec(flow, 0..3), isolation, others, vec(limits, 0..2)).prop_map(
        |(flows, isolation, (keyed, breakers), limits)| {
            let mut rules = RuleSet {
                first: 100,
                flows,
                isolation,
                keyed: named(keyed, 100),
                breakers: named(breakers, 100),
                limits,
                ..RuleSet::default()
            };
            rules.keep_two_at_once();
            rules
        },
    )
}

pub(super) fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![1 => 0_u32..8, 2 => 4_u32..24]
}

/// Windows of resource `a`, some of which lend.
pub(crate) fn lenders() -> impl Strategy<Value = RuleSet> {
    let lend = select(&[None, None, None, Some(false), Some(true), Some(true)][..]);
    let of_all = prop::bool::weighted(0.5);
    let lender = (flow(), limit(), 0..4, lend, of_all);
    let lender = lender.prop_map(|(flow, limit, strict, lend, of_all)| Flow {
        resource: RESOURCES[0],
        whose: match flow.whose {
            _ if of_all || flow.is_related() => Whose::All,
            // A table does not lend.
            Whose::Each(_) => Whose::OtherOrigins,
            whose => whose,
        },
        limit,
        is_strict: strict == 0,
        queue: None,
        lend,
        ..flow
    });
    vec(lender, 1..5).prop_map(|flows| RuleSet {
        flows,
        ..RuleSet::default()
    })
}
