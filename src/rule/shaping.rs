//! How a flow rule admits calls: at once, in a queue, with a warm-up, or fewer as memory
//! runs out.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::FlowRule;
use super::problem::{Inspector, brief};
use crate::base::number::Number;

/// Longest wait in a queue, and longest warm-up.
const DAY: Duration = Duration::from_secs(86_400);
/// Largest cold factor.
const COLDEST: f64 = 1_000.0;

/// How a flow rule shapes the flow of the calls that it admits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shaping {
    /// The longest wait in the queue; `None` if the rule counts in a window instead.
    pub(crate) max_wait: Option<Duration>,
    /// How long it takes under load until a cold rule admits its whole threshold.
    pub(crate) warm_up: Option<Duration>,
    /// The factor by which a cold rule admits less than its whole threshold.
    pub(crate) cold_factor: Option<f64>,
    /// How the threshold falls as memory runs out.
    pub(crate) memory: Option<Falling>,
}

/// A threshold that falls with memory in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Falling {
    pub(crate) marks: Marks,
    /// The lower threshold, which applies from the upper mark on.
    pub(crate) threshold: f64,
}

/// The amounts of memory in use between which a threshold falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Marks {
    /// Fractions of the memory that the process may use.
    Shares(f64, f64),
    Bytes(u64, u64),
}

impl FlowRule {
    /// Queues calls and lets them start one after the other, evenly spaced, instead of
    /// admitting as many as fit into a window: 10 per second means one every 100 ms. A call
    /// that arrives before its turn waits for it, for at most `max_wait`, and is refused if
    /// it would have to wait longer; `max_wait` is at most one day. Zero: no call waits,
    /// and a call that arrives too early is refused.
    ///
    /// Idle time earns no credit, so there are no bursts. A call of weight `n` starts `n` times the
    /// spacing after the call before it: a heavy call waits for its own cost, and does not make the
    /// next call wait for it. If a call is dropped while it waits, the next call gets its turn,
    /// unless another call is already queued behind it. So make `max_wait` shorter than the
    /// timeouts of callers, or pass each caller's timeout by
    /// [`Call::patience`](crate::Call::patience). Otherwise, under load, callers that cancel leave
    /// the queue full of turns that no call takes. Buckets and lending do not apply to such a rule.
    /// A call that also waits in another queue, or for a loan, starts at the latest of these times.
    ///
    /// If a rule with a window applies as well, a call that has to wait for its turn is counted in
    /// the bucket of its turn. If that window is full when the call arrives but has room at the
    /// turn, the call takes tokens there, prioritized or not, unless the rule with the window does
    /// not [lend](Self::lend). A rule that lends only a [part](Self::max_occupy_ratio) lends it
    /// where one of its buckets begins: a call whose turn is later in the bucket finds nothing to
    /// borrow there, and is refused.
    ///
    /// The response time of a call is measured from its start, at its turn or a little later. At
    /// most [`max_waiting`](Self::max_waiting) calls wait at once, and no call waits longer than
    /// 512 buckets of its resource. That is 256 s, or less where another rule or the
    /// [window](crate::Builder::window) has buckets that are shorter than half a second or no
    /// multiple of it: the bucket length of a resource divides the bucket lengths of all its rules.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("job", 10).throttle(Duration::from_millis(250)))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let mut waits = Vec::new();
    /// let mut waiting = Vec::new();
    /// for _ in 0..5 {
    ///     match sentinel.try_enter(Call::new("job")) {
    ///         Verdict::Pass(_) => waits.push(Some(0)),
    ///         Verdict::Wait(turn) => {
    ///             waits.push(Some(turn.delay().as_millis()));
    ///             waiting.push(turn);
    ///         }
    ///         _ => waits.push(None), // refused: 300 ms are too long
    ///     }
    /// }
    /// assert_eq!(waits, [Some(0), Some(100), Some(200), None, None]);
    /// ```
    ///
    /// # Source
    ///
    /// The rate limiter of Alibaba Sentinel, which follows the leaky bucket. There, threads sleep
    /// while they wait, and a refused call may delay other calls.
    #[doc(alias("leaky_bucket", "queue", "pace"))]
    #[must_use]
    pub fn throttle(mut self, max_wait: Duration) -> Self {
        self.shaping.max_wait = Some(max_wait);
        self
    }

