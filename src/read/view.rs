//! Views: read single figures of a running engine without copying.

use std::fmt;
use std::time::Duration;

use super::reading::{read_resources, read_scopes};
use super::shedding::Shedding;
use crate::base::sync::Arc;
use crate::call::{Direction, Key};
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::engine::resource::Resource;
use crate::engine::resource::scope::ScopeKind;
use crate::stat::{Event, Histogram, Node, NodeBucket, Totals, average_rt};

/// The current statistics of one resource, and the state of the rules that were in force when the
/// view was created.
///
/// Its window is that of [`Builder::window`](crate::Builder::window): the last
/// second, in two buckets, unless set otherwise.
///
/// A view keeps the resource alive, so hold it only as long as you read. Counting continues
/// through a reload.
///
/// # Accuracy
///
/// No event is lost or counted twice, under any interleaving. An event counts in the bucket of its
/// time or, if that bucket has already closed, in the newest bucket. Response times are truncated
/// to whole microseconds. A figure that is read while other threads count is the figure of some
/// moment during the read. This holds while
///
/// * the weights that pass add up to less than 2³¹ in the window and in each second,
/// * the weights that are refused add up to less than 2⁴⁰ in one bucket and in one second,
/// * fewer than 2²² calls end while a thread is held up right at the end of a call, and
/// * the response times of one bucket, and of one second, add up to less than 12 days: in a
///   bucket of an hour, that is 300 concurrent calls.
///
/// # Examples
///
/// ```
/// use tower_sentinel::stat::Event;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 1))
///     .clock(ManualClock::new())
///     .build();
/// let _running = sentinel.try_enter(Call::new("job"));
/// let _refused = sentinel.try_enter(Call::new("job"));
///
/// let node = sentinel.node("job").expect("it has been called");
/// assert_eq!(node.qps(Event::Pass), 1.0);
/// assert_eq!(node.qps(Event::Block), 1.0);
/// assert_eq!(node.concurrency(), 1);
/// assert!(sentinel.node("another").is_none());
/// ```
#[derive(Clone)]
pub struct NodeView {
    pub(super) resource: Arc<Resource>,
}

/// Returns a view of `resource`, if there have been calls to it.
pub(crate) fn find(
    registry: &Registry,
    resource: Key<'_>,
    direction: Direction,
) -> Option<NodeView> {
    let now = registry.shared().time.read();
    registry.known(direction, resource, now).map(NodeView::new)
}

impl NodeView {
    pub(crate) fn new(resource: Arc<Resource>) -> Self {
        Self { resource }
    }

    /// Calls `read` with the node that counts at present, and with the present time.
    fn read<R>(&self, read: impl FnOnce(&Node, Tick) -> R) -> R {
        let time = &self.resource.shared().time;
        let node = self.resource.node().latest();
        read(&node, time.check(time.read(), node.seen()))
    }

