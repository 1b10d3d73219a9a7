//! Tests of the limiter without an engine.

use std::net::IpAddr;
use std::sync::Arc;

use super::*;
use crate::base::invalid::InvalidSetting;
use crate::base::sync::Lock;
use crate::clock::{Clock, ManualClock, MonotonicClock};
use crate::keyed::KeyedLimiter;

/// Makes calls at `now` until one is refused. Returns how many pass.
fn passed(limiter: &KeyedLimiter, now: u64, key: &str) -> usize {
    let pass = |_: &u32| limiter.try_acquire(at(now), key, 1).is_ok();
    (0..1_000).take_while(pass).count()
}

#[test]
fn each_key_has_its_quota_and_a_refusal_says_until_when() {
    let limiter = KeyedLimiter::per_second(5.0).burst(2).build(at(0)).unwrap();
    assert_eq!(passed(&limiter, 0, "ann"), 7);
    assert_eq!(passed(&limiter, 0, "bob"), 7);
    let available_at = |n| {
        limiter
            .try_acquire(at(100), "ann", n)
            .unwrap_err()
            .available_at()
    };
    assert_eq!(available_at(1), Some(at(200)));
    assert_eq!(available_at(7), Some(at(1_400)));
    assert_eq!(available_at(8), None);
    assert_eq!(limiter.left(at(400), "ann"), 2);
    assert!(limiter.try_acquire(at(0), "ann", 0).is_ok());
}

#[test]
fn a_window_holds_no_more_than_its_threshold() {
    let limiter = KeyedLimiter::per(5, ms(100)).window().build(at(0)).unwrap();
    assert_eq!(passed(&limiter, 49, "ann"), 5);
    assert_eq!(passed(&limiter, 99, "ann"), 0);
    let refused = limiter.try_acquire(at(99), "ann", 1).unwrap_err();
    assert_eq!(refused.available_at(), Some(at(100)));
    assert_eq!(passed(&limiter, 100, "ann"), 5);
}

/// Like [`passed`], but at the time of the limiter's clock.
fn checked<C: Clock>(limiter: &KeyedLimiter<C>, key: &str) -> usize {
    let pass = |_: &u32| limiter.check(key).is_ok();
    (0..1_000).take_while(pass).count()
}

#[test]
fn a_limiter_with_a_clock_refills_by_it() {
    let clock = ManualClock::starting_at(at(10_000));
    let limiter = KeyedLimiter::per_second(5).burst(2);
    let limiter = limiter.build_with(clock.clone()).unwrap();
    assert_eq!(limiter.now(), at(10_000));
    assert_eq!([checked(&limiter, "ann"), checked(&limiter, "bob")], [7; 2]);
    let refused = limiter.check("ann").unwrap_err();
    assert_eq!(refused.available_at(), Some(at(10_200)));
    assert_eq!(refused.retry_after(), Some(ms(200)));
    clock.advance(ms(150));
    let refused = limiter.check("ann").unwrap_err();
    assert_eq!(refused.retry_after(), Some(ms(50)));
    clock.advance(ms(50));
    assert_eq!(checked(&limiter, "ann"), 1);
    let never = limiter.try_acquire(limiter.now(), "ann", 8).unwrap_err();
    assert_eq!(never.retry_after(), None);
}

#[test]
fn a_limiter_with_a_clock_does_not_refill_when_the_clock_steps_back() {
    for builder in [
        KeyedLimiter::per_second(5),
        KeyedLimiter::per_second(5).window(),
    ] {
        let clock = ManualClock::starting_at(at(7_200_000));
        let limiter = builder.build_with(clock.clone()).unwrap();
        assert_eq!(checked(&limiter, "ann"), 5);
        clock.set(at(3_600_000));
        for _ in 0..9 {
            assert_eq!(checked(&limiter, "ann"), 0);
            clock.advance(ms(100));
        }
        // The limiter accepts the earlier time once the clock has stayed back for a second or two.
        clock.advance(ms(3_000));
        assert!(
            limiter.check("ann").is_ok() || {
                clock.advance(ms(3_000));
                limiter.check("ann").is_ok()
            }
        );
    }
}

