//! Reads what calls cost from the answers of a service of any type.

use std::sync::Arc;

use super::mode::sealed;
use crate::engine::call::meter::Meter;

/// Reads what calls cost from the answers of a service of any type. Implemented by `()`, which
/// reads nothing, and by the [`AnswerCost`] of a [`CallLayer`](super::CallLayer). This trait is
/// sealed.
///
/// # Examples
///
/// A function that is generic over this trait:
///
/// ```
/// use tower_sentinel::middleware::{CallLayer, ReadCost};
/// use tower_sentinel::{Call, FlowRule};
///
/// fn rules_of<F, C, K: ReadCost<String>>(layer: &CallLayer<F, C, K>) -> usize {
///     layer.sentinel().rules().len()
/// }
///
/// let layer = CallLayer::new(FlowRule::per_minute("say", 1_000).cost("letters"), |_: &u32| {
///     Call::new("say")
/// });
/// assert_eq!(rules_of(&layer.cost("letters", |text: &String| text.len().try_into().ok())), 1);
/// ```
pub trait ReadCost<R>: sealed::Sealed {
    /// Reports to `meter` the cost that `answer` shows.
    #[doc(hidden)]
    fn tell(&self, answer: &R, meter: &Meter);
}

/// A function that reads a cost, in addition to the functions that were set before: see
/// [`CallLayer::cost`](super::CallLayer::cost).
///
/// # Examples
///
/// ```
/// use tower_sentinel::middleware::{AnswerCost, ByResult, CallLayer};
/// use tower_sentinel::{Call, FlowRule};
///
/// type Read = fn(&String) -> Option<u32>;
/// type Say = CallLayer<fn(&u32) -> Call<'_>, ByResult, AnswerCost<Read>>;
///
/// fn say() -> Say {
///     let describe: fn(&u32) -> Call<'_> = |_| Call::new("say");
///     let read: Read = |text| text.len().try_into().ok();
///     let rule = FlowRule::per_minute("say", 1_000).cost("letters");
///     CallLayer::new(rule, describe).cost("letters", read)
/// }
/// assert_eq!(say().sentinel().rules().len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct AnswerCost<T, K = ()> {
    unit: Arc<str>,
    read: T,
    others: K,
}

impl<T, K> AnswerCost<T, K> {
    pub(super) fn new(unit: Arc<str>, read: T, others: K) -> Self {
        Self { unit, read, others }
    }
}

impl<R> ReadCost<R> for () {
    fn tell(&self, _: &R, _: &Meter) {}
}

impl<R, T, K> ReadCost<R> for AnswerCost<T, K>
where
    T: Fn(&R) -> Option<u32>,
    K: ReadCost<R>,
{
    fn tell(&self, answer: &R, meter: &Meter) {
        self.others.tell(answer, meter);
        if let Some(total) = (self.read)(answer) {
            meter.settle(&self.unit, total);
        }
    }
}

impl sealed::Sealed for () {}
impl<T, K> sealed::Sealed for AnswerCost<T, K> {}
