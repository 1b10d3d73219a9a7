//! Rules and calls at random.

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{AuthorityRule, Call, FlowRule, IsolationRule, MissingKey, Rules};

use crate::support::ms;

pub(crate) const NS: u64 = 1_000_000;
/// When the engines begin, in ms: as a bench does.
pub(crate) const BEGIN: u64 = 10_000;
pub(crate) const RESOURCES: [&str; 2] = ["a", "b"];
const ORIGINS: [&str; 3] = ["x", "y", "z"];
const CONTEXTS: [&str; 2] = ["c", "d"];

/// Whose calls a rule counts, and limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Whose {
    All,
    /// Of each origin, in a table.
    Each(MissingKey),
    Origin(&'static str),
    OtherOrigins,
    Context(&'static str),
    /// It counts those of another resource.
    Related(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) resource: &'static str,
    pub(crate) whose: Whose,
    pub(crate) limit: u32,
    /// In ms, each.
    pub(crate) buckets: u64,
    pub(crate) bucket: u64,
    pub(crate) is_strict: bool,
    /// One call after the other, which may wait for so long, in ms.
    pub(crate) queue: Option<u64>,
    /// Of what leaves its window, so much may be lent.
    pub(crate) ratio: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) flows: Vec<Flow>,
    pub(crate) isolation: Option<(&'static str, u32)>,
    pub(crate) denied: Option<(&'static str, &'static str)>,
}

impl Flow {
    pub(crate) fn rule(&self, index: usize) -> FlowRule {
        let interval = ms(self.buckets * self.bucket);
        let mut rule = FlowRule::per(self.resource, self.limit, interval)
            .buckets(self.buckets as u32)
            .max_occupy_ratio(self.ratio)
            .id(index.to_string());
        if self.is_strict {
            rule = rule.strict();
        }
        if let Some(max_wait) = self.queue {
            rule = rule.throttle(ms(max_wait));
        }
        match self.whose {
            Whose::All => rule,
            Whose::Each(missing) => rule.by_origin().missing(missing),
            Whose::Origin(origin) => rule.for_origin(origin),
            Whose::OtherOrigins => rule.for_origin("other"),
            Whose::Context(context) => rule.in_context(context),
            Whose::Related(related) => rule.when(related),
        }
    }

    pub(crate) fn misses_key(&self, call: &Asks) -> bool {
        matches!(self.whose, Whose::Each(MissingKey::Refuse)) && call.origin.is_none()
    }

    /// Whether it keeps a few bytes for each origin, and so counts a call when it comes.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.whose, Whose::Each(_))
    }

    /// What it costs a call of weight `n` in its queue, in ns.
    pub(crate) fn cost(&self, n: u32) -> Option<u64> {
        let interval = u128::from(self.buckets * self.bucket * NS) * u128::from(n);
        (self.limit > 0).then(|| interval.div_ceil(self.limit.into()) as u64)
    }

    /// The length of a bucket, in ns, and how many of them are counted together.
    pub(crate) fn window(&self) -> (u64, u64) {
        let counted = self.buckets + u64::from(self.is_strict);
        (self.bucket * NS, counted)
    }

    /// Whether the window that ends with `bucket` has room for `n` more, beside all that
    /// passed in it or later.
    pub(crate) fn fits(&self, bucket: u64, n: u32, passed: &[(u64, u32)]) -> bool {
        let (length, counted) = self.window();
        let inside = |at: u64| at / length + counted > bucket;
        let inside = passed.iter().filter(|(at, _)| inside(*at));
        inside.map(|(_, n)| n).sum::<u32>() + n <= self.limit
    }

    /// From when on a window has room for `n` more, in ns, of what passed at which
    /// time; `None`: never.
    pub(crate) fn available_at(&self, now: u64, n: u32, passed: &[(u64, u32)]) -> Option<u64> {
        let (length, counted) = self.window();
        let first = now / length;
        let mut buckets = first..=first + counted;
        let bucket = buckets.find(|bucket| self.fits(*bucket, n, passed))?;
        Some(now.max(bucket * length))
    }
}

