//! The HTTP answers of the page.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::super::Body;
use super::POLICY;
use super::access::AccessDenied;

/// Completes an `answer`: adds the protective header fields, and removes the body for HEAD.
pub(super) fn finish(mut answer: Response<Bytes>, method: &Method) -> Response<Body> {
    protect(answer.headers_mut());
    if *method == Method::HEAD {
        let length = HeaderValue::from(answer.body().len());
        answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        *answer.body_mut() = Bytes::new();
    }
    answer.map(Body::from)
}

/// Returns the answer to a refused request, with the line of code that would permit it.
pub(super) fn refusal(denied: AccessDenied) -> Response<Bytes> {
    let (status, why) = match denied {
        AccessDenied::Host => (
            StatusCode::FORBIDDEN,
            "The page is not served under this name. If it is a name of this server, write \
             `.host(\"the.name\")?`; or use the address.\n",
        ),
        AccessDenied::UnknownPeer => (
            StatusCode::FORBIDDEN,
            "Nobody knows where this request comes from. With axum, serve \
             `app.into_make_service_with_connect_info::<SocketAddr>()`. Otherwise give the page \
             `.token(…)?`, or `.open()` if something in front of it checks who may look.\n",
        ),
        AccessDenied::ForeignPeer => (
            StatusCode::FORBIDDEN,
            "Only callers on this machine may look. To let others in, give the page \
             `.allow([\"10.0.0.0/8\".parse()?])` with their network, or `.token(…)?`.\n",
        ),
        AccessDenied::Forwarded => (
            StatusCode::FORBIDDEN,
            "A proxy on this machine may have sent this request for somebody elsewhere: a caller \
             on this machine asks for localhost, by HTTP/1.1 or later, and without fields in which \
             proxies speak of clients. Give the page `.token(…)?`, or \
             `.allow([\"127.0.0.1/32\".parse()?])` if the proxy checks who may look.\n",
        ),
        AccessDenied::Token => (StatusCode::UNAUTHORIZED, "The data needs the token.\n"),
    };
    let mut answer = text(status, why);
    if denied == AccessDenied::Token {
        set(&mut answer, header::WWW_AUTHENTICATE, "Bearer");
    }
    answer
}

/// Returns the answer to a request whose method is not among those `allowed`.
pub(super) fn method_refusal(allowed: &'static str) -> Response<Bytes> {
    let mut answer = text(
        StatusCode::METHOD_NOT_ALLOWED,
        "There is no such method here.\n",
    );
    set(&mut answer, header::ALLOW, allowed);
    answer
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    set(&mut answer, header::CACHE_CONTROL, "no-store");
    answer
}

/// Returns the `asset`, or only "not modified" if the browser has it.
pub(super) fn file(asset: &'static super::assets::Asset, headers: &HeaderMap) -> Response<Bytes> {
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = known.filter_map(|value| value.to_str().ok());
    let is_known = tags.any(|tags| {
        let mut tags = tags.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == asset.etag())
    });
    let mut answer = if is_known {
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        let mut answer = Response::new(asset.body());
        set(&mut answer, header::CONTENT_TYPE, asset.content_type);
        answer
    };
    // The browser caches it and revalidates it each time: another version of the program can have
    // another content.
    set(&mut answer, header::CACHE_CONTROL, "no-cache");
    if let Ok(etag) = HeaderValue::from_str(asset.etag()) {
        answer.headers_mut().insert(header::ETAG, etag);
    }
    answer
}

/// Adds the header fields that restrict what a browser does with the answer.
pub(super) fn protect(headers: &mut HeaderMap) {
    let fields = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

pub(super) fn set(answer: &mut Response<Bytes>, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    answer.headers_mut().insert(name, value);
}
