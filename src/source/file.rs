//! Rules in a file, which is checked at each poll.
//!
//! As long as nothing changes, a poll costs one system call, for the stamp of the file
//! behind all links. The stamp decides when to read, and the content decides whether there
//! is something new (`source::stamp`). So it does not matter how a file is replaced:
//! written in place, renamed as editors do it, or through a link that leads elsewhere as
//! Kubernetes does it. No notifications of the operating system are needed, so file
//! systems that send none, such as network file systems, work as well.
//!
//! The result of the last poll is a state. It is reported when it is entered, so a file that does
//! not change is never reported twice.
//!
//! ```text
//! Nothing ──► Content(last)   read: the rules, or why they are none
//!                ▲    │
//!                │    ▼
//!              Error(error)   not read: missing, a directory, too large, …
//! ```

use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::RuleSource;
use super::access::FileAccess;
use super::error::{Cause, SourceError, SourceErrorKind, panic_text};
use super::stamp::{LastRead, Stamp};
use crate::base::panics::catch_panic_or;
use crate::clock::{Clock, MonotonicClock, Tick};
#[cfg(feature = "serde")]
use crate::document::{Document, Format, Kind, Problems, StoreSection};
use crate::rule::Rules;

/// The default limit of a file's size: far more than rules need, and little enough to be read at
/// once.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// The rules in a file.
///
/// A file that is missing, empty or half-written is an error and does not mean that there are no
/// rules: the rules in force stay. To have no rules, write a text that your parser reads as an
/// empty set, such as `[]`.
///
/// Every problem and every change of the content is reported once. If a file is only touched, or
/// replaced by an equal file, nothing is reported.
///
/// Replace the file by a rename. A file that is written in place may be read while it is
/// half-written, and only your parser can recognize that half of the rules is missing; the rest
/// comes with the next poll.
///
/// In a container, mount the directory of the file. If the file alone is mounted, as by `subPath`
/// in Kubernetes, and another file takes its name outside, the mount still shows the old file: the
/// new content is never seen. On Unix that is an error, if the source has seen the file before and
/// the file has no other name left. If a name is left, such as that of a backup copy that an editor
/// keeps, the file is treated like any other.
///
/// # Examples
///
/// ```
/// use tower_sentinel::source::{FileSource, RuleSource, SourceErrorKind};
/// use tower_sentinel::Rules;
///
/// let mut source = FileSource::new("/no/such/file", |_| Ok(Rules::new()));
/// let error = source.poll().unwrap_err();
/// assert_eq!(error.kind(), SourceErrorKind::Io);
/// // It is still missing, which has been reported already.
/// assert_eq!(source.poll().unwrap(), None);
/// ```
///
/// See the [module](super) for an example with a file that exists.
#[must_use = "a source does nothing unless it is asked"]
pub struct FileSource {
    path: PathBuf,
    parse: Box<Parse>,
    access: FileAccess,
    /// Whether the rules are for an engine with a store.
    has_store: bool,
    found: FoundFile,
    links: Links,
    /// The warnings on the rules that were read last.
    warnings: Vec<String>,
}

type Parse = dyn FnMut(&str, bool) -> Result<Parsed, Cause> + Send + Sync;

/// The result of a parser.
struct Parsed {
    rules: Rules,
    warnings: Vec<String>,
}

/// The state after the last look at the file.
#[derive(Debug)]
enum FoundFile {
    Nothing,
    Error(SourceError),
    Content(LastRead),
}

/// Whether the file still has a hard link, here or where it is mounted from.
#[derive(Clone, Copy, Debug)]
enum Links {
    /// No link has been seen yet: not all file systems count links.
    Unknown,
    Present,
    /// No link at the last look. A rename at that moment looks the same, so the loss is reported
    /// only if the next look finds no link either.
    Lost,
}

// === impl FileSource ===

impl FileSource {
    /// Creates a source of the rules that `parse` reads from the file at `path`, which need
    /// not exist yet. Nothing is read before the first [`poll`](RuleSource::poll).
    ///
    /// `parse` is called with the whole text whenever it has changed, and when the file
    /// can be read again after it could not. If it panics, that is an error of
    /// kind [`Panicked`](SourceErrorKind::Panicked).
    pub fn new<P>(path: impl Into<PathBuf>, mut parse: P) -> Self
    where
        P: FnMut(&str) -> Result<Rules, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    {
        Self::with(path, move |text, _| {
            let (rules, warnings) = (parse(text)?, Vec::new());
            Ok(Parsed { rules, warnings })
        })
    }

