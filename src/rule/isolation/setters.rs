//! The constructor and setters of an isolation rule.

use std::time::Duration;

use super::super::flow::MOST_WAITING;
use super::super::problem::Inspector;
use super::super::whose::Who;
use super::{IsolationRule, LONGEST_QUEUE, SlotQueue};
use crate::base::number::WholeNumber;
use crate::stat::MAX_TOKENS;

impl IsolationRule {
    /// Allows at most `max` calls of `resource` at once. `max` is between 0 and 2³¹ − 1.
    #[must_use]
    pub fn new(resource: impl Into<String>, max: impl Into<WholeNumber>) -> Self {
        Self {
            resource: resource.into(),
            max: max.into(),
            who: Who::Anyone,
            related: None,
            queue: None,
            max_waiting: WholeNumber::new(MOST_WAITING),
            id: None,
        }
    }

    /// Counts and limits only the calls of `origin`, with slots of their own. An address or a
    /// number is written as text, and stands for both the text and the address or number.
    ///
    /// The two special origins of Alibaba Sentinel keep their meaning, as in
    /// [`FlowRule::for_origin`](crate::FlowRule::for_origin): `"default"` counts all callers
    /// together, as without this method, and `"other"` gives separate slots to every origin that no
    /// flow or isolation rule of the resource names. A call without an origin is not limited.
    ///
    /// The limit is as exact as a limit on all callers: checking it and taking a slot are one
    /// atomic step on the node of the origin. If a call also needs a slot of another rule, and
    /// another call takes that slot at the same moment, the call holds its first slot until it is
    /// refused. Once the engine's [limit on origins](crate::Builder::max_origins) is reached,
    /// further origins that no rule names share the slots of a single origin.
    ///
    /// Calls that already run when the rule is added count only if their origin was tracked when
    /// they began: by another rule for single origins, or by
    /// [`Builder::origins`](crate::Builder::origins). The setting cannot be combined with a
    /// [queue](Self::queue) or with [`when`](Self::when), and the rule cannot be a [default
    /// rule](crate::rule#default-rules). For a queue, use a
    /// [`KeyedRule::concurrency`](crate::KeyedRule::concurrency) by origin.
    ///
    /// ```
    /// use tower_sentinel::{Call, IsolationRule, Rules, Sentinel, Verdict};
    ///
    /// let rules = Rules::new()
    ///     .with(IsolationRule::new("report", 2).for_origin("batch"))
    ///     .with(IsolationRule::new("report", 1).for_origin("other"));
    /// let sentinel = Sentinel::new(rules);
    /// let enter = |origin| match sentinel.try_enter(Call::new("report").origin(origin)) {
    ///     Verdict::Pass(running) => Some(running),
    ///     _ => None,
    /// };
    /// let running = [enter("batch"), enter("batch"), enter("shop"), enter("desk")];
    /// assert!(running.iter().all(Option::is_some));
    /// assert!(enter("batch").is_none() && enter("shop").is_none());
    /// drop(running);
    /// assert!(enter("shop").is_some());
    /// ```
    #[must_use]
    pub fn for_origin(mut self, origin: impl Into<String>) -> Self {
        self.who = Who::of_origin(origin.into());
        self
    }

    /// Limits the rule's resource by the running calls of another resource: calls of the rule's own
    /// resource are refused while at least `max` calls of `related` run. So reports can yield to
    /// orders. `related` can be a template, like the name of a rule. Only calls of `related` with
    /// the same direction count. At a `max` of 0 every call is refused.
    ///
    /// The rule reads the number of calls of `related` that run when it is checked, and takes no
    /// slot. It limits neither the calls of `related` nor, while fewer than `max` of them run, the
    /// calls of its own resource. A call that waits afterwards, for its turn or for borrowed
    /// tokens, is not checked again. The rule does not apply until `related` has been called for
    /// the first time. The setting cannot be combined with an origin or a [queue](Self::queue), and
    /// the rule cannot be a [default rule](crate::rule#default-rules).
    ///
    /// ```
    /// use tower_sentinel::{Call, IsolationRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(IsolationRule::new("report", 1).when("order"));
    /// let enter = |name| match sentinel.try_enter(Call::new(name)) {
    ///     Verdict::Pass(running) => Some(running),
    ///     _ => None,
    /// };
    /// let order = enter("order");
    /// assert!(order.is_some() && enter("order").is_some());
    /// assert!(enter("report").is_none());
    /// drop(order);
    /// assert!(enter("report").is_some());
    /// ```
    ///
    /// # Accuracy
    ///
    /// The number is that of [`NodeView::concurrency`](crate::read::NodeView::concurrency). It is
    /// exact unless a call of `related` starts or ends while it is read.
    #[must_use]
    pub fn when(mut self, related: impl Into<String>) -> Self {
        self.related = Some(related.into());
        self
    }

