//! One limit over two servers, and what happens when their store goes away.
//!
//! ```sh
//! cargo run --example shared                              # a store in memory
//! cargo run --example shared -- redis://127.0.0.1:6379    # a Redis or Valkey server
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::store::{
    Fault, MemoryStore, RedisStore, StoreErrorKind, StoreHandle, StoreSettings, WhenDown,
};
use tower_sentinel::{FlowRule, Rules, Sentinel, SentinelLayer};

/// Two servers of one service.
struct Service {
    servers: [(Sentinel, StoreHandle); 2],
}

impl Service {
    fn start(redis: Option<&str>, memory: &MemoryStore) -> Result<Self, Box<dyn Error>> {
        let rules = || {
            Rules::new()
                .with(FlowRule::per_second("/search", 100).shared().exact())
                .with(
                    FlowRule::per_second("/pay", 100)
                        .shared()
                        .when_down(WhenDown::Closed),
                )
        };
        let start = || -> Result<_, Box<dyn Error>> {
            let settings = StoreSettings::new().nodes(2);
            let builder = Sentinel::builder().rules(rules()).store_settings(settings);
            let sentinel = match redis {
                Some(url) => builder
                    .store(RedisStore::new(url)?.with_prefix("example")?)
                    .build(),
                None => builder.store(memory.clone()).build(),
            };
            let handle = sentinel.start_store()?;
            Ok((sentinel, handle))
        };
        Ok(Self {
            servers: [start()?, start()?],
        })
    }

    /// How many of so many requests each server has let pass within one second.
    async fn passed(&self, path: &str, requests: usize) -> [usize; 2] {
        let mut passed = [0; 2];
        for index in 0..requests {
            let (sentinel, _) = &self.servers[index % 2];
            let layer = SentinelLayer::with(sentinel.clone());
            let service = layer.layer(service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }));
            let request = Request::get(path).body(Body::empty()).expect("it is valid");
            let Ok(response) = service.oneshot(request).await;
            passed[index % 2] += usize::from(response.status() == 200);
        }
        passed
    }

    async fn show(&self, when: &str) {
        let state = self.servers[0]
            .0
            .store()
            .map_or("none", |store| store.state().as_str());
        for path in ["/search", "/pay"] {
            let [one, two] = self.passed(path, 400).await;
            println!("{when} ({state}): {path} {one} + {two} of 100");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let memory = MemoryStore::new();
    match &url {
        Some(_) => println!("The store is the server that was named."),
        None => println!("The store is in memory: name a server to use that."),
    }
    let service = Service::start(url.as_deref(), &memory)?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    service.show("The store is there").await;
    if url.is_none() {
        memory.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
        // A window later.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        service.show("The store is away").await;
        memory.set_fault(None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        service.show("The store is back").await;
    }
    for (_, handle) in service.servers {
        handle.shutdown().await;
    }
    Ok(())
}
