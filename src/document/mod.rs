//! Rules from documents: files, configuration services, other programs.
//!
//! A document is read as a whole, and what is wrong with any of its rules is told,
//! with its place, its value and what is allowed there:
//!
//! ```
//! use tower_sentinel::document::{Document, Format};
//! use tower_sentinel::{CircuitBreakerRule, FlowRule, Rules};
//!
//! let text = r#"
//!     [[rules]]
//!     kind = "flow"
//!     resource = "/login"
//!     threshold = 5
//!     interval = "1m"
//!     by_origin = true
//!
//!     [[rules]]
//!     kind = "circuit-breaker"
//!     resource = "*"
//!     error_ratio = 0.1
//!     open_for = "5s"
//! "#;
//! let rules = Document::read(text, Format::Toml)?.strict()?;
//! let minute = std::time::Duration::from_secs(60);
//! let breaker = CircuitBreakerRule::error_ratio("*", 0.1).open_for(minute / 12);
//! let by_hand = Rules::new()
//!     .with(FlowRule::per("/login", 5, minute).by_origin())
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
//!     r#"rules[0].threshold is missing, must be a number
//! rules[0].interval is "1 minute", must be a time such as "500ms" or "1m30s", or a number of seconds
//! rules[0].treshold is not known, did you mean `threshold`?
//! rules[1].error_ratio is 10, must be above 0 and at most 1"#
//! );
//!
//! let broken = Document::read("[[rules]]\nkind =\n", Format::Toml).unwrap_err();
//! assert_eq!(broken.line(), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The form of this crate
//!
//! One document holds rules of all kinds: `[[rules]]` in TOML, `{"rules": […]}` in
//! JSON. The list has to be there, so that an empty file does not take all rules
//! away. Each rule has a `kind`, and a key for each method of its builder; all may
//! have `shadow`, true for a rule that only [watches](crate::Rule::shadow).
//!
//! | kind | keys |
//! |---|---|
//! | `flow` ([`FlowRule`](crate::FlowRule)) | `resource`, `threshold`, `interval`, `buckets`, `strict`, `by_origin`, `for_origin`, `missing`, `when`, `in_context`, `throttle`, `warm_up`, `cold_factor`, `memory`, `memory_bytes`, `memory_threshold`, `lend`, `max_occupy_ratio`, `max_waiting`, `id` |
//! | `isolation` ([`IsolationRule`](crate::IsolationRule)) | `resource`, `max`, `id` |
//! | `adaptive` ([`AdaptiveRule`](crate::AdaptiveRule)) | `resource`, `floor`, `ceiling`, `start`, `tolerance`, `smoothing`, `id` |
//! | `circuit-breaker` ([`CircuitBreakerRule`](crate::CircuitBreakerRule)) | `resource`, one of `slow_ratio` (with `max_rt`), `error_ratio`, `error_count` and `consecutive_errors`, `exceeds`, `min_calls`, `open_for`, `open_up_to`, `interval` and `buckets` or `last_calls`, `probes`, `count_cancelled_as_slow`, `id` |
//! | `authority` ([`AuthorityRule`](crate::AuthorityRule)) | `resource`, `allow` or `deny`, `deny_unknown`, `id` |
//! | `system` ([`SystemRule`](crate::SystemRule)) | `qps`, `load`, `cpu`, `rt`, `concurrency`, `capacity` (`"robust"`, `"sentinel"`), `id` |
//! | `hot-param` ([`HotParamRule`](crate::HotParamRule)) | `resource`, one of `param`, `param_at` and `by_origin`, `threshold`, `interval` (or `concurrency`), `burst`, `window`, `throttle`, `except` (list of `value`, `threshold`), `tier` (list of `name`, `threshold`), `max_keys`, `missing`, `id` |
//!
//! A time is a text such as `"500ms"`, `"1m30s"` or `"1.5h"`, with the units `d`,
//! `h`, `m`, `s`, `ms`, `us`, `ns`, or a number of seconds. An interval is one
//! second unless set. `missing` is `"share"`, `"skip"` or `"refuse"`; `memory` a range
//! such as `"0.7..0.9"`, and `memory_bytes` one of bytes. A list of
//! origins may also be one text with commas. An unknown key is an error; of
//! one rule the first 100 are told.
//!
//! # Among a program's settings
//!
//! [`Rules`](crate::Rules) are a value for serde: a list of such tables. All of them
//! are good, or the error tells what is wrong, of more than 100 things the first. They
//! are read from syntaxes that describe themselves, as JSON and TOML do.
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
//! A JSON list of rules of one [`Kind`], of Sentinel for Java or for Go, rule by
//! rule. Every rule is *translated* into one that does here what it does there:
//!
//! * Where a limit has to be exceeded there and reached here, it becomes the next
//!   larger one; breakers of Java become [such that exceed](crate::CircuitBreakerRule::exceeds).
//! * A flow rule of thread grade becomes an isolation rule.
//! * A parameter that a call does not have limits nothing there:
//!   [`MissingKey::Skip`](crate::MissingKey::Skip).
//!
//! Keys that mean nothing here are kept, and [written](Document::write) again: a
//! document loses nothing on its way through. What cannot be translated keeps its
//! rule from being loaded: `regex`, calls at once of one origin, and `*` as the
//! resource of anything but a circuit breaker, as it is a name like any other there
//! and [every resource](crate::rule#default-rules) here. What is not heeded but
//! leaves the rule with a meaning is a [warning](Problem::is_warning):
//! `clusterMode`, a second authority rule of a resource, a threshold that is not there,
//! what Sentinel itself ignores, and a key that looks like a misspelt one.
//!
//! Rules of a gateway, of Sentinel in Rust, and such as the dashboard keeps them, in a
//! `rule` of their own, are refused by their keys, as are rules with keys of both dialects:
//! read as one of these they would limit otherwise.
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
//!     "[0].clusterMode is true: not heeded, this process alone is limited, \
//!      where Sentinel limits nothing while no token server answers\n\
//!      [1].grade is 7, must be a whole number between 0 and 1",
//! );
//! // In our words:
//! assert!(document.write(Format::Toml).starts_with("[[rules]]\nkind = \"flow\"\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod embedded;
mod fields;
mod foreign;
mod go;
mod java;
mod load;
mod own;
mod problem;
mod sentinel;
mod syntax;
mod time;
mod value;

pub use load::Document;
pub use problem::{Problem, Problems};
pub use sentinel::Kind;
pub use syntax::{DocumentError, Format};
