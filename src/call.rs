//! All that the engine knows about one request: its resource and who calls.
//!
//! # Examples
//!
//! ```
//! use std::net::IpAddr;
//! use tower_sentinel::call::{Call, Key, Param};
//! use tower_sentinel::{BlockKind, HotParamRule, ManualClock, Sentinel, Verdict};
//!
//! let rule = HotParamRule::per_second("GET /search", 3).param("user");
//! let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
//!
//! let peer = IpAddr::from([192, 0, 2, 7]);
//! let params = [Param::new("page", 2), Param::new("user", "ann")];
//! let call = Call::new(Key::Joined("GET", "/search")).origin(peer).params(&params).batch(2);
//! assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
//! // Two of three are taken.
//! let Verdict::Block(blocked) = sentinel.try_enter(call) else {
//!     panic!("two more are too many");
//! };
//! assert_eq!((blocked.kind(), blocked.resource()), (BlockKind::HotParam, "GET /search"));
//! ```

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

mod percent;

pub(crate) use percent::Encoded;

/// Longest text, in bytes, that is kept as it is; a longer key is known by a
/// keyed hash of it.
pub(crate) const MAX_KEY_BYTES: usize = 256;

/// A name by which calls are counted: a resource, a caller, a parameter value.
///
/// Looking up a known key allocates nothing.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Key;
///
/// assert_eq!(Key::Joined("GET", "/users"), Key::from("GET /users"));
/// // A text is neither an address nor a number, even if it reads like one.
/// assert_ne!(Key::from("7"), Key::from(7_u64));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// A text. Longer than 256 bytes, it is known by a hash of it.
    Str(&'a str),
    /// Two texts that stand for the first, a space, and the second, such as a
    /// method and a route.
    Joined(&'a str, &'a str),
    /// An address.
    Ip(IpAddr),
    /// A number.
    Int(u64),
    /// A text as it stands in a URL: the same key as what it says.
    #[doc(hidden)]
    Encoded(Encoded<'a>),
    /// The hash of a long text, or of a secret one.
    #[doc(hidden)]
    Digest(u64, u64),
}

impl<'a> Key<'a> {
    /// The key by which calls without one are counted together.
    pub const MISSING: Key<'static> = Key::Str("-");

    /// The keys that `text` stands for where a rule names it: the text, and the
    /// address or the number that is written so. Not every text of a number is
    /// one: "007" and "+7" are names.
    pub(crate) fn spellings(text: &'a str) -> impl Iterator<Item = Self> {
        let ip = text.parse().ok().map(Key::Ip);
        let number = text.parse::<u64>().ok();
        let number = number.filter(|number| number.to_string() == text);
        let others = ip.or(number.map(Key::Int));
        [Key::Str(text)].into_iter().chain(others)
    }

    /// The same key, short enough to be kept; `room` holds the short form of a
    /// long one. By reference, because a key is dear to move.
    #[inline]
    pub(crate) fn shortened<'k>(
        &'k self,
        hash: &[impl BuildHasher; 2],
        room: &'k mut Option<Key<'static>>,
    ) -> &'k Key<'k> {
        let is_long = match self {
            Key::Str(text) => text.len() > MAX_KEY_BYTES,
            Key::Joined(first, second) => first.len() + second.len() >= MAX_KEY_BYTES,
            Key::Encoded(encoded) => encoded.with_text(|text| text.len() > MAX_KEY_BYTES),
            _ => false,
        };
        if is_long {
            room.insert(self.digest(hash))
        } else {
            self
        }
    }

    /// What is known of a key that is not kept.
    #[cold]
    pub(crate) fn digest(&self, hash: &[impl BuildHasher; 2]) -> Key<'static> {
        Key::Digest(hash[0].hash_one(self), hash[1].hash_one(self))
    }

    /// Whether `kept` is the same key.
    #[inline]
    pub(crate) fn is_kept_as(&self, kept: &OwnedKey) -> bool {
        match (self, kept) {
            (Key::Str(text), OwnedKey::Str(kept)) => **text == **kept,
            (key, OwnedKey::Str(kept)) => key.is(kept),
            (Key::Ip(ip), OwnedKey::Ip(kept)) => ip == kept,
            (Key::Int(number), OwnedKey::Int(kept)) => number == kept,
            (Key::Digest(a, b), OwnedKey::Digest(c, d)) => (a, b) == (c, d),
            _ => false,
        }
    }

    /// Whether the key is the text `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        match *self {
            Key::Str(text) => text == name,
            Key::Joined(first, second) => {
                name.len() == first.len() + 1 + second.len()
                    && name.starts_with(first)
                    && name.as_bytes()[first.len()] == b' '
                    && name.ends_with(second)
            }
            Key::Encoded(encoded) => encoded.is(name),
            _ => false,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Str(text) => f.write_str(text),
            Key::Joined(first, second) => write!(f, "{first} {second}"),
            Key::Ip(ip) => ip.fmt(f),
            Key::Int(number) => number.fmt(f),
            Key::Encoded(encoded) => encoded.with_text(|text| f.write_str(text)),
            Key::Digest(high, low) => write!(f, "#{high:016x}{low:016x}"),
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Key::Str(text)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Key::Str(text)
    }
}

