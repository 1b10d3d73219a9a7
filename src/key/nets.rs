//! Networks of clients and of proxies.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Networks, in which IPv4 that is mapped into IPv6 counts as IPv4: sockets for both
/// versions report their peers in mapped form, and people may write networks like that.
#[derive(Clone, Debug)]
pub(crate) struct Nets(Box<[IpNet]>);

impl Nets {
    pub(crate) fn new(nets: impl IntoIterator<Item = IpNet>) -> Self {
        Self(nets.into_iter().map(canonical).collect())
    }

    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|net| net.contains(&ip))
    }
}

/// `net` as one of IPv4, if it is mapped from there.
fn canonical(net: IpNet) -> IpNet {
    let mapped = || match net {
        IpNet::V6(net) => {
            let prefix = net.prefix_len().checked_sub(96)?;
            Ipv4Net::new(net.addr().to_ipv4_mapped()?, prefix).ok()
        }
        IpNet::V4(_) => None,
    };
    mapped().map_or(net, IpNet::V4)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_network_as_a_socket_for_both_versions_tells_it_is_one_of_ipv4() {
        let cases = [
            ("::ffff:10.0.0.1/128", "10.0.0.1", true),
            ("::ffff:10.0.0.1/128", "10.0.0.2", false),
            ("::ffff:10.0.0.0/104", "10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("::ffff:0:0/96", "11.0.0.1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("fd00::/8", "fd00::1", true),
            // Of IPv6, however wide.
            ("::/0", "10.0.0.1", false),
            ("::/0", "2001:db8::1", true),
        ];
        for (net, ip, expected) in cases {
            let nets = Nets::new([net.parse().unwrap()]);
            assert_eq!(nets.contain(ip.parse().unwrap()), expected, "{net} {ip}");
        }
    }
}
