//! `CriticalityHeader`: the class of a call as its client states it.

use http::HeaderName;
use ipnet::IpNet;

use super::Head;
use super::header::only_value;
use super::ip::peer;
use super::nets::Nets;
use crate::call::{Cohort, Criticality};

/// The longest value that is read, in bytes: a name, and room for a parameter.
const MOST_BYTES: usize = 32;

/// A header field in which clients state the class of a call by the name of a [`Criticality`], in
/// small letters or capitals. After a `;` it can have the [cohort](Self::read_cohort) of the call;
/// any other part is ignored.
///
/// Anyone can send any header. So this field can only lower the class of a call: a class above
/// [`Critical`](Criticality::Critical), which calls have without the field, counts as absent unless
/// the peer of the connection is [trusted](Self::trust). Trust your own services behind the edge,
/// and a gateway only if it removes the field from the requests of its clients: otherwise it passes
/// on what they have written.
///
/// The field also counts as absent if its value is not a name, is longer than 32 bytes, or if the
/// field occurs twice with two values. Over gRPC it is metadata of the same name.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tower_sentinel::Criticality;
/// use tower_sentinel::key::{ClientAddr, CriticalityHeader, Head};
///
/// let header = CriticalityHeader::new().trust(["10.0.0.0/8".parse().unwrap()]);
/// let read = |peer: &str, class: &str| {
///     let request = Request::get("/")
///         .extension(ClientAddr(peer.parse().unwrap()))
///         .header("x-criticality", class)
///         .body(())
///         .unwrap();
///     header.read(Head::of(&request))
/// };
/// assert_eq!(read("192.0.2.7:4000", "sheddable"), Some(Criticality::Sheddable));
/// // A client cannot raise itself, and a service of ours can.
/// assert_eq!(read("192.0.2.7:4000", "critical-plus"), None);
/// assert_eq!(read("10.0.0.7:4000", "critical-plus"), Some(Criticality::CriticalPlus));
/// ```
#[doc(alias("priority"))]
#[derive(Clone, Debug)]
pub struct CriticalityHeader {
    name: HeaderName,
    trusted: Nets,
}

impl CriticalityHeader {
    /// The name of the field, unless another one is given.
    pub(crate) const NAME: HeaderName = HeaderName::from_static("x-criticality");

    /// Reads the field `x-criticality`, which a layer
    /// [writes](crate::SentinelLayer::propagate_criticality). No peer is trusted.
    #[must_use]
    pub fn new() -> Self {
        Self::named(Self::NAME)
    }

    /// Reads the field `name`. No peer is trusted.
    #[must_use]
    pub fn named(name: HeaderName) -> Self {
        Self {
            name,
            trusted: Nets::new([]),
        }
    }

    /// Trusts peers in `nets`, and no other peers, to raise the class of their calls. If the method
    /// is called several times, the last call counts. The address is that of the connection, as for
    /// [`PeerIp`](super::PeerIp), and never an address from a header: where it is not known, nobody
    /// is trusted. An IPv4 network may also be written as an IPv6 network [with IPv4
    /// inside](super::cut_ip).
    #[must_use]
    pub fn trust(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted = Nets::new(nets);
        self
    }

    /// Returns the class that the header states; `None` if it states no class, or a class that its
    /// peer may not state.
    #[must_use]
    pub fn read(&self, head: Head<'_>) -> Option<Criticality> {
        let value = only_value(head.headers(), &self.name)?;
        if value.len() > MOST_BYTES {
            return None;
        }
        let name = value.split_once(';').map_or(value, |(name, _)| name);
        let class = Criticality::named(name.trim_ascii_end())?;
        let is_raised = class < Criticality::default();
        (!is_raised || self.trusts(head)).then_some(class)
    }

    /// Returns the [cohort](Cohort) that the peer states, in a part `cohort=37` after the name of
    /// the class. `None` if it states no number below 128, or is not trusted: a client could
    /// otherwise choose a cohort that is never the first to be refused.
    #[must_use]
    pub fn read_cohort(&self, head: Head<'_>) -> Option<Cohort> {
        let value = only_value(head.headers(), &self.name)?;
        if value.len() > MOST_BYTES || !self.trusts(head) {
            return None;
        }
        for part in value.split(';').skip(1) {
            if let Some((name, number)) = part.split_once('=') {
                if name.trim_ascii().eq_ignore_ascii_case(Cohort::NAME) {
                    return number.trim_ascii().parse().ok().and_then(Cohort::new);
                }
            }
        }
        None
    }

    /// Returns whether the peer of the connection is trusted.
    fn trusts(&self, head: Head<'_>) -> bool {
        peer(head.extensions()).is_some_and(|peer| self.trusted.contain(peer))
    }
}

impl Default for CriticalityHeader {
    fn default() -> Self {
        Self::new()
    }
}