impl From<IpAddr> for Key<'_> {
    fn from(ip: IpAddr) -> Self {
        Key::Ip(ip)
    }
}

impl From<u64> for Key<'_> {
    fn from(number: u64) -> Self {
        Key::Int(number)
    }
}

impl Hash for Key<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match *self {
            // A text that may be two joined ones hashes as they do.
            Key::Str(text) => match split(text) {
                Some((first, second)) => Key::Joined(first, second).hash(state),
                None => text.hash(state),
            },
            Key::Joined(first, second) if is_head(first) => {
                first.hash(state);
                second.hash(state);
            }
            Key::Joined(first, second) => {
                with_joined(first, second, |text| Key::Str(text).hash(state));
            }
            Key::Ip(ip) => ip.hash(state),
            Key::Int(number) => number.hash(state),
            Key::Encoded(encoded) => encoded.with_text(|text| Key::Str(text).hash(state)),
            Key::Digest(high, low) => (high, low).hash(state),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::Joined(a, b), Key::Joined(c, d)) => {
                (a == c && b == d) || joined(a, b).eq(joined(c, d))
            }
            (key, Key::Str(name)) | (Key::Str(name), key) => key.is(name),
            (key, Key::Encoded(encoded)) | (Key::Encoded(encoded), key) => {
                encoded.with_text(|text| key.is(text))
            }
            (Key::Ip(a), Key::Ip(b)) => a == b,
            (Key::Int(a), Key::Int(b)) => a == b,
            (Key::Digest(a, b), Key::Digest(c, d)) => a == c && b == d,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

/// The two parts of a text that begins like `GET /path`. Only those are looked
/// at, so that other texts hash in one go.
fn split(text: &str) -> Option<(&str, &str)> {
    if text.as_bytes().first().is_some_and(u8::is_ascii_uppercase) {
        text.split_once(' ')
    } else {
        None
    }
}

/// Whether [`split`] finds `first` where it is joined to something.
fn is_head(first: &str) -> bool {
    let bytes = first.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_uppercase) && !bytes.contains(&b' ')
}

/// The bytes of `first`, a space, and those of `second`.
fn joined(first: &str, second: &str) -> impl Iterator<Item = u8> {
    first.bytes().chain(*b" ").chain(second.bytes())
}

/// Shows `look` the text that two joined ones stand for. Allocates only for one
/// that is too long to be kept.
#[cold]
fn with_joined<R>(first: &str, second: &str, look: impl FnOnce(&str) -> R) -> R {
    let mut room = [0; MAX_KEY_BYTES];
    let Some(text) = room.get_mut(..first.len() + 1 + second.len()) else {
        return look(&format!("{first} {second}"));
    };
    text.iter_mut()
        .zip(joined(first, second))
        .for_each(|(to, byte)| *to = byte);
    look(std::str::from_utf8(text).expect("two texts and a space are a text"))
}

