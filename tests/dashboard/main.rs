//! The dashboard of Alibaba Sentinel: a fake one, which beats reach and which sends the requests of
//! the official one, byte by byte.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beats;
mod cluster;
mod forms;
mod memory;
mod messages;
mod pushes;
mod reads;
mod refusals;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_sentinel::Sentinel;
use tower_sentinel::observe::dashboard::{Dashboard, DashboardHandle};

/// Longest that anything may take; only a failure takes that long.
const LONGEST: Duration = Duration::from_secs(20);

/// What is to be answered to a beat of which the dashboard approves.
const WELCOME: &str = r#"{"success":true,"code":0,"msg":"success","data":null}"#;

/// A dashboard at a port of its own.
struct Fake {
    listener: TcpListener,
}

/// A beat, as it has come.
struct Beat {
    head: String,
    form: Vec<(String, String)>,
}

/// An answer of the command server.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    text: String,
}

/// A connection to the command server.
struct Line {
    stream: TcpStream,
    addr: SocketAddr,
}

// === impl Fake ===

impl Fake {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener }
    }

    fn name(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Takes the next beat, and sends `answer`.
    async fn beat(&self, answer: &str) -> Beat {
        let took = tokio::time::timeout(LONGEST, self.listener.accept());
        let (mut stream, _) = took.await.expect("a beat").unwrap();
        let mut bytes = Vec::new();
        let (head, form) = loop {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
            let text = String::from_utf8(bytes.clone()).unwrap();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length: usize = field(head, "Content-Length").unwrap().parse().unwrap();
                if body.len() == length {
                    break (head.to_owned(), body.to_owned());
                }
            }
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let pairs = form.split('&').map(|pair| pair.split_once('=').unwrap());
        let form = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Beat {
            head,
            form: form.collect(),
        }
    }
}

impl Beat {
    fn get(&self, name: &str) -> &str {
        let mut found = self.form.iter().filter(|(it, _)| it == name);
        let value = found.next().unwrap_or_else(|| panic!("{name} is missing"));
        assert!(found.next().is_none(), "{name} is there twice");
        &value.1
    }
}

/// An answer as Tomcat sends it, of a known length.
fn json(text: &str) -> String {
    let length = text.len();
    format!(
        "HTTP/1.1 200 \r\nContent-Type: application/json;charset=UTF-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let found = fields.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
    Some(found.1)
}

// === impl Line ===

impl Line {
    async fn to(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        Self { stream, addr }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer; `None` if the connection has ended.
    async fn answer(&mut self) -> Option<Answer> {
        let read = tokio::time::timeout(LONGEST, self.read());
        read.await.expect("an answer")
    }

    async fn read(&mut self) -> Option<Answer> {
        let mut bytes = Vec::new();
        loop {
            if self.stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                assert!(bytes.is_empty(), "half an answer");
                return None;
            }
            let text = String::from_utf8(bytes.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length: usize = field(head, "Content-Length").unwrap().parse().unwrap();
            if body.len() == length {
                let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse();
                return Some(Answer {
                    status: status.unwrap(),
                    text: body.to_owned(),
                });
            }
        }
    }

    /// As the dashboard reads anything but seconds: over a connection that it keeps.
    async fn get(&mut self, target: &str) -> Answer {
        let request = format!(
            "GET /{target} HTTP/1.1\r\nHost: {}\r\nConnection: Keep-Alive\r\n\
             User-Agent: Apache-HttpAsyncClient/4.1.3 (Java/1.8.0_392)\r\n\r\n",
            self.addr,
        );
        self.send(request).await;
        self.answer().await.unwrap()
    }

    /// As the dashboard sends rules.
    async fn post(&mut self, target: &str, params: &[(&str, &str)]) -> Answer {
        let pairs = params
            .iter()
            .map(|(name, value)| format!("{}={}", form(name), form(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let request = format!(
            "POST /{target} HTTP/1.1\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\nHost: {}\r\n\
             Connection: Keep-Alive\r\n\
             User-Agent: Apache-HttpAsyncClient/4.1.3 (Java/1.8.0_392)\r\n\r\n{body}",
            body.len(),
            self.addr,
        );
        self.send(request).await;
        self.answer().await.unwrap()
    }
}

impl Answer {
    fn ok(text: &str) -> Self {
        let text = text.to_owned();
        Self { status: 200, text }
    }

    /// The text, as JSON.
    fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }
}

/// `text` as Java's client writes it into forms.
fn form(text: &str) -> String {
    let mut form = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => form.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte) => {
                form.push(byte.into());
            }
            byte => form.push_str(&format!("%{byte:02X}")),
        }
    }
    form
}

/// The command server of `sentinel` at a free port, for this machine.
fn local(sentinel: &Sentinel) -> Dashboard {
    Dashboard::new(sentinel, "shop")
        .allow(["127.0.0.1/32".parse().unwrap()])
        .bind(([127, 0, 0, 1], 0))
}

async fn connected(handle: &DashboardHandle) -> Line {
    Line::to(handle.addr()).await
}

/// Waits until `is_so`, for other tasks alone.
async fn until(mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONGEST, wait).await.expect("it is so");
}