    fn with<P>(path: impl Into<PathBuf>, parse: P) -> Self
    where
        P: FnMut(&str, bool) -> Result<Parsed, Cause> + Send + Sync + 'static,
    {
        Self {
            path: path.into(),
            parse: Box::new(parse),
            access: FileAccess {
                max_bytes: MAX_BYTES,
                allow_world_writable: false,
            },
            has_store: false,
            found: FoundFile::Nothing,
            links: Links::Unknown,
            warnings: Vec::new(),
        }
    }

    /// Creates a source of the rules of the TOML document at `path`: all of them or none;
    /// see [`document`](crate::document) for its format.
    ///
    /// A document with mistakes is an error of kind [`Invalid`](SourceErrorKind::Invalid) that
    /// lists every mistake with its place, one per line; if there are more than 100, the first 100.
    /// Its [cause](SourceError::cause) is all of the [`Problems`].
    ///
    /// ```
    /// use tower_sentinel::source::{FileSource, RuleSource};
    /// use tower_sentinel::{FlowRule, Rules};
    ///
    /// # let path = std::env::temp_dir().join(format!("sentinel-{}.toml", std::process::id()));
    /// let rule = "[[rules]]\nkind = 'flow'\nresource = '/search'\nthreshold = ";
    /// std::fs::write(&path, format!("{rule}5"))?;
    /// let mut source = FileSource::toml(&path);
    /// assert_eq!(source.poll()?, Some(FlowRule::per_second("/search", 5).into()));
    ///
    /// std::fs::write(&path, format!("{rule}'five'"))?;
    /// let told = source.poll().unwrap_err().to_string();
    /// assert!(told.ends_with("rules[0].threshold is \"five\", must be a number"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A [store](Document::store) that differs from that of the first reading is a
    /// [warning](RuleSource::warnings): the engine keeps its store.
    #[cfg(feature = "serde")]
    pub fn toml(path: impl Into<PathBuf>) -> Self {
        Self::documents(path, |text| Document::read(text, Format::Toml))
    }

    /// Creates a source like [`toml`](Self::toml) for a JSON document: a table in the format of
    /// this crate, or a list of Alibaba Sentinel's rules whose kind can be seen from their keys.
    ///
    /// A list of Alibaba Sentinel's rules may have
    /// [warnings](crate::document::Problem::is_warning). They are the [warnings of the
    /// source](RuleSource::warnings), and a [watch](super::Watch) reports them.
    #[cfg(feature = "serde")]
    pub fn json(path: impl Into<PathBuf>) -> Self {
        Self::documents(path, |text| Document::read(text, Format::Json))
    }

    /// Creates a source like [`toml`](Self::toml) for a document of Alibaba Sentinel with rules of
    /// one `kind`, which then need not be recognizable by their keys. If there is a file for each
    /// kind, make one source over all of them: two [watches](super::Watch) would remove each
    /// other's rules.
    #[cfg(feature = "serde")]
    pub fn sentinel(path: impl Into<PathBuf>, kind: Kind) -> Self {
        Self::documents(path, move |text| Document::read_sentinel(text, kind))
    }

    /// Creates a source of the documents that `read` parses.
    #[cfg(feature = "serde")]
    fn documents<R>(path: impl Into<PathBuf>, read: R) -> Self
    where
        R: Fn(&str) -> Result<Document, Problems> + Send + Sync + 'static,
    {
        let mut first = None;
        Self::with(path, move |text, has_store| {
            let document = read(text)?;
            let document = if has_store {
                document.with_store()
            } else {
                document
            };
            Parsed::of(&document, &mut first)
        })
    }

    /// Reads documents for an engine that has a [store](crate::Builder::store); see
    /// [`Document::with_store`]. Default: for an engine without a store.
    #[cfg(feature = "serde")]
    pub fn with_store(mut self) -> Self {
        self.has_store = true;
        self
    }

    /// Sets how many bytes the file may have; a larger file is an error, and is not read. Default:
    /// 4 MiB; documents in TOML or JSON may never be larger than that. 0 rejects every file.
    pub fn max_bytes(mut self, max: u64) -> Self {
        self.access.max_bytes = max;
        self
    }

