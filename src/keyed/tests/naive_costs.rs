//! A naive model of a key's budget: a list of charges, the end of its debt, and what is reserved.

use crate::keyed::Counting;

/// A naive model of a key's budget.
#[derive(Default)]
pub(super) struct Naive {
    /// The charges, each as its time in ms and its units.
    pub(super) charges: Vec<(u64, u32)>,
    /// The end of the debt of a refilled quota, in ms.
    pub(super) debt_ms: u64,
    /// The end of the last block, in ms.
    pub(super) blocked_ms: u64,
    /// The units that running calls have reserved.
    pub(super) reserved: u32,
    /// The units charged beyond reservations.
    pub(super) excess: u32,
}

/// The account of a call in the naive model.
#[derive(Clone, Copy, Default)]
pub(super) struct NaiveAccount {
    /// The units that the call has reserved.
    pub(super) reserved: u32,
    /// The reserved units that charges have not used up.
    pub(super) rest: u32,
    /// The units charged to the call so far.
    pub(super) charged: u32,
    /// Whether the call has reported a cost.
    pub(super) has_reported: bool,
}

/// The limit of each key per ten seconds. So a token is earned per second, and a bucket lasts five
/// seconds.
pub(super) const LIMIT: u32 = 10;
/// How long a key is blocked.
pub(super) const BLOCK_MS: u64 = 12_000;

impl Naive {
    /// The units charged in the window that ends with `bucket`.
    pub(super) fn used_in(&self, bucket: u64) -> u32 {
        let counted = self.charges.iter().filter(|&&(ms, _)| {
            let of = ms / 5_000;
            of == bucket || of + 1 == bucket
        });
        counted.map(|&(_, units)| units).sum()
    }

    /// The tokens left at `now` if none were reserved.
    pub(super) fn left_unreserved(&self, count: Counting, now: u64) -> u32 {
        match count {
            Counting::Refill if now < self.blocked_ms => 0,
            Counting::Refill => {
                let open = 10_000_u64.saturating_sub(self.debt_ms.saturating_sub(now));
                (open / 1_000) as u32
            }
            _ => LIMIT.saturating_sub(self.used_in(now / 5_000)),
        }
    }

    /// The tokens left at `now`.
    pub(super) fn left(&self, count: Counting, now: u64) -> u32 {
        self.left_unreserved(count, now)
            .saturating_sub(self.reserved)
    }

    pub(super) fn charge(&mut self, account: &mut NaiveAccount, now: u64, units: u32) {
        let own = units.min(account.rest);
        account.rest -= own;
        account.charged += units;
        account.has_reported = true;
        self.reserved -= own;
        self.excess += units - own;
        self.charges.push((now, units));
        if units > 0 && now >= self.blocked_ms {
            let due = self.debt_ms.max(now) + u64::from(units) * 1_000;
            // At most ten intervals pass until the first token, and nine seconds for the remaining
            // nine tokens.
            self.debt_ms = due.min(now + 109_000).max(self.debt_ms);
        }
    }

    /// Blocks the key after a call that `wanted` so much was refused. Returns false if what was
    /// charged leaves room for the call, if no quota would have any, or if the key is blocked.
    pub(super) fn block(&mut self, count: Counting, now: u64, wanted: u32) -> bool {
        let is_spent = self.left_unreserved(count, now) < wanted && wanted <= LIMIT;
        let is_blocked = is_spent && count == Counting::Refill && now >= self.blocked_ms;
        if is_blocked {
            self.blocked_ms = (now + BLOCK_MS).max(self.debt_ms);
            self.debt_ms = 0;
        }
        is_blocked
    }

    pub(super) fn settle(&mut self, account: &mut NaiveAccount, now: u64, total: u32) {
        self.charge(account, now, total.saturating_sub(account.charged));
        self.reserved -= account.rest;
        account.rest = 0;
    }

    /// Checks that a key exceeds its limit at most by the units that calls have cost beyond their
    /// reservations.
    pub(super) fn check(&self, count: Counting, now: u64) {
        let used = match count {
            Counting::Refill => self.debt_ms.saturating_sub(now).div_ceil(1_000) as u32,
            _ => self.used_in(now / 5_000),
        };
        let most = LIMIT + self.excess;
        assert!(
            used + self.reserved <= most,
            "{used} and {} of {most}",
            self.reserved
        );
    }
}
