//! Reads the answers of a Redis server, and converts its errors to errors that are safe to log.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError, RedisResult, Value};

#[cfg(feature = "redis-sentinel")]
use super::sentinels::UnknownMaster;
use super::unopened::Unopened;
use crate::store::{Beat, Drawn, Epoch, StoreError, StoreErrorKind};

/// Returns whether the server lacks the script, which must then be sent in full.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Reads the answer to one draw.
pub(super) fn read_drawn(answer: &RedisResult<Value>) -> Result<Drawn, StoreError> {
    let answer = answer.as_ref().map_err(loggable)?;
    let drawn = floats(answer).and_then(|numbers| Drawn::read(&numbers));
    drawn.ok_or_else(unreadable)
}

/// Reads the answer to a beat. Its numbers are: live processes, rank of this process, epoch, count
/// of beats, processes with another secret, processes configured with another number of processes,
/// and resets.
pub(super) fn read_beat(answer: &[i64]) -> Option<Beat> {
    let &[nodes, rank, epoch, count, secret, others, resets] = answer else {
        return None;
    };
    let (nodes, rank) = (u32::try_from(nodes).ok()?, u32::try_from(rank).ok()?);
    let (epoch, count) = (u64::try_from(epoch).ok()?, u64::try_from(count).ok()?);
    let mut beat = Beat::new(nodes, rank, Epoch(epoch)).with_count(count);
    beat.resets = u64::try_from(resets).ok()?;
    beat.others.secret = u32::try_from(secret).ok()?;
    beat.others.nodes = u32::try_from(others).ok()?;
    Some(beat)
}

/// Decodes the six whole numbers that the script returns as floats.
fn floats(value: &Value) -> Option<[i64; 6]> {
    /// 2⁵³: up to it, a float holds every whole number exactly.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let mut numbers = [0; 6];
    if bytes.len() != 8 * numbers.len() {
        return None;
    }
    for (number, word) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        let float = f64::from_le_bytes(word.try_into().ok()?);
        if !(-MOST..=MOST).contains(&float) || float.fract() != 0.0 {
            return None;
        }
        *number = float as i64;
    }
    Some(numbers)
}

/// Decodes the list of integers that a script returns.
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

/// Creates the error for an answer that cannot be decoded.
pub(super) fn unreadable() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "its answer has another shape")
}

/// Returns whether the error names a reason for which the server refuses this process, such as a
/// certificate or a missing permission.
#[cfg(any(feature = "redis-sentinel", feature = "redis-cluster"))]
pub(super) fn says_why(error: &RedisError) -> bool {
    #[cfg(feature = "redis-tls")]
    if super::tls::reason(error, false).is_some() {
        return true;
    }
    loggable(error).kind() == StoreErrorKind::Refused
}

/// Converts an error to one that is safe to log: it contains only the error's code or a fixed text.
pub(super) fn loggable(error: &RedisError) -> StoreError {
    use StoreErrorKind as Kind;
    #[cfg(feature = "redis-sentinel")]
    if let Some(unknown) = UnknownMaster::of(error) {
        return StoreError::new(Kind::Refused, unknown.to_string());
    }
    if let Some(unopened) = Unopened::of(error) {
        return StoreError::new(Kind::Unreachable, unopened.to_string());
    }
    if error.is_timeout() {
        return StoreError::new(Kind::Late, "the connection timed out");
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return StoreError::new(Kind::Refused, "WRONGPASS, user and password do not match");
    }
    let Some(code) = code_of(error) else {
        return StoreError::new(Kind::Unreachable, broken(error));
    };
    let kind = match code {
        "READONLY" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS" => Kind::ReadOnly,
        "OOM" => Kind::Full,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => Kind::Moved,
        _ => Kind::Refused,
    };
    StoreError::new(kind, code)
}

/// Returns the reason why there is no connection. The operating system's text is not used, as it
/// may contain host names.
fn broken(error: &RedisError) -> &'static str {
    use io::ErrorKind as Kind;
    /// The codes of Windows for a host name that cannot be resolved.
    const NOT_FOUND: [i32; 3] = [11_001, 11_002, 11_004];
    let Some(io) = cause(error).and_then(|cause| cause.downcast_ref::<io::Error>()) else {
        return "the connection is gone";
    };
    let is_unknown = io
        .raw_os_error()
        .is_some_and(|code| NOT_FOUND.contains(&code))
        || io
            .to_string()
            .starts_with("failed to lookup address information");
    match io.kind() {
        _ if is_unknown => "the name of the host is not known",
        Kind::ConnectionRefused => "the connection was refused: nobody listens at the address",
        Kind::NotFound => "there is no socket at the path",
        Kind::PermissionDenied => "the address may not be used, for want of a right",
        Kind::HostUnreachable | Kind::NetworkUnreachable => "there is no way to the host",
        _ => "the connection is gone",
    }
}

