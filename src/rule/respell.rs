//! Translates templates from the syntax of other routers to the syntax of this crate.

/// The name for the rest of a path if the template gives none.
const REST: &str = "rest";
/// The name for one segment of a path if the template gives none.
const PART: &str = "part";

/// The meaning of a segment in the syntax of another router.
enum Meaning<'a> {
    /// Any one segment, under this name.
    One(&'a str),
    /// All segments from here on, under this name.
    All(&'a str),
}

/// Translates `template` to the syntax of this crate if any segment is in the syntax of another
/// router: `/users/:id`, `/files/*`, `/users/<id>`, `/users/{id:[0-9]+}`, `/files/{path...}`.
/// Returns `None` if no segment is.
///
/// In this crate's syntax, a segment of another router would match only its own text, or more than
/// was meant.
pub(crate) fn respelled(template: &str) -> Option<String> {
    if !template.split('/').any(|part| meaning(part).is_some()) {
        return None;
    }
    let mut names = Vec::new();
    let mut respelled = String::new();
    for (index, part) in template.split('/').enumerate() {
        if index > 0 {
            respelled.push('/');
        }
        match meaning(part) {
            None => respelled.push_str(part),
            // Only at the end can a segment match the rest of a path; elsewhere it becomes a single
            // one.
            Some(Meaning::All(name)) if is_last(template, index) => {
                respelled.push_str(&format!("{{*{}}}", unused(name, REST, &mut names)));
            }
            Some(Meaning::One(name) | Meaning::All(name)) => {
                respelled.push_str(&format!("{{{}}}", unused(name, PART, &mut names)));
            }
        }
    }
    Some(respelled)
}

/// Returns whether the segment at `index` is the last segment of `template`.
fn is_last(template: &str, index: usize) -> bool {
    template.split('/').count() == index + 1
}

/// Returns `name`, or `plain` if it is empty, with a number appended if `names` already has it.
fn unused(name: &str, plain: &str, names: &mut Vec<String>) -> String {
    let name = if name.is_empty() { plain } else { name };
    let (mut unused, mut number) = (name.to_owned(), 1);
    while names.contains(&unused) {
        number += 1;
        unused = format!("{name}{number}");
    }
    names.push(unused.clone());
    unused
}

/// The meaning of the segment `part` in another router's syntax; `None` if it is in this crate's.
fn meaning(part: &str) -> Option<Meaning<'_>> {
    if let Some(name) = part.strip_prefix(':') {
        // Gin, Express, axum 0.7: `:id`, `:id?`, `:id(\d+)`, `:path*`.
        let is_rest = name.ends_with(['*', '+']);
        let one = Meaning::One(word(name));
        return Some(if is_rest {
            Meaning::All(word(name))
        } else {
            one
        });
    }
    if part.starts_with('*') {
        // Gin, axum 0.7, Spring, proxies: `*`, `*path`, `**`.
        return Some(Meaning::All(word(part.trim_start_matches('*'))));
    }
    if let Some(inner) = within(part, '<', '>') {
        // Rocket and Flask: `<id>`, `<path..>`, `<int:id>`, `<path:rest>`.
        let (converter, name) = inner.split_once(':').unwrap_or(("", inner));
        let is_rest = converter == "path" || inner.ends_with("..");
        let name = word(name);
        return Some(if is_rest {
            Meaning::All(name)
        } else {
            Meaning::One(name)
        });
    }
    let inner = within(part, '{', '}').filter(|inner| !inner.starts_with('{'))?;
    // Actix, gorilla, ASP.NET, Go: `{id:[0-9]+}`, `{tail:.*}`, `{id?}`, `{**path}`, `{path...}`.
    let (name, pattern) = inner.split_once(':').unwrap_or((inner, ""));
    if pattern.starts_with(".*") || inner.starts_with("**") || inner.ends_with("...") {
        Some(Meaning::All(word(name.trim_start_matches('*'))))
    } else if inner.contains(':') || inner.ends_with('?') {
        Some(Meaning::One(word(name)))
    } else {
        None
    }
}

/// Returns the text between `open` and `close`, if `part` begins and ends with them.
fn within(part: &str, open: char, close: char) -> Option<&str> {
    part.strip_prefix(open)?.strip_suffix(close)
}

/// The word that `text` begins with.
fn word(text: &str) -> &str {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let end = text.find(is_other).unwrap_or(text.len());
    &text[..end]
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rule::check_template;

    #[test]
    fn templates_of_other_routers_are_respelled() {
        for (other, ours) in [
            ("/users/:id", "/users/{id}"),
            ("/users/:id/posts/:id", "/users/{id}/posts/{id2}"),
            ("/users/:id?", "/users/{id}"),
            (r"/users/:id(\d+)", "/users/{id}"),
            ("/:", "/{part}"),
            ("/files/:path*", "/files/{*path}"),
            ("/files/*", "/files/{*rest}"),
            ("/files/**", "/files/{*rest}"),
            ("/files/*path", "/files/{*path}"),
            ("/files/*/raw", "/files/{part}/raw"),
            ("/*", "/{*rest}"),
            ("/users/<id>", "/users/{id}"),
            ("/users/<int:id>", "/users/{id}"),
            ("/files/<path..>", "/files/{*path}"),
            ("/files/<path:name>", "/files/{*name}"),
            ("/users/{id:[0-9]+}", "/users/{id}"),
            ("/users/{id?}", "/users/{id}"),
            ("/files/{tail:.*}", "/files/{*tail}"),
            ("/files/{path...}", "/files/{*path}"),
            ("/files/{**path}", "/files/{*path}"),
            ("/pkg.Service/*", "/pkg.Service/{*rest}"),
        ] {
            assert_eq!(respelled(other).as_deref(), Some(ours), "{other}");
        }
    }

    #[test]
    fn templates_in_our_syntax_stay() {
        for ours in [
            "/",
            "/users/{id}",
            "/files/{*rest}",
            "/v1/projects:list",
            "/a*",
            "/{{id:a}}",
            "/pkg.Service/Method",
            "/a/{",
            "/a//b",
        ] {
            assert_eq!(respelled(ours), None, "{ours}");
        }
    }

    proptest! {
        #[test]
        fn proposed_templates_are_valid(
            parts in prop::collection::vec("(a|[:*<]{1,2}(id|path)?([?*+.>]{0,2})|\\{id(:[^/][*])?\\})", 1..6),
        ) {
            let template = format!("/{}", parts.join("/"));
            if let Some(ours) = respelled(&template) {
                prop_assert_eq!(respelled(&ours), None);
                let checked = check_template(&ours);
                prop_assert!(checked.is_ok(), "{} for {}: {:?}", ours, template, checked);
            }
        }
    }
}
