//! Polling a source, and putting its rules in force.
//!
//! The thread that polls holds a lock on the source and the callback. A thread that finds the lock
//! taken waits and then polls again, since the other thread may have polled too early to see the
//! change that the waiting thread waits for. A callback that polls would wait for itself: so a
//! second lock remembers which thread polls, and a poll inside a poll returns at once. A third lock
//! holds the state for readers. Neither the second nor the third is held while user code runs. A
//! fourth stops the thread (`base::thread`). There are no atomics, so there is nothing here for a
//! model to check.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};
use std::{fmt, io, thread};

use super::RuleSource;
use super::error::{SourceError, ask_user};
use super::put::put;
use super::sink::InMemory;
use super::status::WatchStatus;
use crate::base::panics::catch_panic;
use crate::base::sync::Lock;
use crate::base::thread::{PeriodicThread, ThreadHandle};
use crate::base::wall::wall_time;
use crate::sentinel::Sentinel;

/// Keeps the rules of an engine equal to those of a source.
///
/// The rules of the source are all rules of the engine. So use one watch per engine: two
/// would remove each other's rules. If rules are in several places, make one source over
/// them, such as [`from_fn`](super::from_fn).
///
/// Rules that are already in force are not put in force again. The watch sees only the rules that
/// the source returns: rules that the program itself [reloads](Sentinel::reload) stay until the
/// source returns rules again. It does so when it has new rules, and when an error is over, even
/// with the old rules; a source of your own may return rules at each poll.
///
/// Clones share one watch: while one clone polls on its thread, the program can read the outcomes
/// of the polls from another clone, and poll out of turn. All clones and the thread hold the engine
/// and the source: both live until the last clone and the handle are dropped. So a hook of the
/// engine must own neither a watch nor the handle, or they would keep each other alive for ever.
///
/// # Examples
///
/// On a dedicated thread:
///
/// ```
/// use std::sync::mpsc;
/// use std::time::{Duration, SystemTime};
/// use tower_sentinel::source::{SourceError, Watch, from_fn};
/// use tower_sentinel::{FlowRule, Rules, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 1));
/// let answers = [
///     Ok(Some(FlowRule::per_second("job", 2).into())),
///     Err(SourceError::new("the server does not answer")),
/// ];
/// let mut answers = answers.into_iter();
/// let source = from_fn(move || answers.next().unwrap_or(Ok(None)));
///
/// let (tell, told) = mpsc::channel();
/// let watch = Watch::new(sentinel.clone(), source)
///     .on_event(move |event| tell.send(event.to_string()).unwrap());
/// let handle = watch.clone().spawn(Duration::from_millis(20))?;
/// assert_eq!(told.recv().unwrap(), "1 rule in force");
/// assert_eq!(told.recv().unwrap(), "rules kept: the server does not answer");
/// assert_eq!(sentinel.rules(), FlowRule::per_second("job", 2).into());
/// assert_eq!((watch.is_up(), watch.reloads()), (false, 1));
/// assert!(watch.last_error().is_some());
/// handle.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// In a loop that the program has anyway, such as a task with an interval. The first poll
/// shows whether there are rules to start with:
///
/// ```
/// # use tower_sentinel::source::{Watch, WatchEvent, from_fn};
/// # use tower_sentinel::{Rules, Sentinel};
/// # let source = from_fn(|| Ok(Some(Rules::new())));
/// # let sentinel = Sentinel::new(Rules::new());
/// let watch = Watch::new(sentinel, source);
/// if let Some(WatchEvent::Failed(error)) = watch.poll_once() {
///     return Err(error);
/// }
/// # Ok::<(), tower_sentinel::source::SourceError>(())
/// ```
#[doc(alias("hot_reload"))]
#[derive(Clone)]
#[must_use = "a watch does nothing unless it polls"]
pub struct Watch {
    sentinel: Sentinel,
    polled: Arc<PolledSource>,
    /// Can be cloned without keeping the watch or the engine alive.
    pub(crate) status: WatchStatus,
}

