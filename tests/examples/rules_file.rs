//! The example with rules in a file: the file is edited while it runs.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tokio::time::Instant;

use crate::{BUCKET, DEADLINE, most, path_of};

/// The example, running over a file until it is dropped.
struct Example {
    child: Child,
    folder: PathBuf,
    lines: mpsc::Receiver<String>,
    addr: String,
}

impl Example {
    fn start(rules: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sentinel-example-{}", std::process::id()));
        fs::create_dir(&folder).expect("nobody else has that name");
        replace(&folder, rules);
        let mut child = Command::new(path_of("rules_file"))
            .arg(folder.join("rules"))
            .env("PORT", "0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // Nobody listens any more when the test is over.
                let _ = tell.send(line.expect("it prints text"));
            }
        });
        // From here on it is killed, whatever happens.
        let mut example = Self {
            child,
            folder,
            lines,
            addr: String::new(),
        };
        let listening = example.line("listening on http://");
        example.addr = listening["listening on http://".len()..].to_owned();
        example
    }

    /// Replaces the file.
    fn edit(&self, rules: &str) {
        replace(&self.folder, rules);
    }

    /// The next line that begins with `start`.
    fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("it never says {start:?}"));
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Makes 8 calls, and checks that no more than `limit` a second pass.
    fn check(&self, limit: usize) {
        let start = Instant::now();
        loop {
            let burst = Instant::now();
            let passed = (0..8).filter(|_| self.passes()).count();
            let elapsed = burst.elapsed();
            assert!(passed <= most(limit, elapsed), "{passed} in {elapsed:?}");
            // Only if it was quick has something been shown.
            if elapsed < BUCKET {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "no burst was quick enough");
        }
    }

    fn passes(&self) -> bool {
        let mut stream = TcpStream::connect(&self.addr).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("not zero");
        let request = "GET /search HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        if answer.starts_with("HTTP/1.1 200 ") {
            assert!(answer.ends_with("this is /search\n"), "{answer}");
            return true;
        }
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        false
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // If it has ended already there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn replace(folder: &Path, rules: &str) {
    let new = folder.join("new");
    fs::write(&new, rules).expect("there is room");
    fs::rename(new, folder.join("rules")).expect("it is the same folder");
}

#[test]
fn rules_file_follows_every_good_edit_and_survives_the_bad_ones() {
    let example = Example::start("# what may be asked how often\n/search 3/s\n");
    example.check(3);
    example.edit("/search 0/s\n/report 1/s");
    assert_eq!(example.line("2 rules"), "2 rules in force");
    assert!(!example.passes());

    example.edit("/search 0/s\n/search many");
    let problem = example.line("rules kept: ");
    assert!(
        problem.ends_with("line 2 is not like \"/path 5/s\": /search many"),
        "{problem}"
    );
    assert!(!example.passes());

    example.edit("/search 5/s");
    // Nothing was told in between: neither a reload nor the problem again.
    assert_eq!(
        example.lines.recv_timeout(DEADLINE).as_deref(),
        Ok("1 rule in force")
    );
    example.check(5);
}
