//! Why a rule has met no call, judged by the names that were called instead.
//!
//! Each cause is a likeness of two names, from the most telling likeness to the least: a
//! superfluous or missing method, a slash at the end, other names for parameters, a template of the
//! rest of a path where other routes below it were called, a path instead of a template, a prefix
//! that a nested router takes off, capitals, and a few letters.

use std::sync::Arc;

use super::letters::letters_apart;

/// The longest names that are compared letter by letter, in bytes: the time grows with the product
/// of their lengths.
const MOST_COMPARED: usize = 128;
/// The most letters by which a name can differ from the name that was meant.
const MOST_LETTERS: usize = 2;

/// The likenesses of two names, the most telling likeness first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// Only the rule's name has a method.
    Method,
    /// Only the called name has a method.
    NoMethod,
    /// Only one of the names ends with a slash.
    Slash,
    /// Two templates differ only in the names of their parameters.
    Parameters,
    /// The rule is for a template with a wildcard, and a name below its prefix was called.
    Rest,
    /// The rule is for a template, and a path that matches it was called.
    Path,
    /// One name is the end of the other name.
    Prefix,
    /// The names differ only by capitals.
    Capitals,
    /// The names differ by a few letters.
    Letters,
}

/// Returns why the rule for `name` has met no call although calls had the names `called`: the name
/// that is most like it, how often it was called, and the remedy. `None` if no name is like it.
pub(crate) fn cause_of_silence(name: &str, called: &[(Arc<str>, u64)]) -> Option<String> {
    let mut best: Option<(Likeness, u64, &str)> = None;
    for (other, calls) in called {
        if let Some(likeness) = likeness(name, other) {
            // Of names with the same likeness, the name that was called most often wins.
            let rank = (likeness, u64::MAX - calls, &**other);
            if best.is_none_or(|best| rank < best) {
                best = Some(rank);
            }
        }
    }
    let (likeness, rest, other) = best?;
    let times = match u64::MAX - rest {
        0 | 1 => "once".to_owned(),
        calls => format!("{calls} times"),
    };
    Some(format!(
        "{other:?} was called {times}; {}",
        likeness.cure(name)
    ))
}

/// Returns whether `word` is `meant`, apart from capitals, spaces around it, or a few letters.
pub(crate) fn is_meant(word: &str, meant: &str) -> bool {
    let (one, other) = (word.trim().to_lowercase(), meant.trim().to_lowercase());
    let longest = one.len().max(other.len());
    if longest > MOST_COMPARED || one.is_empty() {
        return false;
    }
    // One letter of three can differ, and at most two in all.
    one == other || letters_apart(&one, &other) <= MOST_LETTERS.min(one.len().min(other.len()) / 3)
}

/// Returns why no call can have `name`, judged by its form alone; `None` if a call can have it.
pub(crate) fn oddity(name: &str) -> Option<String> {
    let plain = |text: &str| Some(text.to_owned());
    if let Some(path) = path_behind_method(name) {
        return Some(format!(
            "with `.resource(MethodRoute)` in the layer a call has a name such as {path:?}, with \
             the method in capitals and a space"
        ));
    }
    if name.contains("://") {
        return plain(
            "requests are named by their path; in a client, `.resource(key::Authority)` names \
             them by the host",
        );
    }
    if name.starts_with('^') || name.ends_with('$') || name.contains(".*") {
        return plain(
            "names are no regular expressions: a rule is for one name, such as a route's template, \
             or for `*`, each resource without a rule of its own",
        );
    }
    if name.contains("**") || name.ends_with("/*") {
        return plain(
            "names are no patterns: `/api/{*rest}` is the template of a route for all below it, \
             and `*` is for each resource without a rule of its own",
        );
    }
    if name.starts_with('/') && name.contains('?') {
        return plain("the query is no part of a name");
    }
    None
}

/// Returns `METHOD /path` if `name` has both in another form, such as `GET:/path` or
/// `HttpGet#/path`.
fn path_behind_method(name: &str) -> Option<String> {
    let (method, path) = name.split_at(name.find('/')?);
    let method = method.strip_suffix([':', '#', '|', '-', ' '])?.trim_end();
    let method = method.strip_prefix("Http").unwrap_or(method);
    let capitals = method.to_ascii_uppercase();
    let is_known = matches!(
        &*capitals,
        "GET" | "POST" | "PUT" | "DELETE" | "PATCH" | "HEAD" | "OPTIONS" | "TRACE" | "CONNECT"
    );
    let meant = format!("{capitals} {path}");
    (is_known && meant != name).then_some(meant)
}

