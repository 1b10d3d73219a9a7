//! Route templates among the rules' names, and which one a path matches.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call::MAX_KEY_BYTES;

/// Most parameters of a template, beside one for the rest of a path: the router panics
/// where there are more, as it calls them by the letters.
const MOST_PARAMETERS: usize = 25;

/// The templates of a rule set: among the resources of its rules, and those that
/// rules look at. A name is one if it starts with `/`, or if it does after a method,
/// as in `GET /users/{id}`.
///
/// The syntax is that of axum 0.8: `{name}` for one segment, `{*name}` for the
/// rest, `{{` and `}}` for braces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    router: matchit::Router<Arc<str>>,
    /// Each template with the index of the rule that brought it.
    known: HashMap<Arc<str>, usize>,
}

impl Templates {
    /// Adds the template in `name`, if there is one.
    ///
    /// # Errors
    ///
    /// What is allowed instead.
    pub(super) fn add(&mut self, name: &str, index: usize) -> Result<(), String> {
        let Some(template) = template_of(name) else {
            return Ok(());
        };
        if self.known.contains_key(template) {
            return Ok(());
        }
        if parameters(template) > MOST_PARAMETERS {
            return Err(format!(
                "a template with at most {MOST_PARAMETERS} parameters"
            ));
        }
        let text: Arc<str> = template.into();
        match self.router.insert(template, text.clone()) {
            Ok(()) => {
                self.known.insert(text, index);
                Ok(())
            }
            Err(matchit::InsertError::Conflict { with }) => Err(match self.known.get(&*with) {
                Some(index) => {
                    format!("a template that does not conflict with {with:?} of rule {index}")
                }
                None => format!("a template that does not conflict with {with:?}"),
            }),
            Err(error) => Err(format!("a template such as \"/users/{{id}}\" ({error})")),
        }
    }

    /// Whether the template in `name` is known.
    #[cfg(feature = "serde")]
    pub(super) fn has(&self, name: &str) -> bool {
        template_of(name).is_some_and(|template| self.known.contains_key(template))
    }

    /// Forgets the template in `name`.
    #[cfg(feature = "serde")]
    pub(super) fn remove(&mut self, name: &str) {
        let Some(template) = template_of(name) else {
            return;
        };
        if self.known.remove(template).is_none() {
            return;
        }
        // The router does not find the rest of a path beside other templates, and takes
        // "{{a}}" for a parameter.
        let removed = self.router.remove(template);
        if removed.as_deref() != Some(template) {
            let mut router = matchit::Router::new();
            for template in self.known.keys() {
                let again = router.insert(&**template, template.clone());
                again.expect("no two of them conflict");
            }
            self.router = router;
        }
    }

    /// Whether a template matches more than the path that it is written as.
    pub(crate) fn have_braces(&self) -> bool {
        self.known.keys().any(|template| template.contains('{'))
    }

    /// The template that `path` matches.
    pub(crate) fn matching(&self, path: &str) -> Option<&str> {
        self.router.at(path).ok().map(|found| &**found.value)
    }
}

/// How many segments of `template` may be anything.
fn parameters(template: &str) -> usize {
    let without_braces = template.replace("{{", "");
    let parts = without_braces.split('{').skip(1);
    parts.filter(|part| !part.starts_with('*')).count()
}

/// The template in `name`. There is none in a name that is too long, which is refused as
/// such.
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

    #[test]
    fn a_conflict_names_the_other_one() {
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
}
