//! The slot map of a Cluster: each key is in a slot, and each slot on one master.

use std::collections::BTreeSet;
use std::fmt;

use redis::Value;

/// The number of slots of a Cluster.
const SLOTS: u16 = 16_384;

/// The address of a master. Its `Debug` output hides the address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MasterAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The slots of each master, as one of the masters has reported them.
#[derive(Clone, Default)]
pub(super) struct SlotMap(Vec<SlotRange>);

/// A range of slots, both ends included, with the master that has them.
#[derive(Clone)]
struct SlotRange {
    first: u16,
    last: u16,
    owner: MasterAddress,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS` of the server at `asked`; `None` if it has another
    /// format.
    pub(super) fn read(answer: &Value, asked: &MasterAddress) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let ranges = ranges.iter().map(|range| SlotRange::read(range, asked));
        let mut ranges = ranges.collect::<Option<Vec<_>>>()?;
        ranges.retain(|range| !range.owner.host.is_empty());
        Some(Self(ranges))
    }

    /// Returns the master that has `slot`, if there is one.
    pub(super) fn owner(&self, slot: u16) -> Option<&MasterAddress> {
        let mut ranges = self.0.iter();
        let range = ranges.find(|range| (range.first..=range.last).contains(&slot));
        range.map(|range| &range.owner)
    }

    /// Returns all masters that have slots.
    pub(super) fn owners(&self) -> BTreeSet<MasterAddress> {
        self.0.iter().map(|range| range.owner.clone()).collect()
    }
}

impl SlotRange {
    /// Reads one range. The host is empty if the server does not know the master's host.
    fn read(range: &Value, asked: &MasterAddress) -> Option<Self> {
        let Value::Array(parts) = range else {
            return None;
        };
        let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = parts.as_slice()
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = owner.as_slice() else {
            return None;
        };
        let host = match host {
            // A server that does not know its own host name omits it. Then the host is used under
            // which this process has reached the server.
            Value::Nil => asked.host.clone(),
            Value::BulkString(host) if host.is_empty() => asked.host.clone(),
            Value::BulkString(host) if host == b"?" => String::new(),
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            _ => return None,
        };
        Some(Self {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            owner: MasterAddress {
                host,
                port: u16::try_from(*port).ok()?,
            },
        })
    }
}

impl MasterAddress {
    /// Reads the `host:port` with which the server at `asked` names another server. Without a host,
    /// the other server has the host of `asked`.
    pub(super) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host };
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl fmt::Debug for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterAddress")
    }
}

/// Returns the slot of `key`. Only the text between the first pair of braces is hashed, if there is
/// any.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let start = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[start..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[start..start + length])
    };
    checksum(tag().unwrap_or(key)) % SLOTS
}

/// Computes CRC-16/XMODEM: polynomial 0x1021, initial value 0.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| {
            let carry = if sum & 0x8000 == 0 { 0 } else { 0x1021 };
            (sum << 1) ^ carry
        })
    })
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn asked() -> MasterAddress {
        MasterAddress {
            host: "asked".to_owned(),
            port: 1,
        }
    }

    /// Compares the check value of CRC-16/XMODEM, and slots that a server has reported.
    #[test]
    fn slots_are_computed_like_by_a_server() {
        assert_eq!(checksum(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("foo", 12_182),
            ("ts:1:{foo}", 12_182),
            ("{foo}{bar}", 12_182),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key:?}");
        }
        for whole in ["a{}b", "a{b", "a}b{"] {
            assert_eq!(
                slot_of(whole.as_bytes()),
                checksum(whole.as_bytes()) % SLOTS
            );
        }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let owner = vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())];
        let owner = Value::Array(owner);
        Value::Array(vec![Value::Int(first), Value::Int(last), owner])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_unknown_host_is_replaced_by_the_asked_host() {
        let answer = Value::Array(vec![
            range(0, 9, text(""), 7_000),
            range(10, 19, Value::Nil, 7_001),
            range(20, 29, text("other"), 7_002),
            range(30, 39, text("?"), 7_003),
        ]);
        let map = SlotMap::read(&answer, &asked()).unwrap();
        let owner = |slot| map.owner(slot).map(|it| (it.host.as_str(), it.port));
        assert_eq!(owner(9), Some(("asked", 7_000)));
        assert_eq!(owner(10), Some(("asked", 7_001)));
        assert_eq!(owner(29), Some(("other", 7_002)));
        assert_eq!((owner(30), owner(40)), (None, None));
        assert_eq!(map.owners().len(), 3);
        for (moved, expected) in [
            ("h:5", Some(("h", 5))),
            (":5", Some(("asked", 5))),
            ("::1:5", Some(("::1", 5))),
            ("h", None),
            ("h:x", None),
        ] {
            let read = MasterAddress::read(moved, &asked());
            let read = read.as_ref().map(|it| (it.host.as_str(), it.port));
            assert_eq!(read, expected, "{moved}");
        }
    }

    #[test]
    fn answers_in_another_format_are_rejected() {
        let owner = || range(0, 9, text("a"), 7_000);
        assert!(SlotMap::read(&Value::Array(vec![owner()]), &asked()).is_some());
        for bad in [
            Value::Nil,
            text("a"),
            Value::Array(vec![owner(), Value::Nil]),
            Value::Array(vec![Value::Array(Vec::new())]),
            Value::Array(vec![range(-1, 9, text("a"), 7_000)]),
            Value::Array(vec![range(0, 70_000, text("a"), 7_000)]),
            Value::Array(vec![range(0, 9, text("a"), 70_000)]),
            Value::Array(vec![range(0, 9, Value::Int(1), 7_000)]),
            Value::Array(vec![range(0, 9, Value::BulkString(vec![0xff]), 7_000)]),
        ] {
            assert!(SlotMap::read(&bad, &asked()).is_none(), "{bad:?}");
        }
    }
}
