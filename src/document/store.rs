//! The `[store]` section of a document: the store of shared rules, and its settings.

use std::env::VarError;
use std::fmt;
use std::time::Duration;

use super::fields::{Fields, Form};
use super::problem::Problem;
use super::value::Datum;
use crate::base::invalid::InvalidSetting;
use crate::rule::Rule;
use crate::store::{StoreSettings, WhenDown, is_prefix};

/// The key of the section.
pub(super) const KEY: &str = "store";

/// The keys whose values are not secret, so that problems can show them.
const SHOWN: [&str; 9] = [
    "prefix",
    "nodes",
    "when_down",
    "store_wait",
    "horizon",
    "cluster",
    "certificate_file",
    "client_certificate_file",
    "client_key_file",
];

/// The `[store]` section of a document: the store on which shared rules count, and its settings.
///
/// A document with a [shared](crate::FlowRule::shared) rule must have this section. The program
/// reads it when it starts, and creates the store. A later change of the section has no effect on a
/// running engine. A section without `url` and `url_env` means that the program creates the store.
///
/// | key | meaning |
/// |---|---|
/// | `url` | the address of the server, see `RedisStore::new`; for `sentinels` and `cluster` see below |
/// | `url_env` | the name of the environment variable that has the address, instead of `url` |
/// | `sentinels` | the addresses of the Sentinels that watch the server, as a list, or as a text with commas between them; `url` then has the name of the master as its host, see `RedisStore::sentinel` |
/// | `sentinels_env` | the name of the environment variable that has their addresses, instead of `sentinels` |
/// | `cluster` | whether the server belongs to a Redis Cluster; `url` can then have several addresses, separated by commas, see `RedisStore::cluster` |
/// | `certificate_file` | the path of a PEM file with the certificates of the authorities to trust, instead of the authorities of the machine: see `RedisStore::with_root_certificate` |
/// | `client_certificate_file`, `client_key_file` | the paths of the certificate that is shown to servers, and of its key, both in PEM, and only together: see `RedisStore::with_client_certificate` |
/// | `prefix` | the prefix of all keys in the store: the name of the service, in 1 to 32 ASCII letters, digits, `_`, `.`, `:` or `-`; required with an address, and only then |
/// | `nodes` | [`StoreSettings::nodes`]: the number of processes that use the store |
/// | `digest_secret_env` | the name of the environment variable that has the [secret](StoreSettings::digest_secret) |
/// | `when_down` | [`StoreSettings::when_down`]: `"local-share"`, `"open"` or `"closed"` |
/// | `store_wait` | [`StoreSettings::store_wait`]: the longest that a call waits for the store |
/// | `horizon` | [`StoreSettings::horizon`]: for how long permits are drawn ahead |
///
/// In a text of several addresses, a comma in a password is written `%2C`. `Debug` shows
/// neither addresses nor the values of variables.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Sentinel;
/// use tower_sentinel::document::{Document, Format};
/// use tower_sentinel::store::MemoryStore;
///
/// let text = r#"
///     [store]
///     nodes = 3
///     store_wait = "20ms"
///
///     [[rules]]
///     kind = "flow"
///     resource = "/search"
///     threshold = 1000
///     shared = true
/// "#;
/// let document = Document::read(text, Format::Toml)?;
/// let section = document.store().expect("the document has one");
/// assert_eq!(section.url()?, None); // so the program has a store
/// let sentinel = Sentinel::builder()
///     .rules(document.strict()?)
///     .store(MemoryStore::new())
///     .store_settings(section.settings()?)
///     .build();
///
/// // Without the section the rule is an error.
/// let without = text.replace("[store]", "[unused]");
/// let problems = Document::read(&without, Format::Toml)?.strict().unwrap_err();
/// assert_eq!(problems.errors().next().unwrap().path(), "unused");
/// assert_eq!(problems.errors().nth(1).unwrap().path(), "rules[0].shared");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct StoreSection {
    url: Option<Given<String>>,
    sentinels: Option<Given<Vec<String>>>,
    is_cluster: bool,
    certificate_file: Option<String>,
    client_certificate_file: Option<String>,
    client_key_file: Option<String>,
    prefix: Option<String>,
    nodes: Option<u32>,
    secret_variable: Option<String>,
    when_down: Option<WhenDown>,
    store_wait: Option<Duration>,
    horizon: Option<Duration>,
}

/// A setting that is in the document, or in an environment variable that the document names.
#[derive(Clone, PartialEq)]
enum Given<T> {
    Written(T),
    Variable(String),
}

// === impl StoreSection ===

