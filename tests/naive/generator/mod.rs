//! Rules, calls and reloads at random, and what becomes of tasks in which calls come.

mod rules;

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tower_sentinel::Builder;

use self::rules::{adaptive, cpu, keyed, limit, limits, load, ratio};
use crate::oracle::{Asks, Edit, End, Given, NS, Named, RESOURCES, Says, Step, VALUES};
use crate::support::ms;

pub(crate) use rules::{
    all_kinds, breaker, flow, keyed_queue, lenders, long_windows, mild, queues, shadows,
    whole_world, windows,
};

const ORIGINS: [&str; 3] = ["x", "y", "z"];
const CONTEXTS: [&str; 2] = ["c", "d"];

/// What happens to an engine. An index is that of a call that runs or waits.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Advance(u64),
    /// Time passes until all breakers let a call pass: an open time is over, or a lease.
    Rest,
    Call(Asks),
    End(usize, End),
    /// One that waits is asked whether it has its turn.
    Admit(usize),
    Drop(usize),
    /// Reloads one after the other, and nothing between them.
    Reload(Vec<Edit>),
    /// The machine says something else.
    Machine(Says),
    /// An operator looks at a breaker, to open or close it some time.
    View(Index),
    /// By a view, which may be of older rules.
    Force(Index, bool),
}

impl Op {
    /// The same, whose call would rather wait for tokens, and for so long at most in all,
    /// in ms.
    pub(crate) fn waiting(mut self, is_prioritized: bool, patience: Option<u64>) -> Self {
        if let Self::Call(asks) = &mut self {
            (asks.is_prioritized, asks.patience) = (is_prioritized, patience);
        }
        self
    }
}

pub(crate) fn asks() -> impl Strategy<Value = Asks> {
    let one = || select(&VALUES[..]);
    let given = prop_oneof![
        1 => Just(Given::Nothing),
        4 => one().prop_map(Given::One),
        3 => [prop::option::of(one()), prop::option::of(one())].prop_map(Given::Two),
    ];
    let scope = (
        prop::option::of(select(&ORIGINS[..])),
        prop::option::of(select(&CONTEXTS[..])),
    );
    let weight = prop_oneof![6 => Just(1_u32), 1 => 0_u32..5];
    let tier = prop::bool::weighted(0.2);
    (select(&RESOURCES[..]), scope, weight, given, tier).prop_map(
        |(resource, (origin, context), weight, given, has_tier)| Asks {
            resource,
            origin,
            context,
            weight,
            given,
            has_tier,
            is_outbound: false,
            is_prioritized: false,
            patience: None,
        },
    )
}

/// Calls of resource `a` that may wait for tokens, some only for so long.
pub(crate) fn borrowers() -> impl Strategy<Value = Asks> {
    let patience = prop::option::weighted(0.2, 0_u64..2_000);
    (asks(), prop::bool::weighted(0.6), patience).prop_map(|(asks, is_prioritized, patience)| {
        Asks {
            resource: RESOURCES[0],
            is_prioritized,
            patience,
            ..asks
        }
    })
}

/// In ns.
pub(crate) fn advance() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0_u64..60 * NS,
        1 => 0_u64..700 * NS,
        1 => (0_u64..30).prop_map(|ms| ms * 100 * NS),
    ]
}

pub(crate) fn how() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => Just(End::Good),
        4 => Just(End::Failed),
        1 => Just(End::Ignored),
        1 => Just(End::Cancelled),
    ]
}

pub(crate) fn advances() -> BoxedStrategy<Op> {
    advance().prop_map(Op::Advance).boxed()
}

pub(crate) fn ends() -> BoxedStrategy<Op> {
    let end = (any::<usize>(), how()).prop_map(|(index, end)| Op::End(index, end));
    end.boxed()
}

pub(crate) fn admits() -> BoxedStrategy<Op> {
    any::<usize>().prop_map(Op::Admit).boxed()
}

pub(crate) fn drops() -> BoxedStrategy<Op> {
    any::<usize>().prop_map(Op::Drop).boxed()
}

pub(crate) fn forces() -> BoxedStrategy<Op> {
    let force = (any::<Index>(), any::<bool>()).prop_map(|(index, opens)| Op::Force(index, opens));
    force.boxed()
}

