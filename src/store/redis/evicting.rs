//! Detects servers that evict counters when their memory is full, by their memory policy.
//!
//! The policy is read from `INFO`, as managed servers often forbid `CONFIG`. A server that refuses
//! `INFO`, or whose answer names no policy, is assumed to keep its counters.

use redis::{Value, from_redis_value};

use crate::base::sync::Lock;

/// The policy of a server that never evicts.
const KEEPS: &str = "noeviction";
/// The start of the line of `INFO memory` that names the policy.
const LINE: &str = "maxmemory_policy:";
/// The maximum length of a policy name, in bytes. Longer names are ignored, as the text comes from
/// an arbitrary server and is shown to users.
const LONGEST: usize = 32;

/// The policy of a connected server that evicts counters; `None` if no server is known to evict
/// them.
#[derive(Debug, Default)]
pub(super) struct Evicting(Lock<Option<String>>);

impl Evicting {
    /// Forgets the policy, because connections are opened anew.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Reads the policy from a server's answer to `INFO memory`, and keeps a policy that evicts.
    pub(super) fn note(&self, answer: &Value) {
        let Ok(text) = from_redis_value::<String>(answer.clone()) else {
            return;
        };
        if let Some(policy) = policy_of(&text).filter(|policy| *policy != KEEPS) {
            *self.0.lock() = Some(policy.to_owned());
        }
    }

    pub(super) fn policy(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Finds a plausible policy name in the text of `INFO memory`.
fn policy_of(text: &str) -> Option<&str> {
    let policy = text.lines().find_map(|line| line.strip_prefix(LINE))?;
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let is_policy = !policy.is_empty() && policy.len() <= LONGEST && policy.chars().all(is_name);
    is_policy.then_some(policy)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_a_policy_that_removes_keys_is_kept() {
        let said = |text: &str| {
            let evicting = Evicting::default();
            evicting.note(&Value::BulkString(text.as_bytes().to_vec()));
            evicting.policy()
        };
        for (text, policy) in [
            (
                "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
                Some("allkeys-lru"),
            ),
            ("maxmemory_policy:volatile-ttl", Some("volatile-ttl")),
            ("maxmemory_policy:noeviction\r\n", None),
            ("maxmemory_policy:\r\n", None),
            ("maxmemory_policy:redis://:hush@cache\r\n", None),
            (&format!("maxmemory_policy:{}", "a".repeat(33)), None),
            ("# Memory\r\n", None),
            ("", None),
        ] {
            assert_eq!(said(text).as_deref(), policy, "{text:?}");
        }
        let evicting = Evicting::default();
        evicting.note(&Value::Nil);
        evicting.note(&Value::Int(3));
        assert_eq!(evicting.policy(), None);
        evicting.note(&Value::SimpleString("maxmemory_policy:allkeys-lfu".into()));
        // Another master of the Cluster keeps its counters. The policy of the first master is still
        // reported.
        evicting.note(&Value::SimpleString("maxmemory_policy:noeviction".into()));
        assert_eq!(evicting.policy().as_deref(), Some("allkeys-lfu"));
        evicting.forget();
        assert_eq!(evicting.policy(), None);
    }
}
