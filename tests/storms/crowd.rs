//! Refusals of many threads at once, which count by thread: no figure tells the difference.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tower_sentinel::hook::{BlockEvent, Hook, Interest};
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::{BlockKind, Blocked, Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

/// Each look for a crowd is one of so many refusals.
const LOOK: u64 = 1_024;
/// What a crowd counts in takes so many bytes of a node.
const STRIPES: usize = 2_048;

fn refuse(sentinel: &Sentinel, call: Call<'_>) -> Blocked {
    match sentinel.try_enter(call) {
        Verdict::Block(blocked) => blocked,
        other => panic!("{other:?}"),
    }
}

fn footprint(sentinel: &Sentinel) -> usize {
    sentinel.node("r").map_or(0, |node| node.footprint())
}

/// Makes `calls` calls on a thread that has called nothing before: it looks for a crowd at once.
fn refuse_on_new_thread(sentinel: &Sentinel, calls: u64) -> Option<Blocked> {
    let refuse = || refuse(sentinel, Call::new("r"));
    let last = || (0..calls).fold(None, |_, _| Some(refuse()));
    thread::scope(|scope| scope.spawn(last).join().unwrap())
}

/// Threads refuse calls in turns until their refusals count apart. Returns how many it took.
fn crowd(sentinel: &Sentinel) -> u64 {
    refuse(sentinel, Call::new("r"));
    let (before, mut refused) = (footprint(sentinel), 1);
    for _ in 0..64 {
        refuse_on_new_thread(sentinel, LOOK);
        refused += LOOK;
        if footprint(sentinel) >= before + STRIPES {
            return refused;
        }
    }
    panic!("no crowd in {refused} refusals");
}

fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    let clock = ManualClock::new();
    let builder = Sentinel::builder().rules(rules).clock(clock.clone());
    (builder.minute(true).build(), clock)
}

fn full() -> FlowRule {
    FlowRule::per_second("r", 0).id("full")
}

fn assert_refused(sentinel: &Sentinel, refused: u64) {
    let snapshot = sentinel.snapshot();
    let totals = sentinel.node("r").unwrap().totals();
    assert_eq!(totals.block(), refused);
    assert_eq!(totals.block_by(BlockKind::Flow), refused);
    assert_eq!(snapshot.totals().block(), refused);
    let rule = snapshot.rules().find(|rule| rule.id() == "full").unwrap();
    assert_eq!(rule.blocked(), refused);
}

#[test]
fn each_refusal_of_a_crowd_counts_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5_000;
    let (sentinel, clock) = engine(full());
    let mut refused = crowd(&sentinel);
    assert_refused(&sentinel, refused);
    let start = &Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..EACH).for_each(|_| drop(refuse(&sentinel, Call::new("r"))));
            });
        }
        start.wait();
        // What a reader has seen never becomes less.
        let mut last = refused;
        for _ in 0..200 {
            let now = sentinel.node("r").unwrap().totals().block();
            assert!((last..=refused + THREADS * EACH).contains(&now));
            last = now;
        }
    });
    refused += THREADS * EACH;
    assert_refused(&sentinel, refused);
    let node = sentinel.node("r").unwrap();
    assert_eq!(node.sum(Event::Block), refused);
    // In the second in which it was, and in no other one.
    clock.advance(Duration::from_secs(1));
    drop(refuse(&sentinel, Call::new("r").batch(3)));
    let seconds = node.seconds().unwrap();
    let blocks: Vec<_> = seconds.iter().map(NodeBucket::block).collect();
    assert_eq!(blocks[blocks.len() - 2..], [refused, 3]);
    assert_refused(&sentinel, refused + 3);
}

#[test]
fn each_refusal_counts_once_while_crowds_come_and_are_forgotten() {
    const ALONE: u64 = 70 * LOOK;
    for seconds in [1, 366 * 86_400] {
        let rule = FlowRule::per("r", 0, Duration::from_secs(seconds)).id("full");
        let (sentinel, _) = engine(rule);
        let mut refused = crowd(&sentinel);
        for together in [3, 1, 2, 1, 4] {
            let start = &Barrier::new(together);
            let refuse_all = || {
                // In turns alone and together with others.
                for calls in [ALONE / together as u64, LOOK + 7, 3] {
                    start.wait();
                    (0..calls).for_each(|_| drop(refuse(&sentinel, Call::new("r"))));
                }
            };
            thread::scope(|scope| {
                (0..together).for_each(|_| drop(scope.spawn(refuse_all)));
            });
            refused += (ALONE / together as u64 + LOOK + 10) * together as u64;
            assert_refused(&sentinel, refused);
        }
    }
}

