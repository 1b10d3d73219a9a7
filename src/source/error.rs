//! Why a source could not return the rules.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::base::panics::catch_panic_or;

/// The cause of a [`SourceError`].
pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Why a [`RuleSource`](super::RuleSource) could not return the rules.
///
/// The rules in force are not affected. Displayed, it is one complete sentence with the name
/// of the file, if there is one, and the text of the cause. So
/// [`source`](Error::source) begins below the [cause](Self::cause), and a chain of errors
/// says nothing twice. Cloning it costs one reference count.
///
/// # Examples
///
/// ```
/// use std::num::ParseIntError;
/// use tower_sentinel::source::{SourceError, SourceErrorKind, Watch, WatchEvent, from_fn};
/// use tower_sentinel::{FlowRule, Sentinel};
///
/// // A source that should contain the calls per second as a number, and contains a word.
/// let source = from_fn(|| match "many".parse::<u32>() {
///     Ok(limit) => Ok(Some(FlowRule::per_second("job", limit).into())),
///     Err(error) => Err(SourceError::new(error)),
/// });
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 5));
/// let watch = Watch::new(sentinel.clone(), source);
/// let Some(WatchEvent::Failed(error)) = watch.poll_once() else {
///     panic!("it is no number");
/// };
/// assert_eq!(error.kind(), SourceErrorKind::Other);
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// assert!(error.cause().is_some_and(|cause| cause.is::<ParseIntError>()));
/// assert_eq!(sentinel.rules(), FlowRule::per_second("job", 5).into());
/// ```
#[derive(Clone)]
pub struct SourceError(Arc<ErrorInner>);

struct ErrorInner {
    kind: SourceErrorKind,
    text: String,
    cause: Option<Cause>,
    /// The digest of the content that was read, if any was.
    content: Option<u64>,
}

/// The kind of problem of a source.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Rules;
/// use tower_sentinel::source::{FileSource, RuleSource, SourceErrorKind};
///
/// /// Whether the author of the rules can fix it, or the operator of the machine.
/// fn is_for_author(kind: SourceErrorKind) -> bool {
///     use SourceErrorKind::{Empty, Invalid, NotUtf8, Panicked, TooLarge};
///     matches!(kind, Empty | Invalid | NotUtf8 | Panicked | TooLarge)
/// }
///
/// let kind_of = |path: &str| {
///     let mut source = FileSource::new(path, |_| Ok(Rules::new()));
///     source.poll().unwrap_err().kind()
/// };
/// assert_eq!(kind_of("/no/such/file"), SourceErrorKind::Io);
/// assert_eq!(kind_of("/"), SourceErrorKind::NotAFile);
/// assert!(!is_for_author(kind_of("/")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The file is missing, cannot be read, or was replaced where it is mounted from.
    Io,
    /// The path leads to a directory, a pipe, a device or the like.
    NotAFile,
    /// The file is larger than allowed.
    TooLarge,
    /// Anyone on the machine may change or replace the file.
    WorldWritable,
    /// The file contains nothing but white space.
    Empty,
    /// The file is not UTF-8 text.
    NotUtf8,
    /// The parser rejected the text.
    Invalid,
    /// The parser, the source or the sink panicked.
    Panicked,
    /// A [sink](super::RuleSink) keeps other rules than those that the change replaces.
    Changed,
    /// Something else, created by [`SourceError::new`].
    Other,
}

// === impl SourceErrorKind ===

impl SourceErrorKind {
    /// Returns the name of the kind.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::source::SourceErrorKind::NotAFile.as_str(), "not-a-file");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NotAFile => "not-a-file",
            Self::TooLarge => "too-large",
            Self::WorldWritable => "world-writable",
            Self::Empty => "empty",
            Self::NotUtf8 => "not-utf8",
            Self::Invalid => "invalid",
            Self::Panicked => "panicked",
            Self::Changed => "changed",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl SourceError ===

impl SourceError {
    /// Creates an error for a source of your own, of kind
    /// [`Other`](SourceErrorKind::Other).
    ///
    /// ```
    /// use tower_sentinel::source::SourceError;
    ///
    /// let error = SourceError::new("the configuration server does not answer");
    /// assert_eq!(error.to_string(), "the configuration server does not answer");
    /// ```
    #[must_use]
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        Self::with(SourceErrorKind::Other, cause.to_string(), Some(cause), None)
    }

    /// Creates an error of kind [`Changed`](SourceErrorKind::Changed), for a
    /// [sink](super::RuleSink) of your own.
    #[must_use]
    pub fn changed(why: impl Into<String>) -> Self {
        Self::with(SourceErrorKind::Changed, why.into(), None, None)
    }

    /// Returns the kind of problem.
    #[must_use]
    pub fn kind(&self) -> SourceErrorKind {
        self.0.kind
    }

    /// Returns the underlying error, such as that of the parser, to be downcast.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// Creates an error about the file at `path`.
    pub(super) fn of_file(kind: SourceErrorKind, path: &Path, what: impl fmt::Display) -> Self {
        Self::with(kind, format!("{}: {what}", path.display()), None, None)
    }

    /// Creates the error that `path` cannot be read.
    pub(super) fn of_io(path: &Path, cause: std::io::Error) -> Self {
        let text = format!("{}: cannot be read: {cause}", path.display());
        Self::with(SourceErrorKind::Io, text, Some(cause.into()), None)
    }

    /// Creates the error that `path` cannot be written.
    #[cfg(feature = "serde")]
    pub(super) fn of_write(path: &Path, cause: std::io::Error) -> Self {
        let text = format!("{}: cannot be written: {cause}", path.display());
        Self::with(SourceErrorKind::Io, text, Some(cause.into()), None)
    }

    /// Creates the error that the content of `path`, with the digest `content`, is no set of rules.
    pub(super) fn of_content(
        kind: SourceErrorKind,
        path: &Path,
        content: u64,
        cause: impl Into<Cause>,
    ) -> Self {
        let cause = cause.into();
        let text = format!("{}: {cause}", path.display());
        Self::with(kind, text, Some(cause), Some(content))
    }

    /// Returns whether both report the same problem, so that one report is enough. A mistake in two
    /// versions of a file is two problems: the author of the second version must see it as well.
    pub(super) fn is_same_problem_as(&self, other: &Self) -> bool {
        let (one, other) = (&*self.0, &*other.0);
        (one.kind, &one.text, one.content) == (other.kind, &other.text, other.content)
    }

    fn with(
        kind: SourceErrorKind,
        text: String,
        cause: Option<Cause>,
        content: Option<u64>,
    ) -> Self {
        Self(Arc::new(ErrorInner {
            kind,
            text,
            cause,
            content,
        }))
    }
}

/// Runs `call`, which is user code in the given `role`. Returns its result, or its panic as an
/// error.
pub(super) fn ask_user<T>(role: &str, call: impl FnOnce() -> T) -> Result<T, SourceError> {
    let on_panic = |panic: &(dyn Any + Send)| {
        let text = format!("the {role} panicked: {}", panic_text(panic));
        let kind = SourceErrorKind::Panicked;
        Err(SourceError::with(kind, text, None, None))
    };
    catch_panic_or(|| Ok(call()), on_panic)
}

/// Returns the message of a panic.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceError")
            .field("kind", &self.0.kind)
            .field("text", &self.0.text)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_deref().and_then(|cause| cause.source())
    }
}