    /// Sets whether to read a file that anyone on the machine may change. Default: no.
    ///
    /// On Unix, anyone may change a file
    ///
    /// * that others may write,
    /// * in a directory that others may write and that is not sticky, or
    /// * behind a link in a directory of this kind, unless directory and file have the same owner
    ///   (as in volumes of Kubernetes).
    ///
    /// Other directories on the path, such as the directory of a second link, are not checked, and
    /// neither are write permission of a group and access control lists. On other systems nothing
    /// is checked.
    pub fn allow_world_writable(mut self, allow: bool) -> Self {
        self.access.allow_world_writable = allow;
        self
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file. Returns its content and the digest of the content, if the content is new.
    fn look(&mut self, now: Tick) -> Result<Option<(Vec<u8>, u64)>, SourceError> {
        let stamp = self.stamp()?;
        if let FoundFile::Content(last) = &self.found {
            if last.is_settled_for(&stamp) {
                return Ok(None);
            }
        }
        // The stamp was taken before reading: a later write gives the file another stamp, or
        // happens while the stamp is not settled.
        let (bytes, stamp) = self.access.read(&self.path)?;
        let digest = digest(&bytes);
        let is_new = if let FoundFile::Content(last) = &mut self.found {
            last.update(stamp, digest, now)
        } else {
            self.found = FoundFile::Content(LastRead::new(stamp, digest, now));
            true
        };
        Ok(is_new.then_some((bytes, digest)))
    }

    /// Returns the stamp of the file.
    ///
    /// A file without a hard link is an error if it had one before: the file alone is mounted, and
    /// outside of the mount another file has taken its name, which this process never sees.
    fn stamp(&mut self) -> Result<Stamp, SourceError> {
        let stamp = FileAccess::stamp(&self.path)?;
        self.links = match (self.links, stamp.is_unlinked()) {
            (_, false) => Links::Present,
            (Links::Unknown, true) => Links::Unknown,
            (Links::Present, true) => Links::Lost,
            (Links::Lost, true) => {
                let what = "was replaced or removed where it is mounted from, and what is there \
                            now is not seen here; mount its directory";
                return Err(SourceError::of_file(SourceErrorKind::Io, &self.path, what));
            }
        };
        Ok(stamp)
    }

    /// Parses the rules in `bytes`.
    fn parse(&mut self, bytes: Vec<u8>, digest: u64) -> Result<Parsed, SourceError> {
        let path = &self.path;
        let refused = |kind, cause| SourceError::of_content(kind, path, digest, cause);
        let text = String::from_utf8(bytes)
            .map_err(|error| refused(SourceErrorKind::NotUtf8, error.into()))?;
        if text.trim().is_empty() {
            return Err(refused(SourceErrorKind::Empty, "is empty".into()));
        }
        // A parser that panics is responsible for the state that it leaves behind.
        let answer = catch_panic_or(
            || Ok((self.parse)(&text, self.has_store)),
            |panic| Err(format!("the parser panicked: {}", panic_text(panic))),
        );
        match answer {
            Ok(answer) => answer.map_err(|cause| refused(SourceErrorKind::Invalid, cause)),
            Err(panic) => Err(refused(SourceErrorKind::Panicked, panic.into())),
        }
    }
}

/// Returns the digest of `bytes`. It is the same for all sources, so that the error of a source
/// that is created anew for each poll equals the previous one. A user that could choose two
/// contents with the same digest may write the rules anyway.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl RuleSource for FileSource {
    fn poll(&mut self) -> Result<Option<Rules>, SourceError> {
        match self.look(MonotonicClock.now()) {
            Ok(None) => Ok(None),
            Ok(Some((bytes, digest))) => {
                let Parsed { rules, warnings } = self.parse(bytes, digest)?;
                self.warnings.clear();
                for warning in warnings {
                    let path = self.path.display();
                    self.warnings.push(format!("{path}: {warning}"));
                }
                Ok(Some(rules))
            }
            Err(error) => {
                if let FoundFile::Error(known) = &self.found {
                    if known.is_same_problem_as(&error) {
                        return Ok(None);
                    }
                }
                self.found = FoundFile::Error(error.clone());
                Err(error)
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

// === impl Parsed ===

#[cfg(feature = "serde")]
impl Parsed {
    /// Returns all rules of `document`, or the reason why it has no valid rules. `first` keeps the
    /// store of the first document that could be read.
    fn of(document: &Document, first: &mut Option<Option<StoreSection>>) -> Result<Self, Cause> {
        let rules = document.strict()?;
        let warnings = document.problems().warnings();
        let mut warnings: Vec<_> = warnings.map(ToString::to_string).collect();
        let store = document.store().cloned();
        if *first.get_or_insert_with(|| store.clone()) != store {
            let note = "store is another one than at the start: the engine keeps the one that it \
                 has until the program is started again";
            warnings.push(note.to_owned());
        }
        Ok(Self { rules, warnings })
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource")
            .field("path", &self.path)
            .field("access", &self.access)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}
