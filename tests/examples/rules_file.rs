//! The example with rules in a document, which is edited while it runs.

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
    /// In a folder of its own.
    file: PathBuf,
    lines: mpsc::Receiver<String>,
    addr: String,
}

impl Example {
    /// Starts it over the file `name`, which holds `rules` or is not there.
    fn start(name: &str, rules: Option<&str>) -> Self {
        let folder = format!("sentinel-example-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).expect("nobody else has that name");
        let file = folder.join(name);
        if let Some(rules) = rules {
            replace(&file, rules);
        }
        let mut child = Command::new(path_of("rules_file"))
            .arg(&file)
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
            file,
            lines,
            addr: String::new(),
        };
        let listening = example.line("listening on http://");
        example.addr = listening["listening on http://".len()..].to_owned();
        example
    }

    /// Replaces the file.
    fn edit(&self, rules: &str) {
        replace(&self.file, rules);
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
        let _ = self.file.parent().map(fs::remove_dir_all);
    }
}

/// Replaces `file` by a new one, as editors do.
fn replace(file: &Path, rules: &str) {
    let new = file.with_file_name("new");
    fs::write(&new, rules).expect("there is room");
    fs::rename(new, file).expect("it is the same folder");
}

/// A document with a flow rule for each resource and threshold.
fn document(rules: &[(&str, &str)]) -> String {
    let rules = rules.iter().map(|(resource, threshold)| {
        format!("[[rules]]\nkind = \"flow\"\nresource = \"{resource}\"\nthreshold = {threshold}\n")
    });
    rules.collect()
}

#[test]
fn rules_file_follows_every_good_edit_and_survives_the_bad_ones() {
    let example = Example::start("rules.toml", Some(&document(&[("/search", "3")])));
    example.check(3);
    example.edit(&document(&[("/search", "0"), ("/report", "1")]));
    assert_eq!(example.line("2 rules"), "2 rules in force");
    assert!(!example.passes());

    // What is wrong is told with its place.
    let bad = document(&[("/search", "5"), ("/report", "\"many\"")]);
    example.edit(&bad.replace("kind = \"flow\"\nresource = \"/search\"", "kind = \"flow\""));
    let problem = example.line("rules kept: ");
    let missing = "rules.toml: line 1, column 1: rules[0].resource is missing, must be a text";
    assert!(problem.ends_with(missing), "{problem}");
    assert_eq!(
        example.line("    "),
        "    line 7, column 1: rules[1].threshold is \"many\", must be a number"
    );
    assert!(!example.passes());
    // So is what is no document.
    example.edit("# a comment\n[[rules]\n");
    let problem = example.line("rules kept: ");
    assert!(problem.contains("rules.toml: line 2, column "), "{problem}");
    assert!(!example.passes());

    example.edit(&document(&[("/search", "5")]));
    // Nothing was told in between: neither a reload nor the problem again.
    assert_eq!(
        example.lines.recv_timeout(DEADLINE).as_deref(),
        Ok("1 rule in force")
    );
    example.check(5);
}

#[test]
fn rules_file_makes_a_document_that_is_missing_and_reads_those_of_sentinel() {
    let example = Example::start("rules.json", None);
    example.check(5);
    let made = fs::read_to_string(&example.file).expect("it was made");
    assert!(made.contains("\"threshold\": 5"), "{made}");

    example.edit(r#"[{"resource": "/search", "count": 0, "clusterMode": true}]"#);
    let told = example.line("1 rule in force");
    assert!(told.starts_with("1 rule in force, 1 warning: "), "{told}");
    let warned = "rules.json: line 1, column 38: [0].clusterMode is true: ignored";
    assert!(told.contains(warned), "{told}");
    assert!(!example.passes());
}