    /// Lets calls that find no free slot wait for a slot, for at most `max_wait`, instead of
    /// refusing them: between 0, at which no call waits, and 1 day. Default: no call waits.
    ///
    /// Slots go to waiting calls in the order of their arrival, and a new call does not overtake
    /// them: no more than `max` calls run, and no slot is free while a call waits. A call that has
    /// waited for `max_wait`, or for its own [patience](crate::Call::patience) if that is shorter,
    /// is refused as if it could not wait. A call that arrives when the
    /// [maximum](Self::max_waiting) number of calls is waiting is refused in the same way.
    ///
    /// A call waits before the rules that come after this rule are checked, and takes nothing from
    /// them meanwhile. When it has its slot, parameters, rates, queues and, once more, circuit
    /// breakers are checked, by the rules in force then. If one of these rules refuses the call,
    /// the slot goes to the next call. If a rule makes it wait for its turn or for borrowed tokens,
    /// the slot goes to the next call too. After that wait the call gets a slot again, before all
    /// calls that came later, within what is left of its `max_wait`. Response time and concurrency
    /// begin after the wait, which is recorded separately.
    ///
    /// If a resource has several isolation rules, the queue of the tightest one counts. A rule [for
    /// an origin](Self::for_origin), or [by another resource](Self::when), has no queue. While an
    /// [adaptive rule](crate::AdaptiveRule) is tighter, it refuses new calls. Calls wait on a tokio
    /// runtime with its timer, as in any queue; see [`Sentinel::enter`](crate::Sentinel::enter). In
    /// [shadow mode](crate::Rule::shadow) a call that would wait starts at once.
    ///
    /// A reload changes the limit for waiting calls as well: if the limit is higher, or the rule is
    /// gone, some or all of them start at once. They keep the longest wait that they began with.
    ///
    /// Waiting allocates, and takes a lock that only waiting calls and the calls that end meanwhile
    /// share.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, IsolationRule, NotAdmitted, Sentinel, Verdict};
    ///
    /// let rule = IsolationRule::new("report", 1).queue(Duration::from_secs(5)).max_waiting(1);
    /// let sentinel = Sentinel::new(rule);
    /// let Verdict::Pass(running) = sentinel.try_enter(Call::new("report")) else {
    ///     panic!("the first call runs");
    /// };
    /// let Verdict::Wait(waiting) = sentinel.try_enter(Call::new("report")) else {
    ///     panic!("the second one waits");
    /// };
    /// assert!(matches!(sentinel.try_enter(Call::new("report")), Verdict::Block(_)));
    /// let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
    ///     panic!("there is no slot yet");
    /// };
    /// drop(running);
    /// assert!(waiting.admit().is_ok());
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped while it waits leaves the queue. If it has just got a slot, the
    /// next call gets it.
    #[doc(alias("wait", "acquire", "ConcurrencyLimit", "semaphore"))]
    #[must_use]
    pub fn queue(mut self, max_wait: Duration) -> Self {
        self.queue = Some(max_wait);
        self
    }

    /// Sets how many calls can wait at once in the [queue](Self::queue): between 0, at which no
    /// call waits, and 2³² − 1. Default 10 000. In [shadow mode](crate::Rule::shadow), where no
    /// call waits, this number of calls can run beyond the limit.
    #[must_use]
    pub fn max_waiting(mut self, max_waiting: impl Into<WholeNumber>) -> Self {
        self.max_waiting = max_waiting.into();
        self
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `isolation-2`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the resource that the rule is for.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns how many calls may run at once.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max.get()
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        inspector.number("max", self.max, 0..=MAX_TOKENS);
        inspector.number("max_waiting", self.max_waiting, 0..=u32::MAX);
        if let Some(queue) = self.queue.filter(|queue| *queue > LONGEST_QUEUE) {
            let allowed = format_args!("at most 1 day");
            inspector.refuse("queue", format_args!("{queue:?}"), allowed);
        }
        let related = self.related.as_deref().map(|name| ("related", name));
        self.who.inspect(related, inspector);
        if let Some(queue) = self.queue.filter(|_| !self.is_for_all_calls()) {
            let allowed = "left out with `for_origin` and `when`: calls wait for slots that all \
                           callers share";
            inspector.refuse("queue", format_args!("{queue:?}"), allowed);
        }
    }

    /// Returns whether the rule counts all calls of its resource together, and no others.
    pub(super) fn is_for_all_calls(&self) -> bool {
        self.who == Who::Anyone && self.related.is_none()
    }

    // --- for the engine; the rule has been inspected ---

    /// How calls wait for a slot; `None` if no call waits.
    pub(in crate::rule) fn slot_queue(&self) -> Option<SlotQueue> {
        let queue = SlotQueue {
            max_wait: self.queue?,
            max_waiting: self.max_waiting.get(),
        };
        queue.lets_wait().then_some(queue)
    }
}
