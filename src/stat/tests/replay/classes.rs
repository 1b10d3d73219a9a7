//! Classes of recorded answers: which of them our answers must equal, and which may differ and why.

use serde_json::Value;

use super::holds::{
    clock_runs_back, half_open_past, has_collection, is_as_long, is_at_most_ours,
    is_before_the_only_one, is_cautious, is_detail, is_huge, is_long, is_low, is_near,
    is_near_in_queue, is_nearly_its_turn, is_queue, is_quirk, is_refilled,
    is_refilled_all_the_time, is_store, is_weighted_average, is_weighted_in_another_interval,
    is_weighted_thread,
};
use super::{Case, Step};

/// One recorded answer, the answer of this crate, and the context of both.
pub(crate) struct Answer<'a> {
    pub(crate) case: &'a Case,
    /// The index of the answer's step in the case.
    pub(crate) step: usize,
    /// The name of this part of the step's answer.
    pub(crate) field: &'a str,
    pub(crate) recorded: &'a Value,
    pub(crate) ours: &'a Value,
    /// Our complete answers to the steps up to this one.
    pub(crate) answers: &'a [Value],
    /// Whether all our answers to earlier steps of the case equal the recorded ones.
    pub(crate) same_so_far: bool,
    /// Whether the result of any call of the case so far (passed, waited or refused) differs from
    /// the record.
    pub(crate) has_flipped: bool,
}

