//! Rules from files and other sources: what is seen, what is refused, what is
//! told, and that the rules in force survive all of it.

mod document;
mod file;
mod sink;
mod watch;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tower_sentinel::{FlowRule, Rules};

/// How long a test waits for something that must happen: far longer than it
/// takes.
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// An empty directory that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sentinel-rules-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        let folder = Self(path);
        set_mode(&folder.0, 0o755);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes the file `name` in place.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o644);
        path
    }

    /// Replaces the file `name` by a new one, as editors do.
    fn replace(&self, name: &str, text: &str) {
        let new = self.write("new", text);
        fs::rename(new, self.path(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that fails must not fail again here.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sets what a umask would otherwise decide.
#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: u32) {}

/// One rule a line: a resource, and how many calls a second may pass.
fn parse(text: &str) -> Result<Rules, Box<dyn Error + Send + Sync>> {
    let mut rules = Vec::new();
    for line in text.lines() {
        let (resource, limit) = line.split_once(' ').ok_or("a line without a limit")?;
        rules.push(FlowRule::per_second(resource, limit.parse::<f64>()?));
    }
    Ok(Rules::build(rules)?)
}

fn limit(limit: u32) -> Rules {
    FlowRule::per_second("r", limit).into()
}

/// Runs `action`, which must not take long, on a thread of its own.
fn promptly(action: impl FnOnce() + Send + 'static) {
    let (tell, done) = mpsc::channel();
    std::thread::spawn(move || {
        action();
        tell.send(()).unwrap();
    });
    done.recv_timeout(PATIENCE).expect("it does not take long");
}
