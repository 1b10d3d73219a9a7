//! Authority rules: which origins may call a resource at all.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod setters;

use super::named::Named;
use crate::call::Key;

/// Determines which origins may call a resource: only the origins on a list, or all others.
///
/// All rules of a resource apply to each call. An origin must equal a whole name of the list;
/// spaces around the names do not count. A name that spells an address or a number also matches an
/// origin of that type; an IPv4-mapped IPv6 address matches both addresses.
///
/// A call without an origin, or with an empty origin, passes even a list of allowed origins, as in
/// Alibaba Sentinel, unless the rule [denies](Self::deny_unknown) it. An empty list refuses no
/// origin, whether it allows or denies.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{AuthorityRule, Call, Sentinel, Verdict};
///
/// // Only the shop and the office, and nobody without an origin.
/// let rule = AuthorityRule::allow("/orders", ["shop", "office"]).deny_unknown();
/// assert_eq!(rule.origins(), ["shop", "office"]);
/// // As one string.
/// assert_eq!(
///     AuthorityRule::allow_list("/orders", "shop, office").deny_unknown(),
///     rule,
/// );
///
/// let sentinel = Sentinel::new(rule);
/// let passes = |call| matches!(sentinel.try_enter(call), Verdict::Pass(_));
/// assert!(passes(Call::new("/orders").origin("shop")));
/// assert!(!passes(Call::new("/orders").origin("bot")) && !passes(Call::new("/orders")));
/// ```
///
/// # Accuracy
///
/// An origin is the key that an [extractor](crate::key) makes of a request. Extractors distinguish
/// IPv6 addresses by their first 64 bits, so use the address of the network, such as
/// `2001:db8:1:2::`. A network in prefix notation, such as `10.0.0.0/8`, is a text like any other
/// and contains no address. To list a network, let [an extractor](crate::key::from_fn) return the
/// name of the network that contains the address. Whether an origin can be trusted also depends on
/// the extractor: any client can write a header.
///
/// # Source
///
/// `AuthorityRule` of Alibaba Sentinel. There a resource has one authority rule, further rules are
/// ignored, and spaces in the list count.
#[doc(alias("allowlist", "denylist", "whitelist", "blacklist"))]
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorityRule {
    resource: String,
    origins: Vec<String>,
    strategy: Treatment,
    deny_unknown: bool,
    pub(super) id: Option<String>,
}

/// What happens to the origins on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Allow,
    Deny,
}

/// One authority rule, compiled for lookups that take constant time and allocate nothing.
#[derive(Debug)]
pub(crate) struct OriginList {
    named: Named<()>,
    strategy: Treatment,
    deny_unknown: bool,
}

/// Splits a list of origins at commas, and skips blank items.
fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|origin| !origin.trim().is_empty())
}

// === impl OriginList ===

impl OriginList {
    /// Compiles `rule`.
    fn new(rule: &AuthorityRule) -> Self {
        let mut named = Named::default();
        for origin in &rule.origins {
            named.change(origin, |()| {});
        }
        Self {
            named,
            strategy: rule.strategy,
            deny_unknown: rule.deny_unknown,
        }
    }

