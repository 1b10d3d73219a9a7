//! Sources of rules while a program runs: files, or sources of your own.
//!
//! A [`RuleSource`] is polled now and then for new rules. A [`Watch`] polls it, on a dedicated
//! thread or whenever the program calls it, and puts the rules in force. No failure affects the
//! rules in force: a file that is missing, empty, half-written or simply wrong is reported once,
//! and the last good rules stay.
//!
//! # Examples
//!
//! ```
//! use std::fs;
//! use tower_sentinel::source::{FileSource, SourceErrorKind, Watch, WatchEvent};
//! use tower_sentinel::{FlowRule, Rules, Sentinel};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let path = std::env::temp_dir().join(format!("sentinel-doc-{}", std::process::id()));
//! fs::write(&path, "/orders 100")?;
//! let source = FileSource::new(&path, |text| {
//!     // One rule per line: a path, and how many calls may pass per second.
//!     let mut rules = Rules::new();
//!     for line in text.lines() {
//!         let (path, limit) = line.split_once(' ').ok_or("a line without a limit")?;
//!         rules = rules.try_with(FlowRule::per_second(path, limit.parse::<u32>()?))?;
//!     }
//!     Ok(rules)
//! });
//! let sentinel = Sentinel::new(Rules::new());
//! let watch = Watch::new(sentinel.clone(), source);
//! let Some(WatchEvent::Reloaded { rules: 1, .. }) = watch.poll_once() else { panic!() };
//! assert_eq!(sentinel.rules(), FlowRule::per_second("/orders", 100).into());
//!
//! // A bad edit is rejected and reported once; the rules in force stay.
//! fs::write(&path, "/orders many")?;
//! let Some(WatchEvent::Failed(error)) = watch.poll_once() else { panic!() };
//! assert_eq!(error.kind(), SourceErrorKind::Invalid);
//! assert!(error.to_string().ends_with("invalid digit found in string"));
//! assert!(watch.poll_once().is_none());
//! assert_eq!(sentinel.rules(), FlowRule::per_second("/orders", 100).into());
//!
//! fs::write(&path, "/orders 200")?;
//! assert!(matches!(watch.poll_once(), Some(WatchEvent::Reloaded { .. })));
//! assert!(watch.last_error().is_none());
//! # fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `serde` there are ready-made parsers: `FileSource::toml`, `json` and `sentinel`
//! read the same documents as the module `document`.
//!
//! Rules that are changed while the program runs, such as on a page, go to a [`RuleSink`].
//!
//! In a server, let a thread poll:
//! `let handle = watch.spawn(Duration::from_secs(3))?`, see [`Watch::spawn`].

mod access;
mod error;
mod file;
mod put;
#[cfg(feature = "serde")]
mod rule_file;
mod sink;
mod stamp;
mod status;
mod watch;

use std::fmt;

use crate::rule::Rules;

pub use error::{SourceError, SourceErrorKind};
pub use file::FileSource;
#[cfg(any(feature = "dashboard", all(feature = "page", feature = "serde")))]
pub(crate) use put::{NotPut, put};
#[cfg(feature = "serde")]
pub use rule_file::RuleFile;
pub use sink::{InMemory, RuleSink};
#[cfg(feature = "observe")]
pub(crate) use status::WatchStatus;
pub use watch::{Watch, WatchEvent};

/// A source of rules that is polled now and then.
///
/// A panic of the source counts as an error, and the source is polled again.
///
/// # Examples
///
/// For rules that are pushed, where the newest set waits in a channel:
///
/// ```
/// use std::sync::mpsc;
/// use tower_sentinel::source::{RuleSource, from_fn};
/// use tower_sentinel::{FlowRule, Rules};
///
/// let (push, pushed) = mpsc::channel::<Rules>();
/// let mut source = from_fn(move || Ok(pushed.try_iter().last()));
/// assert_eq!(source.poll().unwrap(), None);
/// push.send(FlowRule::per_second("job", 1).into()).unwrap();
/// push.send(FlowRule::per_second("job", 2).into()).unwrap();
/// assert_eq!(source.poll().unwrap(), Some(FlowRule::per_second("job", 2).into()));
/// ```
pub trait RuleSource: fmt::Debug + Send + 'static {
    /// Returns all rules as they are now; `None` if nothing has changed since the last result, good
    /// or bad.
    ///
    /// Returning the same rules again does no harm: rules that are in force already are not put in
    /// force again. After an error the next good result must be `Some`, even if it is the old
    /// rules, since only `Some` ends the error.
    ///
    /// It may block, such as on a file: it is never called on the path of a call. But it must
    /// return, because dropping the handle of its thread ([`Watch::spawn`]) waits for it: set
    /// timeouts for requests, and do not wait for a message that may never come. If it uses
    /// futures, let it run them on a separate runtime: if it waits for a runtime whose only thread
    /// drops the handle, the two wait for each other for ever.
    ///
    /// # Errors
    ///
    /// Returns the reason why the rules are not known. The rules in force stay. As long as the
    /// problem is the same, the source can return either the same error or `None`.
    fn poll(&mut self) -> Result<Option<Rules>, SourceError>;

    /// Returns warnings about the rules of the last good result: where they differ from their text,
    /// such as a setting that is ignored. Each is a sentence for people to read. Called after each
    /// result with rules; if it panics, that is the warning. Default: none.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<S: RuleSource + ?Sized> RuleSource for Box<S> {
    fn poll(&mut self) -> Result<Option<Rules>, SourceError> {
        (**self).poll()
    }

    fn warnings(&self) -> Vec<String> {
        (**self).warnings()
    }
}

/// Creates a source that calls `f`; see [`RuleSource::poll`] for what it must return.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use tower_sentinel::source::{RuleSource, SourceError, from_fn};
/// use tower_sentinel::{FlowRule, Rules};
///
/// // A number that an administrator may change.
/// let limit = Arc::new(AtomicU32::new(5));
/// let seen = limit.clone();
/// let mut source = from_fn(move || {
///     let rule = FlowRule::per_second("job", seen.load(Ordering::Relaxed));
///     Rules::build([rule]).map(Some).map_err(SourceError::new)
/// });
/// assert_eq!(source.poll()?, Some(FlowRule::per_second("job", 5).into()));
/// limit.store(u32::MAX, Ordering::Relaxed);
/// assert_eq!(
///     source.poll().unwrap_err().to_string(),
///     "rule 0 (flow \"job\"): threshold is 4294967295, must be between 0 and 2147483647",
/// );
/// # Ok::<(), SourceError>(())
/// ```
pub fn from_fn<F>(f: F) -> impl RuleSource
where
    F: FnMut() -> Result<Option<Rules>, SourceError> + Send + 'static,
{
    Polled(f)
}

/// A source from a function.
struct Polled<F>(F);

impl<F> fmt::Debug for Polled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("from_fn").finish_non_exhaustive()
    }
}

impl<F> RuleSource for Polled<F>
where
    F: FnMut() -> Result<Option<Rules>, SourceError> + Send + 'static,
{
    fn poll(&mut self) -> Result<Option<Rules>, SourceError> {
        (self.0)()
    }
}
