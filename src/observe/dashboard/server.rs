//! The command server: a few connections from known peers, with one request at a time on each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

use super::access::{KnownPeers, check};
use super::commands::{Commands, PORTION};
use super::wire::{
    CommandRefused, FormParams, IncomingBytes, MOST_HEAD, answer, body_length, head, is_form,
    keep_alive, request,
};
use crate::base::pace::{StepPace, at_once};
use crate::observe::rounds::SharedRun;

/// The maximum number of concurrent connections.
const MOST_OPEN: usize = 16;
/// The time limit to receive a request, and to send its answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The bytes of an answer that are sent between two yields to other tasks.
const PART: usize = 64 << 10;
/// How long the server waits after a failed `accept`: a lasting error must not make it spin.
const WITHOUT_CONNECTION: Duration = Duration::from_millis(100);

/// Serves until the future is dropped, which closes all connections too.
pub(super) async fn serve(listener: TcpListener, access: Arc<KnownPeers>, commands: Arc<Commands>) {
    let mut open = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while open.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) if access.admits(peer.ip()) => {
                if open.len() < MOST_OPEN {
                    open.spawn(answer_requests(stream, commands.clone()));
                }
            }
            Ok((stream, peer)) => {
                let text = format!(
                    "{} is not the dashboard: allow it with Dashboard::allow",
                    peer.ip()
                );
                // The send buffer of a new connection is empty, so no wait is needed.
                let _ = stream.try_write(&answer(StatusCode::FORBIDDEN, &text, false));
            }
            Err(_) => sleep(WITHOUT_CONNECTION).await,
        }
    }
}

/// Answers the requests of one connection.
async fn answer_requests(mut stream: TcpStream, commands: Arc<Commands>) {
    let mut incoming = IncomingBytes::default();
    loop {
        let Ok(Ok(asked)) = timeout(LONGEST, next_request(&mut stream, &mut incoming)).await else {
            return;
        };
        let (outcome, keep_alive) = match asked {
            Ok(Some(asked)) => {
                let keep_alive = keep_alive(&asked.head);
                (carry_out(asked, commands.clone()).await, keep_alive)
            }
            Ok(None) => return,
            // The end of the request is unknown, so no other request can follow.
            Err(refused) => (Err(refused), false),
        };
        let (status, text) = match outcome {
            Ok(text) => (StatusCode::OK, text),
            Err(refused) => (refused.status, refused.text.into()),
        };
        let sent = timeout(LONGEST, send(&mut stream, status, &text, keep_alive)).await;
        if !keep_alive || !matches!(sent, Ok(Ok(()))) {
            let _ = timeout(LONGEST, stream.shutdown()).await;
            return;
        }
    }
}

/// Carries out the command that was `asked` for: in small steps if it reads, or on a thread for
/// blocking work if it can write to files.
async fn carry_out(
    asked: CommandRequest,
    commands: Arc<Commands>,
) -> Result<Bytes, CommandRefused> {
    let outcome = if *asked.head.method() == Method::POST {
        let carry_out = move || {
            let pace = &mut StepPace::without_pauses();
            at_once(asked.carry_out(&commands, pace))
        };
        // The command logs to the current subscriber, even if it is set only for this thread.
        #[cfg(feature = "tracing")]
        let carry_out = {
            let heard = tracing::dispatcher::get_default(Clone::clone);
            move || tracing::dispatcher::with_default(&heard, carry_out)
        };
        spawn_blocking(carry_out).await.ok()
    } else {
        let steps = async move {
            let pace = &mut StepPace::of(PORTION);
            asked.carry_out(&commands, pace).await
        };
        SharedRun::new(Box::pin(steps)).wait().await
    };
    outcome.unwrap_or_else(|| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Err(CommandRefused::new(status, "panicked"))
    })
}

/// Sends an answer in parts, between which other tasks run.
async fn send(
    stream: &mut TcpStream,
    status: StatusCode,
    text: &[u8],
    keep_alive: bool,
) -> io::Result<()> {
    let mut start = head(status, text.len(), keep_alive);
    let (first, rest) = text.split_at(text.len().min(PART));
    start.extend_from_slice(first);
    stream.write_all(&start).await?;
    for part in rest.chunks(PART) {
        yield_now().await;
        stream.write_all(part).await?;
    }
    Ok(())
}

/// A request that was received completely.
struct CommandRequest {
    head: Request<()>,
    body: Vec<u8>,
}

/// Receives the next request; `None` if the peer has closed the connection. The inner error is the
/// answer to a request that is refused before its end is known.
async fn next_request(
    stream: &mut TcpStream,
    incoming: &mut IncomingBytes,
) -> io::Result<Result<Option<CommandRequest>, CommandRefused>> {
    let head = loop {
        match incoming.head(MOST_HEAD) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(refused) => return Ok(Err(refused)),
        }
        if !incoming.read_more(stream).await? {
            return Ok(Ok(None));
        }
    };
    let checked = request(&head).and_then(|head| {
        check(&head)?;
        let length = body_length(&head)?;
        Ok((head, length))
    });
    let (head, length) = match checked {
        Ok(checked) => checked,
        Err(refused) => return Ok(Err(refused)),
    };
    let body = loop {
        if let Some(body) = incoming.take(length) {
            break body;
        }
        if !incoming.read_more(stream).await? {
            return Ok(Ok(None));
        }
    };
    Ok(Ok(Some(CommandRequest { head, body })))
}

impl CommandRequest {
    /// Checks the request, and carries out its command.
    async fn carry_out(
        &self,
        commands: &Commands,
        pace: &mut StepPace,
    ) -> Result<Bytes, CommandRefused> {
        let is_post = match *self.head.method() {
            Method::GET => false,
            Method::POST => true,
            _ => {
                let text = "commands are sent by GET and POST";
                return Err(CommandRefused::new(StatusCode::METHOD_NOT_ALLOWED, text));
            }
        };
        let mut params = FormParams::default();
        params.add(self.head.uri().query().unwrap_or_default())?;
        if is_post && !self.body.is_empty() {
            if !is_form(self.head.headers()) {
                let text = "the content type must be that of a form, in UTF-8";
                return Err(CommandRefused::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    text,
                ));
            }
            let body = std::str::from_utf8(&self.body);
            params.add(body.map_err(|_| CommandRefused::bad("the form is not UTF-8"))?)?;
        }
        let command = self.head.uri().path();
        let command = command.strip_prefix('/').unwrap_or(command);
        let outcome = commands.answer(command, &params, is_post, pace);
        Ok(outcome.await?.into())
    }
}
