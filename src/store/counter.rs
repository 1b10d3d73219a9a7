//! Applies a draw to the value of a counter.
//!
//! A value holds one count of drawn permits for each of the last `k` buckets, and one for the next
//! bucket:
//!
//! ```text
//! bytes   0        8       16     20             16 + 4k
//!         ┌────────┬───────┬──────┬──────┬───────┬──────┐
//!         │ epoch  │ base  │ c[0] │ …    │ c[k-1]│ c[k] │
//!         └────────┴───────┴──────┴──────┴───────┴──────┘
//!           f64 µs   f64     u32 each; c[k-1] counts the bucket `base`, c[k] the next
//! ```
//!
//! All fields are little-endian. `epoch` and `base` are floats because Lua has no other numbers;
//! each is a whole number below 2⁵³. [`apply`] is the reference for the script that a store runs:
//! both give the same answers and the same bytes.

use std::time::Duration;

use super::draw::{Booking, Draw, Drawn, Epoch};

/// The length of `epoch` and `base`, in bytes.
const HEAD: usize = 16;

/// The content of a value.
struct Counter {
    /// When the counter was created, in µs of the store's clock; 0 for a new one.
    epoch: u64,
    /// The number of the bucket in which the value was written.
    base: u64,
    /// The counts of the buckets, oldest first. The last count belongs to the bucket after `base`.
    counts: Vec<u32>,
}

/// See [`Draw::apply`].
pub(super) fn apply(draw: &Draw, value: &[u8], now: Duration) -> (Drawn, Option<Vec<u8>>) {
    let (bucket_us, k) = (draw.bucket_us(), draw.buckets.max(1) as usize);
    let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let mut bucket = now / bucket_us;
    let mut counter = Counter::read(value, k, bucket);
    let mut is_changed = false;
    if counter.base > bucket.saturating_add(1) {
        counter.gather(bucket, draw.limit);
        // The value is written even if nothing is granted. Otherwise each draw would gather the old
        // value again, and the window would stay full until the clock is back where it was.
        is_changed = true;
    } else if counter.base > bucket {
        // The store's clock is one bucket behind the value. The bucket of the value counts as the
        // present one until the clock reaches it.
        bucket = counter.base;
    } else {
        counter.shift_to(bucket);
    }
    let end = (bucket + 1).saturating_mul(bucket_us);
    let rest = Duration::from_micros(end - now);
    if draw.known.0 != 0 && draw.known.0 != counter.epoch {
        let lost = Drawn::Lost {
            rest,
            bucket,
            epoch: Epoch(counter.epoch),
        };
        return (lost, None);
    }
    if counter.epoch == 0 {
        counter.epoch = now;
    }
    // Permits that the process gives back, and permits that its calls took without the store, are
    // counted before the limit is checked.
    if let Some(back) = &draw.back {
        is_changed |= counter.change(back, u32::saturating_sub);
    }
    for add in &draw.add {
        is_changed |= counter.change(add, u32::saturating_add);
    }
    let free = draw.limit.saturating_sub(counter.held(draw.next));
    // Permits that calls wait for are granted first. The process also gets a part of the remaining
    // permits ahead of its calls. The divisor leaves the other part for other processes.
    let mut grant = draw.firm.min(free);
    if draw.soft > 0 && free > grant {
        grant += draw.soft.min((free - grant).div_ceil(draw.divisor.max(1)));
    }
    if grant > 0 {
        let place = if draw.next { k } else { k - 1 };
        counter.counts[place] = counter.counts[place].saturating_add(grant);
        is_changed = true;
    }
    // If no permit is left, the answer contains the time until a permit becomes free, so that the
    // process does not ask before then.
    let mut wait = 0;
    if grant < draw.firm || grant == free {
        wait = (end - now) + counter.buckets_until_room(draw.limit) * bucket_us;
    }
    let drawn = Drawn::Granted {
        permits: grant,
        free: free - grant,
        rest,
        bucket,
        epoch: Epoch(counter.epoch),
        wait: Duration::from_micros(wait),
    };
    (drawn, is_changed.then(|| counter.write()))
}

