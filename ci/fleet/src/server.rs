//! A server of its own, on a socket in a temporary folder.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends with the value.
pub(crate) struct Server {
    folder: PathBuf,
    child: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = format!("sentinel-fleet-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let child = run(&folder);
        Self { folder, child }
    }

    /// Writes a snapshot of all its data.
    pub(crate) fn save(&self) {
        let mut link = UnixStream::connect(self.folder.join("socket")).unwrap();
        link.write_all(b"SAVE\r\n").unwrap();
        let mut answer = [0; 5];
        link.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }

    /// Kills it at once, and runs another one: with the data of the snapshot, or without any.
    pub(crate) fn restart(&mut self, has_snapshot: bool) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        if !has_snapshot {
            std::fs::remove_file(self.folder.join("dump.rdb")).unwrap();
        }
        self.child = run(&self.folder);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.join("socket").display())
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs one in `folder`, with the data of the snapshot there, and waits until it takes connections.
fn run(folder: &Path) -> Child {
    let socket = folder.join("socket");
    // That of a killed one is still there, and nobody listens at it.
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
        .arg(folder)
        .arg("--unixsocket")
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn();
    while UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.unwrap()
}
