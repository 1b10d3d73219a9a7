//! One of several servers that have one limit together, on a Redis or Valkey server.
//!
//! ```sh
//! redis-server --port 7379 --save "" &
//! PORT=3001 REDIS_URL=redis://127.0.0.1:7379 cargo run --example replica &
//! PORT=3002 REDIS_URL=redis://127.0.0.1:7379 cargo run --example replica &
//! ```
//!
//! Or, with containers, `docker compose --file ops/compose.yml up`. Then both answer
//! `/search` a hundred times a second together, and each `/me` five times a minute for each
//! API key.

use std::env;
use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tower_sentinel::key::Bearer;
use tower_sentinel::store::{RedisStore, StoreSettings};
use tower_sentinel::{BoxError, FlowRule, KeyedRule, MissingKey, Rules, Sentinel, SentinelLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = env::var("REDIS_URL").map_err(|_| "REDIS_URL must name a Redis or Valkey server")?;
    let port = env::var("PORT").map_or(Ok(3001), |port| port.parse())?;
    // All replicas have one secret, so that they know a key by one hash; and it never stands in
    // the store.
    let secret = env::var("QUOTA_SECRET").unwrap_or_else(|_| "only for this example".to_owned());

    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 100).shared())
        .with(
            KeyedRule::per_minute("/me", 5)
                .window()
                .shared()
                .missing(MissingKey::Refuse),
        );
    let sentinel = Sentinel::builder()
        .rules(rules)
        .store(RedisStore::new(&url)?.with_prefix("shop")?)
        .store_settings(StoreSettings::new().nodes(2).digest_secret(&secret))
        .build();
    let store = sentinel.start_store()?;

    let app = Router::new()
        .route("/search", get(|| async { "found\n" }))
        .route("/me", get(|| async { "you\n" }))
        .layer(SentinelLayer::with(sentinel).param(Bearer::new().agreed(&secret)));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    println!("replica on http://localhost:{port}/search");
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    // The permits in hand go back, for the other replicas.
    store.shutdown().await;
    Ok(())
}

/// Ends when the process is told to stop: by Ctrl-C, or as containers are.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate()).expect("signals can be waited for");
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = tokio::signal::ctrl_c().await;
}
