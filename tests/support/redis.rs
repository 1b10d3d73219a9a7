//! A Redis or Valkey server of a test's own, on a socket in a temporary folder.

use std::fs;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Ends with the value.
pub(crate) struct Server {
    binary: String,
    folder: PathBuf,
    child: Option<Child>,
}

/// The program to run, if there is one.
pub(crate) fn binary() -> Option<String> {
    let named = std::env::var("TOWER_SENTINEL_REDIS").ok();
    let names = named.map_or_else(
        || vec!["redis-server".to_owned(), "valkey-server".to_owned()],
        |name| vec![name],
    );
    names.into_iter().find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    })
}

/// A port that nobody listens on: below those that the system gives to clients, so that none of
/// them takes it before the server does.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 1_000) as u16 * 16;
    loop {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 16_000;
        let port = 16_000 + number;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Server {
    /// Starts a server, with these arguments beside its own. `None`, and a line that says so, if
    /// this machine has none; then the test passes, unless `SENTINEL_REDIS_REQUIRED` is set.
    pub(crate) async fn start(name: &str, arguments: &[&str]) -> Option<Self> {
        let Some(binary) = binary() else {
            let is_required = std::env::var_os("SENTINEL_REDIS_REQUIRED").is_some();
            assert!(!is_required, "there is no redis-server");
            println!("SKIPPED, no redis-server");
            return None;
        };
        let folder = format!("sentinel-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let mut server = Self {
            binary,
            folder,
            child: None,
        };
        server.run(arguments).await;
        Some(server)
    }

    /// Two servers, for the halves of a test that pass their time side by side.
    pub(crate) async fn start_two(name: &str) -> Option<[Self; 2]> {
        let one = Self::start(&format!("{name}-one"), &[]).await?;
        Some([one, Self::start(&format!("{name}-two"), &[]).await?])
    }

    /// Starts it again, without its data.
    pub(crate) async fn run(&mut self, arguments: &[&str]) {
        let _ = fs::remove_file(self.folder.join("dump.rdb"));
        self.run_from_snapshot(arguments).await;
    }

    /// Starts it again, with the data of the last `SAVE`.
    pub(crate) async fn run_from_snapshot(&mut self, arguments: &[&str]) {
        let _ = fs::remove_file(self.socket());
        let child = Command::new(&self.binary)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.folder)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn();
        let child = self.child.insert(child.unwrap());
        while UnixStream::connect(self.folder.join("socket")).is_err() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended at once: {arguments:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Where it keeps its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends it a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Runs a command on a connection of its own. Returns the raw answer.
    pub(crate) fn command(&self, words: &[&[u8]]) -> Vec<u8> {
        self.talk().command(words)
    }

    /// A connection for many commands.
    pub(crate) fn talk(&self) -> Talk {
        Talk(self.connect())
    }

    /// The same for words of text.
    pub(crate) fn say(&self, command: &str) -> String {
        self.say_all(&[command]).remove(0)
    }

    /// Runs several commands on one connection, until one ends it.
    pub(crate) fn say_all(&self, commands: &[&str]) -> Vec<String> {
        let mut stream = self.connect();
        let answers = commands.iter().map(|command| {
            let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
            String::from_utf8_lossy(&ask(&mut stream, &words)).into_owned()
        });
        answers.collect()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        let most = Some(Duration::from_secs(5));
        stream.set_read_timeout(most).unwrap();
        stream
    }

    /// The value of `key`; empty if there is none.
    pub(crate) fn get(&self, key: &str) -> Vec<u8> {
        self.talk().get(key)
    }
}

/// A connection of a test's own.
pub(crate) struct Talk(UnixStream);

impl Talk {
    /// Runs a command. Returns the raw answer.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Vec<u8> {
        ask(&mut self.0, words)
    }

    /// The value of `key`; empty if there is none.
    pub(crate) fn get(&mut self, key: &str) -> Vec<u8> {
        let answer = self.command(&[b"GET", key.as_bytes()]);
        let start = answer.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        let end = answer.len().saturating_sub(2).max(start);
        answer[start..end].to_vec()
    }
}

/// Sends a command. Returns the raw answer; empty if the connection ended.
fn ask(stream: &mut UnixStream, words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).bytes());
        request.extend(*word);
        request.extend(b"\r\n");
    }
    let (mut answer, mut some) = (Vec::new(), [0; 4_096]);
    // A replica that becomes the master ends the connections of its clients.
    let has_ended = |error: &Error| {
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        )
    };
    match stream.write_all(&request) {
        Err(error) if has_ended(&error) => return answer,
        written => written.unwrap(),
    }
    loop {
        let count = match stream.read(&mut some) {
            Err(error) if has_ended(&error) => 0,
            read => read.unwrap(),
        };
        answer.extend(&some[..count]);
        if count == 0 || is_whole(&answer) {
            return answer;
        }
    }
}

/// Whether a line, or a text of a told length, is there.
fn is_whole(answer: &[u8]) -> bool {
    let Some(line) = answer.windows(2).position(|pair| pair == b"\r\n") else {
        return false;
    };
    let length = std::str::from_utf8(&answer[1..line]).unwrap_or_default();
    match (answer[0], length.parse::<i64>()) {
        (b'$', Ok(length)) if length >= 0 => answer.len() as i64 >= line as i64 + 4 + length,
        (b'*', Ok(count)) => count == 0 || answer.ends_with(b"\r\n") && answer.len() > line + 2,
        _ => true,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
