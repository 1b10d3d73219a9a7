//! Keys from the parameters of a route.

use std::borrow::Cow;
#[cfg(feature = "axum")]
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::task::{Context, Poll, Waker};

use super::route::{Paths, before_rest, has_second_slash, matched_on};
use super::{Head, KeyExtractor};
use crate::call::{Encoded, Key};

/// The part of the path that a parameter of the route matches: `7` of `/users/7` where the
/// [route](Head::route) is `/users/{id}`, and `a/b` of `/files/a/b` where it is
/// `/files/{*rest}`.
///
/// The route is axum's matched path (feature `axum`) unless the call is outbound, or else the
/// template among the rules' resources that matches the path. If the matched path ends with
/// `{*rest}`, and a rule names a path below it, the parameters of both are available. The request
/// has no key if there is no such route, if the route does not have this parameter, or if the
/// parameter is empty. If a name occurs twice, as can happen with nested routers, the first
/// parameter counts; parameters of the matched path come before those of a rule's template.
///
/// The key is the percent-decoded value: `%37` and `7` are one key. Each look-up walks over the
/// path, and allocates only for encoded values above 512 bytes. In two cases it asks axum for its
/// value instead, which allocates: if the path was rewritten between two of axum's routers, or if
/// there are two slashes in a row in the part that outer routers have taken off.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sentinel::key::PathParam;
/// use tower_sentinel::{KeyedRule, SentinelLayer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // One call a second for each id.
/// let layer = SentinelLayer::new(KeyedRule::per_second("/users/{id}", 1))
///     .param(PathParam::new("id"));
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
/// }));
///
/// let status = async |target: &str| {
///     let request = Request::get(target).body(()).unwrap();
///     service.clone().oneshot(request).await.unwrap().status()
/// };
/// assert_eq!(status("/users/7").await, StatusCode::OK);
/// assert_eq!(status("/users/%37").await, StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(status("/users/8").await, StatusCode::OK);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct PathParam(Arc<str>);

impl PathParam {
    /// Creates an extractor for the parameter `name`, without braces and asterisk.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl KeyExtractor for PathParam {
    fn key<'a>(&self, head: Head<'a>) -> Option<Key<'a>> {
        let name = &*self.0;
        let found = match head.matched() {
            Some(matched) => {
                let paths = matched_on(head);
                let is_sure = is_sure(paths);
                let found = if is_sure {
                    value(matched, paths.0.0, name)
                } else {
                    by_axum(head, matched, paths, name)
                };
                // If the matched path ends with the rest of a path, the route can be the template
                // of a rule below it.
                found.or_else(|| match head.route() {
                    route if route == matched => None,
                    route if is_sure => value(route, paths.0.0, name),
                    route => {
                        let path = path_below(head, matched, before_rest(matched)?);
                        let value = Encoded::path(value(route, &path, name)?);
                        value.with_text(|decoded| find_encoded(route, paths, name, decoded))
                    }
                })
            }
            None => {
                let path = head.uri().path();
                value(head.template(path)?, path, name)
            }
        };
        Encoded::path(found?).key()
    }
}

/// Returns whether the matched template matches the first of these paths, so that parameters can be
/// read from it. If not, only axum knows them: the path was rewritten, or there are two slashes in
/// a row in the part that routers have taken off. How the routers are nested then decides whether
/// the second slash is dropped, or is an empty parameter.
fn is_sure((first, other): Paths<'_>) -> bool {
    other.is_none() && !has_second_slash(first)
}

/// Returns the value that axum has for the parameter `name`.
#[cfg(feature = "axum")]
#[cold]
fn by_axum<'a>(head: Head<'a>, matched: &str, paths: Paths<'a>, name: &str) -> Option<&'a str> {
    use axum::extract::{FromRequestParts, RawPathParams};

    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.extensions = head.extensions().clone();
    let params = pin!(RawPathParams::from_request_parts(&mut parts, &()));
    let Poll::Ready(Ok(params)) = params.poll(&mut Context::from_waker(Waker::noop())) else {
        return None;
    };
    let (_, decoded) = params.iter().find(|(known, _)| *known == name)?;
    find_encoded(matched, paths, name, decoded)
}

