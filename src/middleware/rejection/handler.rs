//! Refusals as the answers of handlers.
//!
//! A handler that asks the engine itself, without a layer in between, returns the
//! [`Blocked`](crate::Blocked) with `?`. The client sees the same response as from a layer
//! with the defaults.

#[cfg(feature = "axum")]
mod axum {
    use ::axum::body::Body;
    use ::axum::response::{IntoResponse, Response};
    use ::http::Request;

    use crate::blocked::Blocked;
    use crate::key::Head;
    use crate::middleware::rejection::{Http, Rejection};

    /// The response of [`Http::new`], in text, with the refusal in its extensions, so that
    /// layers around the handler recognize it as a refusal.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Router;
    /// use axum::body::Body;
    /// use axum::extract::State;
    /// use axum::http::{Request, StatusCode};
    /// use axum::routing::post;
    /// use tower::ServiceExt;
    /// use tower_sentinel::{Blocked, Call, KeyedRule, Sentinel};
    ///
    /// async fn login(State(sentinel): State<Sentinel>, account: String) -> Result<String, Blocked> {
    ///     let _entry = sentinel.enter(Call::new("login").param(&account)).await?;
    ///     Ok(format!("welcome, {account}"))
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::new(KeyedRule::per_second("login", 1));
    /// let app = Router::new().route("/login", post(login)).with_state(sentinel);
    /// let login = |account| {
    ///     let request = Request::post("/login").body(Body::from(account)).unwrap();
    ///     app.clone().oneshot(request)
    /// };
    /// assert_eq!(login("ann").await.unwrap().status(), StatusCode::OK);
    /// let refused = login("ann").await.unwrap();
    /// assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    /// assert_eq!(refused.headers()["retry-after"], "1");
    /// assert_eq!(login("bob").await.unwrap().status(), StatusCode::OK);
    /// # });
    /// ```
    impl IntoResponse for Blocked {
        fn into_response(self) -> Response {
            let empty_request = Request::new(());
            let mut response = Http::new().reject(Head::of(&empty_request), &self);
            response.extensions_mut().insert(self);
            response.map(Body::from)
        }
    }
}

#[cfg(feature = "tonic")]
mod tonic {
    use std::sync::Arc;

    use ::tonic::metadata::{MetadataMap, MetadataValue};
    use ::tonic::{Code, Status};

    use crate::blocked::Blocked;
    use crate::middleware::rejection::grpc::{PUSHBACK, details, message, pushback};

    /// The status of [`Grpc::new`](crate::middleware::rejection::Grpc::new) for an inbound call,
    /// with `grpc-retry-pushback-ms` and `google.rpc.RetryInfo`. The refusal is its source,
    /// so that layers around the service recognize it as a refusal. The message names no rule,
    /// even if an outbound call was refused: a service that returns the status sends it to its
    /// client. If a stream of responses ends with the status, the layers around the service see
    /// only its code, and count `UNAVAILABLE` as a failure.
    ///
    /// # Examples
    ///
    /// ```
    /// use tonic::{Code, Status};
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// async fn feed(sentinel: &Sentinel, animal: &str) -> Result<(), Status> {
    ///     let _entry = sentinel.enter(Call::new("feed").param(animal)).await?;
    ///     Ok(())
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let sentinel = Sentinel::new(FlowRule::per_second("feed", 0));
    /// let refused = feed(&sentinel, "cat").await.unwrap_err();
    /// assert_eq!(refused.code(), Code::ResourceExhausted);
    /// // A threshold of 0 never has room.
    /// assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    /// # });
    /// ```
    impl From<Blocked> for Status {
        fn from(blocked: Blocked) -> Self {
            let mut metadata = MetadataMap::new();
            metadata.insert(PUSHBACK, MetadataValue::from(pushback(&blocked)));
            let code = blocked.kind().terms().grpc;
            let message = message(&blocked);
            let details = details(code, &message, &blocked).unwrap_or_default();
            let code = Code::from_i32(code.into());
            let mut status =
                Self::with_details_and_metadata(code, message, details.into(), metadata);
            status.set_source(Arc::new(blocked));
            status
        }
    }
}