/// A key that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedKey {
    Str(Arc<str>),
    Ip(IpAddr),
    Int(u64),
    Digest(u64, u64),
}

impl OwnedKey {
    pub(crate) fn as_key(&self) -> Key<'_> {
        match *self {
            OwnedKey::Str(ref text) => Key::Str(text),
            OwnedKey::Ip(ip) => Key::Ip(ip),
            OwnedKey::Int(number) => Key::Int(number),
            OwnedKey::Digest(high, low) => Key::Digest(high, low),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Str(text) => OwnedKey::Str(text.into()),
            Key::Joined(..) | Key::Encoded(_) => OwnedKey::Str(key.to_string().into()),
            Key::Ip(ip) => OwnedKey::Ip(ip),
            Key::Int(number) => OwnedKey::Int(number),
            Key::Digest(high, low) => OwnedKey::Digest(high, low),
        }
    }
}

impl papaya::Equivalent<OwnedKey> for Key<'_> {
    #[inline]
    fn equivalent(&self, key: &OwnedKey) -> bool {
        self.is_kept_as(key)
    }
}

impl Hash for OwnedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_key().hash(state);
    }
}

/// Whether a call comes in to be served here or goes out to be served
/// elsewhere. Calls of the two directions are counted apart, also under one
/// name.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, Direction, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("users", 1))
///     .clock(ManualClock::new())
///     .build();
/// let (served, asked) = (Call::new("users"), Call::new("users").outbound());
/// let Verdict::Pass(entry) = sentinel.try_enter(served) else {
///     panic!("the first one that is served");
/// };
/// assert_eq!(entry.direction(), Direction::Inbound);
/// // What is asked of others has a quota of its own.
/// let Verdict::Pass(entry) = sentinel.try_enter(asked) else {
///     panic!("the first one that is asked of others");
/// };
/// assert_eq!(entry.direction(), Direction::Outbound);
/// assert!(matches!(sentinel.try_enter(asked), Verdict::Block(_)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// Served here.
    #[default]
    Inbound,
    /// Served elsewhere.
    Outbound,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        })
    }
}

/// One call, as the engine sees it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("orders", 10));
/// let call = Call::new("orders").origin("shop").batch(4);
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// // 4 + 4 + 4 > 10
/// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(crate) resource: Key<'a>,
    pub(crate) origin: Option<Key<'a>>,
    pub(crate) context: Option<Key<'a>>,
    pub(crate) params: Params<'a>,
    pub(crate) tier: Option<Key<'a>>,
    pub(crate) weight: u32,
    pub(crate) prioritized: bool,
    pub(crate) patience: Option<Duration>,
    pub(crate) direction: Direction,
    /// Whether the caller will be told what is left of its quota.
    pub(crate) tells_quota: bool,
}

/// A parameter of a call: its name, and its value if it has one.
///
/// # Examples
///
/// ```
/// use tower_sentinel::call::Param;
/// use tower_sentinel::{BlockKind, Call, HotParamRule, ManualClock, MissingKey, Sentinel, Verdict};
///
/// // One search a second for each user, the second parameter; nobody else may search.
/// let rule = HotParamRule::per_second("search", 1).param_at(1).missing(MissingKey::Refuse);
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// let refused = |params| match sentinel.try_enter(Call::new("search").params(params)) {
///     Verdict::Block(blocked) => Some(blocked.kind()),
///     _ => None,
/// };
/// let ann = [Param::new("query", "shoes"), Param::new("user", "ann")];
/// let nobody = [Param::new("query", "shoes"), Param::missing("user")];
/// assert_eq!(refused(&ann), None);
/// assert_eq!(refused(&ann), Some(BlockKind::HotParam));
/// assert_eq!(refused(&nobody), Some(BlockKind::MissingKey));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Option<Key<'a>>,
}

impl<'a> Param<'a> {
    /// The parameter `name` with a value.
    #[must_use]
    pub fn new(name: &'a str, value: impl Into<Key<'a>>) -> Self {
        Self {
            name,
            value: Some(value.into()),
        }
    }