#[test]
fn refusals_of_one_thread_take_no_more_memory() {
    let (sentinel, _) = engine(full());
    drop(refuse(&sentinel, Call::new("r")));
    let one = footprint(&sentinel);
    (0..5 * LOOK).for_each(|_| drop(refuse(&sentinel, Call::new("r"))));
    assert_eq!(footprint(&sentinel), one);
    assert_refused(&sentinel, 5 * LOOK + 1);
}

#[test]
fn a_reload_keeps_what_a_crowd_has_refused() {
    let (sentinel, _) = engine(full());
    let refused = crowd(&sentinel);
    sentinel.reload(Rules::from(full()).with(FlowRule::per_second("other", 1)));
    assert_refused(&sentinel, refused);
    refuse_on_new_thread(&sentinel, 10);
    assert_refused(&sentinel, refused + 10);
    // A rule that lets calls pass is asked at once.
    sentinel.reload(FlowRule::per_second("r", 2).id("full").into());
    for _ in 0..2 {
        assert!(matches!(
            sentinel.try_enter(Call::new("r")),
            Verdict::Pass(_)
        ));
    }
    drop(refuse(&sentinel, Call::new("r")));
    assert_refused(&sentinel, refused + 11);
}

#[test]
fn what_a_crowd_has_refused_stays_when_its_resource_goes() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("*", 0).id("full"))
        .clock(clock.clone())
        .max_resources(1)
        .build();
    let refused = crowd(&sentinel);
    clock.advance(Duration::from_secs(3_600));
    drop(refuse(&sentinel, Call::new("another")));
    assert!(sentinel.node("r").is_none(), "it has lost its place");
    assert_eq!(sentinel.snapshot().totals().block(), refused + 1);
}

#[test]
fn a_refusal_in_a_crowd_says_the_same() {
    for name in ["r", "*"] {
        let rule = FlowRule::per_second(name, 1).id("full");
        let ((one, one_clock), (other, other_clock)) = (engine(rule.clone()), engine(rule));
        for (sentinel, clock) in [(&one, &one_clock), (&other, &other_clock)] {
            drop(sentinel.try_enter(Call::new("r")));
            clock.advance(Duration::from_millis(300));
        }
        let alone = refuse(&one, Call::new("r"));
        crowd(&other);
        for calls in 1..4 {
            assert_eq!(refuse_on_new_thread(&other, calls).as_ref(), Some(&alone));
        }
        assert_eq!(alone.retry_after(), Some(Duration::from_millis(700)));
    }
}

#[test]
fn calls_pass_beside_the_refusals_of_a_crowd() {
    let (sentinel, clock) = engine(FlowRule::per_second("r", 3).id("full"));
    let passes = |most: u32| {
        let all =
            (0..most).filter(|_| matches!(sentinel.try_enter(Call::new("r")), Verdict::Pass(_)));
        all.count()
    };
    assert_eq!(passes(3), 3);
    crowd(&sentinel);
    for _ in 0..3 {
        clock.advance(Duration::from_secs(1));
        assert_eq!(passes(9), 3);
    }
    let node = sentinel.node("r").unwrap();
    assert_eq!(node.totals().pass(), 12);
    assert_eq!(node.concurrency(), 0);
}

#[test]
fn hooks_are_notified_of_the_refusals_of_a_crowd() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Counts(AtomicU64);

    impl Hook for Counts {
        fn interest(&self) -> Interest {
            Interest::BLOCK
        }

        fn on_block(&self, _: &BlockEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let (sentinel, _) = engine(full());
    let refused = crowd(&sentinel);
    let counts = Arc::new(Counts::default());
    sentinel.hooks().register("counts", counts.clone());
    refuse_on_new_thread(&sentinel, 5);
    assert_eq!(counts.0.load(Ordering::Relaxed), 5);
    assert_refused(&sentinel, refused + 5);
}
