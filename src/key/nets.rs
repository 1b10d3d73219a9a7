//! Networks of clients and of proxies.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::call::{canonical, ipv4_inside};

/// Networks, in which IPv4 inside of IPv6 counts as IPv4: sockets for both versions and
/// translators report their peers in that form, and people may write networks like that.
#[derive(Clone, Debug)]
pub(crate) struct Nets(Box<[IpNet]>);

impl Nets {
    pub(crate) fn new(nets: impl IntoIterator<Item = IpNet>) -> Self {
        Self(nets.into_iter().map(plain).collect())
    }

    /// Returns whether any of the networks contains `ip`.
    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        self.0.iter().any(|net| net.contains(&ip))
    }
}

/// Returns `net` as an IPv4 network if all its addresses are IPv4 inside of IPv6; otherwise `net`.
fn plain(net: IpNet) -> IpNet {
    let inside = || match net {
        IpNet::V6(net) => {
            let prefix = net.prefix_len().checked_sub(96)?;
            Ipv4Net::new(ipv4_inside(net.addr())?, prefix).ok()
        }
        IpNet::V4(_) => None,
    };
    inside().map_or(net, IpNet::V4)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_ipv4_inside_counts_as_ipv4() {
        let cases = [
            ("::ffff:10.0.0.1/128", "10.0.0.1", true),
            ("::ffff:10.0.0.1/128", "10.0.0.2", false),
            ("::ffff:10.0.0.0/104", "10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("::ffff:0:0/96", "11.0.0.1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("fd00::/8", "fd00::1", true),
            ("10.0.0.0/8", "64:ff9b::10.0.0.1", true),
            ("10.0.0.0/8", "64:ff9b::11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:0:10.0.0.1", true),
            ("64:ff9b::10.0.0.0/104", "10.255.0.1", true),
            ("64:ff9b::10.0.0.0/104", "11.0.0.1", false),
            ("64:ff9b::/96", "::ffff:1.2.3.4", true),
            ("::ffff:0:0:0/96", "64:ff9b::1.2.3.4", true),
            ("64:ff9b:1::/96", "64:ff9b:1::1.2.3.4", true),
            ("64:ff9b:1::/96", "1.2.3.4", false),
            // An IPv6 network contains no IPv4 addresses, however wide it is.
            ("::/0", "10.0.0.1", false),
            ("::/0", "2001:db8::1", true),
        ];
        for (net, ip, expected) in cases {
            let nets = Nets::new([net.parse().unwrap()]);
            assert_eq!(nets.contain(ip.parse().unwrap()), expected, "{net} {ip}");
        }
    }
}