    /// The parameter `name`, of which this call has none. It keeps its place.
    #[must_use]
    pub const fn missing(name: &'a str) -> Self {
        Self { name, value: None }
    }
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Params<'a> {
    None,
    One(Key<'a>),
    Many(&'a [Param<'a>]),
}

impl<'a> Call<'a> {
    /// A call of weight 1 to `resource`, inbound and not prioritized.
    #[must_use]
    pub fn new(resource: impl Into<Key<'a>>) -> Self {
        Self {
            resource: resource.into(),
            origin: None,
            context: None,
            params: Params::None,
            tier: None,
            weight: 1,
            prioritized: false,
            patience: None,
            direction: Direction::Inbound,
            tells_quota: false,
        }
    }

    /// Who calls. Without one, rules [by origin](crate::FlowRule::by_origin)
    /// count the call under `-`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<Key<'a>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Through which entrance the call came; counted if the engine was built
    /// [with contexts](crate::Builder::contexts).
    #[must_use]
    pub fn context(mut self, context: impl Into<Key<'a>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// The value of the call's only parameter; see
    /// [`HotParamRule`](crate::HotParamRule).
    #[must_use]
    pub fn param(mut self, value: impl Into<Key<'a>>) -> Self {
        self.params = Params::One(value.into());
        self
    }

    /// The call's parameters, in an order and under names that rules refer to.
    ///
    /// ```
    /// use tower_sentinel::call::Param;
    /// use tower_sentinel::{Call, HotParamRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(HotParamRule::per_second("search", 1).param("user"));
    /// let params = [Param::new("query", "shoes"), Param::new("user", "ann")];
    /// let call = Call::new("search").params(&params);
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    /// ```
    #[must_use]
    pub const fn params(mut self, params: &'a [Param<'a>]) -> Self {
        self.params = Params::Many(params);
        self
    }

    /// The class that the caller belongs to, such as a plan that is paid for;
    /// see [`HotParamRule::tier`](crate::HotParamRule::tier).
    #[must_use]
    pub fn tier(mut self, tier: impl Into<Key<'a>>) -> Self {
        self.tier = Some(tier.into());
        self
    }

    /// Whether the call may borrow from a later bucket instead of being
    /// refused.
    #[must_use]
    pub fn prioritized(mut self, prioritized: bool) -> Self {
        self.prioritized = prioritized;
        self
    }

    /// The longest that the call may wait, such as the time until its deadline.
    /// A call that would have to wait as long or longer is refused at once.
    /// Default, and the most: for a place that a rule lends the engine's
    /// [occupy timeout](crate::Builder::occupy_timeout), for a turn in a line the
    /// longest wait of its rule.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The heaviest weight: 2²⁴. One window counts fewer than 2³¹ tokens, and three
    /// calls must not fill it where no rule limits them.
    pub const MAX_WEIGHT: u32 = 1 << 24;

    /// How many tokens the call takes: its weight. A call of weight 0 passes
    /// while no limit is exceeded and counts nothing; one heavier than a limit
    /// can never pass. One above [`MAX_WEIGHT`](Self::MAX_WEIGHT) counts as that.
    ///
    /// What all calls of one second weigh must stay below 2³¹, or totals are wrong;
    /// a flow rule on the resource sees to it. So choose a unit that is not too
    /// small: KiB, and not bytes.
    #[must_use]
    pub fn batch(mut self, weight: u32) -> Self {
        self.weight = weight.min(Self::MAX_WEIGHT);
        self
    }

    /// A call that is served elsewhere.
    #[must_use]
    pub fn outbound(mut self) -> Self {
        self.direction = Direction::Outbound;
        self
    }

