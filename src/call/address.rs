//! IPv4 addresses inside of IPv6 addresses.
//!
//! An IPv4 client can have an IPv6 address: on a socket for both versions, or behind a translator,
//! which writes the IPv4 address into the last 32 bits. Keys of IPv6 addresses are cut to 64 bits,
//! which would give all these clients one key. So an IPv4 client is identified by the IPv4 address
//! inside its IPv6 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first 96 bits of IPv6 addresses that end with an IPv4 address.
const BEFORE_IPV4: [u128; 3] = [
    // ::ffff:0:0/96: sockets for both versions (RFC 4291, 2.5.5.2).
    0xffff,
    // ::ffff:0:0:0/96: stateless translators, SIIT (RFC 2765, 2.1).
    0xffff_0000,
    // 64:ff9b::/96: NAT64, and SIIT in data centers (RFC 6052, 2.1).
    0x0064_ff9b_0000_0000_0000_0000,
];

/// Returns the IPv4 address inside of `ip` if there is one, otherwise `ip`.
#[inline]
pub(crate) fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => ipv4_inside(ip).map_or(IpAddr::V6(ip), IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Returns the IPv4 address inside of `ip`, if there is one.
pub(crate) fn ipv4_inside(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = ip.to_bits();
    let [.., a, b, c, d] = ip.octets();
    BEFORE_IPV4
        .contains(&(bits >> 32))
        .then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_those_of_the_standard_library() {
        let ips = [
            "::ffff:1.2.3.4",
            "::1.2.3.4",
            "::1",
            "2001:db8::1",
            "1.2.3.4",
        ];
        for ip in ips.map(|ip| ip.parse::<IpAddr>().unwrap()) {
            assert_eq!(canonical(ip), ip.to_canonical());
        }
    }
}
