//! A tonic server with limits, and a client that runs into them.
//!
//! ```text
//! cargo run --example tonic
//! ```

use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tower_sentinel::{BoxError, FlowRule, IsolationRule, Rules, SentinelLayer};

use proto::{Place, StationsClient, StationsServer, Weather};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Each method is a resource, named by its path.
    let rules = Rules::new()
        .with(FlowRule::per(
            "/demo.Stations/Now",
            3,
            Duration::from_secs(3_600),
        ))
        .with(IsolationRule::new("/demo.Stations/Watch", 2));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let server = Server::builder()
        .layer(SentinelLayer::new(rules))
        .add_service(StationsServer)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);

    let channel = Channel::from_shared(format!("http://{addr}"))?;
    let mut client = StationsClient::new(channel.connect().await?);

    println!("Now: three calls an hour.\n");
    for number in 1..=5 {
        match client.now("Oslo").await {
            Ok(weather) => println!("call {number}: {} degrees", weather.degrees),
            Err(status) => println!("call {number}: {}", describe(&status)),
        }
    }

    println!("\nWatch: two streams at once; each counts until it ends.\n");
    let mut first = client.watch("Oslo").await?;
    let mut second = client.watch("Lima").await?;
    for (number, stream) in [(1, &mut first), (2, &mut second)] {
        let weather = stream.message().await?.ok_or("the stream does not end")?;
        println!(
            "stream {number}: {} degrees, and more to come",
            weather.degrees
        );
    }
    match client.watch("Oslo").await {
        Ok(_) => println!("stream 3: begins"),
        Err(status) => println!("stream 3: {}", describe(&status)),
    }

    drop(first);
    println!("stream 1 is dropped");
    // The server notices this a moment later, so the first attempt may be refused.
    let mut third = loop {
        match client.watch("Oslo").await {
            Ok(stream) => break stream,
            Err(status) => match pushback(&status) {
                Some(wait) => sleep(wait).await,
                None => return Err(status.into()),
            },
        }
    };
    let weather = third.message().await?.ok_or("the stream does not end")?;
    println!("stream 3: {} degrees, and more to come", weather.degrees);
    drop(second);
    Ok(())
}

fn describe(status: &Status) -> String {
    let (code, message) = (status.code(), status.message());
    match pushback(status) {
        Some(wait) => format!("{code:?}, {message:?}, retry in {} ms", wait.as_millis()),
        None => format!("{code:?}, {message:?}, do not retry"),
    }
}

/// How long the client should wait before it retries, if the server says so.
fn pushback(status: &Status) -> Option<Duration> {
    let value = status.metadata().get("grpc-retry-pushback-ms")?;
    // A negative number means never.
    let millis = value.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

// === the service ===

async fn now(request: Request<Place>) -> Result<Response<Weather>, Status> {
    let degrees = match request.get_ref().name.as_str() {
        "Lima" => 19,
        "Oslo" => 4,
        name => return Err(Status::not_found(format!("no station in {name}"))),
    };
    Ok(Response::new(Weather { degrees }))
}

/// Sends the weather now and whenever it changes, which it never does.
async fn watch(
    request: Request<Place>,
) -> Result<Response<impl Stream<Item = Result<Weather, Status>>>, Status> {
    let weather = now(request).await?.into_inner();
    let stream = stream::iter([Ok(weather)]).chain(stream::pending());
    Ok(Response::new(stream))
}

/// The code that a generator would make from this file:
///
/// ```text
/// package demo;
/// message Place   { string name = 1; }
/// message Weather { int32 degrees = 1; }
/// service Stations {
///   rpc Now(Place) returns (Weather);
///   rpc Watch(Place) returns (stream Weather);
/// }
/// ```
mod proto {
    use std::convert::Infallible;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http::uri::PathAndQuery;
    use tonic::body::Body;
    use tonic::server::NamedService;
    use tonic::transport::Channel;
    use tonic::{Request, Status, Streaming};
    use tonic_prost::ProstCodec;
    use tower::{Service, service_fn};

    const NOW: &str = "/demo.Stations/Now";
    const WATCH: &str = "/demo.Stations/Watch";

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Place {
        #[prost(string, tag = "1")]
        pub(super) name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Weather {
        #[prost(int32, tag = "1")]
        pub(super) degrees: i32,
    }

    #[derive(Clone)]
    pub(super) struct StationsServer;

    impl NamedService for StationsServer {
        const NAME: &'static str = "demo.Stations";
    }

    impl Service<http::Request<Body>> for StationsServer {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            Box::pin(async move {
                let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                Ok(match request.uri().path() {
                    NOW => grpc.unary(service_fn(super::now), request).await,
                    WATCH => {
                        let watch = service_fn(super::watch);
                        grpc.server_streaming(watch, request).await
                    }
                    _ => Status::unimplemented("no such method").into_http(),
                })
            })
        }
    }

    pub(super) struct StationsClient(tonic::client::Grpc<Channel>);

    impl StationsClient {
        pub(super) fn new(channel: Channel) -> Self {
            Self(tonic::client::Grpc::new(channel))
        }

        pub(super) async fn now(&mut self, name: &str) -> Result<Weather, Status> {
            let (request, path) = (self.request(name).await?, PathAndQuery::from_static(NOW));
            let answer = self.0.unary(request, path, ProstCodec::default()).await?;
            Ok(answer.into_inner())
        }

        pub(super) async fn watch(&mut self, name: &str) -> Result<Streaming<Weather>, Status> {
            let (request, path) = (self.request(name).await?, PathAndQuery::from_static(WATCH));
            let codec = ProstCodec::default();
            let answer = self.0.server_streaming(request, path, codec).await?;
            Ok(answer.into_inner())
        }

        /// Makes a request, once the channel is ready for it.
        async fn request(&mut self, name: &str) -> Result<Request<Place>, Status> {
            let ready = self.0.ready().await;
            ready.map_err(|error| Status::from_error(error.into()))?;
            let name = name.to_owned();
            Ok(Request::new(Place { name }))
        }
    }
}
