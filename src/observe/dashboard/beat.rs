//! The beat: reports the program's address to the dashboard every ten seconds.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::access::KnownPeers;
use super::start::hostname;
use super::wire::{IncomingBytes, MOST_HEAD, encoded, response, single_value};
use super::{BeatState, VERSION};
use crate::base::wall::since_1970;

/// The time between two beats. The dashboard considers a program lost after a minute without
/// a beat.
const EVERY: Duration = Duration::from_secs(10);
/// The time limit for a beat.
const LONGEST: Duration = Duration::from_secs(3);
/// The maximum length of the answer to a beat, in bytes.
const MOST_ANSWER: usize = 64 << 10;
/// The maximum length of the dashboard's message in a problem, in characters.
const MOST_REPORTED: usize = 200;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct HeartBeat {
    /// The dashboard's name and port.
    pub(super) dashboard: String,
    pub(super) app: String,
    /// The address of the command server.
    pub(super) server: SocketAddr,
    /// The address that beats report; `None` for the local address of the connection.
    pub(super) advertise: Option<IpAddr>,
    pub(super) access: Arc<KnownPeers>,
    pub(super) state: Arc<BeatState>,
}

/// The reason why a beat failed.
#[derive(Debug, PartialEq, Eq)]
struct BeatProblem(String);

impl From<io::Error> for BeatProblem {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl BeatProblem {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

// === impl HeartBeat ===

impl HeartBeat {
    /// Sends beats until the future is dropped.
    pub(super) async fn run(self) {
        let mut beats = interval(EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let outcome = timeout(LONGEST, self.send_beat()).await;
            let outcome =
                outcome.unwrap_or_else(|_| Err(BeatProblem::new("does not answer within 3 s")));
            let named = |BeatProblem(why)| format!("{}: {why}", self.dashboard);
            let outcome = outcome.map(|problem| problem.map(named)).map_err(named);
            self.state.record(outcome);
        }
    }

    /// Looks up the addresses of the dashboard, IPv4 first: the dashboard writes the addresses of
    /// programs without the brackets that IPv6 needs.
    pub(super) async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        let found = lookup_host(&self.dashboard).await;
        let mut found: Vec<_> = found?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        self.access.set_dashboard(&found);
        Ok(found)
    }

    /// Sends one beat. `Ok` holds a problem that the dashboard does not report although it accepted
    /// the beat.
    async fn send_beat(&self) -> Result<Option<BeatProblem>, BeatProblem> {
        let found = self.look_up().await?;
        let mut stream = TcpStream::connect(&*found).await?;
        let ip = match self.advertise {
            Some(ip) => ip,
            None => stream.local_addr()?.ip(),
        };
        let request = self.request(ip);
        stream.write_all(request.as_bytes()).await?;
        read_answer(&mut stream).await?;
        let is_out_of_reach = self.server.ip().is_loopback() && !ip.is_loopback();
        Ok(is_out_of_reach.then(|| {
            BeatProblem::new(format!(
                "knows this program at {ip}, and commands are taken at {}: bind it to an address \
                 that the dashboard reaches",
                self.server,
            ))
        }))
    }

    /// Returns the request of a beat, which reports the command server at `ip`.
    fn request(&self, ip: IpAddr) -> String {
        let since = since_1970();
        let form = format!(
            "app={}&app_type=0&version={}&v={VERSION}&hostname={}&ip={}&port={}&pid={}",
            encoded(&self.app),
            since.as_millis(),
            encoded(&hostname()),
            encoded(&ip.to_string()),
            self.server.port(),
            std::process::id(),
        );
        format!(
            "POST /registry/machine HTTP/1.1\r\nHost: {}\r\n\
             Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
            self.dashboard,
            form.len(),
        )
    }
}

/// Reads the dashboard's answer; an error if it does not accept the beat.
async fn read_answer(stream: &mut TcpStream) -> Result<(), BeatProblem> {
    let mut incoming = IncomingBytes::default();
    let head = loop {
        match incoming.head(MOST_HEAD) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(refused) => return Err(BeatProblem(refused.text)),
        }
        if !incoming.read_more(stream).await? {
            return Err(BeatProblem::new("closes the connection without an answer"));
        }
    };
    let malformed = || BeatProblem::new("answers with something that is not HTTP");
    let (status, fields) = response(&head).ok_or_else(malformed)?;
    if status != StatusCode::OK {
        let status = status.as_u16();
        return Err(BeatProblem(format!(
            "answers with the status {status}, must be 200"
        )));
    }
    let is_chunked = fields.contains_key(TRANSFER_ENCODING);
    let length = single_value(&fields, &CONTENT_LENGTH).map_err(|()| malformed())?;
    let length: Option<usize> = length.and_then(|text| text.parse().ok());
    let body = loop {
        let body = incoming.unread();
        if body.len() > MOST_ANSWER {
            return Err(BeatProblem(format!(
                "answers with more than {MOST_ANSWER} bytes"
            )));
        }
        if is_chunked {
            if let Some(body) = unchunked(body) {
                break body;
            }
        } else if let Some(body) = length.and_then(|length| body.get(..length)) {
            break body.to_vec();
        }
        if !incoming.read_more(stream).await? {
            break incoming.unread().to_vec();
        }
    };
    let answer: Value = serde_json::from_slice(&body).map_err(|_| {
        BeatProblem::new("answers with something that is not JSON, must be a dashboard of Sentinel")
    })?;
    if answer["success"] == true {
        return Ok(());
    }
    let why: String = answer["msg"]
        .as_str()
        .unwrap_or("no reason")
        .chars()
        .take(MOST_REPORTED)
        .collect();
    Err(BeatProblem(format!("refuses this program: {why:?}")))
}

/// Decodes a chunked body; `None` until the last chunk has arrived.
fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = body.windows(2).position(|it| it == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?;
        let size = size.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(body.get(..size)?);
        body = body.get(size.checked_add(2)?..)?;
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_decoded_once_its_last_chunk_has_arrived() {
        let text = b"4;x=y\r\n{\"su\r\nA\r\nccess\":tru\r\n2\r\ne}\r\n0\r\n\r\n";
        for end in 0..text.len() - 3 {
            assert_eq!(unchunked(&text[..end]), None, "{end}");
        }
        assert_eq!(unchunked(text).unwrap(), b"{\"success\":true}");
        assert_eq!(unchunked(b"ffffffffffffffff\r\nx"), None);
    }
}