    /// The parameter at `index`, from the end if that is negative.
    pub(crate) fn param_at(&self, index: i32) -> Option<&Key<'a>> {
        match &self.params {
            Params::None => None,
            Params::One(value) => [0, -1].contains(&index).then_some(value),
            Params::Many(params) => {
                let place = if index < 0 {
                    params.len().checked_sub(index.unsigned_abs() as usize)?
                } else {
                    index as usize
                };
                params.get(place)?.value.as_ref()
            }
        }
    }

    /// The parameter called `name`.
    pub(crate) fn param_named(&self, name: &str) -> Option<&Key<'a>> {
        match &self.params {
            Params::Many(params) => params
                .iter()
                .find(|param| param.name == name)?
                .value
                .as_ref(),
            Params::None | Params::One(_) => None,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use std::hash::RandomState;

    #[test]
    fn joined_texts_are_the_text_with_a_space() {
        let hash = RandomState::new();
        let pairs = [
            (Key::Joined("GET", "/a"), "GET /a"),
            (Key::Joined("GET", "/a b"), "GET /a b"),
            (Key::Joined("POST", ""), "POST "),
        ];
        for (joined, text) in pairs {
            assert_eq!(joined, Key::Str(text));
            assert_eq!(Key::Str(text), joined);
            assert_eq!(hash.hash_one(joined), hash.hash_one(Key::Str(text)));
            assert_eq!(hash.hash_one(joined), hash.hash_one(OwnedKey::from(joined)));
            assert_eq!(joined.to_string(), text);
        }
        let kept = OwnedKey::from(Key::Str("GET /a"));
        assert!(Key::Joined("GET", "/a").is_kept_as(&kept));
        assert!(!Key::Joined("GET", "/b").is_kept_as(&kept));
        assert!(!Key::Int(7).is_kept_as(&kept));
        assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET/a"));
        assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET  /a"));
    }

    #[test]
    fn keys_that_are_equal_hash_alike_however_they_are_written() {
        let hash = RandomState::new();
        let parts = [
            "", "a", "A", " ", "a b", "A b", "GET", "Get x", "GET ", " GET", "é", "/",
        ];
        let long = "x".repeat(MAX_KEY_BYTES);
        let parts = || parts.into_iter().chain([&*long]);
        let keys: Vec<_> = parts()
            .flat_map(|first| parts().map(move |second| (first, second)))
            .collect();
        let texts: Vec<_> = keys.iter().map(|(a, b)| format!("{a} {b}")).collect();
        for (&(first, second), text) in keys.iter().zip(&texts) {
            let (key, text) = (Key::Joined(first, second), Key::Str(text));
            assert_eq!(key, text);
            assert_eq!(hash.hash_one(key), hash.hash_one(text), "{key:?}");
            for (&(a, b), other) in keys.iter().zip(&texts) {
                let are_equal = text == Key::Str(other);
                assert_eq!(key == Key::Joined(a, b), are_equal, "{key:?} {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_text_also_stands_for_the_address_or_the_number_that_it_says() {
        let v6 = IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, 0_u16]);
        let table = [
            ("a", None),
            ("", None),
            ("10.0.0.1", Some(Key::Ip([10, 0, 0, 1].into()))),
            ("2001:db8:1:2::", Some(Key::Ip(v6))),
            ("0", Some(Key::Int(0))),
            ("18446744073709551615", Some(Key::Int(u64::MAX))),
            ("18446744073709551616", None),
            ("007", None),
            ("+7", None),
            ("-7", None),
            (" 7", None),
            ("7.0", None),
        ];
        for (text, other) in table {
            let expected: Vec<_> = [Key::Str(text)].into_iter().chain(other).collect();
            assert_eq!(Key::spellings(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn a_long_key_is_known_by_its_hash() {
        let hash = [RandomState::new(), RandomState::new()];
        let long = "x".repeat(64 * 1024);
        let (mut room, mut again) = (None, None);
        let key = Key::Str(&long);
        let short = *key.shortened(&hash, &mut room);
        assert!(matches!(short, Key::Digest(..)));
        assert_eq!(short, *key.shortened(&hash, &mut again));
        assert!(short.to_string().len() <= MAX_KEY_BYTES);
        let key = Key::Str("abc");
        assert_eq!(*key.shortened(&hash, &mut None), Key::Str("abc"));
    }
}
