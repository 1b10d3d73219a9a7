//! A proxy in front of a server's socket that delays, cuts, or swallows what it is sent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Ends when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    way: Arc<watch::Sender<Way>>,
    accepts: JoinHandle<()>,
}

/// What it does with connections, also with those that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Each direction takes half of so long.
    Delay(Duration),
    /// All connections end, and new ones as well.
    Cut,
    /// What is sent is lost, and nobody says so. Connections that have lost something stay so.
    Swallow,
}

impl Proxy {
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = Arc::new(watch::Sender::new(Way::Delay(Duration::ZERO)));
        let ways = way.clone();
        let accepts = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(join(client, socket.clone(), ways.subscribe()));
            }
        });
        Self { port, way, accepts }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepts.abort();
        self.set(Way::Cut);
    }
}

async fn join(client: TcpStream, socket: PathBuf, ways: watch::Receiver<Way>) {
    let Ok(server) = UnixStream::connect(socket).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = ways.clone();
    tokio::select! {
        () = pass(from_client, to_server, ways.clone()) => {}
        () = pass(from_server, to_client, ways) => {}
        _ = cut.wait_for(|way| *way == Way::Cut) => {}
    }
}

/// Passes on what comes until it ends, each part after the delay that held when it came.
async fn pass(
    mut from: impl AsyncReadExt + Unpin + Send + 'static,
    mut to: impl AsyncWriteExt + Unpin,
    ways: watch::Receiver<Way>,
) {
    let (send, mut parts) = tokio::sync::mpsc::channel(1_024);
    let reads = tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let Way::Delay(delay) = *ways.borrow() else {
                // Nothing passes any more, and the connection stays.
                return std::future::pending().await;
            };
            let part = (Instant::now() + delay / 2, buffer[..count].to_vec());
            if send.send(part).await.is_err() {
                return;
            }
        }
    });
    let reads = Stops(reads);
    while let Some((at, part)) = parts.recv().await {
        tokio::time::sleep_until(at).await;
        if to.write_all(&part).await.is_err() {
            break;
        }
    }
    drop(reads);
}

/// Ends the task that nobody reads any more.
struct Stops(JoinHandle<()>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.abort();
    }
}