impl StoreSection {
    /// Returns the address of the server, which can contain a password; `None` if the document has
    /// no address, because the program creates the store. A variable is read when this is called.
    ///
    /// # Errors
    ///
    /// If the variable is not set, is empty, or is not Unicode.
    ///
    /// ```
    /// use tower_sentinel::document::{Document, Format};
    ///
    /// let text = r#"{"store": {"url_env": "NOT_SET_ANYWHERE"}, "rules": []}"#;
    /// let document = Document::read(text, Format::Json)?;
    /// let error = document.store().unwrap().url().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "store.url_env is \"NOT_SET_ANYWHERE\", must be an environment variable that is set",
    /// );
    /// # Ok::<(), tower_sentinel::document::Problems>(())
    /// ```
    pub fn url(&self) -> Result<Option<String>, InvalidSetting> {
        match &self.url {
            None => Ok(None),
            Some(Given::Written(url)) => Ok(Some(url.clone())),
            Some(Given::Variable(name)) => variable("url_env", name).map(Some),
        }
    }

    /// Returns the addresses of the Sentinels that watch the server, which can contain passwords;
    /// an empty list if the document has none. A variable is read when this is called.
    ///
    /// # Errors
    ///
    /// If the variable is not set, is empty, or is not Unicode.
    pub fn sentinels(&self) -> Result<Vec<String>, InvalidSetting> {
        match &self.sentinels {
            None => Ok(Vec::new()),
            Some(Given::Written(urls)) => Ok(urls.clone()),
            Some(Given::Variable(name)) => Ok(split(&variable("sentinels_env", name)?)),
        }
    }

    /// Returns whether the document has `sentinels` or `sentinels_env`.
    #[cfg(feature = "redis")]
    pub(super) const fn has_sentinels(&self) -> bool {
        self.sentinels.is_some()
    }

    /// Returns whether the server belongs to a Redis Cluster.
    #[must_use]
    pub const fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Returns the path of the file with the certificates that are trusted, if the document has
    /// one.
    #[must_use]
    pub fn certificate_file(&self) -> Option<&str> {
        self.certificate_file.as_deref()
    }

    /// Returns the path of the file with the certificate that is shown to servers, if the document
    /// has one.
    #[must_use]
    pub fn client_certificate_file(&self) -> Option<&str> {
        self.client_certificate_file.as_deref()
    }

    /// Returns the path of the file with the key of that certificate, if the document has one.
    #[must_use]
    pub fn client_key_file(&self) -> Option<&str> {
        self.client_key_file.as_deref()
    }

    /// Returns the prefix of all keys in the store, if the document has one.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Returns the settings of the store. Settings that the section leaves out have their defaults.
    /// The variable of the secret is read when this is called.
    ///
    /// # Errors
    ///
    /// If the variable is not set, is empty, or is not Unicode.
    pub fn settings(&self) -> Result<StoreSettings, InvalidSetting> {
        let plain = StoreSettings::new();
        let settings = set(plain, self.nodes, StoreSettings::nodes);
        let settings = set(settings, self.when_down, StoreSettings::when_down);
        let settings = set(settings, self.store_wait, StoreSettings::store_wait);
        let settings = set(settings, self.horizon, StoreSettings::horizon);
        match &self.secret_variable {
            None => Ok(settings),
            Some(name) => Ok(settings.digest_secret(variable("digest_secret_env", name)?)),
        }
    }

    /// Reads the section, the value of [`KEY`]. Returns the section and all its problems.
    pub(super) fn read(value: &Datum) -> (Self, Vec<Problem>) {
        let Datum::Table(table) = value else {
            let problem = Problem::refused(KEY, value.excerpt(), "a table, which may be empty");
            return (Self::default(), vec![problem]);
        };
        let mut fields = Fields::new(KEY.to_owned(), table, Form::Own);
        let section = Self::of(&mut fields);
        // An address with a password can also be the value of a wrong key.
        let is_shown = |problem: &Problem| {
            let key = problem.path().strip_prefix("store.");
            key.is_some_and(|key| SHOWN.contains(&key))
        };
        let problems = fields.finish().into_iter().map(|problem| {
            if is_shown(&problem) {
                problem
            } else {
                problem.without_text()
            }
        });
        (section, problems.collect())
    }

