//! The part of HTTP/1.1 that a dashboard uses: heads and bodies within bounds, forms, short
//! answers.

use std::collections::HashMap;
use std::io;

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri, Version};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The maximum length of a head, in bytes. This and the next two bounds limit the memory of a
/// connection.
pub(super) const MOST_HEAD: usize = 16 << 10;
/// The maximum length of a request's body, in bytes.
pub(super) const MOST_BODY: usize = 1 << 20;
/// The maximum number of header fields in a head.
const MOST_FIELDS: usize = 100;
/// The maximum number of bytes that one read takes from a connection.
const CHUNK: usize = 4 << 10;

/// The end of a head.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// The answer to a command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandRefused {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

/// The parameters of a query or a form. If a name occurs several times, the first value counts.
#[derive(Debug, Default)]
pub(super) struct FormParams(HashMap<String, String>);

/// Bytes that were read from a connection and not yet used.
#[derive(Debug, Default)]
pub(super) struct IncomingBytes(Vec<u8>);

// === impl CommandRefused ===

impl CommandRefused {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

// === impl FormParams ===

impl FormParams {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Percent-decodes the parameters in `text` (no second time, so `%2541` becomes `%41`) and adds
    /// them.
    pub(super) fn add(&mut self, text: &str) -> Result<(), CommandRefused> {
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(CommandRefused::bad(
                    "a parameter is no text in percent-encoding",
                ));
            };
            self.0.entry(name).or_insert(value);
        }
        Ok(())
    }
}

/// Decodes a name or a value of a form; `None` if it is no text in percent-encoding.
fn decoded(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high << 4 | low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Encodes `text` as a name or a value of a form.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

// === impl IncomingBytes ===

impl IncomingBytes {
    /// Waits for more bytes; returns false at the end of the connection.
    pub(super) async fn read_more(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        let length = from.read(&mut chunk).await?;
        self.0.extend_from_slice(&chunk[..length]);
        Ok(length > 0)
    }

    /// Takes the next head, without the blank line; `None` if its end was not read yet.
    ///
    /// # Errors
    ///
    /// If the head is longer than `most` bytes.
    pub(super) fn head(&mut self, most: usize) -> Result<Option<Vec<u8>>, CommandRefused> {
        let mut windows = self.0.windows(BLANK_LINE.len());
        let end = windows.position(|window| window == BLANK_LINE);
        if end.unwrap_or(self.0.len()) > most {
            let text = format!("a head has at most {most} bytes");
            return Err(CommandRefused::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                text,
            ));
        }
        let Some(end) = end else {
            return Ok(None);
        };
        let rest = self.0.split_off(end + BLANK_LINE.len());
        let mut head = std::mem::replace(&mut self.0, rest);
        head.truncate(end);
        Ok(Some(head))
    }

    /// Takes the next `length` bytes; `None` if fewer were read yet.
    pub(super) fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let rest = (self.0.len() >= length).then(|| self.0.split_off(length))?;
        Some(std::mem::replace(&mut self.0, rest))
    }

    /// Returns all bytes that were read and not yet used.
    pub(super) fn unread(&self) -> &[u8] {
        &self.0
    }
}

/// Parses the head of a request.
pub(super) fn request(head: &[u8]) -> Result<Request<()>, CommandRefused> {
    let malformed = || CommandRefused::bad("the head of the request is malformed");
    let mut lines = lines(head).ok_or_else(malformed)?;
    let first = lines.next().ok_or_else(malformed)?;
    let parts: Vec<&str> = first.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err(malformed());
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed())?;
    let version = match version {
        "HTTP/1.1" => Version::HTTP_11,
        "HTTP/1.0" => Version::HTTP_10,
        _ => return Err(malformed()),
    };
    let target: Option<PathAndQuery> = target
        .starts_with('/')
        .then(|| target.parse().ok())
        .flatten();
    let fields = fields(lines).ok_or_else(malformed)?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.version_mut() = version;
    *request.uri_mut() = Uri::from(target.ok_or_else(malformed)?);
    *request.headers_mut() = fields;
    Ok(request)
}

/// Parses the head of a response into its status and headers; `None` if it is malformed.
pub(super) fn response(head: &[u8]) -> Option<(StatusCode, HeaderMap)> {
    let mut lines = lines(head)?;
    let mut parts = lines.next()?.splitn(3, ' ');
    let version = parts.next()?;
    let status = parts.next()?.parse().ok()?;
    let is_http = version.starts_with("HTTP/1.");
    is_http.then_some((StatusCode::from_u16(status).ok()?, fields(lines)?))
}

