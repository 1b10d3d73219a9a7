//! The store on Redis that a document describes.

use super::store::{MissingVariable, StoreSection, split};
use crate::base::invalid::InvalidSetting;
use crate::store::RedisStore;

impl RedisStore {
    /// Creates the store that a document describes. Connects to nothing yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::Sentinel;
    /// use tower_sentinel::document::{Document, Format};
    /// use tower_sentinel::store::RedisStore;
    ///
    /// let text = r#"
    ///     [store]
    ///     url = "redis://cache:6379" # or url_env = "REDIS_URL"
    ///     prefix = "shop"
    ///     nodes = 3
    ///
    ///     [[rules]]
    ///     kind = "flow"
    ///     resource = "/search"
    ///     threshold = 1000
    ///     shared = true
    /// "#;
    /// let document = Document::read(text, Format::Toml)?;
    /// let mut builder = Sentinel::builder().rules(document.strict()?);
    /// if let Some(section) = document.store() {
    ///     builder = builder
    ///         .store(RedisStore::from_settings(section)?)
    ///         .store_settings(section.settings()?);
    /// }
    /// let sentinel = builder.build();
    /// assert!(sentinel.store().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The section has no address, a variable is not set, the file of certificates cannot be read,
    /// a setting needs another feature, or [`new`](Self::new) and its like refuse it.
    pub fn from_settings(section: &StoreSection) -> Result<Self, InvalidSetting> {
        let missing = |error: MissingVariable| InvalidSetting::because(error.to_string());
        let Some(url) = section.url().map_err(missing)? else {
            let missing = "store.url is missing, must be given, or `url_env`: the document leaves \
                 the store to the program";
            return Err(InvalidSetting::because(missing));
        };
        let sentinels = section.sentinels().map_err(missing)?;
        let store = if section.is_cluster() {
            Self::of_cluster(&split(&url))?
        } else if section.has_sentinels() {
            Self::of_sentinels(&url, &sentinels)?
        } else {
            Self::new(&url)?
        };
        let store = match section.certificate_file() {
            Some(path) => store.with_certificate_file(path)?,
            None => store,
        };
        match section.prefix() {
            Some(prefix) => store.with_prefix(prefix),
            None => Ok(store),
        }
    }

    #[cfg(feature = "redis-cluster")]
    fn of_cluster(urls: &[String]) -> Result<Self, InvalidSetting> {
        Self::cluster(urls)
    }

    #[cfg(not(feature = "redis-cluster"))]
    fn of_cluster(_urls: &[String]) -> Result<Self, InvalidSetting> {
        Err(needs("cluster", "redis-cluster"))
    }

    #[cfg(feature = "redis-sentinel")]
    fn of_sentinels(url: &str, sentinels: &[String]) -> Result<Self, InvalidSetting> {
        Self::sentinel(url, sentinels)
    }

    #[cfg(not(feature = "redis-sentinel"))]
    fn of_sentinels(_url: &str, _sentinels: &[String]) -> Result<Self, InvalidSetting> {
        Err(needs("sentinels", "redis-sentinel"))
    }

    #[cfg(feature = "redis-tls")]
    fn with_certificate_file(self, path: &str) -> Result<Self, InvalidSetting> {
        let text = std::fs::read(path).map_err(|error| {
            let path = format!("{path:?}");
            let allowed = format!("a file that can be read ({})", error.kind());
            InvalidSetting::new("store.certificate_file", path, allowed)
        })?;
        self.with_root_certificate(text)
    }

    #[cfg(not(feature = "redis-tls"))]
    fn with_certificate_file(self, _path: &str) -> Result<Self, InvalidSetting> {
        Err(needs("certificate_file", "redis-tls"))
    }
}

/// That a key of the section needs a feature which is not on.
#[cfg(not(all(
    feature = "redis-cluster",
    feature = "redis-sentinel",
    feature = "redis-tls"
)))]
fn needs(key: &str, feature: &str) -> InvalidSetting {
    InvalidSetting::because(format!(
        "store.{key} is set, which needs the feature `{feature}`"
    ))
}
