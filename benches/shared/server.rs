//! A Redis or Valkey server of the bench's own, on a socket in a temporary folder.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends with the value.
pub(crate) struct Server {
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// `None` where neither program is there.
    pub(crate) fn start() -> Option<Self> {
        let folder = format!("sentinel-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let run = |program| {
            Command::new(program)
                .args(["--port", "0", "--save", "", "--appendonly", "no"])
                .arg("--unixsocket")
                .arg(&socket)
                .stdout(Stdio::null())
                .spawn()
        };
        let child = run("redis-server").or_else(|_| run("valkey-server")).ok()?;
        while UnixStream::connect(&socket).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { folder, child })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.join("socket").display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
