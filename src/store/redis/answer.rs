//! Answers of a server, and errors as they may be shown.

use redis::{ErrorKind, RedisError, RedisResult, Value};

use crate::store::{Drawn, StoreError, StoreErrorKind};

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

pub(super) fn read_drawn(answer: &RedisResult<Value>) -> Result<Drawn, StoreError> {
    let answer = answer.as_ref().map_err(told)?;
    let drawn = integers(answer).and_then(|numbers| Drawn::read(&numbers));
    drawn.ok_or_else(unreadable)
}

/// The list of integers that a script returns.
pub(super) fn integers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(items) = value else {
        return None;
    };
    let integer = |item: &Value| match item {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    items.iter().map(integer).collect()
}

pub(super) fn unreadable() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "its answer has another shape")
}

/// An error as it may be shown: by its code alone.
pub(super) fn told(error: &RedisError) -> StoreError {
    use StoreErrorKind as Kind;
    if error.is_timeout() {
        return StoreError::new(Kind::Late, "the connection timed out");
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return StoreError::new(Kind::Refused, "WRONGPASS, user and password do not match");
    }
    let Some(code) = code_of(error) else {
        return StoreError::new(Kind::Unreachable, "the connection is gone");
    };
    let kind = match code {
        "READONLY" | "LOADING" | "MASTERDOWN" | "MISCONF" => Kind::ReadOnly,
        "OOM" => Kind::Full,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => Kind::Moved,
        _ => Kind::Refused,
    };
    StoreError::new(kind, code)
}

/// The code of an error of the server. Not that of a script which has failed, but the reason.
fn code_of(error: &RedisError) -> Option<&str> {
    /// The codes with which a command in a script fails, before Redis 7 behind a dash in the text.
    const REASONS: [&str; 5] = ["OOM", "READONLY", "MISCONF", "NOPERM", "WRONGTYPE"];
    let code = error.code()?;
    let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if code.is_empty() || code.len() > 32 || !code.chars().all(is_code) {
        return Some("an error without a code");
    }
    let text = error.detail().unwrap_or_default();
    if code != "ERR" {
        return Some(code);
    }
    if text.contains("can't run this command") {
        return Some("NOPERM");
    }
    let mut words = text.split(' ').filter_map(|word| word.strip_prefix('-'));
    let reason = words.find_map(|word| REASONS.into_iter().find(|reason| *reason == word));
    Some(reason.unwrap_or(code))
}
