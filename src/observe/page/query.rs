//! The query of a request for the state.

use crate::call::Direction;

/// Rows that are returned unless it says otherwise.
const ROWS: usize = 50;
/// Most rows that are returned.
const MOST_ROWS: usize = 500;

/// By what rows are sorted, the largest figure first.
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
    pub(super) rows: usize,
    pub(super) sort: Sort,
    /// The text that names must contain, in lower case.
    pub(super) part: String,
    /// The resource whose minute is asked for; that of all, if none.
    pub(super) focus: Option<(Direction, String)>,
}

impl StateQuery {
    /// Reads the members behind `state` in a request's query. A member that is unknown or cannot be
    /// read has its default, so that a page of another version gets an answer.
    pub(super) fn of(query: &str) -> Self {
        let find = |name: &str| {
            let mut members = query.split('&');
            members.find_map(|member| Some(decoded(member.strip_prefix(name)?.strip_prefix('=')?)))
        };
        let rows = find("n").and_then(|n| n.parse().ok());
        let sort = match find("sort").as_deref() {
            Some("pass") => Sort::Passed,
            Some("failed") => Sort::Failed,
            Some("rt") => Sort::Rt,
            Some("in_flight") => Sort::InFlight,
            Some("name") => Sort::Name,
            _ => Sort::Refused,
        };
        let direction = match find("direction").as_deref() {
            Some("outbound") => Direction::Outbound,
            _ => Direction::Inbound,
        };
        let focus = find("focus").filter(|name| !name.is_empty());
        Self {
            rows: rows.unwrap_or(ROWS).min(MOST_ROWS),
            sort,
            part: find("q").unwrap_or_default().to_lowercase(),
            focus: focus.map(|name| (direction, name)),
        }
    }
}

/// `text` as it was before a form was made of it. Bytes that are not UTF-8 are replaced.
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
            StateQuery::of("state&n=7&sort=rt&q=%2FOrd+%7Bid&focus=%2Fa%26b&direction=outbound");
        let expected = StateQuery {
            rows: 7,
            sort: Sort::Rt,
            part: "/ord {id".to_owned(),
            focus: Some((Direction::Outbound, "/a&b".to_owned())),
        };
        assert_eq!(query, expected);
    }

    #[test]
    fn what_cannot_be_read_has_its_default() {
        let plain = StateQuery::of("state");
        assert_eq!(
            (plain.rows, plain.sort, &*plain.part),
            (50, Sort::Refused, "")
        );
        assert_eq!(plain.focus, None);
        assert_eq!(
            StateQuery::of("state&n=x&sort=&focus=&direction=up&unknown=1"),
            plain
        );
        assert_eq!(StateQuery::of("state&n=99999999").rows, 500);
        assert_eq!(StateQuery::of("state&n=99999999999999999999999").rows, 50);
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