/// The source, and the thread that polls it.
struct PolledSource {
    user_code: Lock<UserCode>,
    polling: Lock<Option<ThreadId>>,
}

/// The user's code that one thread at a time may call.
struct UserCode {
    source: Box<dyn RuleSource>,
    on_event: Option<Box<OnEvent>>,
}

type OnEvent = dyn FnMut(&WatchEvent) + Send;

/// Remembers which thread polls, until it is dropped.
struct Polling<'a>(&'a Lock<Option<ThreadId>>);

/// An event that a [`Watch`] reports; each one is reported once.
///
/// Displayed, it is one line, unless the text of an error or of a warning has several; of
/// several warnings it shows the first.
///
/// # Examples
///
/// ```
/// use tower_sentinel::source::{SourceError, Watch, WatchEvent, from_fn};
/// use tower_sentinel::{FlowRule, Rules, Sentinel};
///
/// let rules = || Ok(Some(Rules::from(FlowRule::per_second("job", 1))));
/// let broken = || Err(SourceError::new("the server does not answer"));
/// let mut answers = [rules(), rules(), broken(), broken(), rules()].into_iter();
/// let source = from_fn(move || answers.next().unwrap_or(Ok(None)));
///
/// let watch = Watch::new(Sentinel::new(Rules::new()), source);
/// let told: Vec<_> = (0..6)
///     .filter_map(|_| watch.poll_once())
///     .map(|event| match event {
///         WatchEvent::Reloaded { rules, .. } => format!("info: {rules} in force"),
///         WatchEvent::Failed(error) => format!("alarm: {error}"),
///         event => format!("info: {event}"),
///     })
///     .collect();
/// assert_eq!(told, [
///     "info: 1 in force",
///     "alarm: the server does not answer",
///     "info: rules readable again, and unchanged",
/// ]);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// New rules are in force.
    #[non_exhaustive]
    Reloaded {
        /// The number of rules.
        rules: usize,
        /// Where the rules differ from their text; see [`RuleSource::warnings`].
        warnings: Vec<String>,
    },
    /// The source cannot return the rules; the rules in force stay. As long as the problem is the
    /// same, it is not reported again.
    Failed(SourceError),
    /// The source has recovered, and its rules are in force already.
    Recovered,
    /// The rules of the source are in force already, but there is a new warning. If the source had
    /// failed, it has recovered, as after any event but [`Failed`](Self::Failed).
    #[non_exhaustive]
    Warned {
        /// Where the rules differ from their text: all warnings.
        warnings: Vec<String>,
    },
}

// === impl Watch ===

impl Watch {
    /// Creates a watch that puts the rules of `source` in force on `sentinel`. It does not poll
    /// yet. If the source has been polled elsewhere before, an error that it returned there is not
    /// reported here until another error replaces it.
    pub fn new(sentinel: Sentinel, source: impl RuleSource) -> Self {
        let user_code = UserCode {
            source: Box::new(source),
            on_event: None,
        };
        let polled = PolledSource {
            user_code: Lock::new(user_code),
            polling: Lock::default(),
        };
        Self {
            sentinel,
            polled: Arc::new(polled),
            status: WatchStatus::default(),
        }
    }

    /// Calls `tell` with each event, on the thread that polls, after the event has happened.
    /// Default: no callback. A second call replaces the first callback, also on a clone.
    ///
    /// If the callback panics, the panic is lost, and the next event is still reported. It must not
    /// wait for another thread that polls, because that thread waits for the callback.
    pub fn on_event(self, tell: impl FnMut(&WatchEvent) + Send + 'static) -> Self {
        self.polled.user_code.lock().on_event = Some(Box::new(tell));
        self
    }

