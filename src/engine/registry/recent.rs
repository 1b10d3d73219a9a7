//! A thread's cache of the resources that it has called recently, which is searched before the
//! table.
//!
//! Most threads call the same few resources again and again. So each thread has a small
//! direct-mapped cache of the resources that it has found in the table. The cache holds *weak*
//! references. They do not keep a resource alive, nor its engine with its hooks and its clock. They
//! also do not prevent the table from evicting a resource. A resource that is found here is kept
//! alive while its call runs, like a resource from the table.
//!
//! A [`Fingerprint`] of the name selects the slot. The resource in the slot is compared in full. A
//! resource of another engine, with another name, made by older rules, or removed from the table is
//! a miss, and the table is searched. A name takes the slot of another name only after [some
//! misses](MISSES_TO_REPLACE). Otherwise, two names that are called alternately would evict each
//! other with every call.

use std::cell::RefCell;
use std::sync::Arc as StdArc;

use papaya::Equivalent;

use crate::base::sync::{Arc, Weak, downgrade, is_reference, thread_local};
use crate::call::Key;
use crate::engine::context::EngineContext;
use crate::engine::resource::{Resource, ResourceQuery};
use crate::stat::Resident;

/// The number of resources that a thread caches, at 24 bytes each.
const SLOTS: usize = 1 << SLOT_BITS;
/// The bits of a fingerprint that select a slot.
const SLOT_BITS: u32 = 6;
/// The number of calls that must miss at a slot before its resource is replaced.
const MISSES_TO_REPLACE: u32 = 16;

thread_local! {
    static RECENT: RefCell<[RecentSlot; SLOTS]> = const { RefCell::new([RecentSlot::EMPTY; SLOTS]) };
}

/// A cheap hash of a name and its engine. Different names can have the same fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// One slot of the cache.
struct RecentSlot {
    fingerprint: Fingerprint,
    /// The number of calls that have missed at this slot since the resource was cached.
    misses: u32,
    resource: Option<Weak<Resource>>,
}

/// Returns the resource of `query`, if it is in the cache of this thread. The resource must be in
/// the table of the engine of `shared`, and made by its current rules.
#[inline(always)]
pub(crate) fn find(
    fingerprint: Fingerprint,
    query: &ResourceQuery<'_>,
    shared: &StdArc<EngineContext>,
) -> Option<Arc<Resource>> {
    // While the thread ends, the cache may already be dropped.
    let found = RECENT.try_with(|slots| {
        let slots = slots.borrow();
        let slot = &slots[fingerprint.slot()];
        if slot.fingerprint != fingerprint {
            return None;
        }
        slot.resource.as_ref()?.upgrade()
    });
    let found = found.ok()??;
    let is_it = StdArc::ptr_eq(found.shared(), shared)
        && query.equivalent(found.key())
        && found.is_fresh()
        && found.is_listed();
    is_it.then_some(found)
}

/// Notes that `resource` was not in the cache. Caches it if its slot is free or has been missed
/// often enough.
pub(crate) fn note_miss(fingerprint: Fingerprint, resource: &Arc<Resource>) {
    let _ = RECENT.try_with(|slots| {
        let slot = &mut slots.borrow_mut()[fingerprint.slot()];
        slot.misses += 1;
        if slot.misses >= MISSES_TO_REPLACE || slot.is_free() {
            *slot = RecentSlot {
                fingerprint,
                misses: 0,
                resource: Some(downgrade(resource)),
            };
        }
    });
}

