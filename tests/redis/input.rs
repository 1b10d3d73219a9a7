//! Everything that cannot be used is refused with the name of the field, its value unless that
//! may be a secret, and what is allowed.

use tower_sentinel::store::RedisStore;

const PLACE: &str = "must be `redis://host:port`, with TLS `rediss://host:port`, or \
                     `redis+unix:///path`";

const ALIKE: &str = "differs from urls[0], must have the same scheme, user and password";

/// Asserts that `made` is refused in words that begin with `expected`, and show no secret.
fn assert_refused<T: std::fmt::Debug, E: std::fmt::Display>(made: Result<T, E>, expected: &str) {
    let told = made.map_err(|error| error.to_string());
    let told = told.expect_err(expected);
    assert!(
        told.starts_with(expected),
        "{told:?} instead of {expected:?}"
    );
    assert!(!told.contains("hush"), "{told}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    let none = format!("url is not that of a Redis server, {PLACE}");
    for url in [
        "",
        "cache",
        "cache:6379",
        "redis://",
        "redis://:hush@",
        "http://:hush@cache",
        "redis://cache:hush",
        "redis://cache:65536",
        "redis://cache/hush",
        "redis://ca che",
    ] {
        assert_refused(RedisStore::new(url), &none);
    }
    let unchecked = "url has `#insecure`, must be left out: certificates are always checked";
    assert_refused(RedisStore::new("rediss://:hush@cache/#insecure"), unchecked);
}

/// Else the database of `?db=4` would be 0, and `?tls=true` would send a password in the clear.
#[test]
fn a_parameter_that_is_none_is_refused_by_its_name() {
    for (url, parameter) in [
        ("redis://:hush@cache?db=4", "db"),
        ("redis://cache:6379/?tls=true", "tls"),
        ("redis://cache/0?protocol=resp3", "protocol"),
        ("redis://cache?x", "x"),
        ("rediss://cache/?ssl_cert_reqs=none", "ssl_cert_reqs"),
        (
            "redis+unix:///a/socket?db=1&user=ann&pass=hush&timeout=3",
            "timeout",
        ),
        ("unix:///a/socket?password=hush", "password"),
    ] {
        let expected = format!("url has the parameter {parameter:?}, must have none behind a host");
        assert_refused(RedisStore::new(url), &expected);
        let expected = expected.replace("url", "sentinels[0]");
        assert_refused(RedisStore::sentinel("redis://shop", [url]), &expected);
    }
    for url in [
        "redis://ann:hush@cache:6379/4",
        "redis://cache?",
        "redis+unix:///a/socket?db=1&user=ann&pass=hush",
    ] {
        assert!(RedisStore::new(url).is_ok(), "{url}");
    }
}

#[test]
fn servers_that_are_none_are_refused_by_their_place() {
    let sentinels = |url: &str, all: &[&str]| RedisStore::sentinel(url, all);
    let one = ["redis://s1:26379"];
    for (made, expected) in [
        (
            sentinels("redis+unix:///a/socket", &one),
            "url is that of a socket, must have the name of a master as its host".to_owned(),
        ),
        (
            sentinels("http://shop", &one),
            format!("url is not that of a Redis server, {PLACE}"),
        ),
        (
            sentinels("redis://shop", &[]),
            "sentinels is empty, must have at least one URL".to_owned(),
        ),
        (
            sentinels("redis://shop", &["redis://s1", "http://:hush@s2"]),
            format!("sentinels[1] is not that of a Redis server, {PLACE}"),
        ),
        (
            sentinels("redis://shop", &["redis+unix:///a/socket"]),
            "sentinels[0] is that of a socket, must be `redis://host:port`".to_owned(),
        ),
        (
            RedisStore::cluster([""; 0]),
            "urls is empty, must have at least one URL".to_owned(),
        ),
        (
            RedisStore::cluster(["redis://a", "b:7000"]),
            format!("urls[1] is not that of a Redis server, {PLACE}"),
        ),
        (
            RedisStore::cluster(["redis://a", "redis+unix:///a/socket"]),
            "urls[1] is that of a socket, must be `redis://host:port`".to_owned(),
        ),
        (
            RedisStore::cluster(["redis://a/3"]),
            "urls[0] is the database 3, must be 0 in a Cluster".to_owned(),
        ),
        (
            RedisStore::cluster(["redis://:hush@a", "redis://:hush@b", "redis://:other@c"]),
            format!("urls[2] {ALIKE}"),
        ),
        (
            RedisStore::cluster(["redis://a", "redis://:hush@b"]),
            format!("urls[1] {ALIKE}"),
        ),
        (
            RedisStore::cluster(["redis://ann@a", "redis://a"]),
            format!("urls[1] {ALIKE}"),
        ),
        (
            RedisStore::cluster(["redis://a", "rediss://b"]),
            format!("urls[1] {ALIKE}"),
        ),
    ] {
        assert_refused(made, &expected);
    }
}

#[test]
fn a_certificate_or_prefix_that_is_none_is_refused() {
    let plain = || RedisStore::new("redis://:hush@cache").unwrap();
    let secure = || RedisStore::new("rediss://:hush@cache").unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let scheme = "url does not begin with `rediss://`, must where there is a certificate";
    let none = "certificate is none, must be one or several in PEM";
    assert_refused(plain().with_root_certificate(pem), scheme);
    assert_refused(secure().with_root_certificate(""), none);
    assert_refused(secure().with_root_certificate("hush"), none);
    let other = pem
        .replace("hello", "")
        .replace("CERTIFICATE", "PRIVATE KEY");
    assert_refused(secure().with_root_certificate(other), none);
    assert_refused(
        secure().with_root_certificate(pem),
        "certificate cannot be read, must be in PEM",
    );
    let master = RedisStore::sentinel("redis://shop", ["rediss://s1"]).unwrap();
    assert_refused(
        master.with_root_certificate(pem),
        "certificate cannot be read",
    );
    let allowed = "must be 1 to 32 of the characters A-Z a-z 0-9 _ . : -";
    for prefix in ["", "a b", "{a}", "ä", "\0", &"x".repeat(33)] {
        let expected = format!("prefix is {prefix:?}, {allowed}");
        assert_refused(plain().with_prefix(prefix), &expected);
    }
}