/// Time, and calls that come and end.
pub(crate) fn op(asks: impl Strategy<Value = Asks> + 'static) -> BoxedStrategy<Op> {
    prop_oneof![4 => advances(), 8 => asks.prop_map(Op::Call), 5 => ends()].boxed()
}

/// The same, where calls may wait.
pub(crate) fn wait_op() -> BoxedStrategy<Op> {
    prop_oneof![12 => op(asks()), 4 => admits(), 1 => drops()].boxed()
}

// === reloads ===

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

// === tasks ===

/// A call, and what becomes of its task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) asks: Asks,
    pub(crate) way: Way,
    /// How long its future is not polled that a layer has made, in ms.
    pub(crate) pause: Option<u64>,
    /// How long it runs, in ms, and how it ends.
    pub(crate) work: u64,
    pub(crate) end: End,
    /// How long its response has a body, in ms.
    pub(crate) body: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Enter,
    CallLayer,
    SentinelLayer,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskOp {
    Call(Asked),
    /// All that is ready runs.
    Yield,
    /// Time passes, and each timer fires at its own.
    Sleep(u64),
    /// Time passes at once: timers fire late.
    Jump(u64),
    /// The task of a call is aborted, wherever it is.
    Abort(usize),
    Reload(Index),
    /// The next service that gets ready fails.
    Break,
}

pub(crate) fn asked() -> impl Strategy<Value = Asked> {
    let way = select(&[Way::Enter, Way::CallLayer, Way::SentinelLayer][..]);
    let ending = select(&[End::Good, End::Failed, End::Ignored, End::Cancelled][..]);
    let patience = prop::option::weighted(0.3, 0_u64..2_000);
    let pause = prop::option::weighted(0.2, 0_u64..300);
    let work = prop_oneof![1 => Just(0_u64), 3 => 0_u64..400, 1 => 0_u64..2_000];
    (asks(), any::<bool>(), patience, way, pause, work, ending).prop_map(
        |(mut asks, is_prioritized, patience, way, pause, work, end)| {
            // A layer names all parameters.
            asks.given = Given::Two(asks.values());
            (asks.is_prioritized, asks.patience) = (is_prioritized, patience);
            Asked {
                asks,
                way,
                pause,
                work,
                end: match end {
                    End::Ignored | End::Cancelled if way != Way::Enter => End::Good,
                    end => end,
                },
                body: None,
            }
        },
    )
}

/// The same, with bodies that go on after the head of the response.
fn streaming() -> impl Strategy<Value = Asked> {
    (asked(), 0_u64..600).prop_map(|(asked, body)| Asked {
        way: Way::SentinelLayer,
        end: match asked.end {
            End::Failed => End::Failed,
            _ => End::Good,
        },
        body: Some(body),
        ..asked
    })
}

/// `body`: whether some calls have one.
pub(crate) fn task_op(body: bool) -> impl Strategy<Value = TaskOp> {
    let call = if body {
        prop_oneof![3 => asked(), 1 => streaming()].boxed()
    } else {
        asked().boxed()
    };
    prop_oneof![
        12 => call.prop_map(TaskOp::Call),
        5 => Just(TaskOp::Yield),
        5 => advance().prop_map(TaskOp::Sleep),
        1 => advance().prop_map(TaskOp::Jump),
        2 => any::<usize>().prop_map(TaskOp::Abort),
        1 => any::<Index>().prop_map(TaskOp::Reload),
        1 => Just(TaskOp::Break),
    ]
}

/// How an engine is built whose calls come in tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// In ms.
    pub(crate) max_wait: u64,
    /// What has nodes of its own.
    has_origins: bool,
    has_contexts: bool,
}

impl Manner {
    pub(crate) fn configure(self, builder: Builder) -> Builder {
        builder
            .occupy_timeout(ms(self.max_wait.max(1)))
            .origins(self.has_origins)
            .contexts(self.has_contexts)
    }
}

pub(crate) fn manner() -> impl Strategy<Value = Manner> {
    let nodes = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (0_u64..3_000, nodes).prop_map(|(max_wait, (has_origins, has_contexts))| Manner {
        max_wait,
        has_origins,
        has_contexts,
    })
}
