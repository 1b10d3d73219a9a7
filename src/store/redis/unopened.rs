//! Determines why a connection to a server could not be opened, by asking the server once more in
//! plain text.
//!
//! A server at its limit of clients sends an error and closes the connection. The client has
//! usually written before it reads the error, so the error is lost. A server without TLS reads a
//! TLS handshake as the beginning of a long line, and waits for the rest.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use redis::{ConnectionAddr, RedisError};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{cause, has_ended};

/// The time to wait for an error that the server sends unasked. A server with an error sends it at
/// once, so the time is short.
const SPEAKS_FIRST: Duration = Duration::from_millis(20);
/// The maximum duration of the whole attempt to get an answer.
const ANSWERS: Duration = Duration::from_millis(200);
/// The first byte of a TLS alert.
const ALERT: u8 = 21;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// The server has reached its limit of clients.
    TooManyClients,
    /// The server speaks plain text at an address for which TLS is set.
    HasNoTls,
    /// The server speaks only TLS at an address for which plain text is set.
    WantsTls,
    /// The server has ended the connection without an answer.
    Ended,
}

impl Unopened {
    /// Asks the server at `address` why a connection to it failed with `error`. Returns `error`
    /// itself if the server reveals nothing more.
    pub(super) async fn explain(address: &ConnectionAddr, error: RedisError) -> RedisError {
        let is_silent = has_ended(&error) || error.is_timeout();
        let (host, port, has_tls) = match address {
            ConnectionAddr::Tcp(host, port) => (host, *port, false),
            ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
            _ => return error,
        };
        // Without TLS, a server that did not answer in time would not answer this attempt either.
        if !is_silent || (error.is_timeout() && !has_tls) {
            return error;
        }
        let words = timeout(ANSWERS, first_words(host, port)).await;
        let answered = words.ok().and_then(Result::ok);
        match answered.and_then(|words| Self::of_words(&words, has_tls)) {
            Some(unopened) => io::Error::other(unopened).into(),
            None if has_tls || error.is_timeout() => error,
            None => io::Error::other(Self::Ended).into(),
        }
    }

    /// Interprets the first bytes that a server has sent on a connection in plain text.
    fn of_words(words: &[u8], has_tls: bool) -> Option<Self> {
        let is_plain = matches!(words.first(), Some(b'+' | b'-'));
        if words.starts_with(b"-ERR max number of clients") {
            Some(Self::TooManyClients)
        } else if has_tls && is_plain {
            Some(Self::HasNoTls)
        } else if !has_tls && words.first() == Some(&ALERT) {
            Some(Self::WantsTls)
        } else {
            None
        }
    }

    /// Returns the reason in `error`, if [`explain`](Self::explain) has created this error.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let io = cause(error)?.downcast_ref::<io::Error>()?;
        io.get_ref()?.downcast_ref().copied()
    }
}

/// Returns the first bytes that a server sends: unasked, or in answer to a `PING`.
async fn first_words(host: &str, port: u16) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect((host, port)).await?;
    if let Ok(words) = timeout(SPEAKS_FIRST, read_some(&stream)).await {
        return words;
    }
    stream.writable().await?;
    stream.try_write(b"PING\r\n")?;
    read_some(&stream).await
}

/// Reads the first bytes that arrive, at most 64.
async fn read_some(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut words = [0; 64];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut words) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return Ok(words[..read?].to_vec()),
        }
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyClients => "the server has as many clients as it takes (maxclients)",
            Self::HasNoTls => "there is no TLS at the address, where the URL wants it",
            Self::Ended => "the server ended the new connection; is there TLS at the address?",
            Self::WantsTls => "there is only TLS at the address, which a URL wants by `rediss://`",
        })
    }
}

impl Error for Unopened {}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_a_server_show_what_it_wants() {
        for (words, has_tls, means) in [
            (
                &b"-ERR max number of clients reached\r\n"[..],
                false,
                Some(Unopened::TooManyClients),
            ),
            (
                b"-ERR max number of clients reached\r\n",
                true,
                Some(Unopened::TooManyClients),
            ),
            (b"+PONG\r\n", true, Some(Unopened::HasNoTls)),
            (
                b"-NOAUTH Authentication required.\r\n",
                true,
                Some(Unopened::HasNoTls),
            ),
            (b"+PONG\r\n", false, None),
            (&[21, 3, 3, 0, 2], false, Some(Unopened::WantsTls)),
            (&[21, 3, 3, 0, 2], true, None),
            (b"", true, None),
        ] {
            assert_eq!(Unopened::of_words(words, has_tls), means, "{words:?}");
        }
    }
}