    /// Returns whether a call of `origin` passes.
    #[inline]
    pub(super) fn permits(&self, origin: Option<&Key<'_>>) -> bool {
        // An empty origin counts as a missing origin.
        let Some(origin) = origin.filter(|origin| !origin.is("")) else {
            return !self.deny_unknown;
        };
        if self.named.is_empty() {
            return true;
        }
        let is_named = self.named.has(origin);
        is_named == (self.strategy == Treatment::Allow)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::blocked::BlockKind;
    use crate::call::Call;
    use crate::rule::Guards;
    use crate::rule::info::RuleInfo;
    use crate::rule::problem::Inspector;

    fn permits(rule: &AuthorityRule, origin: &str) -> bool {
        OriginList::new(rule).permits(Some(&Key::Str(origin)))
    }

    #[test]
    fn a_list_is_compared_name_by_name() {
        let (allow, deny) = (
            AuthorityRule::allow("r", ["a", "b"]),
            AuthorityRule::deny("r", ["a", "b"]),
        );
        // An origin, and whether the lists name it.
        let table = [
            ("a", true),
            ("b", true),
            ("c", false),
            ("ab", false),
            ("a,b", false),
            ("A", false),
            (" a", false),
        ];
        for (origin, is_named) in table {
            assert_eq!(permits(&allow, origin), is_named, "{origin}");
            assert_eq!(permits(&deny, origin), !is_named, "{origin}");
        }
        // The origin is unknown.
        for rule in [&allow, &deny] {
            assert!(permits(rule, ""));
            assert!(OriginList::new(rule).permits(None));
        }
    }

    #[test]
    fn spaces_around_names_do_not_count() {
        let rule = AuthorityRule::allow_list("r", " a, b b ,,\tc ");
        assert_eq!(rule.origins(), ["a", "b b", "c"]);
        assert_eq!(rule, AuthorityRule::allow("r", [" a", "b b ", "\tc "]));
        assert_eq!(
            AuthorityRule::deny_list("r", "a,b"),
            AuthorityRule::deny("r", ["a", "b"])
        );
        assert!(permits(&rule, "b b") && !permits(&rule, "b"));
    }

    #[test]
    fn calls_without_an_origin_can_be_denied() {
        for rule in [
            AuthorityRule::allow("r", ["a"]),
            AuthorityRule::deny("r", ["b"]),
            AuthorityRule::allow_list("r", ""),
        ] {
            let strict = OriginList::new(&rule.deny_unknown());
            assert!(!strict.permits(None));
            assert!(!strict.permits(Some(&Key::Str(""))));
            assert!(strict.permits(Some(&Key::Str("a"))));
        }
    }

    #[test]
    fn an_empty_list_refuses_nobody() {
        for rule in [
            AuthorityRule::allow_list("r", " , "),
            AuthorityRule::allow("r", [""; 0]),
            AuthorityRule::deny("r", [""; 0]),
        ] {
            assert!(permits(&rule, "a"));
            assert!(OriginList::new(&rule).permits(None));
        }
    }

    #[test]
    fn a_name_matches_an_address_or_number_it_spells() {
        let names = ["10.0.0.1", "2001:db8:1:2::", "42", "007", "GET /a"];
        let list = OriginList::new(&AuthorityRule::deny("r", names));
        let network = IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, 0_u16]);
        for (origin, passes) in [
            (Key::Str("10.0.0.1"), false),
            (Key::Ip([10, 0, 0, 1].into()), false),
            (Key::Ip([10, 0, 0, 2].into()), true),
            (Key::Ip(network), false),
            (Key::Int(42), false),
            (Key::Int(7), true),
            (Key::Joined("GET", "/a"), false),
            (Key::Digest(1, 2), true),
        ] {
            assert_eq!(list.permits(Some(&origin)), passes, "{origin:?}");
        }
    }

    #[test]
    fn all_rules_of_a_resource_apply() {
        let mut guards = Guards::default();
        let call = |origin: &'static str| Call::new("r").origin(origin);
        assert!(guards.refusing(&Call::new("r")).is_none());
        let mut add = |index, rule: AuthorityRule| {
            let guard = rule.guard().expect("it is one");
            guards.add(index, &rule.into(), guard);
        };
        add(3, AuthorityRule::allow("r", ["a", "b"]));
        add(5, AuthorityRule::deny("r", ["b", "c"]).deny_unknown());
        assert_eq!(guards.refusing(&call("a")), None);
        let by = |rule| Some((BlockKind::Authority, rule));
        assert_eq!(guards.refusing(&call("b")), by(5));
        assert_eq!(guards.refusing(&call("c")), by(3));
        assert_eq!(guards.refusing(&Call::new("r")), by(5));
    }

    #[test]
    fn permits_allocates_nothing() {
        let names: Vec<_> = (0..1_000).map(|n| format!("caller {n}")).collect();
        let list = OriginList::new(&AuthorityRule::allow("r", &names));
        let origins = [
            Key::Str("caller 999"),
            Key::Str("nobody"),
            Key::Joined("GET", "/a"),
            Key::Ip([10, 0, 0, 1].into()),
        ];
        let ask = || origins.map(|origin| list.permits(Some(&origin)));
        // The first reader of a thread registers itself with the map.
        ask();
        let cost = allocation_counter::measure(|| {
            assert_eq!(ask(), [true, false, false, false]);
        });
        assert_eq!(cost.count_total, 0);
    }

    #[test]
    fn problems_quote_the_bad_name() {
        let rule = AuthorityRule::allow(" ", ["a", " ", "b\n\u{7}c"]);
        let mut inspector = Inspector::new(1, "authority".to_owned());
        rule.inspect(&mut inspector);
        let problems: Vec<_> = inspector.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "rule 1 (authority): resource is \" \", must be a name that is not blank",
                "rule 1 (authority): origins is \"\", must be a name that is not blank",
                "rule 1 (authority): origins is \"b\\n\\u{7}c\", must be free of control characters",
            ]
        );
    }

    proptest! {
        #[test]
        fn permits_agrees_with_a_search_of_the_list(
            names in proptest::collection::vec("[ab1]{1,3}", 0..6),
            origin in proptest::option::of("[ab1]{0,3}"),
            allow in proptest::bool::ANY,
            deny_unknown in proptest::bool::ANY,
        ) {
            let rule = if allow {
                AuthorityRule::allow("r", &names)
            } else {
                AuthorityRule::deny("r", &names)
            };
            let rule = if deny_unknown { rule.deny_unknown() } else { rule };
            let key = origin.as_deref().map(Key::Str);
            let expected = match &origin {
                None => !deny_unknown,
                Some(origin) if origin.is_empty() => !deny_unknown,
                Some(_) if names.is_empty() => true,
                Some(origin) => names.iter().any(|name| name == origin) == allow,
            };
            prop_assert_eq!(OriginList::new(&rule).permits(key.as_ref()), expected);
        }
    }
}
