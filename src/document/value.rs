//! The tree of a document, the same for each syntax.

use std::collections::HashSet;
use std::fmt;

use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde_core::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// The key under which the TOML parser passes a date, as a table with one entry.
const DATE: &str = "$__toml_private_datetime";
/// The key under which the JSON parser passes the digits of a number with a fraction, as a table
/// with one entry, if another crate of the program turns on its feature `arbitrary_precision`.
const NUMBER: &str = "$serde_json::private::Number";
/// The maximum length of a text that a message shows in full, in bytes.
const LONGEST: usize = 60;
/// The maximum number of levels of lists and tables, unless the caller sets another bound.
const MOST_LEVELS: usize = 128;

/// One value. Tables keep the order of their keys, which are all different.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Datum {
    Null,
    Flag(bool),
    /// A whole number between the smallest `i64` and the largest `u64`.
    Whole(i128),
    /// Any other number.
    Number(f64),
    Text(String),
    List(Vec<Datum>),
    Table(Entries),
}

/// The keys of a table with their values.
pub(super) type Entries = Vec<(String, Datum)>;

/// Returns the value of `key` in a table.
pub(super) fn find<'a>(table: &'a [(String, Datum)], key: &str) -> Option<&'a Datum> {
    let mut entries = table.iter();
    entries
        .find(|(name, _)| name == key)
        .map(|(_, value)| value)
}

// === impl Datum ===

impl Datum {
    /// Returns the value as a message shows it: short, in one line.
    pub(super) fn excerpt(&self) -> String {
        match self {
            Datum::Null => "null".to_owned(),
            Datum::Flag(flag) => flag.to_string(),
            Datum::Whole(number) => number.to_string(),
            Datum::Number(number) => format!("{number:?}"),
            Datum::Text(text) if text.len() > LONGEST => {
                let start: String = text.chars().take(LONGEST / 2).collect();
                format!("{start:?}…")
            }
            Datum::Text(text) => format!("{text:?}"),
            Datum::List(list) => format!("a list of {}", list.len()),
            Datum::Table(_) => "a table".to_owned(),
        }
    }