/// The condition that our answers of a class must meet.
pub(crate) enum Verdict {
    /// Our answer must equal the recorded one.
    Exact,
    /// Our answer must equal the recorded one, or the function must accept it.
    Bounded(fn(&Answer<'_>) -> bool),
    /// The function must accept our answer, even if it equals the recorded one.
    Always(fn(&Answer<'_>) -> bool),
    /// The number of calls that pass in each second may differ from the record by at most one call
    /// or 5 %.
    Rate,
    /// No condition: the answers are only listed and counted.
    Listed,
}

/// As long as all earlier answers of the case are equal, no call may pass that the record refuses,
/// and no call may pass earlier than in the record.
const CAUTIOUS: Verdict = Verdict::Bounded(is_cautious);

/// A class of answers. An answer belongs to the first class whose `holds` returns true for it.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) holds: fn(&Answer<'_>) -> bool,
    /// The number of answers in the vectors of this repository that belong to the class.
    pub(crate) answers: usize,
    /// The number of our answers in the class that differ from the recorded ones.
    pub(crate) differing: usize,
}

/// A class of answers that may differ in any way.
const fn listed(
    name: &'static str,
    holds: fn(&Answer<'_>) -> bool,
    (answers, differing): (usize, usize),
) -> Class {
    Class {
        name,
        verdict: Verdict::Listed,
        holds,
        answers,
        differing,
    }
}

/// A class of answers that may differ only on the side of refusing.
const fn cautious(
    name: &'static str,
    holds: fn(&Answer<'_>) -> bool,
    (answers, differing): (usize, usize),
) -> Class {
    Class {
        name,
        verdict: CAUTIOUS,
        holds,
        answers,
        differing,
    }
}

/// The last class, of all answers that must be equal.
const fn exact(answers: usize) -> Class {
    Class {
        name: "the recorded answer",
        verdict: Verdict::Exact,
        holds: |_| true,
        answers,
        differing: 0,
    }
}

pub(crate) const LEAP_ARRAY: &[Class] = &[
    listed(LATE, clock_runs_back, (374, 103)),
    listed(QUIRK, is_quirk, (15, 10)),
    listed(DETAIL, is_detail, (22, 15)),
    listed(
        "the bucket before the only one",
        is_before_the_only_one,
        (138, 81),
    ),
    listed("counts beyond 2³²", is_huge, (8, 8)),
    exact(3_727),
];

pub(crate) const OCCUPY: &[Class] = &[
    cautious(LATE, clock_runs_back, (34, 4)),
    cautious(QUIRK, is_quirk, (2_994, 187)),
    cautious(DETAIL, is_detail, (35, 8)),
    exact(1_463),
];

pub(crate) const FLOW_REJECT: &[Class] = &[
    cautious(LATE, clock_runs_back, (34, 3)),
    listed(
        "a call holds one slot, whatever its weight",
        is_weighted_thread,
        (991, 180),
    ),
    cautious(QUIRK, is_quirk, (505, 59)),
    listed(
        "tokens are compared with tokens, not with whole ones per second",
        is_weighted_in_another_interval,
        (442, 13),
    ),
    exact(2_623),
];

pub(crate) const FLOW_THROTTLING: &[Class] = &[
    listed(LATE, clock_runs_back, (30, 7)),
    listed(QUIRK, is_quirk, (2, 2)),
    Class {
        name: "who is just in time, or just too late, may differ",
        verdict: Verdict::Rate,
        holds: |answer| answer.field == "result",
        answers: 2_823,
        differing: 24,
    },
    listed(
        "waits in a queue in which one more or less stands",
        |answer| answer.has_flipped,
        (55, 54),
    ),
    Class {
        name: "turns are rounded once, to the next nanosecond",
        verdict: Verdict::Bounded(is_near_in_queue),
        holds: |_| true,
        answers: 805,
        differing: 166,
    },
];

pub(crate) const FLOW_WARM_UP: &[Class] = &[
    listed(LATE, clock_runs_back, (12, 5)),
    listed(QUIRK, is_quirk, (569, 412)),
    listed(STORE, is_store, (3_195, 3_195)),
    listed(
        "a ramp of few tokens, which the record cuts to whole ones",
        is_low,
        (587, 10),
    ),
    Class {
        name: "tokens are not cut to whole ones",
        verdict: Verdict::Bounded(is_near),
        holds: |_| true,
        answers: 2_864,
        differing: 10,
    },
];

pub(crate) const FLOW_WARM_UP_THROTTLING: &[Class] = &[
    listed(QUIRK, is_quirk, (7, 7)),
    listed(STORE, is_store, (3_594, 3_594)),
    listed(
        "waits are as long as the ramp is steep",
        |answer| answer.field == "wait_ms",
        (810, 247),
    ),
    listed(
        "a ramp of few tokens, which the record cuts to whole ones",
        is_low,
        (1_149, 39),
    ),
    listed(
        "calls count from the beginning of the bucket of their turn",
        |answer| answer.op() == "read",
        (216, 82),
    ),
    Class {
        name: "tokens and turns are not cut to whole ones",
        verdict: Verdict::Rate,
        holds: |_| true,
        answers: 2_399,
        differing: 45,
    },
];

const STORE: &str = "the tokens in store are told to nobody";

pub(crate) const STATISTIC_NODE: &[Class] = &[
    listed(LATE, clock_runs_back, (245, 10)),
    listed(QUIRK, is_quirk, (211, 40)),
    listed("response times count up to one minute", is_long, (96, 50)),
    Class {
        name: "averages are over calls, recorded ones over weights",
        verdict: Verdict::Bounded(is_at_most_ours),
        holds: is_weighted_average,
        answers: 875,
        differing: 154,
    },
    exact(14_330),
];

pub(crate) const CIRCUIT_BREAKER: &[Class] = &[
    listed(LATE, clock_runs_back, (26, 7)),
    listed(
        "a call from before a change of state decides nothing and counts nowhere",
        |answer| half_open_past(answer).has_old_call,
        (1_109, 54),
    ),
    listed(
        "a probe that does not end has its place for a time only",
        |answer| half_open_past(answer).has_outlived,
        (44, 10),
    ),
    exact(5_343),
];

pub(crate) const STACK: &[Class] = &[
    listed(
        "the checks have another order",
        |answer| answer.field == "kind" && answer.case.has_tag("any_kind"),
        (698, 22),
    ),
    Class {
        name: "waits are recorded to a microsecond",
        verdict: Verdict::Bounded(is_as_long),
        holds: |answer| answer.field == "waited_ns",
        answers: 383,
        differing: 0,
    },
    exact(18_040),
];

pub(crate) const SYSTEM: &[Class] = &[
    listed(QUIRK, is_quirk, (36, 7)),
    Class {
        name: "averages are over calls, recorded ones over weights",
        verdict: Verdict::Bounded(is_at_most_ours),
        holds: is_weighted_average,
        answers: 106,
        differing: 10,
    },
    exact(3_137),
];

pub(crate) const KEYED: &[Class] = &[
    cautious(LATE, clock_runs_back, (5, 0)),
    cautious(DETAIL, is_detail, (37, 4)),
    cautious(
        "each element of a collection is a call of its own",
        has_collection,
        (17, 3),
    ),
    Class {
        name: "a quota is refilled all the time, and never in one lump",
        verdict: Verdict::Always(is_refilled_all_the_time),
        holds: is_refilled,
        answers: 1_501,
        differing: 65,
    },
    Class {
        name: "who is just in time may wait for less than a millisecond",
        verdict: Verdict::Bounded(is_nearly_its_turn),
        holds: |answer| is_queue(answer) && answer.field == "result",
        answers: 947,
        differing: 1,
    },
    Class {
        name: "turns are rounded once, to the next nanosecond",
        verdict: Verdict::Bounded(is_near_in_queue),
        holds: is_queue,
        answers: 188,
        differing: 14,
    },
    exact(369),
];

const LATE: &str = "late readings count in the newest bucket";
const QUIRK: &str = "tagged as a quirk of the recorded implementation";
const DETAIL: &str = "tagged as a detail of the recorded implementation";

// === impl Answer ===

impl Answer<'_> {
    pub(super) fn op(&self) -> &str {
        &self.case.steps[self.step].op
    }

    /// The steps up to this one.
    pub(super) fn so_far(&self) -> impl Iterator<Item = &Step> {
        self.case.steps[..=self.step].iter()
    }
}
