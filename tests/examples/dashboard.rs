//! The example that a dashboard shows, beside a dashboard of which little is there.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::path_of;

/// What `stream` sends up to the end of a request of which the body ends with `end`.
fn request(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1_024];
    loop {
        let length = stream.read(&mut chunk).expect("it sends");
        assert!(length > 0, "it ends early");
        bytes.extend_from_slice(&chunk[..length]);
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\r\n\r\n") && text.contains(end) {
            return text.into_owned();
        }
    }
}

/// The whole answer to `request`.
fn ask(addr: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn dashboard_beats_and_keeps_what_is_sent() {
    let folder = format!("sentinel-example-{}-dashboard", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    fs::create_dir(&folder).expect("nobody else has that name");
    let file = folder.join("rules.toml");
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let mut child = Command::new(path_of("dashboard"))
        .arg(&file)
        .env("PORT", "0")
        .env("LOAD", "none")
        .env(
            "DASHBOARD",
            listener.local_addr().expect("it is bound").to_string(),
        )
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut after = |start: &str| {
            let line = lines.next().expect("it prints").expect("it prints text");
            let rest = line.strip_prefix(start);
            rest.unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let addr = after("listening on http://");
        let commands = after("commands are taken at ");

        let (mut stream, _) = listener.accept().expect("it beats");
        let beat = request(&mut stream, "&pid=");
        assert!(
            beat.starts_with("POST /registry/machine HTTP/1.1\r\n"),
            "{beat}"
        );
        assert!(beat.contains("app=shop&app_type=0&"), "{beat}");

        // Each form has something to act on: four routes, of which one fails at times.
        let get = |addr: &str, path: &str| {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
            ask(addr, &head)
        };
        for path in ["/search", "/cart", "/users/7"] {
            assert!(get(&addr, path).starts_with("HTTP/1.1 200 "), "{path}");
        }
        let paid = [0; 6].map(|_| get(&addr, "/pay").starts_with("HTTP/1.1 502 "));
        assert_eq!(paid, [false, false, true, false, false, true]);
        let tree = get(&commands, "/jsonTree?type=root");
        for name in ["/search", "/cart", "/users/{id}", "/pay"] {
            assert!(tree.contains(&format!("\"resource\":\"{name}\"")), "{tree}");
        }

        let data =
            "type=flow&data=%5B%7B%22resource%22%3A+%22%2Fsearch%22%2C+%22count%22%3A+0%7D%5D";
        let answer = ask(
            &commands,
            &format!(
                "POST /setRules HTTP/1.1\r\nHost: {commands}\r\nConnection: close\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{data}",
                data.len(),
            ),
        );
        assert!(answer.ends_with("\r\n\r\nsuccess"), "{answer}");
        let text = fs::read_to_string(&file).expect("it is there");
        assert!(text.contains("threshold = 0"), "{text}");
        let call = format!("GET /search HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        assert!(ask(&addr, &call).starts_with("HTTP/1.1 429 "));
    }));
    let _ = child.kill();
    let _ = child.wait();
    let _ = fs::remove_dir_all(&folder);
    checked.expect("it does as it prints");
}