    /// Returns whether the excerpt is the whole value.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Datum::Text(text) => text.len() <= LONGEST,
            Datum::List(_) | Datum::Table(_) => false,
            _ => true,
        }
    }

    /// Returns the value as far as TOML can express it: without nulls, and with floating-point
    /// numbers in place of whole numbers that are no `i64`.
    pub(super) fn for_toml(&self) -> Option<Datum> {
        Some(match self {
            Datum::Null => return None,
            Datum::Whole(number) if i64::try_from(*number).is_err() => {
                Datum::Number(*number as f64)
            }
            Datum::List(list) => Datum::List(list.iter().filter_map(Self::for_toml).collect()),
            Datum::Table(table) => {
                let entries = table.iter();
                Datum::Table(
                    entries
                        .filter_map(|(key, value)| Some((key.clone(), value.for_toml()?)))
                        .collect(),
                )
            }
            plain => plain.clone(),
        })
    }

    /// Replaces TOML's dates with their texts, because no rule has a date.
    pub(super) fn with_dates_as_text(self) -> Datum {
        match self {
            Datum::List(list) => {
                Datum::List(list.into_iter().map(Self::with_dates_as_text).collect())
            }
            Datum::Table(mut table) => {
                if table.len() == 1 && table[0].0 == DATE {
                    return table.remove(0).1;
                }
                for (_, value) in &mut table {
                    *value = std::mem::replace(value, Datum::Null).with_dates_as_text();
                }
                Datum::Table(table)
            }
            plain => plain,
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Datum::Null => serializer.serialize_unit(),
            Datum::Flag(flag) => serializer.serialize_bool(*flag),
            Datum::Whole(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => serializer.serialize_i64(number),
                (_, Ok(number)) => serializer.serialize_u64(number),
                _ => serializer.serialize_f64(*number as f64),
            },
            Datum::Number(number) => serializer.serialize_f64(*number),
            Datum::Text(text) => serializer.serialize_str(text),
            Datum::List(list) => {
                let mut items = serializer.serialize_seq(Some(list.len()))?;
                for item in list {
                    items.serialize_element(item)?;
                }
                items.end()
            }
            Datum::Table(table) => {
                let mut entries = serializer.serialize_map(Some(table.len()))?;
                for (key, value) in table {
                    entries.serialize_entry(key, value)?;
                }
                entries.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnyValue::within(MOST_LEVELS).deserialize(deserializer)
    }
}

/// Deserializes any value, to a bounded depth, because recursive code over a value takes room on
/// the stack for each level. Parsers have bounds too, but not all of them bound the total depth.
#[derive(Clone, Copy)]
pub(super) struct AnyValue {
    levels: usize,
}

impl AnyValue {
    /// Accepts values with at most this many levels of lists and tables.
    pub(super) const fn within(levels: usize) -> Self {
        Self { levels }
    }

    /// Returns the deserializer for the values in a list or a table, with one level less.
    fn inner<E: Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        levels
            .map(Self::within)
            .ok_or_else(|| E::custom("nested too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of at most 64 bits, a text, a flag, a list or a table")
    }

    fn visit_unit<E>(self) -> Result<Datum, E> {
        Ok(Datum::Null)
    }

    fn visit_none<E>(self) -> Result<Datum, E> {
        Ok(Datum::Null)
    }

    /// Called by deserializers of formats with options.
    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Datum, D::Error> {
        self.inner()?.deserialize(value)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Datum, E> {
        Ok(Datum::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Datum, E> {
        Ok(Datum::Whole(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Datum, E> {
        Ok(Datum::Whole(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Datum, E> {
        Ok(Datum::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
        Ok(Datum::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Datum, E> {
        Ok(Datum::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Datum, A::Error> {
        let inner = self.inner()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Datum::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Datum, A::Error> {
        let inner = self.inner()?;
        let mut table = Entries::new();
        let mut known = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if !known.insert(key.clone()) {
                let key = Datum::Text(key).excerpt();
                return Err(A::Error::custom(format_args!(
                    "the key {key} is given twice"
                )));
            }
            table.push((key, entries.next_value_seed(inner)?));
        }
        match as_number(&table) {
            Some(number) if number.is_finite() => Ok(Datum::Number(number)),
            // The message that the JSON parser has for a number out of range.
            Some(_) => Err(A::Error::custom("number out of range")),
            None => Ok(Datum::Table(table)),
        }
    }
}

/// Returns the number in `table` if it is the one-entry table that the JSON parser makes of a
/// number with a fraction.
fn as_number(table: &[(String, Datum)]) -> Option<f64> {
    let [(key, Datum::Text(digits))] = table else {
        return None;
    };
    let is_digit = |c| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
    let is_number = key == NUMBER && digits.chars().all(is_digit);
    is_number.then(|| digits.parse().ok())?
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use serde_core::de::IntoDeserializer;
    use serde_core::de::value::{Error, MapDeserializer, U32Deserializer};
    use serde_core::forward_to_deserialize_any;

    use super::*;

    /// An option as the deserializer of a format with options passes it.
    struct Maybe(Option<U32Deserializer<Error>>);

    impl<'de> Deserializer<'de> for Maybe {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0 {
                Some(value) => visitor.visit_some(value),
                None => visitor.visit_none(),
            }
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum
            identifier ignored_any
        }
    }

    #[test]
    fn an_option_is_its_value() {
        let some = Maybe(Some(5_u32.into_deserializer()));
        assert_eq!(Datum::deserialize(some), Ok(Datum::Whole(5)));
        assert_eq!(Datum::deserialize(Maybe(None)), Ok(Datum::Null));
    }

    fn read<const N: usize>(table: [(&str, &str); N]) -> Result<Datum, Error> {
        Datum::deserialize(MapDeserializer::new(table.into_iter()))
    }

    /// Numbers as the JSON parser passes them with its feature `arbitrary_precision`; see `cargo
    /// test --features serde_json/arbitrary_precision --test documents`.
    #[test]
    fn a_number_passed_as_its_digits_is_a_number() {
        for (digits, number) in [
            ("20.0", 20.0),
            ("-0.5", -0.5),
            ("1e3", 1e3),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
        ] {
            assert_eq!(read([(NUMBER, digits)]), Ok(Datum::Number(number)));
        }
        let error = read([(NUMBER, "1e400")]).unwrap_err();
        assert_eq!(error.to_string(), "number out of range");
        // A document can have this key as well, with any text.
        for text in ["", "nan", "inf", "1.2.3", "x"] {
            let table = vec![(NUMBER.to_owned(), Datum::Text(text.to_owned()))];
            assert_eq!(read([(NUMBER, text)]), Ok(Datum::Table(table)));
        }
        let two = read([(NUMBER, "1"), ("other", "1")]).unwrap();
        assert!(matches!(two, Datum::Table(table) if table.len() == 2));
    }

    #[test]
    fn a_long_text_is_cut_after_half_the_maximum_length() {
        let text = |length: usize| Datum::Text("é".repeat(length / 2));
        let quoted = |length: usize| format!("\"{}\"", "é".repeat(length));
        assert_eq!(text(LONGEST).excerpt(), quoted(LONGEST / 2));
        assert!(text(LONGEST).is_short());
        let start = format!("{}…", quoted(LONGEST / 2));
        assert_eq!(text(LONGEST + 20).excerpt(), start);
        assert!(!text(LONGEST + 2).is_short());
    }

    #[test]
    fn a_whole_number_that_toml_lacks_becomes_the_nearest_float() {
        for (number, nearest) in [
            (i128::from(i64::MAX), Datum::Whole(i64::MAX.into())),
            (1 << 63, Datum::Number(9_223_372_036_854_775_808.0)),
        ] {
            assert_eq!(Datum::Whole(number).for_toml(), Some(nearest));
        }
    }
}