    /// Polls the source, puts new rules in force, and returns the event; `None` if there is nothing
    /// new since the last poll.
    ///
    /// While another thread polls, this method waits, and then polls itself: when it returns, the
    /// state of the source before the call has been seen. Only a poll inside another poll, such as
    /// in the callback of [`on_event`](Self::on_event), returns `None` at once.
    ///
    /// It takes as long as the source takes, which may block. In a task, read files that
    /// may be slow in `spawn_blocking`, or on a [thread](Self::spawn). Calls never wait for
    /// it.
    pub fn poll_once(&self) -> Option<WatchEvent> {
        let this = thread::current().id();
        if *self.polled.polling.lock() == Some(this) {
            return None;
        }
        let mut user_code = self.polled.user_code.lock();
        // Cleared before the lock is released, also if the clock panics.
        let _polling = Polling::new(&self.polled.polling, this);
        let UserCode { source, on_event } = &mut *user_code;
        let polled = ask_user("source", || source.poll()).unwrap_or_else(Err);
        let now = wall_time();
        self.status.with(|status| status.last_poll = Some(now));
        let event = match polled {
            Ok(rules) => {
                let rules = rules?;
                // The source returns these rules only once, so they come into force even if reading
                // warnings panics.
                let warnings = ask_user("source", || source.warnings())
                    .unwrap_or_else(|error| vec![error.to_string()]);
                // Nothing is saved, as the source has the rules already.
                match put(&self.sentinel, &InMemory, &self.sentinel.rules(), &rules) {
                    Ok(is_new) => self.loaded(is_new, rules.len(), warnings),
                    Err(why) => self.fail(why.into()),
                }
            }
            Err(error) => self.fail(error),
        }?;
        if let Some(on_event) = on_event {
            // A panic of the callback has no other place to be reported to.
            let _ = catch_panic(|| on_event(&event));
        }
        Some(event)
    }

