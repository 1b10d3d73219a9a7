//! The limiter without an engine.

use std::net::IpAddr;

use super::*;
use crate::hot::{InvalidLimiter, KeyedLimiter};

fn passed(limiter: &KeyedLimiter, now: u64, key: &str) -> usize {
    let pass = |_: &u32| limiter.try_acquire(at(now), key, 1).is_ok();
    (0..1_000).take_while(pass).count()
}

#[test]
fn each_key_has_its_quota_and_a_refusal_says_until_when() {
    let limiter = KeyedLimiter::per_second(5.0).burst(2).build(at(0)).unwrap();
    assert_eq!(passed(&limiter, 0, "ann"), 7);
    assert_eq!(passed(&limiter, 0, "bob"), 7);
    let room_at = |n| {
        limiter
            .try_acquire(at(100), "ann", n)
            .unwrap_err()
            .room_at()
    };
    assert_eq!(room_at(1), Some(at(200)));
    assert_eq!(room_at(7), Some(at(1_400)));
    assert_eq!(room_at(8), None);
    assert_eq!(limiter.left(at(400), "ann"), 2);
    assert!(limiter.try_acquire(at(0), "ann", 0).is_ok());
}

#[test]
fn a_window_holds_no_more_than_its_threshold() {
    let limiter = KeyedLimiter::per(5, ms(100)).window().build(at(0)).unwrap();
    assert_eq!(passed(&limiter, 49, "ann"), 5);
    assert_eq!(passed(&limiter, 99, "ann"), 0);
    let refused = limiter.try_acquire(at(99), "ann", 1).unwrap_err();
    assert_eq!(refused.room_at(), Some(at(100)));
    assert_eq!(passed(&limiter, 100, "ann"), 5);
}

#[test]
fn keys_without_a_place_share_one_quota() {
    let limiter = KeyedLimiter::per_second(5.0)
        .max_keys(1)
        .build(at(0))
        .unwrap();
    let sum: usize = (0..100)
        .map(|key| passed(&limiter, 0, &key.to_string()))
        .sum();
    // One set of eight, and the word that the others share: five of these calls pass,
    // and one of each of the 92 keys is refused.
    assert_eq!((sum, limiter.overflows()), (9 * 5, 5 + 92));
    assert_eq!(passed(&limiter, 5_000, "new"), 5);
}

#[test]
fn memory_is_taken_once() {
    let mut built = None;
    let info = allocation_counter::measure(|| {
        let builder = KeyedLimiter::per_second(5.0).max_keys(10_000);
        built = builder.build(at(0)).ok();
    });
    let limiter = built.unwrap();
    let before = limiter.footprint();
    assert!((320_000..325_000).contains(&before), "{before}");
    let heap = info.bytes_current as usize;
    assert_eq!(before, heap + size_of::<KeyedLimiter>());
    let info = allocation_counter::measure(|| {
        for key in 0..50_000_u64 {
            let _ = limiter.try_acquire(at(0), key, 1);
            let _ = limiter.try_acquire(at(0), IpAddr::from([10, 0, 0, key as u8]), 1);
        }
    });
    assert_eq!((info.count_total, limiter.footprint()), (0, before));
}

#[test]
fn a_bad_limiter_is_an_error_that_names_what_is_allowed() {
    let second = |threshold: f64| KeyedLimiter::per_second(threshold);
    let year = Duration::from_secs(366 * 86_400);
    let odd = ms(1) + Duration::from_nanos(1);
    let cases = [
        (
            second(-0.1),
            "threshold is -0.1, must be between 0 and 2147483647",
        ),
        (
            second(f64::NAN),
            "threshold is NaN, must be between 0 and 2147483647",
        ),
        (
            second(2_147_483_648.0),
            "threshold is 2147483648, must be between 0 and 2147483647",
        ),
        (
            second(1_048_576.0).window(),
            "threshold is 1048576, must be between 0 and 1048575",
        ),
        (
            second(1.0).burst(1 << 31),
            "burst is 2147483648, must be between 0 and 2147483647",
        ),
        (
            second(1.0).burst(1).window(),
            "burst is 1, must be 0 for a window",
        ),
        (
            KeyedLimiter::per(1, ms(0)),
            "interval is 0ns, must be between 1 ms and 366 days",
        ),
        (
            KeyedLimiter::per(1, year + ms(1)),
            "interval is 31622400.001s, must be between 1 ms and 366 days",
        ),
        (
            KeyedLimiter::per(1, odd).window(),
            "interval is 1.000001ms, must be a multiple of 2 ns for a window",
        ),
        (
            second(1.0).max_keys(0),
            "max_keys is 0, must be between 1 and 67108864",
        ),
        (
            second(1.0).max_keys((1 << 26) + 1),
            "max_keys is 67108865, must be between 1 and 67108864",
        ),
    ];
    for (builder, expected) in cases {
        let error: InvalidLimiter = builder.build(at(0)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(KeyedLimiter::per(1, odd).build(at(0)).is_ok());
    for good in [
        second(0.0),
        second(2_147_483_647.0),
        second(1.0).burst(2_147_483_647),
        second(1_048_575.0).window(),
    ] {
        assert!(good.max_keys(1).build(at(0)).is_ok());
    }
}

#[test]
fn limiters_are_shared_by_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<KeyedLimiter>();
    let limiter = KeyedLimiter::per_second(1_000.0).build(at(0)).unwrap();
    let passed = std::thread::scope(|scope| {
        [(); 4]
            .map(|()| scope.spawn(|| passed(&limiter, 0, "hot")))
            .map(|thread| thread.join().unwrap())
    });
    assert_eq!(passed.iter().sum::<usize>(), 1_000);
}
