//! Reads a file of rules if it is a regular file, is not too large, and cannot be changed by every
//! user of the machine.
//!
//! The checks are made on the file that was opened, as its name can lead to another file a moment
//! later. Only the kind of file is also checked before it is opened, because opening a pipe would
//! wait for a writer.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use super::error::{SourceError, SourceErrorKind};
use super::stamp::Stamp;

/// Which files may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileAccess {
    pub(super) max_bytes: u64,
    pub(super) allow_world_writable: bool,
}

impl FileAccess {
    /// Returns the stamp of the file at `path`, behind all links.
    pub(super) fn stamp(path: &Path) -> Result<Stamp, SourceError> {
        let metadata = fs::metadata(path).map_err(|cause| SourceError::of_io(path, cause))?;
        regular(path, &metadata)?;
        Ok(Stamp::of(&metadata))
    }

    /// Returns the content of the file at `path`, and the stamp that it had before.
    pub(super) fn read(self, path: &Path) -> Result<(Vec<u8>, Stamp), SourceError> {
        let failed = |cause| SourceError::of_io(path, cause);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        regular(path, &metadata)?;
        if !self.allow_world_writable {
            if let Some(what) = writable_by_anyone(path, &metadata).map_err(failed)? {
                let kind = SourceErrorKind::WorldWritable;
                return Err(SourceError::of_file(kind, path, what));
            }
        }
        let mut bytes = Vec::new();
        if metadata.len() <= self.max_bytes {
            // One more byte shows whether the file has grown since.
            let most = self.max_bytes.saturating_add(1);
            file.take(most).read_to_end(&mut bytes).map_err(failed)?;
        }
        if metadata.len().max(bytes.len() as u64) > self.max_bytes {
            let what = format_args!("has more than {} bytes", self.max_bytes).to_string();
            return Err(SourceError::of_file(SourceErrorKind::TooLarge, path, what));
        }
        Ok((bytes, Stamp::of(&metadata)))
    }
}

/// Returns an error if the file at `path` is not a regular file.
fn regular(path: &Path, metadata: &Metadata) -> Result<(), SourceError> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_dir() {
        "is a directory, must be a regular file"
    } else {
        "is a pipe, a device or a socket, must be a regular file"
    };
    Err(SourceError::of_file(SourceErrorKind::NotAFile, path, what))
}

/// Returns how any user of the machine could change the content of `path`, which leads to `file`;
/// `None` if no easy way is found.
///
/// Volumes that Kubernetes makes of a `ConfigMap` need a closer look. Their directory has mode 0777
/// and holds links; the files lie in a directory below, with mode 0755, all of one owner. So in a
/// directory where anyone may replace a link, a link is accepted if it leads to a file of the
/// directory's owner: no other user can create a file with that owner.
#[cfg(unix)]
fn writable_by_anyone(path: &Path, file: &Metadata) -> io::Result<Option<String>> {
    use std::os::unix::fs::MetadataExt;

    // The bits of a mode: every user may write; only owners may replace the files of a directory.
    const ANYONE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    // In a sticky directory, such as /tmp, only owners replace their files.
    let is_open = |folder: &Metadata| folder.mode() & (ANYONE | STICKY) == ANYONE;

    let mode = file.mode() & 0o7777;
    if mode & ANYONE != 0 {
        return Ok(Some(format!("anyone may write to it (mode {mode:04o})")));
    }
    let real = fs::canonicalize(path)?;
    for (name, has_file) in [(real.as_path(), true), (path, false)] {
        let folder = match name.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let metadata = fs::metadata(folder)?;
        if is_open(&metadata) && (has_file || metadata.uid() != file.uid()) {
            let (folder, mode) = (folder.display(), metadata.mode() & 0o7777);
            let what = format!("anyone may replace it in {folder} (mode {mode:04o})");
            return Ok(Some(what));
        }
    }
    Ok(None)
}

#[cfg(not(unix))]
fn writable_by_anyone(_: &Path, _: &Metadata) -> io::Result<Option<String>> {
    Ok(None)
}
