//! Derives the names of counters: keyed hashes of the rule and the key, equal in all processes with
//! the same secret.
//!
//! SipHash-1-3 with two pairs of keys gives 128 bits. The pairs are themselves hashes of the
//! secret, computed with the fixed keys below. The scheme is part of the store's format: if it
//! changed, processes of two versions would count separately.

use std::fmt;

use crate::call::Key;
use crate::keyed::Sip;

/// The default secret. As it is public, names made with it hide nothing.
const NO_SECRET: &[u8] = b"tower-sentinel, format 1";
/// The keys with which the secret is hashed.
const FIXED: (u64, u64) = (0x736f_6d65_2066_6978, 0x6564_206b_6579_732e);

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct Digester([Sip; 2]);

/// The hash of a rule's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleDigest(pub(super) [u64; 2]);

/// The name of a counter: 128 bits as two halves, the high half first. A `u128` is aligned to 16
/// bytes, which would make the entries of a table larger.
pub(crate) type CounterDigest = [u64; 2];

impl Digester {
    pub(crate) fn new(secret: Option<&[u8]>) -> Self {
        let fixed = Sip::keyed(FIXED.0, FIXED.1);
        let key = |kind| fixed.hash(secret.unwrap_or(NO_SECRET), kind);
        Self([Sip::keyed(key(1), key(2)), Sip::keyed(key(3), key(4))])
    }

    /// Returns a digest that replaces `key`, which is secret. It is equal in all processes with the
    /// same secret.
    pub(crate) fn secret(&self, key: &Key<'_>) -> Key<'static> {
        let [high, low] = self.0.each_ref().map(|sip| sip.digest(key).get());
        Key::Agreed(high, low)
    }

    /// Returns the digest of the rule with this `identity`.
    pub(crate) fn rule(&self, identity: &str) -> RuleDigest {
        RuleDigest(
            self.0
                .each_ref()
                .map(|sip| sip.hash(identity.as_bytes(), 9)),
        )
    }

    /// Returns the name of a rule's counter. `key` is set if the rule counts each key separately.
    pub(crate) fn counter(&self, rule: RuleDigest, key: Option<&Key<'_>>) -> CounterDigest {
        [0, 1].map(|at: usize| {
            let sip = &self.0[at];
            let of_key = key.map_or(0, |key| sip.digest(key).get());
            sip.digest(&Key::Digest(rule.0[at], of_key)).get()
        })
    }

    /// Returns the name of the store's counter for the day or month `number` of the counter
    /// `counter`.
    pub(super) fn period(&self, counter: CounterDigest, number: u64) -> CounterDigest {
        [0, 1].map(|at: usize| self.0[at].digest(&Key::Digest(counter[at], number)).get())
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are secret.
        f.write_str("Digester(..)")
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// The names are part of the format: they must never change.
    #[test]
    fn names_of_format_1_never_change() {
        let digester = Digester::new(None);
        let rule = digester.rule("kind=4:flow;");
        let names = [
            digester.counter(rule, None),
            digester.counter(rule, Some(&Key::Str("ann"))),
            digester.counter(rule, Some(&Key::Int(7))),
            Digester::new(Some(b"hush")).counter(rule, Some(&Key::Str("ann"))),
        ];
        let names = names.map(|[high, low]| format!("{high:016x}{low:016x}"));
        assert_eq!(names, NAMES);
    }

    const NAMES: [&str; 4] = [
        "04035362ae5cffe9dbdc2c54ebdaf8c8",
        "769ee08f1ec6da42b85f7dc8f994dd9c",
        "3af9fde90115f6578861203eb2ae38f0",
        "325a7c1d378905e9dfaae6c57b94a05e",
    ];

    #[test]
    fn names_differ_by_rule_key_and_secret() {
        let mut names = Vec::new();
        for secret in [None, Some(&b"a"[..]), Some(b"b")] {
            let digester = Digester::new(secret);
            for identity in ["x", "y"] {
                let rule = digester.rule(identity);
                for key in [
                    None,
                    Some(Key::Str("")),
                    Some(Key::Str("7")),
                    Some(Key::Int(7)),
                ] {
                    names.push(digester.counter(rule, key.as_ref()));
                }
            }
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
