//! Route templates among the rules' resources, and which one a path matches.

use std::collections::HashMap;
use std::sync::Arc;

use matchit::InsertError;

use super::respell::respelled;
use crate::call::MAX_KEY_BYTES;

/// The maximum number of parameters of a template, not counting a parameter for the rest of a path.
/// With more the router panics, as it names parameters by the letters of the alphabet.
const MOST_PARAMETERS: usize = 25;

/// The templates of a rule set, taken from the resources of its rules and from their related
/// resources. A name is a template if it starts with `/`, or has a method and a space
/// before the `/`, as in `GET /users/{id}`.
///
/// The syntax is that of axum 0.8: `{name}` for one segment, `{*name}` for the rest, `{{` and `}}`
/// for braces. The syntaxes of other routers are refused, as their parameters would match only
/// their own text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    router: Router,
    /// Each template of the router with the index of the rule that added it, or with [`FORGOTTEN`].
    known: HashMap<Arc<str>, u64>,
    /// How many of the templates in `known` are [`FORGOTTEN`].
    forgotten: usize,
}

/// Takes the place of the rule index for a template that no rule names any more, but that the
/// router still has: the router cannot remove a template without leaving traces of its parameters,
/// and rebuilding it takes time.
const FORGOTTEN: u64 = u64::MAX;

/// The router in which templates are looked up, with the text of each template.
type Router = matchit::Router<Arc<str>>;

impl Templates {
    /// Adds the template in `name`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the allowed spelling.
    pub(super) fn add(&mut self, name: &str, index: usize) -> Result<(), String> {
        let Some(template) = template_of(name) else {
            return Ok(());
        };
        let found = self.known.get(template).copied();
        if found.is_some_and(|rule| rule != FORGOTTEN) {
            return Ok(());
        }
        // Checked first, as the router can keep the part of a bad template before its mistake.
        check_template(template)?;
        let text = Arc::from(template);
        match found {
            Some(_) => self.forgotten -= 1,
            None => self.insert(&text)?,
        }
        self.known.insert(text, index as u64);
        Ok(())
    }

    /// Inserts `template`, which is valid, into the router.
    fn insert(&mut self, template: &Arc<str>) -> Result<(), String> {
        let Err(error) = self.router.insert(&**template, template.clone()) else {
            return Ok(());
        };
        let other = match &error {
            InsertError::Conflict { with } => self.conflicting(with, template),
            _ => None,
        };
        match other {
            Some((other, index)) => Err(format!(
                "a template that does not conflict with {other:?} of rule {index}"
            )),
            None if self.forgotten > 0 => {
                self.settle();
                self.insert(template)
            }
            None => Err(format!("a template that conflicts with no other ({error})")),
        }
    }

    /// Returns the known template that `template` conflicts with, and its rule. The router reports
    /// the known template as `with`, but with single braces in place of doubled braces. Read as a
    /// path, `with` matches the known template.
    fn conflicting(&self, with: &str, template: &str) -> Option<(&str, u64)> {
        for found in [Some(with), self.matching(with)] {
            let known = found.and_then(|found| self.known.get_key_value(found));
            let Some((other, &index)) = known.filter(|(_, rule)| **rule != FORGOTTEN) else {
                continue;
            };
            let mut both = Router::new();
            let mut is_taken = |template: &str| both.insert(template, Arc::from("")).is_ok();
            if is_taken(other) && !is_taken(template) {
                return Some((other, index));
            }
        }
        None
    }

    /// Returns whether the template in `name` is known.
    #[cfg(feature = "serde")]
    pub(super) fn has(&self, name: &str) -> bool {
        let known = template_of(name).and_then(|template| self.known.get(template));
        known.is_some_and(|rule| *rule != FORGOTTEN)
    }

    /// Forgets the template in `name`. No path may be looked up until [`settle`](Self::settle) is
    /// called.
    #[cfg(feature = "serde")]
    pub(super) fn remove(&mut self, name: &str) {
        let known = template_of(name).and_then(|template| self.known.get_mut(template));
        if let Some(rule) = known.filter(|rule| **rule != FORGOTTEN) {
            *rule = FORGOTTEN;
            self.forgotten += 1;
        }
    }

    /// Rebuilds the router if it has forgotten templates.
    pub(super) fn settle(&mut self) {
        if self.forgotten == 0 {
            return;
        }
        self.forgotten = 0;
        self.known.retain(|_, rule| *rule != FORGOTTEN);
        self.router = Router::new();
        for template in self.known.keys() {
            let again = self.router.insert(&**template, template.clone());
            again.expect("no two of them conflict");
        }
    }

    /// Returns whether any template has braces, and so can match other paths than its own text.
    pub(crate) fn have_braces(&self) -> bool {
        for (template, rule) in &self.known {
            if *rule != FORGOTTEN && template.contains('{') {
                return true;
            }
        }
        false
    }

    /// The template that `path` matches.
    // Not inlined, so that the router's look-up has one caller only, and is inlined here.
    #[inline(never)]
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        self.router.at(path).ok().map(|found| &**found.value)
    }
}

/// Checks `template` by itself, without regard to other templates.
///
/// # Errors
///
/// Returns the allowed spelling.
pub(crate) fn check_template(template: &str) -> Result<(), String> {
    if let Some(ours) = respelled(template) {
        check_template(&ours)?;
        return Err(format!("written {ours:?}, as in axum 0.8"));
    }
    if parameters(template) > MOST_PARAMETERS {
        return Err(format!(
            "a template with at most {MOST_PARAMETERS} parameters"
        ));
    }
    let alone = Router::new().insert(template, Arc::from(""));
    alone.map_err(|error| format!("a template such as \"/users/{{id}}\" ({error})"))
}

