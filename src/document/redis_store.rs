//! Creates the store on Redis that a document describes.

use super::store::{StoreSection, split};
use crate::base::invalid::InvalidSetting;
use crate::store::RedisStore;

impl RedisStore {
    /// Creates the store that a document describes. It does not connect yet.
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
    /// If the section has no address, a variable is not set, a file of certificates cannot be read,
    /// a setting needs another feature, or [`new`](Self::new) or another constructor of the store
    /// refuses it.
    pub fn from_settings(section: &StoreSection) -> Result<Self, InvalidSetting> {
        let Some(url) = section.url()? else {
            let missing = "store.url is missing, must be given, or `url_env`: the document leaves \
                 the store to the program";
            return Err(InvalidSetting::because(missing));
        };
        let sentinels = section.sentinels()?;
        let store = if section.is_cluster() {
            Self::of_cluster(&split(&url))?
        } else if section.has_sentinels() {
            Self::of_sentinels(&url, &sentinels)?
        } else {
            Self::new(&url)?
        };
        let store = store.with_files(section)?;
        let Some(prefix) = section.prefix() else {
            let missing = "store.prefix is missing, must be the name of the service: two services \
                           without one would count their rules together";
            return Err(InvalidSetting::because(missing));
        };
        store.with_prefix(prefix)
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

    /// Adds the certificates in the files that the section names.
    #[cfg(feature = "redis-tls")]
    fn with_files(mut self, section: &StoreSection) -> Result<Self, InvalidSetting> {
        if let Some(path) = section.certificate_file() {
            self = self.with_root_certificate(read_file("certificate_file", path)?)?;
        }
        let client = section.client_certificate_file();
        if let Some((certificate, key)) = client.zip(section.client_key_file()) {
            self = self.with_client_certificate(
                read_file("client_certificate_file", certificate)?,
                read_file("client_key_file", key)?,
            )?;
        }
        Ok(self)
    }

    #[cfg(not(feature = "redis-tls"))]
    fn with_files(self, section: &StoreSection) -> Result<Self, InvalidSetting> {
        if section.certificate_file().is_some() {
            return Err(needs("certificate_file", "redis-tls"));
        }
        match section.client_certificate_file() {
            Some(_) => Err(needs("client_certificate_file", "redis-tls")),
            None => Ok(self),
        }
    }
}

/// Returns the content of the file at `path`, which is the value of `key` in the section.
#[cfg(feature = "redis-tls")]
fn read_file(key: &str, path: &str) -> Result<Vec<u8>, InvalidSetting> {
    std::fs::read(path).map_err(|error| {
        let path = format!("{path:?}");
        let allowed = format!("a file that can be read ({})", error.kind());
        InvalidSetting::new(&format!("store.{key}"), path, allowed)
    })
}

/// Returns the error for a key of the section that needs a feature which is off.
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