impl Setup {
    pub(crate) const NONE: Self = Self {
        flows: Vec::new(),
        isolation: None,
        denied: None,
    };

    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Rules::new();
        for (index, flow) in self.flows.iter().enumerate() {
            rules = rules.with(flow.rule(index));
        }
        if let Some((resource, most)) = self.isolation {
            rules = rules.with(IsolationRule::new(resource, most).id("isolation"));
        }
        if let Some((resource, origin)) = self.denied {
            rules = rules.with(AuthorityRule::deny(resource, [origin]).id("authority"));
        }
        rules
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) resource: &'static str,
    pub(crate) origin: Option<&'static str>,
    pub(crate) context: Option<&'static str>,
    pub(crate) n: u32,
}

impl Asks {
    pub(crate) fn asked(&self) -> Call<'static> {
        let mut asked = Call::new(self.resource).batch(self.n);
        if let Some(origin) = self.origin {
            asked = asked.origin(origin);
        }
        if let Some(context) = self.context {
            asked = asked.context(context);
        }
        asked
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Advance(u64),
    Call(Asks),
    /// One of those that run.
    End(usize),
}

pub(crate) fn ratio() -> impl Strategy<Value = f64> {
    let part = select(&[0.1, 0.25, 0.5, 0.75][..]);
    prop_oneof![2 => Just(1.0), 1 => part]
}

pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    let missing = select(&[MissingKey::Share, MissingKey::Skip, MissingKey::Refuse][..]);
    let whose = prop_oneof![
        3 => Just(Whose::All),
        3 => missing.prop_map(Whose::Each),
        2 => select(&ORIGINS[..]).prop_map(Whose::Origin),
        1 => Just(Whose::OtherOrigins),
        2 => select(&CONTEXTS[..]).prop_map(Whose::Context),
        2 => Just(Whose::Related("b")),
    ];
    let window = select(
        &[
            (2, 500),
            (2, 50),
            (1, 1_000),
            (10, 100),
            (5, 200),
            (4, 500),
            (3, 7),
        ][..],
    );
    let kind = (0..4, 0..6);
    let of = (select(&RESOURCES[..]), whose);
    (of, 0_u32..8, window, kind, ratio()).prop_map(
        |((resource, whose), limit, (buckets, bucket), (strict, queue), ratio)| {
            let is_table = matches!(whose, Whose::Each(_));
            let may_queue = !is_table && !matches!(whose, Whose::Related(_));
            Flow {
                resource,
                whose,
                limit,
                buckets: if is_table { 2 } else { buckets },
                bucket,
                is_strict: strict == 0 && queue != 0 && !is_table,
                queue: (queue == 0 && may_queue).then_some(0),
                ratio,
            }
        },
    )
}

pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    let isolation = prop::option::of((select(&RESOURCES[..]), 0_u32..4));
    let denied = prop::option::weighted(0.2, (select(&RESOURCES[..]), select(&ORIGINS[..])));
    (prop::collection::vec(flow(), 0..6), isolation, denied).prop_map(
        |(flows, isolation, denied)| Setup {
            flows,
            isolation,
            denied,
        },
    )
}

pub(crate) fn asks() -> impl Strategy<Value = Asks> {
    let origin = prop::option::of(select(&ORIGINS[..]));
    let context = prop::option::of(select(&CONTEXTS[..]));
    let weight = prop_oneof![6 => Just(1_u32), 1 => 0_u32..5];
    let call = (select(&RESOURCES[..]), origin, context, weight);
    call.prop_map(|(resource, origin, context, n)| Asks {
        resource,
        origin,
        context,
        n,
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

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => advance().prop_map(Op::Advance),
        8 => asks().prop_map(Op::Call),
        5 => any::<usize>().prop_map(Op::End),
    ]
}