/// Splits a head into lines; `None` if it is not ASCII.
fn lines(head: &[u8]) -> Option<impl Iterator<Item = &str>> {
    // A dashboard sends only ASCII in a head.
    let text = std::str::from_utf8(head).ok().filter(|it| it.is_ascii())?;
    Some(text.split("\r\n"))
}

/// Parses header fields; `None` if a line is malformed, or if there are too many.
fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = HeaderValue::from_str(value.trim_matches([' ', '\t'])).ok()?;
        fields.append(name, value);
        if fields.len() > MOST_FIELDS {
            return None;
        }
    }
    Some(fields)
}

/// Returns the value of a header that occurs at most once; `Err` if it occurs several times, or if
/// its value is not visible ASCII.
pub(super) fn single_value<'a>(
    fields: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, ()> {
    let mut values = fields.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Returns the length of a request's body, in bytes.
pub(super) fn body_length(request: &Request<()>) -> Result<usize, CommandRefused> {
    let fields = request.headers();
    let needed = || CommandRefused::new(StatusCode::LENGTH_REQUIRED, "Content-Length is required");
    if fields.contains_key(TRANSFER_ENCODING) {
        return Err(needed());
    }
    match single_value(fields, &CONTENT_LENGTH) {
        Ok(None) if request.method() == Method::POST => Err(needed()),
        Ok(None) => Ok(0),
        Ok(Some(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
            match text.parse() {
                Ok(length) if length <= MOST_BODY => Ok(length),
                _ => {
                    let text = format!("a body has at most {MOST_BODY} bytes");
                    Err(CommandRefused::new(StatusCode::PAYLOAD_TOO_LARGE, text))
                }
            }
        }
        _ => Err(CommandRefused::bad("Content-Length must be one number")),
    }
}

/// Returns whether the content type is that of a form. If it names a charset, the charset must be
/// UTF-8.
pub(super) fn is_form(fields: &HeaderMap) -> bool {
    let Ok(Some(text)) = single_value(fields, &CONTENT_TYPE) else {
        return false;
    };
    let mut parts = text.split(';').map(str::trim);
    let is_form = parts
        .next()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("application/x-www-form-urlencoded"));
    is_form
        && parts.all(|part| match part.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// Returns whether another request can follow on the connection.
pub(super) fn keep_alive(request: &Request<()>) -> bool {
    let has = |word: &str| {
        let values = request.headers().get_all(CONNECTION).iter();
        let mut words = values
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(','));
        words.any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    request.version() == Version::HTTP_11 && !has("close")
}

/// Returns the bytes of an answer: its head and `text`.
pub(super) fn answer(status: StatusCode, text: &str, keep_alive: bool) -> Vec<u8> {
    let mut answer = head(status, text.len(), keep_alive);
    answer.extend_from_slice(text.as_bytes());
    answer
}

/// Returns the head of an answer with a text of `length` bytes.
pub(super) fn head(status: StatusCode, length: usize, keep_alive: bool) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n\
         Cache-Control: no-store\r\nConnection: {connection}\r\n\r\n",
        status.as_u16(),
    )
    .into_bytes()
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn decoding_an_encoded_text_returns_it() {
        let all: String = ('\0'..='\u{300}').chain(['\u{1f980}']).collect();
        let mut params = FormParams::default();
        params
            .add(&format!("{}={}&x=+", encoded(&all), encoded(&all)))
            .unwrap();
        assert_eq!(params.get(&all), Some(&*all));
        assert_eq!(params.get("x"), Some(" "));
    }

    #[test]
    fn an_invalid_percent_encoding_is_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "%ff=1", "a=%c3%28", "a=%+1"] {
            let refused = FormParams::default().add(text).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{text}");
        }
    }

    #[test]
    fn a_malformed_head_is_no_request() {
        let heads = [
            "",
            "GET /",
            "GET / HTTP/2",
            "GET  / HTTP/1.1",
            "GET http://a/ HTTP/1.1",
            "GET * HTTP/1.1",
            "G T / HTTP/1.1",
            "GET / HTTP/1.1\r\nno colon",
            "GET / HTTP/1.1\r\nname : value",
            "GET / HTTP/1.1\r\nname: a\r\n folded: b",
            "GET / HTTP/1.1\nname: value",
            "GET /\u{e9} HTTP/1.1",
        ];
        for head in heads {
            assert!(request(head.as_bytes()).is_err(), "{head:?}");
        }
        let good = request(b"GET /a?b=c HTTP/1.1\r\nHost:  1.2.3.4:5 ").unwrap();
        assert_eq!(good.uri().query(), Some("b=c"));
        assert_eq!(good.headers()["host"], "1.2.3.4:5");
    }
}
