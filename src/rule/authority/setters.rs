//! The constructors and setters of an authority rule.

use super::super::problem::Inspector;
use super::{AuthorityRule, Treatment, split};

// === impl AuthorityRule ===

impl AuthorityRule {
    /// Allows only `origins` to call `resource`.
    #[must_use]
    pub fn allow(
        resource: impl Into<String>,
        origins: impl IntoIterator<Item: AsRef<str>>,
    ) -> Self {
        Self::new(Treatment::Allow, resource.into(), origins)
    }

    /// Allows all origins except `origins` to call `resource`.
    #[must_use]
    pub fn deny(resource: impl Into<String>, origins: impl IntoIterator<Item: AsRef<str>>) -> Self {
        Self::new(Treatment::Deny, resource.into(), origins)
    }

    /// Allows only the origins in `list`, separated by commas, to call `resource`. Blank items of
    /// the list are skipped, so a blank list refuses no call.
    #[must_use]
    pub fn allow_list(resource: impl Into<String>, list: &str) -> Self {
        Self::allow(resource, split(list))
    }

    /// Allows all origins except those in `list`, separated by commas, to call `resource`.
    /// Blank items of the list are skipped.
    #[must_use]
    pub fn deny_list(resource: impl Into<String>, list: &str) -> Self {
        Self::deny(resource, split(list))
    }

    pub(super) fn new(
        strategy: Treatment,
        resource: String,
        origins: impl IntoIterator<Item: AsRef<str>>,
    ) -> Self {
        Self {
            resource,
            origins: origins
                .into_iter()
                .map(|origin| origin.as_ref().trim().to_owned())
                .collect(),
            strategy,
            deny_unknown: false,
            id: None,
        }
    }

    /// Refuses calls without an origin. Default: they pass.
    #[must_use]
    pub fn deny_unknown(mut self) -> Self {
        self.deny_unknown = true;
        self
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `authority-2`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the resource that the rule is for.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the origins on the list, without the spaces around them.
    #[must_use]
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        for origin in &self.origins {
            inspector.name("origins", origin);
        }
    }
}