    /// Returns the name of the resource.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.resource.text()
    }

    /// Returns the rate of `event` per second, by weight, over the window;
    /// [`Event::Occupied`] in the current second.
    #[must_use]
    pub fn qps(&self, event: Event) -> f64 {
        self.read(|node, now| node.qps(now, event))
    }

    /// Returns how often `event` was counted in the window, by weight; [`Event::Occupied`] in
    /// the current second.
    #[must_use]
    pub fn sum(&self, event: Event) -> u64 {
        self.read(|node, now| node.sum(now, event))
    }

    /// Returns the average response time of the calls that ended in the window; times above
    /// a minute count as a minute.
    #[must_use]
    pub fn average_rt(&self) -> Option<Duration> {
        self.read(Node::average_rt)
    }

    /// Returns the smallest response time in the window.
    #[must_use]
    pub fn min_rt(&self) -> Option<Duration> {
        self.read(Node::min_rt)
    }

    /// Returns the largest concurrency in the window.
    #[must_use]
    pub fn max_concurrency(&self) -> u32 {
        self.read(Node::max_concurrency)
    }

    /// Returns the number of calls in flight, which have passed and have not ended. A call
    /// that waits for its bucket is included from the beginning of the bucket on, even if
    /// its timer is late.
    ///
    /// # Accuracy
    ///
    /// Exact while no other thread counts, with one exception: if a call waits while a
    /// [reload](crate::Sentinel::reload) changes the buckets, and is then dropped, the number is
    /// too low by the weight of that call until its bucket opens. The number is computed from
    /// several words that are read one after the other: while other threads count, the number can
    /// be off by the calls that start, wait or end in that moment, and a call of weight 5 can be
    /// seen as 5 calls until it has started. A [system rule](crate::SystemRule) uses this number;
    /// an [isolation rule](crate::IsolationRule) counts exactly, in a single word.
    #[doc(alias("in_flight"))]
    #[must_use]
    pub fn concurrency(&self) -> u32 {
        self.read(Node::concurrency)
    }

    /// Returns the number of concurrency slots in use, if there is an isolation or adaptive
    /// rule.
    #[must_use]
    pub fn slots_in_use(&self) -> u32 {
        self.resource.node().slots_in_use()
    }

    /// Returns the concurrency limit that an [adaptive rule](crate::AdaptiveRule) has found, in
    /// whole calls. While a probe lowers the limit, this is still the limit that was found before
    /// it. `None` without an adaptive rule.
    #[must_use]
    pub fn adaptive_limit(&self) -> Option<u32> {
        self.resource.adaptive_limit()
    }

    /// Returns which calls of each class an [adaptive rule](crate::AdaptiveRule) admits; `None`
    /// without an adaptive rule.
    #[must_use]
    pub fn shedding(&self) -> Option<Shedding> {
        self.resource.limiter().map(|(_, it)| Shedding::of(it))
    }

    /// Returns the number of calls that wait: for a borrowed place, for their turn in a queue, for
    /// a slot, or for a place of their value.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.resource.node().waiting()
    }

    /// Returns the tokens that waiting calls hold in future buckets.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.read(Node::held)
    }

    /// Returns everything counted since the resource was first called.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.read(Node::totals)
    }

    /// Returns the seconds of the last minute, oldest first, the present second last. A resource
    /// that has just begun to keep seconds has only the seconds since then. `None` for a resource
    /// that [keeps none](crate::Builder::minute): by default, a resource that no rule names and no
    /// router has matched.
    #[must_use]
    pub fn seconds(&self) -> Option<Vec<NodeBucket>> {
        self.read(Node::seconds)
    }

    /// Returns a histogram of the response times that are added up in [`Totals::rt`]; `None` unless
    /// [`Builder::histograms`](crate::Builder::histograms) is on. Times above a minute are beyond
    /// every edge.
    #[must_use]
    pub fn rt_histogram(&self) -> Option<Histogram> {
        let [times, _] = self.resource.node().histograms()?;
        Some(times)
    }

    /// Returns a histogram of the times that calls waited before they started; `None` unless
    /// [`Builder::histograms`](crate::Builder::histograms) is on.
    #[must_use]
    pub fn wait_histogram(&self) -> Option<Histogram> {
        let [_, waits] = self.resource.node().histograms()?;
        Some(waits)
    }

    /// Returns the bytes that the resource occupies, heap included, without its name.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.resource.footprint()
    }
}

/// The statistics of many nodes together, summed up at each reading. The window
/// is that of [`Builder::window`](crate::Builder::window).
///
/// A reading visits each node once. It blocks no call, and keeps only a few nodes alive at a time,
/// so other nodes can be evicted meanwhile. Only one reading of all nodes runs at a time.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("a", 1))
///     .clock(ManualClock::new())
///     .build();
/// for name in ["a", "a", "b"] {
///     drop(sentinel.try_enter(Call::new(name)));
/// }
/// let totals = sentinel.inbound().totals();
/// assert_eq!((totals.pass(), totals.block()), (2, 1));
/// ```
#[derive(Clone, Copy)]
pub struct InboundView<'a> {
    registry: &'a Registry,
    /// Only calls through this context.
    context: Option<Key<'a>>,
}

impl<'a> InboundView<'a> {
    pub(crate) const fn new(registry: &'a Registry, context: Option<Key<'a>>) -> Self {
        Self { registry, context }
    }

    /// Calls `read` with each node and its present time, and returns the counts of evicted nodes. A
    /// node that is evicted during the reading is counted once: by `read`, or among the evicted
    /// nodes.
    fn each(&self, read: &mut (dyn FnMut(&Node, Tick) + Send)) -> Totals {
        let Some(context) = &self.context else {
            let gone = read_resources(self.registry, &mut |row| {
                if row.direction() == Direction::Inbound {
                    let present = row.unrenewed();
                    read(&present.node(), present.now);
                }
            });
            return gone.totals[Direction::Inbound as usize];
        };
        // Long names of contexts are stored shortened, so the name is shortened before it is
        // compared.
        let mut room = None;
        let context = context.shortened(&self.registry.shared().hash, &mut room);
        read_scopes(self.registry, &mut |scope, now| {
            let is_inbound = scope.direction() == Direction::Inbound;
            let is_context = is_inbound && scope.kind() == ScopeKind::Context;
            if is_context && scope.name() == *context {
                read(&scope.node().latest(), now);
            }
        });
        Totals::default()
    }

