//! Reads and writes durations in the form of documents: `500ms`, `1m30s`.

use std::time::Duration;

use super::value::Datum;

/// The description of the allowed values, for messages.
pub(super) const ALLOWED: &str = "a time such as \"500ms\" or \"1m30s\", or a number of seconds";

/// The units from long to short, in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// The maximum number of digits after the point. 15 digits resolve a day to less than a nanosecond.
const MOST_DECIMALS: usize = 15;

/// Reads a time; `None` if `value` is no time.
pub(super) fn parse(value: &Datum) -> Option<Duration> {
    match value {
        Datum::Text(text) => parse_text(text),
        Datum::Whole(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
        Datum::Number(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        _ => None,
    }
}

/// Reads numbers with units, each unit once, from long to short, without spaces. A number can have
/// a fraction if the time is a whole number of nanoseconds.
fn parse_text(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut nanos = 0_u128;
    while !rest.is_empty() || std::ptr::eq(rest, text) {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = rest.find(|c| !is_number(c))?;
        let (number, after) = rest.split_at(end);
        let end = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, unit) = units.find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(exact_product(number, *unit)?)?;
        rest = after;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Returns the product of a number, which can have a fraction, and a unit; `None` if the product is
/// not whole.
fn exact_product(number: &str, unit: u128) -> Option<u128> {
    let (whole, decimals) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    if decimals.len() > MOST_DECIMALS {
        return None;
    }
    let scale = 10_u128.pow(decimals.len() as u32);
    let whole = whole.parse::<u64>().ok()?;
    let decimals = match decimals {
        "" => 0,
        digits => digits.parse::<u64>().ok()?,
    };
    let scaled = u128::from(whole)
        .checked_mul(scale)?
        .checked_add(decimals.into())?
        .checked_mul(unit)?;
    (scaled % scale == 0).then_some(scaled / scale)
}

/// Writes a time with whole numbers of each unit.
pub(super) fn print(time: Duration) -> String {
    let mut text = String::new();
    let mut rest = time.as_nanos();
    for (name, unit) in UNITS {
        if rest >= unit {
            text += &format!("{}{name}", rest / unit);
            rest %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_to_the_nanosecond() {
        let table = [
            ("0s", Some(0)),
            ("500ms", Some(500_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("0.000000001s", Some(1)),
            ("1d2h3m4s5ms6us7ns", Some(93_784_005_006_007)),
            ("", None),
            ("60", None),
            ("s", None),
            ("5x", None),
            ("1s1s", None),
            ("1s1m", None),
            ("-1s", None),
            ("1 s", None),
            (" 1s", None),
            ("1.s", None),
            (".5s", None),
            ("1.2.3s", None),
            ("0.5ns", None),
            ("0.3333333333s", None),
            // The maximum number of decimals, and one more.
            ("0.000000001000000s", Some(1)),
            ("0.0000000010000000s", None),
            ("0.00000000100000000000000000000000000000000s", None),
            ("1S", None),
            ("1s½", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ];
        for (text, nanos) in table {
            assert_eq!(
                parse_text(text).map(|time| time.as_nanos()),
                nanos,
                "{text}"
            );
        }
    }

    #[test]
    fn a_written_time_is_read_back_exactly() {
        let longest = Duration::MAX;
        let table = [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(1_500), "1s500ms"),
            (Duration::from_secs(90), "1m30s"),
            (Duration::from_nanos(400_000_001), "400ms1ns"),
            (longest, "213503982334601d7h15s999ms999us999ns"),
        ];
        for (time, text) in table {
            assert_eq!(print(time), text);
            assert_eq!(parse_text(text), Some(time), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_in_seconds() {
        assert_eq!(parse(&Datum::Whole(60)), Some(Duration::from_secs(60)));
        assert_eq!(
            parse(&Datum::Number(0.25)),
            Some(Duration::from_millis(250))
        );
        for bad in [f64::NAN, f64::INFINITY, -0.5, 1e300] {
            assert_eq!(parse(&Datum::Number(bad)), None, "{bad}");
        }
        for bad in [Datum::Whole(-1), Datum::Flag(true), Datum::Null] {
            assert_eq!(parse(&bad), None, "{bad:?}");
        }
    }
}