/// Without axum no router has matched a path, so there is no value.
#[cfg(not(feature = "axum"))]
const fn by_axum<'a>(_: Head<'a>, _: &str, _: Paths<'a>, _: &str) -> Option<&'a str> {
    None
}

/// Returns the path in the form in which rules name it below the `matched` path, which consists of
/// `prefix` and a parameter for the rest. Names have no second slashes in the part that routers
/// have taken off, so second slashes are left out.
pub(super) fn path_below<'a>(head: Head<'a>, matched: &str, prefix: &str) -> Cow<'a, str> {
    let name = matched[prefix.len()..].trim_matches(['{', '*', '}']);
    let paths = matched_on(head);
    let ((first, outer), _) = paths;
    if is_sure(paths) {
        return Cow::Borrowed(first);
    }
    Cow::Owned(match by_axum(head, matched, paths, name) {
        // The prefix stays as it is written in the template: names of rules below begin with it.
        Some(rest) => {
            let prefix = prefix.replace("{{", "{").replace("}}", "}");
            prefix + rest.trim_start_matches('/')
        }
        // A parameter does not decode to text, so the handler cannot read it either.
        None => {
            let (outer, seen) = first.split_at(outer);
            let outer = outer.split('/').filter(|segment| !segment.is_empty());
            outer
                .map(|segment| format!("/{segment}"))
                .collect::<String>()
                + seen
        }
    })
}

/// Finds the part of a path in `paths` that decodes to `decoded`, which is axum's value of the
/// parameter `name` of `template`.
fn find_encoded<'a>(
    template: &str,
    paths: Paths<'a>,
    name: &str,
    decoded: &str,
) -> Option<&'a str> {
    let mut parameters = template.split('/').filter_map(parameter);
    let is_it = |inner: &str| inner.strip_prefix('*').unwrap_or(inner) == name;
    let (before, inner, after) = parameters.find(|(_, inner, _)| is_it(inner))?;
    let is_sent = |text: &&str| Encoded::path(text).is(decoded);
    let ((first, _), other) = paths;
    let mut paths = [Some(first), other].into_iter().flatten();
    if inner.starts_with('*') {
        return paths.find_map(|path| last_bytes(path, decoded.len()).filter(is_sent));
    }
    let mut segments = paths.flat_map(|path| path.split('/'));
    segments.find_map(|segment| between(segment, before, after).filter(is_sent))
}

/// Returns the end of `path` that decodes to `count` bytes.
fn last_bytes(path: &str, count: usize) -> Option<&str> {
    let mut before = path.as_bytes();
    for _ in 0..count {
        let is_encoded = match before.last_chunk::<3>() {
            Some([b'%', digits @ ..]) => digits.iter().all(u8::is_ascii_hexdigit),
            _ => false,
        };
        let length = if is_encoded { 3 } else { 1 };
        before = before.get(..before.len().checked_sub(length)?)?;
    }
    path.get(before.len()..)
}

/// Returns the value of `name` in `path` by `template`; `None` if the template has no such
/// parameter, or does not match the path, which can have been rewritten.
fn value<'a>(template: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let (mut rest, mut found) = (path, None);
    for part in template.split('/') {
        let (segment, behind) = rest.split_once('/').unwrap_or((rest, ""));
        let Some((before, inner, after)) = parameter(part) else {
            if !without(segment, part)?.is_empty() {
                return None;
            }
            rest = behind;
            continue;
        };
        if let Some(inner) = inner.strip_prefix('*') {
            return found.or((inner == name).then_some(rest));
        }
        let value = between(segment, before, after)?;
        if inner == name {
            found = found.or(Some(value));
        }
        rest = behind;
    }
    found.filter(|_| rest.is_empty())
}

/// Returns the text before the parameter in a segment of a template, the parameter, and the text
/// after it; `None` if the segment has no parameter.
fn parameter(segment: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    let open = loop {
        let open = from + segment[from..].find('{')?;
        if !segment[open + 1..].starts_with('{') {
            break open;
        }
        from = open + 2;
    };
    let close = open + segment[open..].find('}')?;
    let (inner, after) = (&segment[open + 1..close], &segment[close + 1..]);
    Some((&segment[..open], inner, after))
}

