//! `ManualClock`: a clock that stands still until it is set.

use std::sync::Arc;
use std::time::Duration;

use super::tick::Tick;
use super::{Clock, nanos};
use crate::base::sync::{AtomicU64, Ordering};

/// A clock that moves only when it is set, for tests.
///
/// Clones share one reading. Moving the clock wakes no call: a call that
/// [waits](crate::Sentinel::enter) sleeps on tokio's timer, for the time that was computed when its
/// wait began, even if this clock stands still. If this clock has moved at least half of the way by
/// then, but not all of it, the call sleeps again. So use it for calls that pass, are refused or
/// are [admitted](crate::Waiting::admit) by hand. For calls that sleep, use a
/// [`TokioClock`](super::TokioClock) in paused time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{FlowRule, Call, ManualClock, Rules, Sentinel, Verdict};
///
/// let clock = ManualClock::new();
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 1))
///     .clock(clock.clone())
///     .build();
///
/// assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Pass(_)));
/// assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Block(_)));
/// clock.advance(Duration::from_secs(1));
/// assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Pass(_)));
/// ```
#[doc(alias("mock", "FakeRelativeClock"))]
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that reads [`Tick::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock that reads `tick`.
    #[must_use]
    pub fn starting_at(tick: Tick) -> Self {
        let clock = Self::new();
        clock.set(tick);
        clock
    }

    /// Advances the clock by `duration`; it saturates at the end of its range.
    pub fn advance(&self, duration: Duration) {
        let step = nanos(duration);
        // The closure always gives a value, so the update cannot fail.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                Some(now.saturating_add(step))
            });
    }

    /// Sets the clock to `tick`, which may be earlier than its current reading.
    pub fn set(&self, tick: Tick) {
        self.0.store(tick.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick(self.0.load(Ordering::Relaxed))
    }
}