    /// Polls on a dedicated thread, at once and then at intervals of `every` (at least 10 ms),
    /// until the handle is dropped. A forked process, such as a daemon, does not inherit the
    /// thread: spawn it there.
    ///
    /// Dropping the handle does not wait for the next poll, but for a poll that is under way, and
    /// so for a source that blocks; see [`RuleSource::poll`]. Inside the callback of
    /// [`on_event`](Self::on_event) it does not wait, and the thread ends after the callback.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot create the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::{Duration, SystemTime};
    /// use tower_sentinel::source::{SourceError, Watch, from_fn};
    /// use tower_sentinel::{FlowRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("job", 1));
    /// let source = from_fn(|| Err(SourceError::new("the server does not answer")));
    /// let (tell, told) = mpsc::channel();
    /// let handle = Watch::new(sentinel.clone(), source)
    ///     .on_event(move |event| tell.send(event.to_string()).unwrap())
    ///     .spawn(Duration::from_secs(3))?;
    ///
    /// // The thread polls at once.
    /// assert_eq!(told.recv().unwrap(), "rules kept: the server does not answer");
    /// assert_eq!(sentinel.rules().len(), 1);
    /// handle.stop();
    /// // The thread has ended, and its callback was dropped.
    /// assert!(told.recv().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(self, every: Duration) -> io::Result<ThreadHandle> {
        // Does not panic: panics of sources and callbacks are caught.
        let poll = move || drop(self.poll_once());
        let thread = PeriodicThread::spawn("sentinel-watch", every, poll)?;
        Ok(ThreadHandle::new(thread))
    }

    /// Returns false while the source fails, and so the rules in force may be old.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.status.is_up()
    }

    /// Returns the current error of the source, as it was last reported; `None` if there is
    /// none, or if the source has not been polled yet.
    #[must_use]
    pub fn last_error(&self) -> Option<SourceError> {
        self.status.last_error()
    }

    /// Returns when the source was polled last, with any outcome, by the clock of the operating
    /// system; `None` if it has not been polled yet.
    ///
    /// ```
    /// use tower_sentinel::source::{SourceError, Watch, from_fn};
    /// use tower_sentinel::{FlowRule, Rules, Sentinel};
    ///
    /// let rules = || Ok(Some(Rules::from(FlowRule::per_second("job", 1))));
    /// let broken = || Err(SourceError::new("the server does not answer"));
    /// let mut answers = [rules(), broken(), rules()].into_iter();
    /// let source = from_fn(move || answers.next().unwrap_or(Ok(None)));
    ///
    /// let watch = Watch::new(Sentinel::new(Rules::new()), source);
    /// assert!(watch.is_up() && watch.last_poll().is_none());
    /// let seen: Vec<_> = (0..4).map(|_| { watch.poll_once(); watch.is_up() }).collect();
    /// assert_eq!(seen, [true, false, true, true]);
    /// assert_eq!((watch.reloads(), watch.last_error().is_none()), (1, true));
    /// assert!(watch.last_poll().is_some());
    /// ```
    #[must_use]
    pub fn last_poll(&self) -> Option<SystemTime> {
        self.status.last_poll()
    }

    /// Returns how many times new rules were put in force.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.status.reloads()
    }

    /// Returns the warnings about the rules that the source returned last; see
    /// [`RuleSource::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.status.warnings()
    }

    /// Records that the source has failed with `error`. Returns the event to report, if it is new.
    fn fail(&self, error: SourceError) -> Option<WatchEvent> {
        self.status.with(|status| {
            let last = &mut status.last_error;
            let is_known = |last: &SourceError| last.is_same_problem_as(&error);
            if last.as_ref().is_some_and(is_known) {
                return None;
            }
            *last = Some(error.clone());
            Some(WatchEvent::Failed(error))
        })
    }

    /// Records that the source's rules, `rules` in number, are in force, and whether they are new.
    /// Returns the event to report, if there is one.
    fn loaded(&self, is_new: bool, rules: usize, warnings: Vec<String>) -> Option<WatchEvent> {
        self.status.with(|status| {
            let has_recovered = status.last_error.take().is_some();
            let mut known: HashMap<&str, usize> = HashMap::new();
            for (place, warning) in status.warnings.iter().enumerate() {
                known.insert(warning, place);
            }
            let mut is_warning = false;
            for warning in &warnings {
                is_warning |= !known.contains_key(&**warning);
            }
            status.warnings = warnings.clone();
            if is_new {
                status.reloads += 1;
                return Some(WatchEvent::Reloaded { rules, warnings });
            }
            if is_warning {
                return Some(WatchEvent::Warned { warnings });
            }
            has_recovered.then_some(WatchEvent::Recovered)
        })
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

// === impl Polling ===

impl<'a> Polling<'a> {
    fn new(polling: &'a Lock<Option<ThreadId>>, thread: ThreadId) -> Self {
        *polling.lock() = Some(thread);
        Self(polling)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

// === impl WatchEvent ===

impl WatchEvent {
    /// Returns the name of the event, for labels: `reloaded`, `failed`, `recovered` or
    /// `warned`.
    ///
    /// ```
    /// use tower_sentinel::source::{SourceError, WatchEvent};
    ///
    /// assert_eq!(WatchEvent::Failed(SourceError::new("no answer")).as_str(), "failed");
    /// ```
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Reloaded { .. } => "reloaded",
            Self::Failed(_) => "failed",
            Self::Recovered => "recovered",
            Self::Warned { .. } => "warned",
        }
    }
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchEvent::Reloaded { rules, warnings } => {
                let s = if *rules == 1 { "" } else { "s" };
                write!(f, "{rules} rule{s} in force")?;
                write_warnings(f, warnings)
            }
            WatchEvent::Failed(error) => write!(f, "rules kept: {error}"),
            WatchEvent::Recovered => f.write_str("rules readable again, and unchanged"),
            WatchEvent::Warned { warnings } => {
                f.write_str("rules unchanged")?;
                write_warnings(f, warnings)
            }
        }
    }
}

/// Writes how many warnings there are, and the first.
fn write_warnings(f: &mut fmt::Formatter<'_>, warnings: &[String]) -> fmt::Result {
    match warnings {
        [] => Ok(()),
        [only] => write!(f, ", 1 warning: {only}"),
        [first, ..] => write!(f, ", {} warnings, the first: {first}", warnings.len()),
    }
}