/// Returns whether the server has ended the connection. A connection that could not be opened does
/// not count.
pub(super) fn has_ended(error: &RedisError) -> bool {
    use io::ErrorKind as Kind;
    let io = cause(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    let ends = [
        Kind::BrokenPipe,
        Kind::ConnectionReset,
        Kind::ConnectionAborted,
        Kind::UnexpectedEof,
    ];
    io.is_some_and(|io| ends.contains(&io.kind()))
}

/// Returns the source of `error`. If the client shares it between requests in an `Arc`, it is
/// unwrapped.
pub(super) fn cause(error: &RedisError) -> Option<&(dyn Error + 'static)> {
    type Shared = Arc<dyn Error + Send + Sync>;
    let source = error.source()?;
    Some(match source.downcast_ref::<Shared>() {
        Some(shared) => &**shared,
        None => source,
    })
}

/// Returns the code of an error of the server. If a script has failed, this is the code of the
/// command that failed in it.
fn code_of(error: &RedisError) -> Option<&str> {
    /// The codes with which a command can fail in a script. Before Redis 7, the code follows a dash
    /// in the text of the script's error.
    const REASONS: [&str; 6] = [
        "OOM",
        "READONLY",
        "MISCONF",
        "NOREPLICAS",
        "NOPERM",
        "WRONGTYPE",
    ];
    /// The error texts if a script lacks a permission: the text of Redis, and the text of Valkey
    /// from version 9 on.
    const LACKS: [&str; 2] = ["can't run this command", "ACL failure in script"];
    let code = error.code()?;
    let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if code.is_empty() || code.len() > 32 || !code.chars().all(is_code) {
        return Some("an error without a code");
    }
    let text = error.detail().unwrap_or_default();
    if code != "ERR" {
        return Some(code);
    }
    if LACKS.iter().any(|lacks| text.contains(lacks)) {
        return Some("NOPERM");
    }
    if text.contains("DB index is out of range") || text.contains("invalid DB index") {
        return Some("ERR, there is no database of that number");
    }
    let mut words = text.split(' ').filter_map(|word| word.strip_prefix('-'));
    let reason = words.find_map(|word| REASONS.into_iter().find(|reason| *reason == word));
    Some(reason.unwrap_or(code))
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use redis::make_extension_error;

    use super::*;

    #[test]
    fn only_six_whole_numbers_are_an_answer_to_a_draw() {
        let read = |numbers: &[f64]| {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            floats(&Value::BulkString(bytes.collect()))
        };
        let most = 9_007_199_254_740_992.0;
        assert_eq!(
            read(&[3.0, 0.0, -1.0, most, -most, 7.0]),
            Some([3, 0, -1, 1 << 53, -(1 << 53), 7])
        );
        for bad in [0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, most + 2.0] {
            assert_eq!(read(&[1.0, 1.0, bad, 1.0, 1.0, 1.0]), None, "{bad}");
        }
        assert_eq!(read(&[1.0; 5]), None);
        assert_eq!(read(&[1.0; 7]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(floats(&Value::BulkString(vec![0; 47])), None);
        assert_eq!(floats(&Value::Nil), None);
    }

    #[test]
    fn an_unreachable_server_is_reported_with_its_cause() {
        use std::net::ToSocketAddrs;
        // A name with an empty label is invalid, so no DNS server is queried.
        let unknown = ("cache..example", 6379).to_socket_addrs().unwrap_err();
        let other = io::Error::other("failed to lookup address information: Try again");
        let of = |kind: io::ErrorKind| io::Error::from(kind);
        for (error, expected) in [
            (unknown, "the name of the host is not known"),
            (other, "the name of the host is not known"),
            (
                of(io::ErrorKind::ConnectionRefused),
                "the connection was refused: nobody listens at the address",
            ),
            (
                of(io::ErrorKind::NotFound),
                "there is no socket at the path",
            ),
            (
                of(io::ErrorKind::PermissionDenied),
                "the address may not be used, for want of a right",
            ),
            (
                of(io::ErrorKind::HostUnreachable),
                "there is no way to the host",
            ),
            (of(io::ErrorKind::BrokenPipe), "the connection is gone"),
        ] {
            let what = format!("{error:?}");
            let loggable = loggable(&error.into());
            let expected = StoreError::new(StoreErrorKind::Unreachable, expected);
            assert_eq!(loggable, expected, "{what}");
        }
    }

    /// Each answer was recorded from a server of the version named in its comment.
    #[test]
    fn errors_in_scripts_are_named_by_their_reason() {
        use StoreErrorKind as Kind;
        for (code, text, kind, named) in [
            (
                "ERR",
                "Error running script: @user_script:7: -OOM command not allowed", // Redis 6.2
                Kind::Full,
                "OOM",
            ),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand", // Redis 7.0
                Kind::Refused,
                "NOPERM",
            ),
            (
                "ERR",
                "ACL failure in script: User shop has no permissions to run the 'time' command", // Valkey 9.1
                Kind::Refused,
                "NOPERM",
            ),
            (
                "NOREPLICAS",
                "Not enough good replicas to write.",
                Kind::ReadOnly,
                "NOREPLICAS",
            ),
            ("ERR", "something else", Kind::Refused, "ERR"),
            ("hush hush", "", Kind::Refused, "an error without a code"),
        ] {
            let error = make_extension_error(code.to_owned(), Some(text.to_owned()));
            assert_eq!(loggable(&error), StoreError::new(kind, named), "{text}");
        }
    }
}