impl Likeness {
    /// Returns the remedy, for a rule with this `name`.
    fn cure(self, name: &str) -> String {
        match self {
            Likeness::Method => {
                "no layer names calls by their method: give it `.resource(MethodRoute)`, or leave \
                 the method out of the rule's name"
                    .to_owned()
            }
            Likeness::NoMethod => {
                "the layer names calls by their method, and so must the rule".to_owned()
            }
            Likeness::Slash => "the names differ by the slash at the end".to_owned(),
            Likeness::Parameters => "the parameters have other names there".to_owned(),
            Likeness::Rest => format!(
                "{name:?} is the name of one route, and not of all below it: for one quota over \
                 several routes, give them one name with `.resource(…)` in a layer of their own"
            ),
            Likeness::Path => {
                "the layer names calls by their paths, and not by templates".to_owned()
            }
            Likeness::Prefix => "one of the names lacks the prefix of a nested router".to_owned(),
            Likeness::Capitals => "the names differ by capitals".to_owned(),
            Likeness::Letters => "is that the name that is meant?".to_owned(),
        }
    }
}

/// Returns the likeness of `called` and `name`; `None` if they are not alike.
fn likeness(name: &str, called: &str) -> Option<Likeness> {
    let ((method, path), (other_method, other_path)) = (split(name), split(called));
    if method.is_some() != other_method.is_some() {
        let is_alike = path == other_path || is_same_shape(path, other_path);
        let likeness = match method {
            Some(_) => Likeness::Method,
            None => Likeness::NoMethod,
        };
        return is_alike.then_some(likeness);
    }
    if method != other_method {
        return None;
    }
    let without_slash = |path: &str| path.len() > 1 && path.ends_with('/');
    if without_slash(path) != without_slash(other_path)
        && path.trim_end_matches('/') == other_path.trim_end_matches('/')
    {
        return Some(Likeness::Slash);
    }
    if is_same_shape(path, other_path) {
        return Some(Likeness::Parameters);
    }
    if let Some(prefix) = before_rest(path) {
        if other_path.len() > prefix.len() && other_path.starts_with(prefix) {
            return Some(Likeness::Rest);
        }
    }
    if path.contains('{') && !other_path.contains('{') && matches(path, other_path) {
        return Some(Likeness::Path);
    }
    if is_suffix(path, other_path) || is_suffix(other_path, path) {
        return Some(Likeness::Prefix);
    }
    if path.eq_ignore_ascii_case(other_path) {
        return Some(Likeness::Capitals);
    }
    is_misspelt(path, other_path).then_some(Likeness::Letters)
}

/// Returns the method in a name such as `GET /users`, and the rest.
fn split(name: &str) -> (Option<&str>, &str) {
    match name.split_once(' ') {
        Some((method, path))
            if path.starts_with('/') && method.bytes().all(|b| b.is_ascii_uppercase()) =>
        {
            (Some(method), path)
        }
        _ => (None, name),
    }
}

/// Returns whether a whole segment of a template is a parameter.
fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{') && !segment.starts_with("{{") && segment.ends_with('}')
}

/// Returns whether two templates differ by nothing but the names of their parameters.
fn is_same_shape(one: &str, other: &str) -> bool {
    let is_same = |(a, b): (&str, &str)| {
        a == b || is_parameter(a) && is_parameter(b) && a.starts_with("{*") == b.starts_with("{*")
    };
    one.contains('{')
        && one.split('/').count() == other.split('/').count()
        && one.split('/').zip(other.split('/')).all(is_same)
}

/// Returns the part of `template` before a wildcard such as `{*rest}`, if `template` ends with a
/// wildcard.
fn before_rest(template: &str) -> Option<&str> {
    let (prefix, name) = template.strip_suffix('}')?.rsplit_once('{')?;
    name.starts_with('*').then_some(prefix)
}

/// Returns whether `path` matches `template`, segment by segment.
fn matches(template: &str, path: &str) -> bool {
    let is_match = |(a, b): (&str, &str)| a == b || is_parameter(a) && !b.is_empty();
    template.split('/').count() == path.split('/').count()
        && template.split('/').zip(path.split('/')).all(is_match)
}

/// Returns whether `whole` is `end` behind at least one more segment.
fn is_suffix(end: &str, whole: &str) -> bool {
    end.len() > 1 && end.starts_with('/') && whole.len() > end.len() && whole.ends_with(end)
}

