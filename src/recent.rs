//! The resources that a thread has called lately: found without the table.
//!
//! Most threads call the same few resources again and again. So each keeps what it has
//! found in the table, and asks here first. What it keeps are *weak* references: they
//! keep neither a resource nor its engine, with its hooks and its clock, alive, and are
//! no holders to the table, which evicts what nobody holds. A resource that is found
//! here is held while its call runs, as one from the table is.
//!
//! A place is found by a few bytes of the name, and then everything is compared. What is
//! not the engine's, has another name, was made by older rules or has left the table is
//! not found: the table is asked, which knows. A name gets a place that another one has
//! after that was missed [some times](PATIENCE): so names in turns on one place do not
//! push each other out with every call.

use std::cell::RefCell;
use std::sync::Arc as StdArc;

use papaya::Equivalent;

use crate::call::Key;
use crate::resource::{Resource, ResourceQuery};
use crate::shared::Shared;
use crate::stat::Resident;
use crate::sync::{Arc, Weak, downgrade, thread_local};

/// How many resources a thread keeps: with 24 bytes for each.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 6;
/// How many calls must have missed at a place before it goes to another name.
const PATIENCE: u32 = 16;

thread_local! {
    static RECENT: RefCell<[Place; PLACES]> = const { RefCell::new([Place::EMPTY; PLACES]) };
}

/// What tells nearly all names of all engines apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

struct Place {
    mark: Mark,
    /// Calls that did not find what they looked for.
    missed: u32,
    resource: Option<Weak<Resource>>,
}

/// The resource that `query` asks for, if this thread keeps it. It is made by the present
/// rules of the engine that `shared` belongs to, and is in its table.
#[inline]
pub(crate) fn find(
    mark: Mark,
    query: &ResourceQuery<'_>,
    shared: &StdArc<Shared>,
) -> Option<Arc<Resource>> {
    // When the thread ends, there may be nothing left to look at.
    let found = RECENT.try_with(|places| {
        let places = places.borrow();
        let place = &places[mark.place()];
        if place.mark != mark {
            return None;
        }
        place.resource.as_ref()?.upgrade()
    });
    let found = found.ok()??;
    let is_it = StdArc::ptr_eq(found.shared(), shared)
        && query.equivalent(found.key())
        && found.is_fresh()
        && found.is_listed();
    is_it.then_some(found)
}

/// Keeps `resource`, which was not found by `mark`, if its place is free.
pub(crate) fn miss(mark: Mark, resource: &Arc<Resource>) {
    let _ = RECENT.try_with(|places| {
        let place = &mut places.borrow_mut()[mark.place()];
        place.missed += 1;
        if place.missed >= PATIENCE || place.is_free() {
            *place = Place {
                mark,
                missed: 0,
                resource: Some(downgrade(resource)),
            };
        }
    });
}

// === impl Mark ===