impl Counter {
    /// Reads the counter in `value`. Returns an empty counter if `value` does not have the length
    /// for `k` buckets.
    fn read(value: &[u8], k: usize, bucket: u64) -> Self {
        let empty = Self {
            epoch: 0,
            base: bucket,
            counts: vec![0; k + 1],
        };
        if value.len() != HEAD + 4 * (k + 1) {
            return empty;
        }
        let mut words = value.chunks_exact(4).map(|word| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(word);
            u32::from_le_bytes(bytes)
        });
        let mut float = || {
            let (low, high) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
            f64::from_bits(u64::from(low) | u64::from(high) << 32)
        };
        let (epoch, base) = (whole(float()), whole(float()));
        Self {
            epoch,
            base,
            counts: words.collect(),
        }
    }

    fn write(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD + 4 * self.counts.len());
        value.extend((self.epoch as f64).to_le_bytes());
        value.extend((self.base as f64).to_le_bytes());
        for count in &self.counts {
            value.extend(count.to_le_bytes());
        }
        value
    }

    /// Moves the sum of all counts, limited to `limit`, to the present bucket. Used when the clock
    /// has stepped back so far that the buckets of the counts are in its future.
    fn gather(&mut self, bucket: u64, limit: u32) {
        let sum: u64 = self.counts.iter().copied().map(u64::from).sum();
        let k = self.counts.len() - 1;
        self.counts.fill(0);
        self.counts[k - 1] = sum.min(limit.into()) as u32;
        self.base = bucket;
    }

    /// Makes `bucket` the present one, and drops the counts that leave the window.
    fn shift_to(&mut self, bucket: u64) {
        let gone = usize::try_from(bucket - self.base).unwrap_or(usize::MAX);
        let gone = gone.min(self.counts.len());
        self.counts.rotate_left(gone);
        let left = self.counts.len() - gone;
        self.counts[left..].fill(0);
        self.base = bucket;
    }

    /// Changes the count of the booking's bucket. Returns false if the value has no count for this
    /// bucket, or if the booking has no permits.
    fn change(&mut self, booking: &Booking, change: impl Fn(u32, u32) -> u32) -> bool {
        let k = self.counts.len() as u64 - 1;
        // `counts[0]` is the bucket `base + 1 - k`.
        let place = (booking.bucket.saturating_add(k)).checked_sub(self.base.saturating_add(1));
        let place = place.filter(|&place| place <= k && booking.permits > 0);
        if let Some(place) = place {
            let count = &mut self.counts[place as usize];
            *count = change(*count, booking.permits);
        }
        place.is_some()
    }

    /// Returns the number of permits that share the limit with a new permit. The new permit is for
    /// the next bucket if `next` is set, and otherwise for the present bucket.
    ///
    /// A window is `k` buckets long. If `k` is above 1, the present bucket is in two windows that
    /// hold counts: the window that ends with it, and the window that ends with the next bucket. A
    /// new permit for the present bucket must fit into both.
    fn held(&self, next: bool) -> u32 {
        let k = self.counts.len() - 1;
        let sum = |counts: &[u32]| counts.iter().fold(0_u32, |sum, &c| sum.saturating_add(c));
        let (present, coming) = (sum(&self.counts[..k]), sum(&self.counts[1..]));
        match (next, k) {
            (true, _) => coming,
            (false, 1) => present,
            (false, _) => present.max(coming),
        }
    }

    /// Returns how many whole buckets pass, from the start of the next bucket, until there is room
    /// for one more permit.
    fn buckets_until_room(&self, limit: u32) -> u64 {
        let k = self.counts.len() - 1;
        let held = |from: usize| {
            let counts = self.counts[from..].iter();
            counts.fold(0_u32, |sum, &count| sum.saturating_add(count))
        };
        let later = (1..=k).find(|&from| held(from) < limit);
        later.unwrap_or(k + 1) as u64 - 1
    }
}

