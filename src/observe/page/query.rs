//! The query of a request for the state.

use crate::call::Direction;
use crate::read::write_text;

/// The default number of rows that are returned.
const ROWS: usize = 50;
/// The maximum number of rows that are returned.
const MOST_ROWS: usize = 500;

/// The orders of rows, by their names in queries.
const SORTS: [(&str, Sort); 6] = [
    ("refused", Sort::Refused),
    ("pass", Sort::Passed),
    ("failed", Sort::Failed),
    ("rt", Sort::Rt),
    ("in_flight", Sort::InFlight),
    ("name", Sort::Name),
];
/// The directions, by their names in queries.
const DIRECTIONS: [(&str, Direction); 2] = [
    ("inbound", Direction::Inbound),
    ("outbound", Direction::Outbound),
];

/// The figure by which rows are sorted, the largest first, or else the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Refused,
    Passed,
    Failed,
    Rt,
    InFlight,
    Name,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateQuery {
    /// The maximum number of rows to return.
    pub(super) rows: usize,
    pub(super) sort: Sort,
    /// The text that names must contain, in lower case.
    pub(super) part: String,
    /// The resource whose minute is asked for; `None` for the minute of all resources.
    pub(super) focus: Option<(Direction, String)>,
}

impl StateQuery {
    /// Reads the members after `state` in a request's query. Unknown members are ignored. A value
    /// that cannot be read is an error that names the member.
    pub(super) fn of(query: &str) -> Result<Self, String> {
        let find = |name: &str| {
            let mut members = query.split('&');
            members.find_map(|member| Some(decoded(member.strip_prefix(name)?.strip_prefix('=')?)))
        };
        let rows = match find("n") {
            None => ROWS,
            Some(text) => match text.parse() {
                Ok(rows) if rows <= MOST_ROWS => rows,
                _ => return Err(bad("n", &text, "a whole number between 0 and 500")),
            },
        };
        let sort = match find("sort") {
            None => Sort::default(),
            Some(text) => match one_of(&SORTS, &text) {
                Some(sort) => sort,
                None => {
                    let names = "refused, pass, failed, rt, in_flight or name";
                    return Err(bad("sort", &text, names));
                }
            },
        };
        let direction = match find("direction").filter(|name| !name.is_empty()) {
            None => Direction::Inbound,
            Some(text) => match one_of(&DIRECTIONS, &text) {
                Some(direction) => direction,
                None => return Err(bad("direction", &text, "inbound or outbound")),
            },
        };
        let focus = find("focus").filter(|name| !name.is_empty());
        Ok(Self {
            rows,
            sort,
            part: find("q").unwrap_or_default().to_lowercase(),
            focus: focus.map(|name| (direction, name)),
        })
    }
}

/// Returns the value in `all` with the name `name`.
fn one_of<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

/// Returns the error for a member with the value `text`, which is not as it `must_be`.
fn bad(member: &str, text: &str, must_be: &str) -> String {
    let shown: String = text.chars().take(64).collect();
    let mut quoted = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut quoted, &shown);
    format!("{member} is {quoted}, must be {must_be}.\n")
}

/// Decodes `text` from the form encoding. Bytes that are not UTF-8 are replaced.
fn decoded(text: &str) -> String {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        let pair = match others {
            [high, low, ..] if first == b'%' => digit(high).zip(digit(low)),
            _ => None,
        };
        match pair {
            Some((high, low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &others[2..];
            }
            None => bytes.push(if first == b'+' { b' ' } else { first }),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_member_by_member() {
        let query =
            StateQuery::of("state&n=7&sort=rt&q=%2FOrd+%7Bid&focus=%2Fa%26b&direction=outbound")
                .unwrap();
        let expected = StateQuery {
            rows: 7,
            sort: Sort::Rt,
            part: "/ord {id".to_owned(),
            focus: Some((Direction::Outbound, "/a&b".to_owned())),
        };
        assert_eq!(query, expected);
    }

    #[test]
    fn missing_members_have_defaults_and_errors_name_the_member() {
        let plain = StateQuery::of("state").unwrap();
        assert_eq!(
            (plain.rows, plain.sort, &*plain.part),
            (50, Sort::Refused, "")
        );
        assert_eq!(plain.focus, None);
        assert_eq!(
            StateQuery::of("state&focus=&direction=&unknown=1").unwrap(),
            plain
        );
        assert_eq!(StateQuery::of("state&n=500").unwrap().rows, 500);
        let names = "refused, pass, failed, rt, in_flight or name";
        let cases = [
            (
                "n=501",
                "n is \"501\", must be a whole number between 0 and 500.\n".to_owned(),
            ),
            (
                "n=",
                "n is \"\", must be a whole number between 0 and 500.\n".to_owned(),
            ),
            (
                "n=-1",
                "n is \"-1\", must be a whole number between 0 and 500.\n".to_owned(),
            ),
            (
                "sort=latency",
                format!("sort is \"latency\", must be {names}.\n"),
            ),
            (
                "sort=%E2%80%AE",
                format!("sort is \"\\u202e\", must be {names}.\n"),
            ),
            (
                "direction=up",
                "direction is \"up\", must be inbound or outbound.\n".to_owned(),
            ),
        ];
        for (member, message) in cases {
            assert_eq!(StateQuery::of(&format!("state&{member}")), Err(message));
        }
    }

    #[test]
    fn only_two_digits_behind_a_percent_sign_are_a_byte() {
        let cases = [
            ("a%2", "a%2"),
            ("%zz%2B+", "%zz+ "),
            ("%C3%A4%e4", "\u{e4}\u{fffd}"),
            ("%%41", "%A"),
        ];
        for (text, expected) in cases {
            assert_eq!(decoded(text), expected);
        }
    }
}