    /// Makes a rule that has been idle admit less, until load has warmed it up. A cold rule admits
    /// a third of the threshold, unless [`cold_factor`](Self::cold_factor) is set, but at least one
    /// call if the threshold is 1 or more. Under load it admits more and more, and the whole
    /// threshold after about `period`, which is above 0 and at most one day. It can take twice as
    /// long if a cold rule admits only a few calls, as a window counts whole calls. When the load
    /// falls below the limit of a cold rule, the rule cools down again.
    ///
    /// With [`throttle`](Self::throttle), the spacing shrinks as the rule warms up. A queued call
    /// keeps its turn: a batch that comes all at once to a cold rule runs at the cold rate to its
    /// end, and only later calls find the rule warmer.
    ///
    /// # The curve
    ///
    /// A cold rule has stored tokens, at first `max` of them. With a threshold of `T` calls, or `q`
    /// calls per second, a period of `p` seconds and a factor `f`:
    ///
    /// ```text
    /// warm = p·q / (f − 1)      max = warm + 2·p·q / (1 + f)
    /// limit = T / (1 + (f − 1)·(stored − warm) / (max − warm))   above warm, else T
    /// ```
    ///
    /// The first call in a second updates the stored tokens. If the rule is warm, or if fewer calls
    /// passed in the previous second than a cold rule admits, the update first adds `q` for each
    /// second since the last update, up to `max`. (A cold rule admits the whole part of `T / f`,
    /// but at least one.) Then it subtracts the tokens that passed in the previous second. So
    /// bursts with a whole second of rest after each do not warm up a rule. For intervals above a
    /// second, and for rules that admit less than one call a second while cold, the tokens are
    /// updated at longer intervals.
    ///
    /// # Source
    ///
    /// The warm-up of Alibaba Sentinel, after Guava's `SmoothWarmingUp`. The original counts in
    /// whole tokens, so small thresholds get stuck at zero; this implementation does not.
    #[must_use]
    pub fn warm_up(mut self, period: Duration) -> Self {
        self.shaping.warm_up = Some(period);
        self
    }

    /// Sets the fraction of the threshold that a [cold](Self::warm_up) rule admits: one in
    /// `factor`, above 1 and at most 1000. Default 3.
    #[must_use]
    pub fn cold_factor(mut self, factor: f64) -> Self {
        self.shaping.cold_factor = Some(factor);
        self
    }

    /// Lowers the threshold as memory runs out. `marks` are fractions of the memory that the
    /// process may use: the whole threshold applies up to `marks.start`; from there it falls
    /// linearly to `threshold` at `marks.end`, and no further. The process may use memory up to the
    /// limit of its control group or, if that is less, the machine's memory. The marks rise, and
    /// are above 0 and at most 1; `threshold` is between 0 and the whole threshold.
    ///
    /// The memory in use is what the engine's [sampler](crate::Builder::sampler) reports, at most
    /// 150 ms old. While it is unknown, the whole threshold applies. The setting can be combined
    /// with [`throttle`](Self::throttle), whose spacing then grows, but not with
    /// [`warm_up`](Self::warm_up).
    ///
    /// ```
    /// use tower_sentinel::system::{ManualProbe, Memory, Sampler};
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let (probe, clock) = (ManualProbe::new(), ManualClock::new());
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("job", 100).memory(0.7..0.9, 10))
    ///     .sampler(Sampler::new(probe.clone()))
    ///     .clock(clock.clone())
    ///     .build();
    /// let admitted = |used_mib: u64| {
    ///     probe.set_memory(Memory::new(used_mib << 20, 1_000 << 20));
    ///     clock.advance(std::time::Duration::from_secs(2));
    ///     let calls = (0..200).map(|_| sentinel.try_enter(Call::new("job")));
    ///     calls.filter(|verdict| matches!(verdict, Verdict::Pass(_))).count()
    /// };
    /// assert_eq!([500, 800, 950].map(admitted), [100, 55, 10]);
    /// ```
    ///
    /// # Source
    ///
    /// The memory-adaptive rule of sentinel-golang.
    #[must_use]
    pub fn memory(mut self, marks: Range<f64>, threshold: impl Into<Number>) -> Self {
        self.shaping.memory = Some(Falling {
            marks: Marks::Shares(marks.start, marks.end),
            threshold: threshold.into().get(),
        });
        self
    }

    /// Lowers the threshold as memory runs out, like [`memory`](Self::memory), with marks in bytes
    /// of memory that the process uses.
    #[must_use]
    pub fn memory_bytes(mut self, marks: Range<u64>, threshold: impl Into<Number>) -> Self {
        self.shaping.memory = Some(Falling {
            marks: Marks::Bytes(marks.start, marks.end),
            threshold: threshold.into().get(),
        });
        self
    }
}

