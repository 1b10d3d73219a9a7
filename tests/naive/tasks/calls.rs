//! Calls that come in tasks, and what happens to these, at random.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tower_sentinel::{Builder, Call, Sentinel, Verdict};

use crate::generator::{advance, asks};
use crate::oracle::{Asks, End, Given, RESOURCES};
use crate::support::ms;

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

/// Both resources are known, and nothing is counted.
pub(crate) fn touch(sentinel: &Sentinel) {
    for resource in RESOURCES {
        if let Verdict::Pass(entry) = sentinel.try_enter(Call::new(resource).batch(0)) {
            entry.cancel();
        }
    }
}
