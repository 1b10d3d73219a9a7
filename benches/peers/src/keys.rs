//! The keys of a run, and the order in which they come.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

use tower_sentinel::Key;

/// A key as the crates want it.
pub trait AsKey: Clone + Eq + Hash + Send + Sync + 'static {
    fn as_key(&self) -> Key<'_>;
}

impl AsKey for IpAddr {
    fn as_key(&self) -> Key<'_> {
        Key::Ip(*self)
    }
}

impl AsKey for String {
    fn as_key(&self) -> Key<'_> {
        Key::from(self)
    }
}

/// Addresses that differ in all of their bytes.
pub fn addresses(count: u32) -> Vec<IpAddr> {
    (0..count)
        .map(|number| IpAddr::V4(Ipv4Addr::from(number.wrapping_mul(2_654_435_761))))
        .collect()
}

/// The same addresses as text, with a port.
pub fn texts(count: u32) -> Vec<String> {
    let text = |ip: &IpAddr| format!("{ip}:{}", 40_000 + count % 10_000);
    addresses(count).iter().map(text).collect()
}

/// How often each key comes.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    Uniform,
    /// The key of rank `r` with a chance that falls with `1 / r`.
    Zipf,
}

/// `length` places in a list of `count` keys; always the same ones.
pub fn order(spread: Spread, count: u32, length: usize) -> Vec<u32> {
    let mut state = 0x5EED_u64;
    let mut random = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    match spread {
        Spread::Uniform => (0..length)
            .map(|_| (random() * f64::from(count)) as u32)
            .collect(),
        Spread::Zipf => {
            let mut sum = 0.0;
            let sums: Vec<f64> = (1..=count)
                .map(|rank| {
                    sum += 1.0 / f64::from(rank);
                    sum
                })
                .collect();
            (0..length)
                .map(|_| {
                    let wanted = random() * sum;
                    let rank = sums.partition_point(|&upto| upto < wanted) as u32;
                    // Ranks are spread over the list, as the keys were made in order.
                    (rank.min(count - 1) as u64 * 2_654_435_761 % u64::from(count)) as u32
                })
                .collect()
        }
    }
}
