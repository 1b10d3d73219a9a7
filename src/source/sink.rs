//! Sinks of rules that are changed while a program runs, so that its next start finds them.

use std::fmt;

use super::error::SourceError;
use crate::rule::Rules;

/// Keeps rules that are changed while the program runs, such as on a page.
///
/// A sink is called after the rules were checked, and before they come into force. If it fails, the
/// old rules stay in force, and the page or the dashboard that sent the new rules shows the reason.
/// It is called on one thread at a time for each engine, and can block. If it panics, that counts
/// as a failure. It must not wait for another change on a page or a dashboard of the engine, as
/// that change would wait for it.
///
/// # Examples
///
/// A sink that keeps the rules in a service of your own:
///
/// ```
/// use std::sync::Mutex;
/// use tower_sentinel::source::{RuleSink, SourceError};
/// use tower_sentinel::{FlowRule, Rules};
///
/// #[derive(Default)]
/// struct Kept(Mutex<Rules>);
///
/// impl RuleSink for Kept {
///     fn store(&self, before: &Rules, after: &Rules) -> Result<(), SourceError> {
///         let mut kept = self.0.lock().unwrap();
///         if *kept != *before {
///             return Err(SourceError::changed("the rules of the service have changed"));
///         }
///         *kept = after.clone();
///         Ok(())
///     }
/// }
///
/// let sink = Kept::default();
/// let five = Rules::from(FlowRule::per_second("/search", 5));
/// sink.store(&Rules::new(), &five)?;
/// assert!(sink.store(&Rules::new(), &five).is_err());
/// # Ok::<(), SourceError>(())
/// ```
pub trait RuleSink: Send + Sync + 'static {
    /// Keeps `after`, in place of `before`, which are the rules in force.
    ///
    /// # Errors
    ///
    /// Returns an error if the rules cannot be kept, or [`SourceError::changed`] if other rules
    /// than `before` were kept meanwhile. After an error the kept rules must be unchanged.
    fn store(&self, before: &Rules, after: &Rules) -> Result<(), SourceError>;

    /// Returns a note that is shown with each change of rules, such as the name of the file.
    /// Default: that the changes are gone with the process.
    fn note(&self) -> String {
        "Changes are gone when the process ends.".to_owned()
    }
}

/// A sink that keeps nothing: changes last as long as the process.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Rules;
/// use tower_sentinel::source::{InMemory, RuleSink};
///
/// assert!(InMemory.store(&Rules::new(), &Rules::new()).is_ok());
/// assert_eq!(InMemory.note(), "Changes are gone when the process ends.");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct InMemory;

impl RuleSink for InMemory {
    fn store(&self, _: &Rules, _: &Rules) -> Result<(), SourceError> {
        Ok(())
    }
}

impl fmt::Debug for dyn RuleSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSink").finish_non_exhaustive()
    }
}

impl<S: RuleSink + ?Sized> RuleSink for std::sync::Arc<S> {
    fn store(&self, before: &Rules, after: &Rules) -> Result<(), SourceError> {
        (**self).store(before, after)
    }

    fn note(&self) -> String {
        (**self).note()
    }
}