/// Returns whether only a few letters differ, apart from parameters of both.
fn is_misspelt(one: &str, other: &str) -> bool {
    let longest = one.len().max(other.len());
    if longest > MOST_COMPARED || one.split('/').count() != other.split('/').count() {
        return false;
    }
    let (mut letters, mut differing) = (0, 0);
    for (a, b) in one.split('/').zip(other.split('/')) {
        if a.starts_with("{*") != b.starts_with("{*") {
            return false;
        }
        if is_parameter(a) || is_parameter(b) {
            continue;
        }
        letters += a.len().min(b.len());
        if a != b {
            if a.len().abs_diff(b.len()) > MOST_LETTERS {
                return false;
            }
            differing += letters_apart(a, b);
        }
    }
    differing <= MOST_LETTERS.min(letters / 3)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn likely_mistakes_in_names_are_recognized() {
        let cases = [
            ("GET /a", "/a", Some(Likeness::Method)),
            ("GET /u/{id}", "/u/{user}", Some(Likeness::Method)),
            ("/a", "POST /a", Some(Likeness::NoMethod)),
            ("GET /a", "POST /a", None),
            ("GET /a", "/b", None),
            ("/users/", "/users", Some(Likeness::Slash)),
            ("/users", "/users/", Some(Likeness::Slash)),
            ("/u/{user}", "/u/{id}", Some(Likeness::Parameters)),
            ("/u/{user}", "/u/{*rest}", None),
            ("/api/{*rest}", "/api/users", Some(Likeness::Rest)),
            ("/api/{*rest}", "/api/users/{id}", Some(Likeness::Rest)),
            ("/api/{*rest}", "/apis", None),
            ("/u/{id}", "/u/7", Some(Likeness::Path)),
            ("/api/users/{id}", "/users/{id}", Some(Likeness::Prefix)),
            ("/users", "/v1/users", Some(Likeness::Prefix)),
            ("/Users", "/users", Some(Likeness::Capitals)),
            ("/user/{id}", "/users/{id}", Some(Likeness::Letters)),
            ("/user/{id}", "/users/7", Some(Likeness::Letters)),
            ("/oders", "/orders", Some(Likeness::Letters)),
            ("serach", "search", Some(Likeness::Letters)),
            ("flwo", "flow", Some(Likeness::Letters)),
            (
                "/shop.Orders/List",
                "/shop.Order/List",
                Some(Likeness::Letters),
            ),
            ("/a", "/b", None),
            ("/cat", "/dog", None),
            ("/", "/users", None),
            ("job", "report", None),
        ];
        for (name, called, expected) in cases {
            assert_eq!(likeness(name, called), expected, "{name} {called}");
        }
    }

    #[test]
    fn a_word_is_meant_in_other_capitals_or_with_a_few_other_letters() {
        for (word, meant, expected) in [
            ("Pro", "pro", true),
            (" pro", "pro", true),
            ("por", "pro", true),
            ("pr", "pro", false),
            ("premuim", "premium", true),
            ("enterprize", "enterprise", true),
            ("free", "pro", false),
            ("", "pro", false),
        ] {
            assert_eq!(is_meant(word, meant), expected, "{word} {meant}");
        }
    }

    #[test]
    fn names_that_no_call_can_have_are_recognized() {
        for (name, says) in [
            ("**", "no patterns"),
            ("/api/**", "no patterns"),
            ("^/api/.*$", "no regular expressions"),
            ("/a?x=1", "the query"),
            ("http://shop.example/a", "key::Authority"),
            ("GET:/hi", "\"GET /hi\""),
            ("HttpGet#/hi", "\"GET /hi\""),
            ("get /hi", "\"GET /hi\""),
        ] {
            let cause = oddity(name).unwrap_or_default();
            assert!(cause.contains(says), "{name}: {cause}");
        }
        for name in [
            "GET /hi",
            "/hi",
            "/hi/{*rest}",
            "*",
            "job",
            "a:/b",
            "/shop.Orders/List",
            "cache/get",
        ] {
            assert_eq!(oddity(name), None, "{name}");
        }
    }

    #[test]
    fn the_most_telling_and_most_called_name_is_reported() {
        let called = |names: &[(&str, u64)]| -> Vec<_> {
            let owned = names.iter().map(|(name, calls)| (Arc::from(*name), *calls));
            owned.collect()
        };
        let three = called(&[("/usrs", 9), ("/users", 3), ("/usr", 8)]);
        let cause = cause_of_silence("/users/", &three).unwrap();
        assert!(
            cause.starts_with("\"/users\" was called 3 times; "),
            "{cause}"
        );
        let cause = cause_of_silence("/users", &called(&[("/uses", 8), ("/usrs", 9)])).unwrap();
        assert!(
            cause.starts_with("\"/usrs\" was called 9 times; "),
            "{cause}"
        );
        assert_eq!(cause_of_silence("/users", &called(&[("/report", 8)])), None);
    }
}
