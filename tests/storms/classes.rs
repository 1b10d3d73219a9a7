//! Eight threads that call one adaptive rule, with calls of all classes that end in all ways.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, Call, Criticality, Entry, FlowRule, ManualClock, Rules,
    Sentinel, Verdict,
};

use crate::support::{Rng, assert_at_rest, attempts};

const THREADS: usize = 8;
const FLOOR: u32 = 2;
const CEILING: u32 = 20;
/// A thread holds up to so many calls: each alone wants more than the ceiling allows, so that calls
/// are refused however the threads take turns.
const MOST_HELD: usize = 30;
/// A thread moves the clock, or has other rules come into force, once in so many calls.
const STEP: usize = 16;
const RELOAD: usize = 2_000;
/// More than any run makes calls.
const OPEN: u32 = 100_000_000;
const CLASSES: [Criticality; 4] = [
    Criticality::CriticalPlus,
    Criticality::Critical,
    Criticality::SheddablePlus,
    Criticality::Sheddable,
];

/// The adaptive rule alone, beside a flow rule, and beside one that takes calls off the fast path.
fn sets(limit: u32) -> [Rules; 3] {
    let adaptive = AdaptiveRule::new("r").floor(FLOOR).ceiling(CEILING);
    let alone = Rules::new().with(adaptive.id("adaptive"));
    let flow = alone.clone().with(FlowRule::per_second("r", limit));
    let list = flow.clone().with(AuthorityRule::deny("r", ["eve"]));
    [alone, flow, list]
}

/// What one thread has seen of each class: admitted calls and refused ones.
type Seen = [(u64, u64); 4];

/// Ends a call in one of the ways that there are.
fn end(mut entry: Entry, rng: &mut Rng) {
    match rng.below(4) {
        0 => entry.fail(),
        1 => entry.ignore(),
        2 => return entry.cancel(),
        _ => {}
    }
    drop(entry);
}

/// Makes `calls` calls under the rules that [`sets`] has at the place `set`.
fn call(
    (sentinel, clock, running): (&Sentinel, &ManualClock, &AtomicU32),
    set: usize,
    calls: u64,
    mut rng: Rng,
) -> Seen {
    let (mut seen, mut held) = (Seen::default(), Vec::new());
    for _ in 0..calls {
        let index = rng.below(4);
        match sentinel.try_enter(Call::new("r").criticality(CLASSES[index])) {
            Verdict::Pass(entry) => {
                // A call is counted here after it was admitted, and until before it ends.
                let running = running.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(running <= CEILING, "{running} at once");
                seen[index].0 += 1;
                held.push(entry);
            }
            Verdict::Block(blocked) => {
                assert_eq!(blocked.kind(), BlockKind::Isolation);
                assert_eq!(blocked.criticality(), Some(CLASSES[index]));
                seen[index].1 += 1;
            }
            other => panic!("{other:?}"),
        }
        if rng.one_in(2) || held.len() > MOST_HELD {
            if let Some(entry) = held.pop() {
                running.fetch_sub(1, Ordering::SeqCst);
                end(entry, &mut rng);
            }
        }
        if rng.one_in(STEP) {
            clock.advance(Duration::from_micros(500));
        }
        if rng.one_in(RELOAD) {
            // The adaptive rule is as it was, so it goes on with what it has learned and counted.
            let limit = OPEN + rng.below(2) as u32;
            // False where another thread's reload came first.
            let _ = sentinel.reload(sets(limit)[set].clone());
        }
    }
    running.fetch_sub(held.len() as u32, Ordering::SeqCst);
    held.into_iter().for_each(|entry| end(entry, &mut rng));
    seen
}

#[test]
fn calls_of_all_classes_stay_below_the_ceiling_and_each_counts_once() {
    let calls = attempts() / THREADS as u64;
    let mut rng = Rng::seeded();
    for set in 0..3 {
        let clock = ManualClock::new();
        let builder = Sentinel::builder().rules(sets(OPEN)[set].clone());
        let sentinel = builder.clock(clock.clone()).build();
        let running = AtomicU32::new(0);
        let seen: Vec<Seen> = thread::scope(|scope| {
            let shared = (&sentinel, &clock, &running);
            let mut spawn = |_| {
                let rng = rng.split();
                scope.spawn(move || call(shared, set, calls, rng))
            };
            let threads: Vec<_> = (0..THREADS).map(&mut spawn).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(running.into_inner(), 0);
        let totals = assert_at_rest(&sentinel, "r");
        let shedding = sentinel.node("r").unwrap().shedding().unwrap();
        for (index, class) in CLASSES.into_iter().enumerate() {
            let admitted: u64 = seen.iter().map(|seen| seen[index].0).sum();
            let refused: u64 = seen.iter().map(|seen| seen[index].1).sum();
            assert_eq!(shedding.admitted(class), admitted, "{class:?}");
            assert_eq!(shedding.refused(class), refused, "{class:?}");
            assert!(admitted > 0, "{class:?}");
        }
        let all: u64 = CLASSES.iter().map(|class| shedding.admitted(*class)).sum();
        assert_eq!(totals.pass(), all);
        let refused: u64 = CLASSES.iter().map(|class| shedding.refused(*class)).sum();
        assert!(refused > 0, "the ceiling was never met");
        assert_eq!(totals.block(), refused);
    }
}