/// Returns the part of `segment` between two texts of a template.
fn between<'a>(segment: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let inside = without(segment, before)?;
    inside.get(..inside.len().checked_sub(literals(after).count())?)
}

/// Returns `segment` without the template's `text` at its start; `None` if it does not start with
/// `text`.
fn without<'a>(segment: &'a str, text: &str) -> Option<&'a str> {
    let begins = literals(text).zip(segment.bytes()).all(|(a, b)| a == b);
    begins.then(|| segment.get(literals(text).count()..))?
}

/// Returns the bytes that a text of a template stands for, in which doubled braces become one.
fn literals(text: &str) -> impl Iterator<Item = u8> {
    let mut bytes = text.bytes().peekable();
    std::iter::from_fn(move || {
        let byte = bytes.next()?;
        if matches!(byte, b'{' | b'}') {
            bytes.next_if_eq(&byte);
        }
        Some(byte)
    })
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_parameter_is_the_part_of_the_path_that_it_stands_for() {
        let cases = [
            ("/users/{id}", "/users/7", "id", Some("7")),
            ("/users/{id}", "/users/7", "name", None),
            ("/users/me", "/users/me", "id", None),
            ("/{a}/x/{b}", "/1/x/2", "a", Some("1")),
            ("/{a}/x/{b}", "/1/x/2", "b", Some("2")),
            ("/{a}/x/{b}/", "/1/x/2/", "b", Some("2")),
            ("/files/{*rest}", "/files/a/b", "rest", Some("a/b")),
            ("/files/{*rest}", "/files/a//b/", "rest", Some("a//b/")),
            ("/{d}/{*rest}", "/files/a", "d", Some("files")),
            ("/v{major}/x", "/v12/x", "major", Some("12")),
            ("/{{{id}}}", "/{7}", "id", Some("7")),
            ("/{{id}}", "/{id}", "id", None),
            ("/{{{{a/{b}", "/{{a/1", "b", Some("1")),
            // The path has been changed on its way.
            ("/{a}/{b}", "/x/1/2", "a", None),
            ("/api/{a}", "/x/1", "a", None),
            ("/api/{a}", "/", "a", None),
            ("/v{a}", "/w1", "a", None),
        ];
        for (template, path, name, expected) in cases {
            assert_eq!(value(template, path, name), expected, "{template} {path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The router and `value` find the same value of each parameter.
        #[test]
        fn the_router_finds_the_same_value(
            parts in prop::collection::vec(("(s|\\{\\{|\\}\\}|p\\{\\{){0,2}", 0..3_u8), 1..5),
            path in "(/[a-ps%{}.]{0,3}){1,6}",
        ) {
            let mut template = String::new();
            let mut like = String::new();
            let last = parts.len() - 1;
            for (index, (text, kind)) in parts.iter().enumerate() {
                let name = format!("p{index}");
                let spoken = text.replace("{{", "{").replace("}}", "}");
                match kind {
                    0 => template += &format!("/{text}"),
                    1 => template += &format!("/{text}{{{name}}}"),
                    _ if index == last => template += &format!("/{{*{name}}}"),
                    _ => template += &format!("/{{{name}}}"),
                }
                match kind {
                    0 => like += &format!("/{spoken}"),
                    1 => like += &format!("/{spoken}q{index}"),
                    _ => like += &format!("/w{index}"),
                }
            }
            let mut router = matchit::Router::new();
            prop_assume!(router.insert(template.as_str(), ()).is_ok());
            prop_assert!(router.at(&like).is_ok(), "{template} {like}");
            for path in [&path, &like] {
                let Ok(found) = router.at(path) else { continue };
                for (name, expected) in found.params.iter() {
                    prop_assert_eq!(value(&template, path, name), Some(expected), "{} {}", template, path);
                }
            }
        }

        #[test]
        fn templates_that_do_not_match_do_not_panic(
            template in "(/|\\{|\\}|\\*|a|\u{e9}){0,8}",
            path in "(/|a|\u{e9}){0,8}",
            name in "[a*]{0,2}",
        ) {
            let _ = value(&template, &path, &name);
        }
    }
}
