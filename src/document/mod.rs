//! Rules from documents: files, configuration services, other programs.
//!
//! A document is read as a whole. The problems of its rules are reported, each with its place, its
//! value and the allowed values:
//!
//! ```
//! use tower_sentinel::document::{Document, Format};
//! use tower_sentinel::{CircuitBreakerRule, KeyedRule, Rules};
//!
//! let text = r#"
//!     [[rules]]
//!     kind = "keyed"
//!     resource = "/login"
//!     threshold = 5
//!     interval = "1m"
//!
//!     [[rules]]
//!     kind = "circuit-breaker"
//!     resource = "*"
//!     error_ratio = 0.1
//!     open_for = "5s"
//! "#;
//! let rules = Document::read(text, Format::Toml)?.strict()?;
//! let five_seconds = std::time::Duration::from_secs(5);
//! let breaker = CircuitBreakerRule::error_ratio("*", 0.1).open_for(five_seconds);
//! let by_hand = Rules::new()
//!     .with(KeyedRule::per_minute("/login", 5))
//!     .with(breaker);
//! assert_eq!(rules, by_hand);
//!
//! let bad = text
//!     .replace("threshold", "treshold")
//!     .replace("1m", "1 minute")
//!     .replace("0.1", "10");
//! let problems = Document::read(&bad, Format::Toml)?.strict().unwrap_err();
//! assert_eq!(
//!     problems.to_string(),
//!     r#"line 2, column 5: rules[0].threshold is missing, must be a number
//! line 6, column 5: rules[0].interval is "1 minute", must be a time such as "500ms" or "1m30s", or a number of seconds
//! line 5, column 5: rules[0].treshold is not known, did you mean `threshold`?
//! line 11, column 5: rules[1].error_ratio is 10, must be above 0 and at most 1"#
//! );
//!
//! let broken = Document::read("[[rules]]\nkind =\n", Format::Toml).unwrap_err();
//! assert_eq!(broken.as_slice()[0].line(), Some(2));
//! # Ok::<(), tower_sentinel::document::Problems>(())
//! ```
//!
//! # The form of this crate
//!
//! One document holds rules of all kinds: `[[rules]]` in TOML, `{"rules": […]}` in JSON.
//! The list is required, so that an empty file does not remove all rules. Each rule has a
//! `kind`, and can have a key for each method of its builder. All kinds can have `shadow`, which is
//! true for a rule in [shadow mode](crate::Rule::shadow).
//!
//! | kind | keys |
//! |---|---|
//! | `flow` ([`FlowRule`](crate::FlowRule)) | `resource`, `threshold`, `interval` (or `calendar`, `"day"` or `"month"`, and `utc_offset`), `cost`, `buckets`, `strict`, `by_origin`, `for_origin`, `missing`, `when`, `in_context`, `throttle`, `warm_up`, `cold_factor`, `memory`, `memory_bytes`, `memory_threshold`, `lend`, `max_occupy_ratio`, `max_waiting`, `shared`, `exact`, `per_node`, `when_down`, `local_limit`, `store_wait`, `id` |
//! | `isolation` ([`IsolationRule`](crate::IsolationRule)) | `resource`, `max`, `for_origin`, `when`, `queue`, `max_waiting`, `id` |
//! | `adaptive` ([`AdaptiveRule`](crate::AdaptiveRule)) | `resource`, `floor`, `ceiling`, `start`, `burst`, `id` |
//! | `circuit-breaker` ([`CircuitBreakerRule`](crate::CircuitBreakerRule)) | `resource`, one of `slow_ratio` (with `max_rt`), `error_ratio`, `error_count`, `consecutive_errors` and `pushback`, `exceeds`, `min_calls`, `open_for`, `open_up_to`, `interval` and `buckets` or `last_calls`, `probes`, `count_cancelled_as_slow`, `id` |
//! | `authority` ([`AuthorityRule`](crate::AuthorityRule)) | `resource`, `allow` or `deny`, `deny_unknown`, `id` |
//! | `system` ([`SystemRule`](crate::SystemRule)) | `qps`, `load`, `cpu`, `rt`, `concurrency`, `capacity` (`"robust"`, `"sentinel"`), `id` |
//! | `keyed` ([`KeyedRule`](crate::KeyedRule)) | `resource`, one of `param`, `param_at` and `by_origin`, `threshold`, `interval` (or `calendar`, `"day"` or `"month"`, and `utc_offset`; or `concurrency`, `queue`, `max_waiting`), `cost`, `burst` or `capacity`, `window`, `throttle`, `except` (list of `value`, `threshold`), `except_unlimited` (list of values), `tier` (list of `name`, `threshold`), `tier_unlimited` (list of names), `max_keys`, `block_for`, `missing`, `shared`, `exact`, `per_node`, `when_down`, `local_limit`, `store_wait`, `id` |
//!
//! A time is a text such as `"500ms"`, `"1m30s"` or `"1.5h"`, with the units `d`, `h`, `m`,
//! `s`, `ms`, `us`, `ns`, or a number of seconds. An interval is one second unless set.
//! `missing` is `"share"`, `"skip"` or `"refuse"`; `memory` is a range such as
//! `"0.7..0.9"`, and `memory_bytes` a range in bytes. A list of origins can also be a
//! single text with commas. An unknown key is an error. In keys and names, hyphens and
//! underscores are the same: `open-for` is `open_for`. The kind `hot-param` is read as `keyed`.
//!
//! A rule that is [shared](crate::FlowRule::shared) needs a store, and a document with such a rule
//! must describe the store in a section `[store]`; see [`StoreSection`].
//!
//! # Among a program's settings
//!
//! [`Rules`](crate::Rules) can be read and written with serde, as a list of tables of this form. If
//! any rule is invalid, the error reports the problems: the first 100, if there are more. Rules can
//! be read from self-describing formats such as JSON and TOML.
//!
//! ```
//! use serde::Deserialize;
//! use tower_sentinel::{FlowRule, Rules};
//!
//! #[derive(Debug, Deserialize)]
//! struct Settings {
//!     port: u16,
//!     #[serde(default)]
//!     limits: Rules,
//! }
//!
//! let text = r#"
//!     port = 8080
//!
//!     [[limits]]
//!     kind = "flow"
//!     resource = "/login"
//!     threshold = 5
//! "#;
//! let settings: Settings = toml::from_str(text)?;
//! assert_eq!(settings.port, 8080);
//! assert_eq!(settings.limits, FlowRule::per_second("/login", 5).into());
//!
//! let error = toml::from_str::<Settings>(&text.replace("= 5", "= -5")).unwrap_err();
//! assert_eq!(error.message(), "[0].threshold is -5, must be between 0 and 2147483647");
//! # Ok::<(), toml::de::Error>(())
//! ```
//!
//! # Sentinel's documents
//!
//! A document of Sentinel is a JSON list of rules of one [`Kind`], of Sentinel for Java or for Go.
//! Each rule is *translated* into a rule that does here what it does in Sentinel:
//!
//! * Some limits of Sentinel refuse a call only if they are exceeded. A limit of this crate refuses
//!   when it is reached, so such a limit becomes the next larger number. A circuit breaker for Java
//!   becomes a breaker that opens only when its limit is
//!   [exceeded](crate::CircuitBreakerRule::exceeds).
//! * A flow rule of thread grade becomes an isolation rule.
//! * A rule on a parameter that a call does not have does not limit the call, as in Sentinel:
//!   [`MissingKey::Skip`](crate::MissingKey::Skip).
//!
//! Keys without a meaning here are kept, and [written](Document::write) again: no part of a
//! document is lost when it is read and written. A rule that cannot be translated is not loaded: a
//! rule with `regex`, a concurrency limit for a single origin, or a rule for `*` that is not a
//! circuit breaker, because `*` is a name like any other in Sentinel and stands for
//! [every resource](crate::rule#default-rules) here.
//!
//! If a setting is ignored and the rule still has a meaning, there is a
//! [warning](Problem::is_warning): for `clusterMode`, unless the engine [has a
//! store](Document::with_store), for a second authority rule of a resource, for a missing limit,
//! for a setting that Sentinel ignores as well, and for a key that looks misspelt. In the crate's
//! own form, `tolerance` and `smoothing` of an adaptive rule have a warning too: they are settings
//! of older versions. There is no warning for settings of a behaviour that the rule does not
//! choose, such as `warmUpPeriodSec` without a warm-up: dashboards write all of them.
//!
//! A resource in the syntax of another router, such as `/users/:id` or `/files/*`, is read as the
//! template that matches the same paths, with a warning. There is also a warning for a name such as
//! `POST:/api/login`, which adapters of Sentinel form from the method and the route: here
//! [`MethodRoute`](crate::key::MethodRoute) forms `POST /api/login`.
//!
//! Some rules are refused because of their keys: rules of the API gateway adapter, rules of
//! Sentinel for Rust, rules on the tokens of language models, rules that the dashboard has nested
//! in a `rule` key, and rules with keys of both dialects. Read as rules of Sentinel for Java or Go,
//! they would limit something else.
//!
//! ```
//! use tower_sentinel::document::{Document, Format};
//! use tower_sentinel::{FlowRule, Rules};
//!
//! let text = r#"[
//!     {"resource": "/pay", "grade": 1, "count": 10, "clusterMode": true},
//!     {"resource": "/pay", "grade": 7, "count": 10, "refResource": "/orders"}
//! ]"#;
//! let document = Document::read(text, Format::Json)?;
//! let (rules, problems) = document.lenient();
//! assert_eq!(rules, Rules::from(FlowRule::per_second("/pay", 10)));
//! assert_eq!(
//!     problems.to_string(),
//!     "line 2, column 51: [0].clusterMode is true: ignored, this process alone is limited, \
//!      where Sentinel limits nothing while no token server answers\n\
//!      line 3, column 26: [1].grade is 7, must be a whole number between 0 and 1",
//! );
//! // In the form of this crate:
//! assert!(document.write(Format::Toml).starts_with("[[rules]]\nkind = \"flow\"\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cluster;
mod embedded;
mod fields;
mod foreign;
mod go;
mod java;
mod load;
mod nesting;
mod own;
mod places;
mod problem;
#[cfg(feature = "redis")]
mod redis_store;
mod sentinel;
mod store;
mod syntax;
mod time;
mod value;

pub use load::Document;
pub use problem::{Problem, Problems};
pub use sentinel::Kind;
pub use store::StoreSection;
pub use syntax::Format;