/// A clock that returns these readings in order, and then repeats the last reading.
#[derive(Debug)]
struct Readings(Lock<Vec<Tick>>);

impl Clock for Readings {
    fn now(&self) -> Tick {
        let mut rest = self.0.lock();
        if rest.len() > 1 {
            rest.remove(0)
        } else {
            rest[0]
        }
    }
}

#[test]
fn a_limiter_with_a_clock_ignores_a_single_wrong_reading() {
    // The first, second or third reading of a call is an hour ahead. The limiter is built at 10 s.
    for wrong in 0..3 {
        let mut readings = vec![at(10_000); 20];
        readings.extend((0..6).map(|n| at(if n == wrong { 3_610_000 } else { 10_000 })));
        let readings = Arc::new(Readings(Lock::new(readings)));
        let builder = KeyedLimiter::per_second(5);
        let limiter = builder.build_with(readings.clone()).unwrap();
        let passed = (0..100).filter(|_| limiter.check("ann").is_ok()).count();
        assert_eq!(passed, 5, "{wrong}");
        assert_eq!(limiter.now(), at(10_000), "{wrong}");
    }
}

#[test]
fn the_clock_of_a_limiter_is_read_once_for_a_call() {
    #[derive(Debug, Default)]
    struct Counting(Lock<u64>);
    impl Clock for Counting {
        fn now(&self) -> Tick {
            *self.0.lock() += 1;
            at(10_000 + *self.0.lock())
        }
    }
    let clock = Arc::new(Counting::default());
    let limiter = KeyedLimiter::per_second(5)
        .build_with(clock.clone())
        .unwrap();
    let before = *clock.0.lock();
    for _ in 0..100 {
        let _ = limiter.check("ann");
    }
    assert_eq!(*clock.0.lock() - before, 100);
}

#[test]
fn a_bad_limiter_with_a_clock_is_an_error_too() {
    let builder = KeyedLimiter::per_second(-1);
    let error = builder.build_with(MonotonicClock::new()).unwrap_err();
    assert!(error.to_string().starts_with("threshold is -1"));
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
    // Eight keys have slots. The remaining 92 keys share a word: five of their calls pass, and one
    // call of each key is refused.
    assert_eq!((sum, limiter.overflows()), (9 * 5, 5 + 92));
    assert_eq!(passed(&limiter, 5_000, "new"), 5);
}

#[test]
fn memory_is_allocated_once() {
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
            KeyedLimiter::per(1_048_576.0, ms(999)).window(),
            "threshold is 1048576, must be between 0 and 1048575",
        ),
        (
            second(1.0).burst(1_u32 << 31),
            "burst is 2147483648, must be between 0 and 2147483647",
        ),
        (
            second(1.0).burst(1).window(),
            "burst is 1, must be 0 for a window",
        ),
        (
            KeyedLimiter::per(1, ms(0)),
            "interval is 0ns, must be between 1 µs and 366 days",
        ),
        (
            KeyedLimiter::per(1, year + ms(1)),
            "interval is 31622400.001s, must be between 1 µs and 366 days",
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
        let error: InvalidSetting = builder.build(at(0)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(KeyedLimiter::per(1, odd).build(at(0)).is_ok());
    for good in [
        second(0.0),
        second(2_147_483_647.0),
        second(1.0).burst(2_147_483_647),
        second(2_147_483_647.0).window(),
        KeyedLimiter::per(1_048_575.0, ms(1)).window(),
    ] {
        assert!(good.max_keys(1).build(at(0)).is_ok());
    }
}

#[test]
fn limiters_are_shared_by_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<KeyedLimiter>();
    shared::<KeyedLimiter<MonotonicClock>>();
    let limiter = KeyedLimiter::per_second(1_000.0).build(at(0)).unwrap();
    let passed = std::thread::scope(|scope| {
        [(); 4]
            .map(|()| scope.spawn(|| passed(&limiter, 0, "hot")))
            .map(|thread| thread.join().unwrap())
    });
    assert_eq!(passed.iter().sum::<usize>(), 1_000);
}
