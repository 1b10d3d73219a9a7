//! Decides which answers of a service, of any type, count as failures.

use crate::stat::Outcome;

/// Decides how calls ended from the answers of a service of any type. Implemented by functions and
/// by [`ByResult`].
///
/// # Examples
///
/// A function that returns a layer, and so names its type:
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::middleware::{CallLayer, ClassifyAnswer};
/// use tower_sentinel::stat::Outcome;
/// use tower_sentinel::{BoxError, Call, FlowRule};
///
/// type Jobs = CallLayer<fn(&u32) -> Call<'_>, fn(Result<&bool, &BoxError>) -> Outcome>;
///
/// fn jobs() -> Jobs {
///     let describe: fn(&u32) -> Call<'_> = |_| Call::new("job");
///     let classify: fn(Result<&bool, &BoxError>) -> Outcome = |answer| match answer {
///         Ok(true) => Outcome::Success,
///         _ => Outcome::Failure,
///     };
///     assert_eq!(classify.outcome(Ok(&true)), Outcome::Success);
///     CallLayer::new(FlowRule::per_second("job", 1), describe).classify(classify)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = jobs();
/// let service = layer.layer(service_fn(|_| async { Ok::<_, BoxError>(false) }));
/// assert!(!service.clone().oneshot(7).await?);
/// assert!(service.oneshot(8).await.is_err(), "one a second");
/// assert_eq!(layer.sentinel().node("job").map(|node| node.totals().error()), Some(1));
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
pub trait ClassifyAnswer<R, E> {
    /// Judges the `answer` to a call. It must not panic: the call would then count as if its
    /// service had panicked.
    fn outcome(&self, answer: Result<&R, &E>) -> Outcome;
}

/// Counts every `Err` as a failure and every `Ok` as a success.
///
/// # Examples
///
/// ```
/// use tower_sentinel::middleware::{ByResult, ClassifyAnswer};
/// use tower_sentinel::stat::Outcome;
///
/// assert_eq!(ByResult.outcome(Ok::<_, &()>(&404)), Outcome::Success);
/// assert_eq!(ByResult.outcome(Err::<&(), _>(&404)), Outcome::Failure);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ByResult;

impl<R, E> ClassifyAnswer<R, E> for ByResult {
    fn outcome(&self, answer: Result<&R, &E>) -> Outcome {
        match answer {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        }
    }
}

impl<F, R, E> ClassifyAnswer<R, E> for F
where
    F: Fn(Result<&R, &E>) -> Outcome,
{
    fn outcome(&self, answer: Result<&R, &E>) -> Outcome {
        self(answer)
    }
}