impl Shaping {
    /// Returns whether the threshold changes over time.
    pub(super) const fn is_changing(&self) -> bool {
        self.warm_up.is_some() || self.memory.is_some()
    }

    /// The factor by which a cold rule admits less than its whole threshold; 3 unless set.
    pub(crate) fn cold_factor(&self) -> f64 {
        self.cold_factor.unwrap_or(3.0)
    }

    /// Refuses every setting that is set. The pattern names every field, so that a new field does
    /// not compile until it is handled here.
    pub(super) fn inspect_absent(&self, inspector: &mut Inspector, allowed: &str) {
        let Self {
            max_wait,
            warm_up,
            // Always refused without a warm-up.
            cold_factor: _,
            memory,
        } = self;
        let waits = [("throttle", max_wait), ("warm_up", warm_up)];
        for (field, time) in waits {
            if let Some(time) = time {
                inspector.refuse(field, format_args!("{time:?}"), allowed);
            }
        }
        if let Some(memory) = memory {
            inspector.refuse("memory", memory.marks, allowed);
        }
    }

    pub(super) fn inspect(&self, rule: &FlowRule, inspector: &mut Inspector) {
        if let Some(wait) = self.max_wait.filter(|wait| *wait > DAY) {
            inspector.refuse("max_wait", format_args!("{wait:?}"), "at most one day");
        }
        let is_wrong = |period: &Duration| period.is_zero() || *period > DAY;
        if let Some(period) = self.warm_up.filter(is_wrong) {
            let allowed = "above 0 and at most one day";
            inspector.refuse("warm_up", format_args!("{period:?}"), allowed);
        }
        if let Some(factor) = self.cold_factor {
            if !(factor > 1.0 && factor <= COLDEST) {
                let allowed = format!("above 1 and at most {COLDEST}");
                inspector.refuse("cold_factor", brief(factor), allowed);
            } else if self.warm_up.is_none() {
                inspector.refuse("cold_factor", brief(factor), "given only with a warm-up");
            }
        }
        if let Some(memory) = &self.memory {
            memory.inspect(rule.threshold(), inspector);
            if self.warm_up.is_some() {
                let allowed = "given only without a warm-up";
                inspector.refuse("memory", memory.marks, allowed);
            }
        }
        if rule.strict && (self.max_wait.is_some() || self.warm_up.is_some()) {
            let allowed = "false for a rule with `throttle` or `warm_up`";
            inspector.refuse("strict", true, allowed);
        }
    }
}

impl Falling {
    fn inspect(&self, whole: f64, inspector: &mut Inspector) {
        let (is_right, allowed) = match self.marks {
            Marks::Shares(from, to) => (
                from > 0.0 && from < to && to <= 1.0,
                "a rising range above 0 and at most 1",
            ),
            Marks::Bytes(from, to) => (from > 0 && from < to, "a rising range above 0"),
        };
        if !is_right {
            inspector.refuse("memory", self.marks, allowed);
        }
        // An invalid whole threshold is reported separately, and does not bound the lower
        // threshold.
        let most = if whole >= 0.0 { whole } else { f64::MAX };
        if !(0.0..=most).contains(&self.threshold) {
            let whole = brief(whole);
            let allowed = format!("between 0 and the whole threshold, which is {whole}");
            inspector.refuse("memory.threshold", brief(self.threshold), allowed);
        }
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shares(from, to) => write!(f, "{}..{}", brief(*from), brief(*to)),
            Self::Bytes(from, to) => write!(f, "{from}..{to} bytes"),
        }
    }
}
