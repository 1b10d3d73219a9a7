//! Tests of displaying, comparing, hashing and shortening keys.

use super::*;
use std::hash::RandomState;

#[test]
fn slices_are_equal_if_no_byte_differs() {
    let bytes: Vec<u8> = (0..40).collect();
    for len in 0..=bytes.len() {
        let bytes = &bytes[..len];
        let same = bytes.to_vec();
        assert!(is_same(bytes, &same));
        assert!(len == 0 || !is_same(bytes, &bytes[1..]));
        for place in 0..len {
            let mut other = bytes.to_vec();
            other[place] ^= 0x80;
            assert!(!is_same(bytes, &other), "byte {place} of {len}");
        }
    }
}

#[test]
fn joined_texts_are_the_text_with_a_space() {
    let hash = RandomState::new();
    let pairs = [
        (Key::Joined("GET", "/a"), "GET /a"),
        (Key::Joined("GET", "/a b"), "GET /a b"),
        (Key::Joined("POST", ""), "POST "),
    ];
    for (joined, text) in pairs {
        assert_eq!(joined, Key::Str(text));
        assert_eq!(Key::Str(text), joined);
        assert_eq!(hash.hash_one(joined), hash.hash_one(Key::Str(text)));
        assert_eq!(hash.hash_one(joined), hash.hash_one(OwnedKey::from(joined)));
        assert_eq!(joined.to_string(), text);
    }
    let kept = OwnedKey::from(Key::Str("GET /a"));
    assert!(Key::Joined("GET", "/a").is_kept_as(&kept));
    assert!(!Key::Joined("GET", "/b").is_kept_as(&kept));
    assert!(!Key::Int(7).is_kept_as(&kept));
    assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET/a"));
    assert_ne!(Key::Joined("GET", "/a"), Key::Str("GET  /a"));
}

#[test]
fn equal_keys_hash_alike_in_all_spellings() {
    // The hash of the tables, which separates its writes.
    let hash = foldhash::quality::RandomState::default();
    // The hash of digests, which does not separate its writes.
    let two = [RandomState::new(), RandomState::new()];
    let parts = [
        "", "a", "A", " ", "a b", "A b", "Aa", "GET", "Get x", "GET ", " GET", "é", "/",
    ];
    let long = "x".repeat(MAX_KEY_BYTES);
    let parts = || parts.into_iter().chain([&*long]);
    let keys: Vec<_> = parts()
        .flat_map(|first| parts().map(move |second| (first, second)))
        .collect();
    let texts: Vec<_> = keys.iter().map(|(a, b)| format!("{a} {b}")).collect();
    for (&(first, second), text) in keys.iter().zip(&texts) {
        let (key, text) = (Key::Joined(first, second), Key::Str(text));
        assert_eq!(key, text);
        assert_eq!(hash.hash_one(key), hash.hash_one(text), "{key:?}");
        for (&(a, b), other) in keys.iter().zip(&texts) {
            let are_equal = text == Key::Str(other);
            assert_eq!(key == Key::Joined(a, b), are_equal, "{key:?} {a:?} {b:?}");
            let hash_alike = hash.hash_one(key) == hash.hash_one(Key::Joined(a, b));
            assert_eq!(hash_alike, are_equal, "{key:?} {a:?} {b:?}");
            let are_one = key.digest(&two) == Key::Joined(a, b).digest(&two);
            assert_eq!(are_one, are_equal, "{key:?} {a:?} {b:?}");
        }
    }
}

#[test]
fn pairs_of_keys_hash_differently() {
    // This hash does not separate its writes.
    let hash = RandomState::new();
    let pair = |a, b| hash.hash_one((Key::Str(a), Key::Str(b)));
    assert_ne!(pair("ab", "c"), pair("a", "bc"));
    assert_ne!(pair("GET /a", ""), pair("GET /", "a"));
}

#[test]
fn digests_of_numbers_and_hashes_differ_from_digests_of_texts() {
    let hash = [RandomState::new(), RandomState::new()];
    let number = u64::from_le_bytes(*b"12345678");
    let keys = [
        Key::Str("12345678"),
        Key::Int(number),
        Key::Str("1234567812345678"),
        Key::Digest(number, number),
        // A number whose last byte is the end mark of a text of seven bytes.
        Key::Str("1234567"),
        Key::Int(u64::from_le_bytes(*b"1234567\xff")),
    ];
    for (place, key) in keys.iter().enumerate() {
        for other in &keys[..place] {
            assert_ne!(key.digest(&hash), other.digest(&hash), "{key:?} {other:?}");
        }
    }
}

#[test]
fn a_text_also_names_the_address_or_number_that_it_spells() {
    let v6 = IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, 0_u16]);
    for text in ["::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::a00:1"] {
        let both = [text, "10.0.0.1"].map(|ip| Key::Ip(ip.parse().unwrap()));
        assert!(Key::spellings(text).eq([Key::Str(text)].into_iter().chain(both)));
    }
    let table = [
        ("a", None),
        ("", None),
        ("10.0.0.1", Some(Key::Ip([10, 0, 0, 1].into()))),
        ("2001:db8:1:2::", Some(Key::Ip(v6))),
        ("0", Some(Key::Int(0))),
        ("18446744073709551615", Some(Key::Int(u64::MAX))),
        ("18446744073709551616", None),
        ("007", None),
        ("+7", None),
        ("-7", None),
        (" 7", None),
        ("7.0", None),
    ];
    for (text, other) in table {
        let expected: Vec<_> = [Key::Str(text)].into_iter().chain(other).collect();
        assert_eq!(Key::spellings(text).collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn a_long_key_is_replaced_by_its_hash() {
    let hash = [RandomState::new(), RandomState::new()];
    let long = "x".repeat(64 * 1024);
    let (mut room, mut again) = (None, None);
    let key = Key::Str(&long);
    let short = *key.shortened(&hash, &mut room);
    assert!(matches!(short, Key::Digest(..)));
    assert_eq!(short, *key.shortened(&hash, &mut again));
    assert!(short.to_string().len() <= MAX_KEY_BYTES);
    let key = Key::Str("abc");
    assert_eq!(*key.shortened(&hash, &mut None), Key::Str("abc"));
}
