//! Five thousand edits of a file of rules, some of them bad, while calls are made:
//! as many as a source could bring in five seconds, one each millisecond.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use tower_sentinel::clock::Tick;
use tower_sentinel::source::{FileSource, Watch, WatchEvent};
use tower_sentinel::{Call, FlowRule, IsolationRule, ManualClock, Rules, Sentinel, Verdict};

const EDITS: u32 = 5_000;
/// One of so many edits is bad.
const BAD: u32 = 50;
/// The clock stands still for so many edits, and is then moved by [`STEP_MS`].
const EDITS_PER_STEP: u32 = 10;
const STEP_MS: u64 = 130;
const LIMITS: [u32; 2] = [40, 60];
const OPEN: u32 = 1_000_000;

/// Rules that only make sense together: those of "one" and "two" have equal
/// limits, and one of the two rules of "shut" lets nobody pass.
fn rules(limit: u32) -> Rules {
    let (all, each) = if limit == LIMITS[0] {
        (OPEN, 0)
    } else {
        (0, OPEN)
    };
    Rules::new()
        .with(FlowRule::per_second("one", limit))
        .with(FlowRule::per_second("two", limit))
        .with(IsolationRule::new("two", limit))
        .with(FlowRule::per_second("shut", all))
        .with(FlowRule::per_second("shut", each).by_origin())
}

/// Ends a step, also by a failed assertion: the callers wait for it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What has passed in a step, on "one" and on "two".
type Passed = [AtomicU32; 2];

/// Calls until the step is over; some calls run until the end of it.
fn call(sentinel: &Sentinel, passed: &Passed, calls: &AtomicU32, is_over: &AtomicBool) {
    let sets = LIMITS.map(rules);
    let mut running = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        for (name, passed) in ["one", "two"].into_iter().zip(passed) {
            if let Verdict::Pass(entry) = sentinel.try_enter(Call::new(name)) {
                passed.fetch_add(1, Ordering::Relaxed);
                running.push(entry);
                running.truncate(5);
            }
        }
        let shut = sentinel.try_enter(Call::new("shut").origin("a"));
        assert!(matches!(shut, Verdict::Block(_)), "halves of two sets");
        assert!(sets.contains(&sentinel.rules()), "halves of two sets");
        calls.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }
}

#[test]
fn five_thousand_edits_never_mix_and_bad_ones_change_nothing() {
    let folder = std::env::temp_dir().join(format!("sentinel-storm-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (path, new) = (folder.join("rules"), folder.join("new"));
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rules(LIMITS[0]))
        .clock(clock.clone())
        .build();
    let parse = |text: &str| {
        let (_, limit) = text.split_once(' ').ok_or("no limit")?;
        Ok(rules(limit.parse()?))
    };
    // Whatever the umask of this run is.
    let source = FileSource::new(&path, parse).allow_world_writable(true);
    let watch = Watch::new(sentinel.clone(), source);

    let mut log: Vec<[u32; 2]> = Vec::new();
    let (mut turn, mut failed) = (0, 0);
    for step in 0..EDITS / EDITS_PER_STEP {
        clock.set(Tick::from_millis(u64::from(step) * STEP_MS));
        let (passed, calls, is_over) =
            (Passed::default(), AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let _over = Over(&is_over);
            let callers =
                [(); 2].map(|()| scope.spawn(|| call(&sentinel, &passed, &calls, &is_over)));
            for edit in 0..EDITS_PER_STEP {
                // Each edit meets calls, unless they have failed.
                let before = calls.load(Ordering::Relaxed);
                while calls.load(Ordering::Relaxed) == before
                    && !callers.iter().any(thread::ScopedJoinHandle::is_finished)
                {
                    thread::yield_now();
                }
                let number = step * EDITS_PER_STEP + edit;
                let is_bad = number % BAD == BAD - 1;
                if !is_bad {
                    turn += 1;
                }
                let limit = LIMITS[turn % 2];
                let text = if is_bad {
                    format!("edit-{number}")
                } else {
                    format!("limit {limit}")
                };
                fs::write(&new, text).unwrap();
                fs::rename(&new, &path).unwrap();
                match watch.poll_once() {
                    Some(WatchEvent::Failed(_)) if is_bad => failed += 1,
                    Some(WatchEvent::Reloaded { rules: 5, .. }) if !is_bad => {}
                    other => panic!("edit {number}: {other:?}"),
                }
                assert_eq!(sentinel.rules(), rules(limit));
            }
        });
        log.push(passed.map(AtomicU32::into_inner));
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        (watch.reloads(), failed),
        (u64::from(EDITS - EDITS / BAD), EDITS / BAD)
    );

    for (index, name) in ["one", "two"].into_iter().enumerate() {
        // The aligned second that ends with the bucket of each step.
        let second = |end: usize| -> u32 {
            let bucket = |step: usize| step as u64 * STEP_MS / 500;
            let within = (0..=end).filter(|&step| bucket(step) + 1 >= bucket(end));
            within.map(|step| log[step][index]).sum()
        };
        let fullest = (0..log.len()).map(second).max().unwrap();
        assert!(
            (LIMITS[0]..=LIMITS[1]).contains(&fullest),
            "{name}: {fullest}"
        );
        let node = sentinel.node(name).unwrap();
        let totals = node.totals();
        let ran: u32 = log.iter().map(|passed| passed[index]).sum();
        assert_eq!((totals.pass(), totals.complete()), (ran.into(), ran.into()));
        assert_eq!((node.concurrency(), node.slots_in_use()), (0, 0));
    }
    assert_eq!(sentinel.node("shut").unwrap().concurrency(), 0);
}