/// Removes `resource` from the thread's cache, so that its next call searches the table.
#[cold]
pub(crate) fn forget(resource: &Resource) {
    let _ = RECENT.try_with(|slots| {
        for slot in slots.borrow_mut().iter_mut() {
            let kept = slot.resource.as_ref();
            if kept.is_some_and(|kept| is_reference(kept, resource)) {
                *slot = RecentSlot::EMPTY;
            }
        }
    });
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Computes the fingerprint of a name in the engine of `shared`; `None` if the name is not a
    /// text.
    #[inline(always)]
    pub(crate) fn of(query: &ResourceQuery<'_>, shared: &StdArc<EngineContext>) -> Option<Self> {
        let (first, text) = match *query.name {
            Key::Str(text) => ("", text),
            Key::Joined(first, second) => (first, second),
            _ => return None,
        };
        let beginning = first.as_bytes().first().copied().unwrap_or_default();
        let lengths = (first.len() << 8 ^ text.len()) as u64;
        let small = lengths ^ u64::from(beginning) << 24 ^ (query.direction as u64) << 23;
        let engine = StdArc::as_ptr(shared) as usize as u64;
        let mixed = sample(text.as_bytes()) ^ small.rotate_left(32) ^ engine;
        Some(Self(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    #[inline]
    const fn slot(self) -> usize {
        (self.0 >> (u64::BITS - SLOT_BITS)) as usize
    }
}

/// Mixes the first, the last and the middle bytes of `text`.
#[inline(always)]
fn sample(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let middle = text[text.len() / 2 - 4..].first_chunk().unwrap_or(last);
        let [first, middle, last] = [first, middle, last].map(|it| u64::from_le_bytes(*it));
        first.rotate_left(13) ^ middle.rotate_left(29) ^ last
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
    } else {
        text.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

// === impl RecentSlot ===

impl RecentSlot {
    const EMPTY: Self = Self {
        fingerprint: Fingerprint(0),
        misses: 0,
        resource: None,
    };

    /// Returns whether the slot is empty, or its resource was dropped.
    fn is_free(&self) -> bool {
        let kept = self.resource.as_ref();
        kept.is_none_or(|resource| resource.strong_count() == 0)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::call::{Call, Direction};
    use crate::clock::ManualClock;
    use crate::engine::call::verdict::Verdict;
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;

    /// Runs `f` with the fingerprint of `key` and a query for it.
    fn with<R>(
        sentinel: &Sentinel,
        key: Key<'_>,
        f: impl FnOnce(Fingerprint, &ResourceQuery<'_>, &StdArc<EngineContext>) -> R,
    ) -> R {
        let shared = sentinel.registry().shared();
        let query = ResourceQuery {
            direction: Direction::Inbound,
            name: &key,
        };
        f(Fingerprint::of(&query, shared).unwrap(), &query, shared)
    }

    fn kept(sentinel: &Sentinel, name: &str) -> Option<Arc<Resource>> {
        with(sentinel, Key::Str(name), find)
    }

    fn call(sentinel: &Sentinel, name: &str) -> bool {
        matches!(sentinel.try_enter(Call::new(name)), Verdict::Pass(_))
    }

    fn passed(sentinel: &Sentinel, name: &str) -> u64 {
        sentinel.node(name).map_or(0, |node| node.totals().pass())
    }

    #[test]
    fn a_called_resource_is_found_without_the_table() {
        let sentinel = Sentinel::new(Rules::new());
        // The first call makes the resource, the second call finds it in the table.
        for _ in 0..2 {
            assert!(kept(&sentinel, "job").is_none());
            assert!(call(&sentinel, "job"));
        }
        let found = kept(&sentinel, "job").unwrap();
        let now = found.shared().time.read();
        let known = sentinel.registry().known(Direction::Inbound, "job", now);
        assert!(Arc::ptr_eq(&found, &known.unwrap()));
        // Another thread has its own slots.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| kept(&sentinel, "job").is_none());
            assert!(other.join().unwrap());
        });
    }

    #[test]
    fn names_with_one_fingerprint_are_distinguished() {
        let sentinel = Sentinel::new(Rules::new());
        let [one, other] = [1, 2].map(|n| format!("/name/of/{n}/{}", "x".repeat(30)));
        let fingerprint =
            |name: &str| with(&sentinel, Key::Str(name), |fingerprint, _, _| fingerprint);
        assert_eq!(fingerprint(&one), fingerprint(&other));
        for _ in 0..100 {
            assert!(call(&sentinel, &one));
            assert!(call(&sentinel, &other));
            assert!(call(&sentinel, &other));
        }
        assert_eq!(passed(&sentinel, &one), 100);
        assert_eq!(passed(&sentinel, &other), 200);
    }

    #[test]
    fn engines_are_distinguished() {
        let [one, other] = [1, 2].map(|limit| Sentinel::new(FlowRule::per_second("job", limit)));
        for sentinel in [&one, &other] {
            call(sentinel, "job");
            call(sentinel, "job");
        }
        assert_eq!(
            [&one, &other].map(|sentinel| passed(sentinel, "job")),
            [1, 2]
        );
        // An equal fingerprint alone is no match.
        with(&one, Key::Str("job"), |fingerprint, query, shared| {
            assert!(find(fingerprint, query, shared).is_some());
            assert!(find(fingerprint, query, other.registry().shared()).is_none());
        });
    }

    #[test]
    fn a_resource_of_older_rules_is_not_found() {
        let clock = ManualClock::new();
        let rule = |limit| FlowRule::per_second("job", limit);
        let sentinel = Sentinel::builder().rules(rule(9)).clock(clock).build();
        for _ in 0..3 {
            assert!(call(&sentinel, "job"));
        }
        assert!(kept(&sentinel, "job").is_some());
        sentinel.reload(rule(3).into());
        assert!(kept(&sentinel, "job").is_none());
        assert!(!call(&sentinel, "job"), "three have passed already");
    }

    #[test]
    fn a_resource_that_left_the_table_is_not_found() {
        let clock = ManualClock::new();
        let sentinel = Sentinel::builder()
            .rules(Rules::new())
            .clock(clock.clone())
            .max_resources(1)
            .build();
        for _ in 0..2 {
            call(&sentinel, "one");
        }
        assert!(kept(&sentinel, "one").is_some());
        clock.advance(Duration::from_secs(3_600));
        // While a reader holds the table, an entry that left it is not freed.
        let reader = sentinel.registry().resources().guard();
        call(&sentinel, "other");
        assert!(kept(&sentinel, "one").is_none());
        drop(reader);
        assert!(sentinel.node("one").is_none());
    }

    #[test]
    fn a_replaced_resource_is_not_found_even_with_newer_rules() {
        let sentinel = Sentinel::new(Rules::new());
        let registry = sentinel.registry();
        let now = registry.shared().time.read();
        let known = || registry.known(Direction::Inbound, "job", now).unwrap();
        for _ in 0..2 {
            call(&sentinel, "job");
        }
        // A call holds the resource, which is then replaced.
        let old = kept(&sentinel, "job").unwrap();
        sentinel.reload(FlowRule::per_second("job", 9).into());
        assert!(!Arc::ptr_eq(&known(), &old));
        sentinel.reload(Rules::new());
        // A call has found the old resource before both reloads, and continues only now.
        assert!(old.take_over(&registry.rules()));
        assert!(old.is_fresh());
        assert!(kept(&sentinel, "job").is_none());
        call(&sentinel, "job");
        assert!(!Arc::ptr_eq(&known(), &old));
    }

    #[test]
    fn the_cache_keeps_no_dropped_engine_alive() {
        let sentinel = Sentinel::new(FlowRule::per_second("job", 9));
        for _ in 0..3 {
            call(&sentinel, "job");
        }
        let kept = kept(&sentinel, "job").map(|kept| StdArc::downgrade(kept.shared()));
        assert!(
            kept.as_ref()
                .is_some_and(|shared| shared.strong_count() > 0)
        );
        drop(sentinel);
        assert!(kept.is_some_and(|shared| shared.strong_count() == 0));
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn the_cache_has_the_documented_size() {
        assert_eq!(size_of::<[RecentSlot; SLOTS]>(), 1_536);
        assert_eq!(crate::base::sync::shared_size::<Resource>(), 200);
    }

    /// Returns a name that has the same slot in the engine `other` as `name` has in `sentinel`.
    fn rival(sentinel: &Sentinel, name: &str, other: &Sentinel) -> String {
        let slot = |sentinel: &Sentinel, name: &str| {
            with(sentinel, Key::Str(name), |fingerprint, _, _| {
                fingerprint.slot()
            })
        };
        (0..)
            .map(|n| format!("job {n}"))
            .find(|rival| slot(other, rival) == slot(sentinel, name))
            .unwrap()
    }

    #[test]
    fn a_slot_goes_to_another_name_after_some_misses() {
        let sentinel = Sentinel::new(Rules::new());
        let rival = rival(&sentinel, "job", &sentinel);
        for _ in 0..2 {
            call(&sentinel, "job");
        }
        // The first call creates the resource, and the other calls miss the cache.
        for _ in 0..MISSES_TO_REPLACE {
            call(&sentinel, &rival);
            assert!(kept(&sentinel, "job").is_some());
        }
        call(&sentinel, &rival);
        assert!(kept(&sentinel, "job").is_none());
        assert!(kept(&sentinel, &rival).is_some());
    }

    #[test]
    fn the_slot_of_a_dropped_resource_is_free() {
        let [gone, sentinel] = [0; 2].map(|_| Sentinel::new(Rules::new()));
        let rival = rival(&gone, "job", &sentinel);
        for _ in 0..2 {
            call(&gone, "job");
        }
        drop(gone);
        for _ in 0..2 {
            call(&sentinel, &rival);
        }
        assert!(kept(&sentinel, &rival).is_some());
    }

    #[test]
    fn names_of_routes_have_different_fingerprints() {
        let sentinels = [0; 2].map(|_| Sentinel::new(Rules::new()));
        let things = [
            "users", "items", "orders", "carts", "login", "a", "v1/users",
        ];
        let ends = [
            "",
            "/{id}",
            "/{id}/orders",
            "/{id}/items",
            "/search",
            "/{name}",
        ];
        let methods = ["GET", "PUT", "POST", "PATCH", "DELETE"];
        let mut names = 0;
        let mut fingerprints = HashSet::new();
        let mut note = |key: Key<'_>| {
            for sentinel in &sentinels {
                fingerprints.insert(with(sentinel, key, |fingerprint, _, _| fingerprint.0));
                names += 1;
            }
        };
        for path in things
            .map(|thing| ends.map(|end| format!("/{thing}{end}")))
            .as_flattened()
        {
            note(Key::Str(path));
            for method in methods {
                note(Key::Joined(method, path));
                note(Key::Str(&format!("{method} {path}")));
            }
        }
        assert_eq!(fingerprints.len(), names);
    }
}