/// Counts the parameters of `template`, without a parameter for the rest of a path.
fn parameters(template: &str) -> usize {
    let mut count = 0;
    let bytes = template.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'{', b'{', ..] => at += 1,
            [b'{', rest @ ..] if !rest.starts_with(b"*") => count += 1,
            _ => {}
        }
        at += 1;
    }
    count
}

/// Returns the resource `name` with its template in the syntax of this crate; `None` if it has no
/// template in the syntax of another router.
#[cfg(feature = "serde")]
pub(crate) fn respelled_name(name: &str) -> Option<String> {
    let template = template_of(name)?;
    let method = name.strip_suffix(template)?;
    Some(format!("{method}{}", respelled(template)?))
}

/// Returns the name of calls by method and route if `name` is meant as such a name, but has a colon
/// between the two, as the adapters of Alibaba Sentinel write it.
#[cfg(feature = "serde")]
pub(crate) fn by_method(name: &str) -> Option<String> {
    let (method, path) = name.split_once(':')?;
    let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic());
    if !is_method || !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    let method = method.to_ascii_uppercase();
    let path = respelled(path).unwrap_or_else(|| path.to_owned());
    Some(format!("{method} {path}"))
}

/// Returns the template in `name`. A name that is too long has no template, as it is refused for
/// its length.
fn template_of(name: &str) -> Option<&str> {
    if name.len() > MAX_KEY_BYTES {
        return None;
    }
    if name.starts_with('/') {
        return Some(name);
    }
    let (method, path) = name.split_once(' ')?;
    let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase());
    (is_method && path.starts_with('/')).then_some(path)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_matches_the_template_that_axum_would_choose() {
        let mut templates = Templates::default();
        for name in [
            "/users/{id}",
            "/users/me",
            "/files/{*rest}",
            "GET /orders/{id}",
            "job",
            "get /jobs/{id}",
            " /blank/{id}",
            "GET plain",
        ] {
            templates.add(name, 0).unwrap();
        }
        let cases = [
            ("/users/7", Some("/users/{id}")),
            ("/users/me", Some("/users/me")),
            ("/users/7/x", None),
            ("/files/a/b", Some("/files/{*rest}")),
            ("/orders/9", Some("/orders/{id}")),
            ("/job", None),
            ("/jobs/7", None),
            ("/blank/7", None),
            ("plain", None),
        ];
        for (path, template) in cases {
            assert_eq!(templates.matching(path), template, "{path}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_name_by_method_has_a_space() {
        for (name, ours) in [
            ("POST:/api/login", Some("POST /api/login")),
            ("get:/users/:id", Some("GET /users/{id}")),
            ("GET:/files/*", Some("GET /files/{*rest}")),
            ("POST /api/login", None),
            ("/v1/projects:list", None),
            ("http://example.com/", None),
            ("com.shop.Orders:find(long)", None),
            (":/a", None),
        ] {
            assert_eq!(by_method(name).as_deref(), ours, "{name}");
        }
        assert_eq!(respelled_name("GET /u/:id").as_deref(), Some("GET /u/{id}"));
        assert_eq!(respelled_name("job:*"), None);
    }

    #[test]
    fn a_conflict_names_the_other_template() {
        let mut templates = Templates::default();
        templates.add("/users/{id}", 3).unwrap();
        templates.add("/users/{id}", 4).unwrap();
        let allowed = templates.add("/users/{name}", 5).unwrap_err();
        assert!(
            allowed.contains("/users/{id}") && allowed.contains("rule 3"),
            "{allowed}"
        );
        assert!(templates.add("/users/{", 6).is_err());
    }

    fn templates() -> impl Strategy<Value = Vec<String>> {
        let part = prop::sample::select(&["a", "b", "{x}", "{y}", "a{x}", "{{a}}", "{*r}"][..]);
        let template = prop::collection::vec(part, 1..4);
        let template = template.prop_map(|parts| format!("/{}", parts.join("/")));
        prop::collection::vec(template, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// Invalid and forgotten templates leave no trace: later templates are accepted or refused
        /// as if such templates had never been added.
        #[cfg(feature = "serde")]
        #[test]
        fn only_known_templates_conflict(
            all in templates(),
            is_kept in prop::collection::vec(any::<bool>(), 8),
            path in "(/(a|b|c|\\{a\\})){1,4}",
        ) {
            let (mut templates, mut kept) = (Templates::default(), Vec::<String>::new());
            let fresh = |kept: &[String]| {
                let mut fresh = Templates::default();
                kept.iter().for_each(|template| fresh.add(template, 0).unwrap());
                fresh
            };
            for (template, is_kept) in all.into_iter().zip(is_kept) {
                let was_known = templates.has(&template);
                let is_taken = templates.add(&template, 0).is_ok();
                prop_assert_eq!(is_taken, fresh(&kept).add(&template, 0).is_ok(), "{}", template);
                if is_taken && (is_kept || was_known) {
                    kept.push(template);
                } else if is_taken {
                    templates.remove(&template);
                }
            }
            templates.settle();
            let fresh = fresh(&kept);
            prop_assert_eq!(templates.matching(&path), fresh.matching(&path));
        }
    }
}
