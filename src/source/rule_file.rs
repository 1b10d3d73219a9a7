//! A file of rules that is rewritten as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::access::FileAccess;
use super::error::SourceError;
use super::file::MAX_BYTES;
use super::sink::RuleSink;
use crate::base::sync::Lock;
use crate::document::{Document, Format};
use crate::rule::Rules;

/// A file of rules that can be changed while the program runs: the [sink](RuleSink) for a file that
/// [`FileSource::toml`](super::FileSource::toml) or [`FileSource::json`](super::FileSource::json)
/// reads.
///
/// New rules are written to another file in the same directory, which then takes the name of the
/// old file: a crash, a full disk or a reader in between leaves the old file or the new file, and
/// never a part of a file. The mode of the file stays, its owner becomes that of the process.
/// Behind a link, the file that it leads to is replaced. Comments and the order of keys are lost.
///
/// If the file does not have the rules that are in force, somebody has changed it, and nothing is
/// written. A missing file is created. The file is read once more just before it is replaced: only
/// a change between that moment and the replacement goes unnoticed, and is lost.
///
/// # Examples
///
/// ```
/// use tower_sentinel::source::{RuleFile, RuleSink, SourceErrorKind};
/// use tower_sentinel::{FlowRule, Rules};
///
/// # let path = std::env::temp_dir().join(format!("sentinel-sink-{}.toml", std::process::id()));
/// let sink = RuleFile::toml(&path);
/// let [five, six] = [5, 6].map(|limit| Rules::from(FlowRule::per_second("/search", limit)));
/// sink.store(&Rules::new(), &five)?;
/// assert!(std::fs::read_to_string(&path)?.contains("threshold = 5"));
///
/// // The file has five, and not what the caller has seen.
/// let error = sink.store(&six, &Rules::new()).unwrap_err();
/// assert_eq!(error.kind(), SourceErrorKind::Changed);
/// sink.store(&five, &six)?;
/// assert!(std::fs::read_to_string(&path)?.contains("threshold = 6"));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RuleFile {
    path: PathBuf,
    format: Format,
    /// Held while the file is replaced.
    writing: Lock<()>,
}

impl RuleFile {
    /// Creates a sink that writes TOML to `path`.
    #[must_use]
    pub fn toml(path: impl Into<PathBuf>) -> Self {
        Self::with(path.into(), Format::Toml)
    }

    /// Creates a sink that writes JSON to `path`, in the form of this crate.
    #[must_use]
    pub fn json(path: impl Into<PathBuf>) -> Self {
        Self::with(path.into(), Format::Json)
    }

    fn with(path: PathBuf, format: Format) -> Self {
        Self {
            path,
            format,
            writing: Lock::new(()),
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content of the file at `real`, if the file exists.
    fn read(&self, real: &Path) -> Result<Option<Vec<u8>>, SourceError> {
        let access = FileAccess {
            max_bytes: MAX_BYTES,
            allow_world_writable: false,
        };
        match access.read(real) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(_) if !real.exists() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the error that the file was changed by somebody else.
    fn changed(&self, why: &str) -> SourceError {
        SourceError::changed(format!("{}: {why}", self.path.display()))
    }
}

impl RuleSink for RuleFile {
    fn store(&self, before: &Rules, after: &Rules) -> Result<(), SourceError> {
        let _only = self.writing.lock();
        // The link stays, and leads to the new file.
        let real = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let old_content = self.read(&real)?;
        let mut document = Document::from_rules(after);
        if let Some(bytes) = &old_content {
            let text =
                std::str::from_utf8(bytes).map_err(|_| self.changed("is no text any more"))?;
            let present = Document::read(text, self.format).ok();
            let strict = |document: &Document| document.strict().is_ok_and(|it| it == *before);
            let Some(present) = present.filter(strict) else {
                return Err(self.changed(
                    "has other rules than those in force, so somebody has changed it; nothing was \
                     written",
                ));
            };
            document = present.with_rules(after);
        }
        let text = document.write(self.format);
        let is_same = || Ok(self.read(&real)? == old_content);
        let written = replace(&real, |file| file.write_all(text.as_bytes()), is_same);
        match written {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.changed("was changed while it was being written")),
            Err(Failed::Io(error)) => Err(SourceError::of_write(&self.path, error)),
            Err(Failed::Look(error)) => Err(error),
        }
    }

    fn note(&self) -> String {
        let path = self.path.display();
        match self.format {
            Format::Toml => format!("Changes are written to {path}, whose comments are lost."),
            Format::Json => format!("Changes are written to {path}."),
        }
    }
}

/// Why a file was not replaced.
#[derive(Debug)]
enum Failed {
    /// The new file could not be written.
    Io(io::Error),
    /// The old file could not be read again.
    Look(SourceError),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Replaces the file at `path` by what `write` writes, if `is_same` finds it unchanged after that.
/// Returns false if the file has changed. After any failure the old file is in place, and no other
/// file is left.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    is_same: impl FnOnce() -> Result<bool, SourceError>,
) -> Result<bool, Failed> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(
        path.file_name()
            .ok_or(io::ErrorKind::InvalidInput)
            .map_err(io::Error::from)?,
    );
    name.push(format!(".{}.tmp", std::process::id()));
    let new_path = folder.join(name);
    // Fails if a file or a link of this name exists, so nothing is written through a link.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&new_path)?;
    let done = (|| {
        write(&mut file)?;
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        if !is_same().map_err(Failed::Look)? {
            return Ok(false);
        }
        fs::rename(&new_path, path)?;
        Ok(true)
    })();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_file(&new_path);
        return done;
    }
    // The new name survives a crash once the directory is synced. Not every system can open a
    // directory, and the rules are in the file anyway, so an error is ignored.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    done
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_half_way_leaves_the_old_file() {
        let folder = std::env::temp_dir().join(format!("sentinel-full-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("rules.toml");
        fs::write(&path, "old").unwrap();
        let fail = |file: &mut File| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let failed = replace(&path, fail, || Ok(true));
        assert!(
            matches!(failed, Err(Failed::Io(error)) if error.kind() == io::ErrorKind::StorageFull)
        );
        let write = |file: &mut File| file.write_all(b"new");
        assert!(matches!(replace(&path, write, || Ok(false)), Ok(false)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert!(matches!(replace(&path, write, || Ok(true)), Ok(true)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