impl Mark {
    /// The mark of a name, if it is a text, for calls of the engine that `shared` belongs
    /// to.
    #[inline]
    pub(crate) fn of(query: &ResourceQuery<'_>, shared: &StdArc<Shared>) -> Option<Self> {
        let (first, text) = match *query.name {
            Key::Str(text) => ("", text),
            Key::Joined(first, second) => (first, second),
            _ => return None,
        };
        let beginning = first.as_bytes().first().copied().unwrap_or_default();
        let lengths = (first.len() << 8 ^ text.len()) as u64;
        let small = lengths ^ u64::from(beginning) << 24 ^ (query.direction as u64) << 23;
        let engine = StdArc::as_ptr(shared) as usize as u64;
        let mixed = glance(text.as_bytes()) ^ small.rotate_left(32) ^ engine;
        Some(Self(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    #[inline]
    const fn place(self) -> usize {
        (self.0 >> (u64::BITS - PLACE_BITS)) as usize
    }
}

/// Some bytes of `text`: its first, its last, and those in its middle.
#[inline]
fn glance(text: &[u8]) -> u64 {
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

// === impl Place ===

impl Place {
    const EMPTY: Self = Self {
        mark: Mark(0),
        missed: 0,
        resource: None,
    };

    /// Whether nothing is kept here, or only what is gone.
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
    use crate::rule::{FlowRule, Rules};
    use crate::sentinel::Sentinel;
    use crate::verdict::Verdict;

    /// Runs `f` with the mark of `key` and a query for it.
    fn with<R>(
        sentinel: &Sentinel,
        key: Key<'_>,
        f: impl FnOnce(Mark, &ResourceQuery<'_>, &StdArc<Shared>) -> R,
    ) -> R {
        let shared = sentinel.engine().shared();
        let query = ResourceQuery {
            direction: Direction::Inbound,
            name: &key,
        };
        f(Mark::of(&query, shared).unwrap(), &query, shared)
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
    fn who_has_been_called_is_found_without_the_table() {
        let sentinel = Sentinel::new(Rules::new());
        // The first call makes it, the second one finds it in the table.
        for _ in 0..2 {
            assert!(kept(&sentinel, "job").is_none());
            assert!(call(&sentinel, "job"));
        }
        let found = kept(&sentinel, "job").unwrap();
        let now = found.shared().time.now();
        let known = sentinel.engine().known(Direction::Inbound, "job", now);
        assert!(Arc::ptr_eq(&found, &known.unwrap()));
        // Another thread has places of its own.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| kept(&sentinel, "job").is_none());
            assert!(other.join().unwrap());
        });
    }

    #[test]
    fn names_of_one_mark_are_told_apart() {
        let sentinel = Sentinel::new(Rules::new());
        let [one, other] = [1, 2].map(|n| format!("/name/of/{n}/{}", "x".repeat(30)));
        let mark = |name: &str| with(&sentinel, Key::Str(name), |mark, _, _| mark);
        assert_eq!(mark(&one), mark(&other));
        for _ in 0..100 {
            assert!(call(&sentinel, &one));
            assert!(call(&sentinel, &other));
            assert!(call(&sentinel, &other));
        }
        assert_eq!(passed(&sentinel, &one), 100);
        assert_eq!(passed(&sentinel, &other), 200);
    }

    #[test]
    fn engines_are_told_apart() {
        let [one, other] = [1, 2].map(|limit| Sentinel::new(FlowRule::per_second("job", limit)));
        for sentinel in [&one, &other] {
            call(sentinel, "job");
            call(sentinel, "job");
        }
        assert_eq!(
            [&one, &other].map(|sentinel| passed(sentinel, "job")),
            [1, 2]
        );
        // Whatever the mark says.
        with(&one, Key::Str("job"), |mark, query, shared| {
            assert!(find(mark, query, shared).is_some());
            assert!(find(mark, query, other.engine().shared()).is_none());
        });
    }

    #[test]
    fn what_older_rules_have_made_is_not_found() {
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
    fn what_has_left_the_table_is_not_found() {
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
        // While somebody reads the table, what it has lost is not freed.
        let reader = sentinel.engine().resources().guard();
        call(&sentinel, "other");
        assert!(kept(&sentinel, "one").is_none());
        drop(reader);
        assert_eq!(sentinel.engine().resources().census().evicted, 1);
    }

    #[test]
    fn what_was_replaced_is_not_found_although_it_has_taken_newer_rules_over() {
        let sentinel = Sentinel::new(Rules::new());
        let engine = sentinel.engine();
        let now = engine.shared().time.now();
        let known = || engine.known(Direction::Inbound, "job", now).unwrap();
        for _ in 0..2 {
            call(&sentinel, "job");
        }
        // A call holds what comes to be replaced.
        let old = kept(&sentinel, "job").unwrap();
        sentinel.reload(FlowRule::per_second("job", 9).into());
        assert!(!Arc::ptr_eq(&known(), &old));
        sentinel.reload(Rules::new());
        // Who has found it before both reloads, and goes on only now.
        assert!(old.take_over(&engine.rules()));
        assert!(old.is_fresh());
        assert!(kept(&sentinel, "job").is_none());
        call(&sentinel, "job");
        assert!(!Arc::ptr_eq(&known(), &old));
    }

    #[test]
    fn an_engine_that_is_dropped_is_gone() {
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
    fn what_a_thread_keeps_takes_what_is_said() {
        assert_eq!(size_of::<[Place; PLACES]>(), 1_536);
        assert_eq!(crate::sync::shared_size::<Resource>(), 200);
    }

    /// A name that has the place of `name` in another engine.
    fn rival(sentinel: &Sentinel, name: &str, other: &Sentinel) -> String {
        let place = |sentinel: &Sentinel, name: &str| {
            with(sentinel, Key::Str(name), |mark, _, _| mark.place())
        };
        (0..)
            .map(|n| format!("job {n}"))
            .find(|rival| place(other, rival) == place(sentinel, name))
            .unwrap()
    }

    #[test]
    fn a_place_goes_to_another_name_after_some_misses() {
        let sentinel = Sentinel::new(Rules::new());
        let rival = rival(&sentinel, "job", &sentinel);
        for _ in 0..2 {
            call(&sentinel, "job");
        }
        // One call makes it, and so many miss it.
        for _ in 0..PATIENCE {
            call(&sentinel, &rival);
            assert!(kept(&sentinel, "job").is_some());
        }
        call(&sentinel, &rival);
        assert!(kept(&sentinel, "job").is_none());
        assert!(kept(&sentinel, &rival).is_some());
    }

    #[test]
    fn the_place_of_what_is_gone_is_free() {
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
    fn names_of_routes_have_marks_of_their_own() {
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
        let mut marks = HashSet::new();
        let mut note = |key: Key<'_>| {
            for sentinel in &sentinels {
                marks.insert(with(sentinel, key, |mark, _, _| mark.0));
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
        assert_eq!(marks.len(), names);
    }
}
