//! A pseudo-random generator for tests, including the integration tests under `tests/`.

/// A small generator (SplitMix64): the numbers need to differ, not to be secure.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates the generator of this run and prints its seed: `SENTINEL_SEED`, or a fixed one.
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("SENTINEL_SEED")
            .map_or(20_261_121, |text| text.parse().expect("a seed is a number"));
        println!("SENTINEL_SEED={seed}");
        Self::of(seed)
    }

    /// Creates a generator with this seed.
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns another generator, for another thread.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Returns true with a probability of 1 in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The number of calls of a long run: `SENTINEL_ATTEMPTS`, or a default that takes this build a few
/// seconds.
pub(crate) fn attempts() -> u64 {
    let default = if cfg!(debug_assertions) {
        200_000
    } else {
        1_000_000
    };
    let attempts = std::env::var("SENTINEL_ATTEMPTS");
    let attempts = attempts.map_or(default, |text| text.parse().expect("a number"));
    println!("SENTINEL_ATTEMPTS={attempts}");
    attempts
}