/// Converts a float of a value to an integer. Returns 0 if the float is not a whole number in the
/// range that a store writes.
fn whole(number: f64) -> u64 {
    /// 2⁵³: up to it, a float holds every whole number exactly.
    const MOST: f64 = 9_007_199_254_740_992.0;
    if (0.0..=MOST).contains(&number) {
        number as u64
    } else {
        0
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::store::StoreKey;

    const BUCKET: Duration = Duration::from_millis(100);

    fn draw(buckets: u32, limit: u32, firm: u32) -> Draw {
        Draw {
            key: StoreKey::new("t".into(), 1),
            bucket: BUCKET,
            buckets,
            limit,
            firm,
            soft: 0,
            divisor: 1,
            next: false,
            back: None,
            known: Epoch(0),
            add: Vec::new(),
            kept: None,
            wait: Duration::from_secs(1),
        }
    }

    /// Draws at the time `ms`. Returns the number of permits, and the wait in milliseconds until
    /// more are free.
    fn drawn(value: &mut Vec<u8>, draw: &Draw, ms: u64) -> (u32, u64) {
        let (drawn, new) = draw.apply(value, Duration::from_millis(ms));
        if let Some(new) = new {
            *value = new;
        }
        match drawn {
            Drawn::Granted { permits, wait, .. } => (permits, wait.as_millis() as u64),
            Drawn::Lost { .. } => panic!("nothing was known"),
        }
    }

    #[test]
    fn a_window_of_several_buckets_frees_one_bucket_at_a_time() {
        let mut value = Vec::new();
        assert_eq!(drawn(&mut value, &draw(3, 10, 6), 1_010), (6, 0));
        assert_eq!(drawn(&mut value, &draw(3, 10, 6), 1_110), (4, 190));
        // The six permits of bucket 10 leave the window at 1 300 ms, the four of bucket 11 at
        // 1 400 ms.
        assert_eq!(drawn(&mut value, &draw(3, 10, 1), 1_290), (0, 10));
        assert_eq!(drawn(&mut value, &draw(3, 10, 9), 1_300), (6, 100));
        assert_eq!(drawn(&mut value, &draw(3, 10, 9), 1_400), (4, 200));
    }

    /// A process that draws the last permit learns the wait from the same answer.
    #[test]
    fn the_draw_of_the_last_permit_returns_the_wait_for_more() {
        let mut value = Vec::new();
        assert_eq!(drawn(&mut value, &draw(2, 10, 4), 1_010), (4, 0));
        assert_eq!(drawn(&mut value, &draw(2, 10, 6), 1_110), (6, 90));
        assert_eq!(drawn(&mut value, &draw(2, 10, 0), 1_120), (0, 80));
    }

    #[test]
    fn permits_of_the_next_bucket_count_in_both_windows() {
        let mut value = Vec::new();
        let next = |firm| Draw {
            next: true,
            ..draw(2, 10, firm)
        };
        assert_eq!(drawn(&mut value, &draw(2, 10, 4), 1_010), (4, 0));
        assert_eq!(drawn(&mut value, &next(9), 1_020), (6, 180));
        // The present and the next bucket are both in the window that ends with the next bucket.
        assert_eq!(drawn(&mut value, &draw(2, 10, 1), 1_030).0, 0);
        assert_eq!(drawn(&mut value, &draw(2, 10, 9), 1_100), (0, 100));
        assert_eq!(drawn(&mut value, &draw(2, 10, 9), 1_200), (4, 100));
        // If a window has a single bucket, the next bucket belongs to another window.
        let mut value = Vec::new();
        let next = Draw {
            next: true,
            ..draw(1, 10, 10)
        };
        assert_eq!(drawn(&mut value, &next, 1_020), (10, 180));
        assert_eq!(drawn(&mut value, &draw(1, 10, 9), 1_030), (9, 0));
    }

    #[test]
    fn returned_permits_can_be_drawn_again_and_spent_permits_cannot() {
        let mut value = Vec::new();
        drawn(&mut value, &draw(2, 10, 10), 1_010);
        let booking = |bucket, permits| Booking { bucket, permits };
        let mut back = draw(2, 10, 9);
        back.back = Some(booking(10, 3));
        assert_eq!(drawn(&mut value, &back, 1_110).0, 3);
        let mut late = draw(2, 10, 9);
        late.back = Some(booking(9, 5));
        assert_eq!(
            drawn(&mut value, &late, 1_110).0,
            0,
            "no bucket of the window"
        );
        let mut add = draw(2, 10, 9);
        add.add = vec![booking(11, 5), booking(12, 3), booking(40, 9)];
        assert_eq!(
            drawn(&mut value, &add, 1_210).0,
            0,
            "3 + 3 + 5 are more than 10"
        );
        assert_eq!(
            drawn(&mut value, &draw(2, 10, 9), 1_300).0,
            7,
            "the 3 of bucket 12"
        );
    }

    #[test]
    fn a_draw_ahead_leaves_permits_for_other_processes() {
        let mut value = Vec::new();
        let ahead = Draw {
            soft: 100,
            divisor: 4,
            ..draw(1, 100, 20)
        };
        assert_eq!(
            drawn(&mut value, &ahead, 1_000).0,
            40,
            "20, and a fourth of 80"
        );
        assert_eq!(
            drawn(&mut value, &ahead, 1_000).0,
            30,
            "20, and a fourth of 40"
        );
    }

    #[test]
    fn a_value_of_another_epoch_is_not_changed() {
        let mut value = Vec::new();
        drawn(&mut value, &draw(2, 10, 10), 1_010);
        let mut other = draw(2, 10, 1);
        other.known = Epoch(7);
        let (answer, new) = other.apply(&value, Duration::from_millis(1_020));
        let lost = Drawn::Lost {
            rest: Duration::from_millis(80),
            bucket: 10,
            epoch: Epoch(1_010_000),
        };
        assert_eq!((answer, new), (lost, None));
        other.known = Epoch(1_010_000);
        let (answer, _) = other.apply(&value, Duration::from_millis(1_020));
        assert!(matches!(answer, Drawn::Granted { permits: 0, .. }));
    }

    #[test]
    fn no_permit_is_granted_twice_when_the_clock_steps_back() {
        for (back_ms, free) in [(80, 0), (1_000, 0), (1_000_000, 0)] {
            let mut value = Vec::new();
            drawn(&mut value, &draw(2, 10, 6), 2_000_010);
            drawn(&mut value, &draw(2, 10, 4), 2_000_110);
            let now = 2_000_110 - back_ms;
            assert_eq!(drawn(&mut value, &draw(2, 10, 9), now).0, free, "{back_ms}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_by_an_hour_fills_no_more_than_a_window() {
        let mut value = Vec::new();
        drawn(&mut value, &draw(2, 10, 10), 9_000_010);
        assert_eq!(drawn(&mut value, &draw(2, 10, 1), 5_400_010), (0, 190));
        assert_eq!(drawn(&mut value, &draw(2, 10, 1), 5_400_110), (0, 90));
        assert_eq!(drawn(&mut value, &draw(2, 10, 9), 5_400_200), (9, 0));
    }

    #[test]
    fn values_of_other_formats_count_as_none() {
        for value in [&b""[..], b"x", &[0xff; 28], &[0; 27], &[0xff; 64]] {
            let (answer, new) = draw(2, 10, 3).apply(value, Duration::from_millis(1_010));
            let Drawn::Granted { permits, .. } = answer else {
                panic!("nothing was known")
            };
            // Values of this rule are 28 bytes long, so 28 bytes are read as a value. Its numbers
            // are out of range or expired.
            assert!(permits == 3, "{value:?}");
            assert_eq!(new.unwrap().len(), 28);
        }
    }

    #[test]
    fn draws_and_answers_are_integers_on_the_wire() {
        let mut asked = draw(2, 10, 3);
        asked.back = Some(Booking {
            bucket: 9,
            permits: 1,
        });
        asked.add = vec![Booking {
            bucket: 8,
            permits: 2,
        }];
        let numbers = [100_000, 2, 10, 3, 0, 1, 0, 9, 1, 0, 8, 2];
        assert_eq!(asked.arguments(), numbers);
        let granted = Drawn::read(&[3, 7, 90_000, 10, 5, 0]).unwrap();
        assert!(matches!(
            granted,
            Drawn::Granted {
                permits: 3,
                free: 7,
                bucket: 10,
                ..
            }
        ));
        let lost = Drawn::read(&[-1, 0, 90_000, 10, 5, 0]).unwrap();
        assert!(matches!(
            lost,
            Drawn::Lost {
                epoch: Epoch(5),
                ..
            }
        ));
        let bad: [&[i64]; 6] = [
            &[],
            &[1, 2, 3, 4, 5],
            &[1, 2, 3, 4, 5, 6, 7],
            &[-2, 0, 0, 0, 0, 0],
            &[1 << 40, 0, 0, 0, 0, 0],
            &[1, 0, -1, 0, 0, 0],
        ];
        for answer in bad {
            assert_eq!(Drawn::read(answer), None, "{answer:?}");
        }
    }
}