    fn of(fields: &mut Fields<'_>) -> Self {
        let url = fields.text("url");
        let is_cluster = fields.is_set("cluster");
        let has_scheme = |url: &String| url.contains("://");
        let addresses = url.iter().flat_map(|url| match is_cluster {
            true => split(url),
            false => vec![url.clone()],
        });
        if url.is_some() && !nonempty_and_all(addresses, has_scheme) {
            fields.refuse("url", "an address such as `redis://host:port`");
        }
        let variable = variable_name(fields, "url_env");
        fields.at_most_one(&["url", "url_env"]);
        let sentinels = fields.texts("sentinels");
        let are_bad = |urls: &Vec<String>| !nonempty_and_all(urls.clone(), has_scheme);
        if sentinels.as_ref().is_some_and(are_bad) {
            let allowed = "a list of addresses such as `redis://host:port`, at least one";
            fields.refuse("sentinels", allowed);
        }
        let sentinels_variable = variable_name(fields, "sentinels_env");
        fields.at_most_one(&["sentinels", "sentinels_env"]);
        if is_cluster && (fields.has("sentinels") || fields.has("sentinels_env")) {
            fields.refuse(
                "cluster",
                "left out beside `sentinels`: it has no master for all keys",
            );
        }
        let certificate_file = path(fields, "certificate_file");
        let client_certificate_file = path(fields, "client_certificate_file");
        let client_key_file = path(fields, "client_key_file");
        let pair = ["client_certificate_file", "client_key_file"];
        for (key, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            if fields.has(key) && !fields.has(other) {
                fields.refuse(key, format!("left out without `{other}`"));
            }
        }
        let prefix = fields.text("prefix");
        if prefix.as_deref().is_some_and(|prefix| !is_prefix(prefix)) {
            let allowed = "1 to 32 of the characters A-Z a-z 0-9 _ . : -";
            fields.refuse("prefix", allowed);
        }
        let has_address = fields.has("url") || fields.has("url_env");
        let of_address = [
            "prefix",
            "sentinels",
            "sentinels_env",
            "cluster",
            "certificate_file",
            "client_certificate_file",
            "client_key_file",
        ];
        for key in of_address {
            if fields.has(key) && !has_address {
                let allowed = "absent without `url` or `url_env`: the store of the program has one";
                fields.refuse(key, allowed);
            }
        }
        Self {
            url: url.map(Given::Written).or(variable.map(Given::Variable)),
            sentinels: sentinels
                .map(|urls| urls.iter().map(|url| url.trim().to_owned()).collect())
                .map(Given::Written)
                .or(sentinels_variable.map(Given::Variable)),
            is_cluster,
            certificate_file,
            client_certificate_file,
            client_key_file,
            prefix,
            nodes: fields.whole("nodes", 1..=65_535),
            secret_variable: variable_name(fields, "digest_secret_env"),
            when_down: fields
                .choice("when_down", &WhenDown::NAMES)
                .map(|place| WhenDown::ALL[place]),
            store_wait: store_time(fields, "store_wait", StoreSettings::store_wait),
            horizon: store_time(fields, "horizon", StoreSettings::horizon),
        }
    }
}

/// Returns the parts of `text` between its commas, without blanks and empty parts.
pub(super) fn split(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Returns whether there is at least one item, and `is_accepted` is true for all items.
fn nonempty_and_all<T>(
    items: impl IntoIterator<Item = T>,
    is_accepted: impl Fn(&T) -> bool,
) -> bool {
    let mut items = items.into_iter().peekable();
    items.peek().is_some() && items.all(|item| is_accepted(&item))
}

/// Applies `with` to `settings` and `value`, if there is a value.
fn set<T>(
    settings: StoreSettings,
    value: Option<T>,
    with: impl FnOnce(StoreSettings, T) -> StoreSettings,
) -> StoreSettings {
    match value {
        Some(value) => with(settings, value),
        None => settings,
    }
}

/// Reads the time under `key`. `with` sets it, and shows whether it is in range.
fn store_time(
    fields: &mut Fields<'_>,
    key: &'static str,
    with: impl FnOnce(StoreSettings, Duration) -> StoreSettings,
) -> Option<Duration> {
    let time = fields.time(key)?;
    if with(StoreSettings::new(), time).problem().is_some() {
        fields.refuse(key, "between 1 ms and 10 s");
    }
    Some(time)
}

/// Reads the path of a file under `key`.
fn path(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let path = fields.text(key);
    if path.as_deref() == Some("") {
        fields.refuse(key, "the path of a file");
    }
    path
}

/// Reads the name of an environment variable under `key`.
fn variable_name(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let name = fields.text(key)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        let allowed = "the name of an environment variable: ASCII letters, digits and `_`";
        fields.refuse(key, allowed);
    }
    Some(name)
}

/// Returns the value of the environment variable `name`.
fn variable(key: &'static str, name: &str) -> Result<String, InvalidSetting> {
    let missing = |problem| {
        let allowed = format!("an environment variable {problem}");
        InvalidSetting::new(&format!("store.{key}"), format_args!("{name:?}"), allowed)
    };
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Err(missing("that is not empty")),
        Ok(value) => Ok(value),
        Err(VarError::NotPresent) => Err(missing("that is set")),
        Err(VarError::NotUnicode(_)) => Err(missing("whose value is Unicode")),
    }
}

/// Refuses `rule` if it is shared. This is called if the document has no section on the store.
pub(super) fn refuse_shared(rule: &Rule, fields: &mut Fields<'_>) {
    if rule.is_shared() {
        let allowed = "left out where the document has no `store`: add one with the address of the \
             server, or an empty one if the program has a store";
        fields.refuse("shared", allowed);
    }
}

impl fmt::Debug for StoreSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is left out: it can contain a password.
        f.debug_struct("StoreSection")
            .field("is_cluster", &self.is_cluster)
            .field("certificate_file", &self.certificate_file)
            .field("prefix", &self.prefix)
            .field("nodes", &self.nodes)
            .field("when_down", &self.when_down)
            .field("store_wait", &self.store_wait)
            .field("horizon", &self.horizon)
            .finish_non_exhaustive()
    }
}
