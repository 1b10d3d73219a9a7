//! Reads the CPU quota and the memory limit of a process: the tightest of all its control groups.
//!
//! A process is in one group of each hierarchy, and the limits of all parent groups apply too. Two
//! files in `/proc/self` show which groups these are:
//!
//! ```text
//! cgroup     4:cpu,cpuacct:/pods/a     hierarchy : controllers : group
//!            0::/pods/a                version 2 has neither number nor names
//! mountinfo  33 … /pods /sys/fs/cgroup/cpu … - cgroup … rw,cpu
//!                 root  mount point         kind        controllers
//!
//! looked at: /sys/fs/cgroup/cpu/a, /sys/fs/cgroup/cpu
//! ```
//!
//! In a container, the parents of its group are usually not visible. A group without a file for the
//! limit, such as a root group, has no limit. If a file cannot be read or parsed, the limit is
//! unknown.
//!
//! Some machines run both versions together. Each resource is then controlled by one version, and
//! the other version has no files for it. Both versions are checked.

use std::io;
use std::path::{Path, PathBuf};

use super::proc;

/// The groups of a process that can limit one resource. They are located once, because a process
/// hardly ever moves to other groups.
#[derive(Debug)]
pub(super) struct Groups(Vec<Group>);

/// A control group: a folder with a file for each limit.
#[derive(Debug)]
struct Group {
    version: Version,
    folder: PathBuf,
}

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A place where a hierarchy is mounted.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that is visible at the mount point.
    root: String,
    /// The path of the mount point.
    point: String,
}

// === impl Groups ===

impl Groups {
    /// Finds the groups of `controller`, which is `cpu` or `memory`. `root` is the folder that
    /// contains `proc`.
    pub(super) fn find(root: &Path, controller: &str) -> io::Result<Self> {
        let Some(membership) = read(&root.join("proc/self/cgroup"))? else {
            // The kernel has no control groups.
            return Ok(Self(Vec::new()));
        };
        // Decoded with replacement characters, because the paths of other mounts can contain any
        // bytes.
        let mounts = proc::text(&root.join("proc/self/mountinfo"))?;
        let mounts = mounts.lines();
        let mounts: Vec<_> = mounts
            .filter_map(|line| Mount::parse(line, controller))
            .collect();
        let mut groups = Vec::new();
        let lines = membership.lines();
        for (version, path) in lines.filter_map(|line| member(line, controller)) {
            let seen = || mounts.iter().filter(|mount| mount.version == version);
            // If several mounts show the group, the one with the most parent groups is used.
            let showing = seen().filter(|mount| mount.below(path).is_some());
            let mount = showing.min_by_key(|mount| mount.root.len());
            // If no mount shows the group, the group at the first mount point is used.
            let Some(mount) = mount.or_else(|| seen().next()) else {
                continue;
            };
            let top = mount.below_root(root);
            let below = mount.below(path).unwrap_or_default();
            groups.extend(Path::new(below).ancestors().map(|group| Group {
                version,
                folder: top.join(group),
            }));
        }
        Ok(Self(groups))
    }

    /// Returns the tightest CPU quota, in cores; `None` if there is none.
    pub(super) fn quota(&self) -> io::Result<Option<f64>> {
        self.tightest(Group::quota, f64::min)
    }

    /// Returns the tightest memory limit, in bytes; `None` if there is none.
    pub(super) fn memory(&self) -> io::Result<Option<u64>> {
        self.tightest(Group::memory, u64::min)
    }

    /// Returns the tightest `limit` of all groups; `None` if no group has a limit.
    fn tightest<T>(
        &self,
        limit: fn(&Group) -> io::Result<Option<T>>,
        tighter: fn(T, T) -> T,
    ) -> io::Result<Option<T>> {
        let mut tightest = None;
        for group in &self.0 {
            tightest = match (tightest, limit(group)?) {
                (Some(known), Some(limit)) => Some(tighter(known, limit)),
                (known, limit) => known.or(limit),
            };
        }
        Ok(tightest)
    }
}

/// Parses a line of `/proc/self/cgroup`. Returns the version and the group, if the group can have
/// limits of `controller`.
fn member<'a>(line: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    if controllers.is_empty() {
        Some((Version::Two, path))
    } else {
        let is_controlled = controllers.split(',').any(|name| name == controller);
        is_controlled.then_some((Version::One, path))
    }
}

// === impl Mount ===

impl Mount {
    /// Parses a line of `/proc/self/mountinfo`, if it is a mount of a hierarchy of `controller`.
    fn parse(line: &str, controller: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        // These fields are the type of the file system, its source, and its options.
        let version = match after.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if after.nth(1)?.split(',').any(|name| name == controller) => Version::One,
            _ => return None,
        };
        // The ids of the mount and of its parent and the device come before the root.
        let mut before = before.split(' ').skip(3);
        Some(Self {
            version,
            root: unescaped(before.next()?),
            point: unescaped(before.next()?),
        })
    }

    /// Returns the path of the mount point under `root`. If the mount point starts with `root`,
    /// because the process itself sees the files of its host there, it is returned unchanged.
    fn below_root(&self, root: &Path) -> PathBuf {
        let point = Path::new(&self.point);
        if point.starts_with(root) {
            point.to_owned()
        } else {
            root.join(self.point.trim_start_matches('/'))
        }
    }

    /// Returns the group `path` relative to the mount point; `None` if it is not visible there.
    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = Path::new(path).strip_prefix(&self.root).ok()?.to_str()?;
        // A group outside of the cgroup namespace has a path with `..`.
        (!below.split('/').any(|part| part == "..")).then_some(below)
    }
}

// === impl Group ===

impl Group {
    /// Returns the CPU quota of this group, in cores; `None` if there is none.
    fn quota(&self) -> io::Result<Option<f64>> {
        let file = |name: &str| read(&self.folder.join(name));
        let (quota, period) = match self.version {
            Version::One => match (file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?) {
                (Some(quota), Some(period)) => (quota, period),
                _ => return Ok(None),
            },
            Version::Two => {
                let Some(text) = file("cpu.max")? else {
                    return Ok(None);
                };
                let (quota, period) = text.trim().split_once(' ').ok_or_else(malformed)?;
                (quota.to_owned(), period.to_owned())
            }
        };
        if ["max", "-1"].contains(&quota.trim()) {
            return Ok(None);
        }
        match (quota.trim().parse::<u64>(), period.trim().parse::<u64>()) {
            (Ok(quota @ 1..), Ok(period @ 1..)) => Ok(Some(quota as f64 / period as f64)),
            _ => Err(malformed()),
        }
    }

    /// Returns the memory limit of this group, in bytes; `None` if there is none.
    fn memory(&self) -> io::Result<Option<u64>> {
        let name = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        match read(&self.folder.join(name))?.as_deref().map(str::trim) {
            None | Some("max" | "-1") => Ok(None),
            // In version 1, "no limit" is a number larger than any memory.
            Some(text) => text.parse().map(Some).map_err(|_| malformed()),
        }
    }
}

/// Decodes a field of `mountinfo`, in which backslashes and white space are written in octal, such
/// as `\134`.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Reads the text of a file; `None` if the file does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
