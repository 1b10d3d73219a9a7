//! What reloads change, and what the machine says.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::Op;
use super::rules::{adaptive, breaker, cpu, keyed, limit, limits, load, ratio};
use crate::oracle::{Edit, Named, Says, Step};

fn id() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.7, 0_usize..4)
}

fn step<T: Clone + Debug + 'static>(rule: BoxedStrategy<T>) -> impl Strategy<Value = Step<T>> {
    let mask = prop_oneof![
        4 => (0_u8..6).prop_map(|bit| 1 << bit),
        1 => any::<u8>(),
    ];
    let add = (rule.clone(), id()).prop_map(|(rule, id)| Step::Add(Named { rule, id }));
    let blend = (any::<Index>(), rule, mask);
    prop_oneof![
        6 => blend.prop_map(|(index, rule, mask)| Step::Blend(index, rule, mask)),
        2 => add,
        1 => any::<Index>().prop_map(Step::Remove),
        2 => (any::<Index>(), id()).prop_map(|(index, id)| Step::Rename(index, id)),
        1 => any::<Index>().prop_map(Step::Turn),
        1 => Just(Step::Clear),
    ]
}

/// At most so many steps for rules on parameters, and for breakers.
pub(crate) fn edit(most_keyed: usize, most_breakers: usize) -> impl Strategy<Value = Edit> {
    let keyed = vec(step(keyed().boxed()), 0..=most_keyed);
    let breakers = vec(step(breaker().boxed()), 0..=most_breakers);
    (keyed, breakers).prop_map(|(keyed, breakers)| Edit {
        keyed,
        breakers,
        ..Edit::default()
    })
}

/// Other limits of windows, and of calls at once.
pub(crate) fn other_limits() -> impl Strategy<Value = Edit> {
    vec(0_u32..8, 6).prop_map(|limits| Edit {
        isolation: Some(limits[5]),
        flows: limits.into_iter().map(|limit| (limit, None)).collect(),
        ..Edit::default()
    })
}

/// Other limits of windows, and other parts that they lend.
pub(crate) fn other_parts() -> impl Strategy<Value = Edit> {
    let flow = (limit(), ratio().prop_map(Some));
    vec(flow, 4).prop_map(|flows| Edit {
        flows,
        ..Edit::default()
    })
}

/// Other limits on all calls, such as find themselves, and on calls at once.
pub(crate) fn other_world() -> impl Strategy<Value = Edit> {
    let limits = vec(limits(), 0..3);
    (limits, [adaptive(), adaptive()], 0_u32..5).prop_map(|(limits, adaptives, most)| Edit {
        limits: Some(limits),
        adaptives: Some(adaptives),
        isolation: Some(most),
        ..Edit::default()
    })
}

pub(crate) fn says() -> impl Strategy<Value = Says> {
    let (load, cpu) = (prop::option::of(load()), prop::option::of(cpu()));
    (load, cpu).prop_map(|(load, cpu)| Says { load, cpu })
}

pub(crate) fn reload(edit: impl Strategy<Value = Edit> + 'static) -> BoxedStrategy<Op> {
    edit.prop_map(|edit| Op::Reload(vec![edit])).boxed()
}
