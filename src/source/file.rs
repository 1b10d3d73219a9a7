//! Rules in a file, which is looked at now and then.
//!
//! Looking costs one system call as long as nothing changes: the stamp of the
//! file, behind all links. It says when to read, and the content says whether
//! there is something new (`source::sight`). So it does not matter how a file
//! is replaced: written in place, by a rename as editors do it, or by a link that
//! leads elsewhere as Kubernetes does it. There is nothing to be told by the
//! operating system, and so nothing that network file systems do not tell.
//!
//! What the last look has found is one value. What it says is told when it is
//! entered, so a file that stays as it is is never told twice.
//!
//! ```text
//! Nothing ──► Content(sight)   read: the rules, or why they are none
//!                ▲      │
//!                │      ▼
//!             Trouble(error)   not read: missing, a directory, too large, …
//! ```

use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::RuleSource;
use super::access::Access;
use super::error::{Cause, SourceError, SourceErrorKind, panic_text};
use super::sight::{Sight, Stamp};
use crate::clock::{Clock, MonotonicClock, Tick};
#[cfg(feature = "serde")]
use crate::document::{Document, DocumentError, Format, Kind};
use crate::rule::Rules;

/// Far more than rules need, and little enough to be read at once.
const MAX_BYTES: u64 = 4 << 20;

/// The rules in a file.
///
/// It never says that there are no rules because a file is missing, empty or
/// half-written: those are errors, and the rules in force stay. To have none,
/// write what your parser reads as none, such as `[]`.
///
/// Every problem and every change of the content is told once; a file that is
/// touched, or replaced by an equal one, tells nothing.
///
/// Replace the file by a rename. One that is written in place may be read in the
/// middle of it, and only your parser can tell a half of the rules from all of
/// them; the rest comes with the next look.
///
/// In a container, mount the directory of the file. A mount of the file alone, as
/// by `subPath` in Kubernetes, stays the file that it was when another one takes
/// its name outside: what is written there is never seen. On Unix that is an error,
/// if the source has seen the file before and no other name is left to it, as to a
/// copy that an editor keeps: that is a file like any other.
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
/// // It stays missing, which has been told.
/// assert_eq!(source.poll().unwrap(), None);
/// ```
///
/// See the [module](super) for one that is there.
#[must_use = "a source does nothing unless it is asked"]
pub struct FileSource {
    path: PathBuf,
    parse: Box<Parse>,
    access: Access,
    found: Found,
    name: Name,
    /// Those of the rules that were read last.
    warnings: Vec<String>,
}

type Parse = dyn FnMut(&str) -> Result<Parsed, Cause> + Send + Sync;

/// What a parser has read.
struct Parsed {
    rules: Rules,
    warnings: Vec<String>,
}

/// What the last look has found.
#[derive(Debug)]
enum Found {
    Nothing,
    Trouble(SourceError),
    Content(Sight),
}

/// Whether the file has a name, where it is mounted from at least.
#[derive(Clone, Copy, Debug)]
enum Name {
    /// Never seen: not all file systems count names.
    Unseen,
    Seen,
    /// At the last look. A rename in that very moment looks the same, so it is
    /// told only if the next look finds it again.
    Lost,
}

// === impl FileSource ===

impl FileSource {
    /// The rules that `parse` reads from the file at `path`, which need not be
    /// there yet. Nothing is read before the first [`poll`](RuleSource::poll).
    ///
    /// `parse` is given the whole text whenever it has changed, and when the file
    /// can be read again after it could not. If it panics, that is an error of
    /// kind [`Panicked`](SourceErrorKind::Panicked).
    pub fn new<P>(path: impl Into<PathBuf>, mut parse: P) -> Self
    where
        P: FnMut(&str) -> Result<Rules, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    {
        Self::with(path, move |text| {
            let (rules, warnings) = (parse(text)?, Vec::new());
            Ok(Parsed { rules, warnings })
        })
    }

    fn with<P>(path: impl Into<PathBuf>, parse: P) -> Self
    where
        P: FnMut(&str) -> Result<Parsed, Cause> + Send + Sync + 'static,
    {
        Self {
            path: path.into(),
            parse: Box::new(parse),
            access: Access {
                max_bytes: MAX_BYTES,
                allow_world_writable: false,
            },
            found: Found::Nothing,
            name: Name::Unseen,
            warnings: Vec::new(),
        }
    }

    /// The rules of the TOML document at `path`, all or none of them; see
    /// [`document`](crate::document) for what it looks like.
    ///
    /// A document with a mistake is an error of kind
    /// [`Invalid`](SourceErrorKind::Invalid) that tells every mistake with its
    /// place, one in each line, and of more than 100 the first. Its
    /// [cause](SourceError::cause) is a
    /// [`DocumentError`](crate::document::DocumentError) or all of the
    /// [`Problems`](crate::document::Problems).
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
    #[cfg(feature = "serde")]
    pub fn toml(path: impl Into<PathBuf>) -> Self {
        Self::with(path, |text| Parsed::of(Document::read(text, Format::Toml)))
    }