    /// Returns how often `event` was counted in the window, by weight; [`Event::Occupied`] in
    /// the current second.
    #[must_use]
    pub fn sum(&self, event: Event) -> u64 {
        let mut sum = 0;
        self.each(&mut |node, now| sum += node.sum(now, event));
        sum
    }

    /// Returns the rate of `event` per second, by weight, over the window;
    /// [`Event::Occupied`] in the current second.
    #[must_use]
    pub fn qps(&self, event: Event) -> f64 {
        event.per_second(
            self.sum(event),
            self.registry.shared().config.shape.interval(),
        )
    }

    /// Returns the average response time of the calls that ended in the window; times above
    /// a minute count as a minute.
    #[must_use]
    pub fn average_rt(&self) -> Option<Duration> {
        let (mut calls, mut rt) = (0, Duration::ZERO);
        self.each(&mut |node, now| {
            let (more, longer) = node.calls_and_rt(now);
            calls += more;
            rt += longer;
        });
        average_rt(calls, rt.as_micros() as u64)
    }

    /// Returns the smallest response time in the window.
    #[must_use]
    pub fn min_rt(&self) -> Option<Duration> {
        let mut min: Option<Duration> = None;
        self.each(&mut |node, now| {
            min = match (min, node.min_rt(now)) {
                (Some(min), Some(other)) => Some(min.min(other)),
                (min, other) => min.or(other),
            };
        });
        min
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn concurrency(&self) -> u32 {
        let mut sum: u32 = 0;
        self.each(&mut |node, now| sum = sum.saturating_add(node.concurrency(now)));
        sum
    }

    /// Returns the number of calls that wait: for a borrowed place, for their turn in a queue, for
    /// a slot, or for a place of their value.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let mut sum: u32 = 0;
        self.each(&mut |node, _| sum = sum.saturating_add(node.waiting()));
        sum
    }

    /// Returns the counts of the second before the current one, added up over the nodes that [keep
    /// seconds](crate::Builder::minute).
    #[must_use]
    pub fn previous_second(&self) -> NodeBucket {
        let mut sum: Option<NodeBucket> = None;
        self.each(&mut |node, now| {
            if let Some(second) = node.previous_second(now) {
                match &mut sum {
                    Some(sum) => sum.merge(&second),
                    None => sum = Some(second),
                }
            }
        });
        sum.unwrap_or_default()
    }

    /// Returns the buckets of the window, oldest first, added up over the nodes.
    #[must_use]
    pub fn buckets(&self) -> Vec<NodeBucket> {
        let mut sum = Vec::new();
        self.each(&mut |node, now| merge_buckets(&mut sum, &node.buckets(now)));
        sum
    }

    /// Returns the seconds of the last minute, oldest first, added up over the nodes that [keep
    /// seconds](crate::Builder::minute). By default, nodes of names that callers make up do not.
    #[must_use]
    pub fn seconds(&self) -> Vec<NodeBucket> {
        let mut sum = Vec::new();
        self.each(&mut |node, now| merge_buckets(&mut sum, &node.seconds(now).unwrap_or_default()));
        sum
    }

    /// Returns everything counted since the engine was built, including evicted resources. So no
    /// count falls, except that [`pass`](Totals::pass) can fall by calls that were dropped while
    /// they waited. For an [entrance](crate::Sentinel::entrance) it is the sum over its present
    /// nodes, without evicted ones.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        let retired = self.each(&mut |node, now| sum.add(&node.totals(now)));
        sum.add(&retired);
        sum
    }
}

impl fmt::Debug for NodeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeView")
            .field("resource", &self.resource())
            .field("concurrency", &self.concurrency())
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for InboundView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundView")
            .field("context", &self.context)
            .field("concurrency", &self.concurrency())
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}

/// Adds `more` to `sum`, bucket by bucket; both are sorted by their start.
fn merge_buckets(sum: &mut Vec<NodeBucket>, more: &[NodeBucket]) {
    for bucket in more {
        match sum.binary_search_by_key(&bucket.start(), NodeBucket::start) {
            Ok(index) => sum[index].merge(bucket),
            Err(index) => sum.insert(index, *bucket),
        }
    }
}