    /// The same for a JSON document: a table in the form of this crate, or a list
    /// of Sentinel's rules whose kind shows in their keys.
    ///
    /// The [warnings](crate::document::Problem::is_warning) that a list of
    /// Sentinel's may have are those of the [source](RuleSource::warnings), and a
    /// [watch](super::Watch) tells them.
    #[cfg(feature = "serde")]
    pub fn json(path: impl Into<PathBuf>) -> Self {
        Self::with(path, |text| Parsed::of(Document::read(text, Format::Json)))
    }

    /// The same for a document of Sentinel's with rules of one `kind`, which need
    /// not show in their keys. For a file of each kind make one source over all of
    /// them: two [watches](super::Watch) would throw out each other's rules.
    #[cfg(feature = "serde")]
    pub fn sentinel(path: impl Into<PathBuf>, kind: Kind) -> Self {
        Self::with(path, move |text| {
            Parsed::of(Document::read_sentinel(text, kind))
        })
    }

    /// How many bytes the file may have; a larger one is refused, and not read.
    /// Default: 4 MiB, and a document in TOML or JSON never has more. 0 refuses every
    /// file.
    pub fn max_bytes(mut self, max: u64) -> Self {
        self.access.max_bytes = max;
        self
    }

    /// Whether to read a file that anyone on the machine may change. Default: no.
    ///
    /// Such is, on Unix, a file that others may write; one in a directory that
    /// others may write and that is not sticky; and one behind a link in such a
    /// directory, unless both have the same owner (as in volumes of Kubernetes).
    /// Other directories on the way, writers by group, and access lists are not
    /// looked at. On other systems nothing is.
    pub fn allow_world_writable(mut self, allow: bool) -> Self {
        self.access.allow_world_writable = allow;
        self
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file. Returns what it holds, with the digest of it, if that
    /// is something new.
    fn look(&mut self, now: Tick) -> Result<Option<(Vec<u8>, u64)>, SourceError> {
        let stamp = self.stamp()?;
        if let Found::Content(sight) = &self.found {
            if sight.is_final_for(&stamp) {
                return Ok(None);
            }
        }
        // The stamp from before the reading: what is written after has another,
        // or comes within the time in which it is not believed.
        let (bytes, stamp) = self.access.read(&self.path)?;
        let digest = digest(&bytes);
        let is_new = if let Found::Content(sight) = &mut self.found {
            sight.renew(stamp, digest, now)
        } else {
            self.found = Found::Content(Sight::new(stamp, digest, now));
            true
        };
        Ok(is_new.then_some((bytes, digest)))
    }

    /// The stamp of the file.
    ///
    /// A path leads to a file without a name where that file alone is mounted, and
    /// outside of the mount another one has taken its name: that is never seen here.
    fn stamp(&mut self) -> Result<Stamp, SourceError> {
        let stamp = Access::stamp(&self.path)?;
        self.name = match (self.name, stamp.is_nameless()) {
            (_, false) => Name::Seen,
            (Name::Unseen, true) => Name::Unseen,
            (Name::Seen, true) => Name::Lost,
            (Name::Lost, true) => {
                let what = "was replaced or removed where it is mounted from, and what is there \
                            now is not seen here; mount its directory";
                return Err(SourceError::of_file(SourceErrorKind::Io, &self.path, what));
            }
        };
        Ok(stamp)
    }

    /// The rules in `bytes`.
    fn parse(&mut self, bytes: Vec<u8>, digest: u64) -> Result<Parsed, SourceError> {
        let path = &self.path;
        let refused = |kind, cause| SourceError::of_content(kind, path, digest, cause);
        let text = String::from_utf8(bytes)
            .map_err(|error| refused(SourceErrorKind::NotUtf8, error.into()))?;
        if text.trim().is_empty() {
            return Err(refused(SourceErrorKind::Empty, "is empty".into()));
        }
        // What the parser leaves behind when it panics is its own affair.
        match catch_unwind(AssertUnwindSafe(|| (self.parse)(&text))) {
            Ok(answer) => answer.map_err(|cause| refused(SourceErrorKind::Invalid, cause)),
            Err(panic) => {
                let cause = format!("the parser panicked: {}", panic_text(&*panic));
                Err(refused(SourceErrorKind::Panicked, cause.into()))
            }
        }
    }
}

/// What `bytes` are known by: the same for all sources, so that an error of one
/// that is made anew for each look reads as the one before. Who could choose the
/// content so that two have one digest may write the rules anyway.
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
                let path = self.path.display();
                let with_path = |warning| format!("{path}: {warning}");
                self.warnings = warnings.into_iter().map(with_path).collect();
                Ok(Some(rules))
            }
            Err(error) => {
                if let Found::Trouble(told) = &self.found {
                    if told.tells_the_same_as(&error) {
                        return Ok(None);
                    }
                }
                self.found = Found::Trouble(error.clone());
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
    /// All rules of `document`, or why there are none.
    fn of(document: Result<Document, DocumentError>) -> Result<Self, Cause> {
        let document = document?;
        Ok(Self {
            rules: document.strict()?,
            warnings: document
                .problems()
                .warnings()
                .map(ToString::to_string)
                .collect(),
        })
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
