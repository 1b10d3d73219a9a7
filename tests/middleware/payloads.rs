//! Panics that carry something which panics in turn when it is dropped, in all code that is
//! called on behalf of others: hooks, probes, sources, parsers, callbacks.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tower_sentinel::clock::Tick;
use tower_sentinel::hook::{BlockEvent, ExitEvent, Hook};
use tower_sentinel::source::{FileSource, RuleSource, SourceErrorKind, Watch, WatchEvent, from_fn};
use tower_sentinel::system::{Memory, Probe, Sampler};
use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

/// What the panics of this file carry.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload panics, too");
    }
}

#[derive(Debug)]
struct Panics;

impl Hook for Panics {
    fn on_block(&self, _: &BlockEvent<'_>) {
        panic_any(Bomb);
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        panic_any(Bomb);
    }
}

#[derive(Debug, Default)]
struct Counts(AtomicU32);

impl Counts {
    fn count(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Hook for Counts {
    fn on_block(&self, _: &BlockEvent<'_>) {
        self.count();
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        self.count();
    }
}

/// One call to `job` passes, with a hook that panics and one behind it that counts.
fn engine() -> (Sentinel, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("job", 1))
        .clock(ManualClock::new())
        .hook("panics", Arc::new(Panics))
        .hook("counts", counts.clone())
        .build();
    (sentinel, counts)
}

#[test]
fn one_of_a_hook_harms_neither_the_call_nor_the_other_hooks() {
    let (sentinel, counts) = engine();
    drop(sentinel.try_enter(Call::new("job")));
    let refused = sentinel.try_enter(Call::new("job"));
    assert!(matches!(refused, Verdict::Block(_)));
    assert_eq!(counts.count(), 2);
    assert_eq!(sentinel.hooks().panics(), 2);
}

#[test]
fn one_of_a_hook_does_not_abort_a_program_whose_call_panics() {
    let (sentinel, counts) = engine();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let _entry = sentinel.try_enter(Call::new("job"));
        panic!("the call");
    }));
    assert_eq!(*ran.unwrap_err().downcast::<&str>().unwrap(), "the call");
    assert_eq!((counts.count(), sentinel.hooks().panics()), (1, 1));
}

/// Removes itself when it is told, and panics when it is dropped.
#[derive(Debug)]
struct Leaves(Sentinel);

impl Hook for Leaves {
    fn on_block(&self, _: &BlockEvent<'_>) {
        self.0.hooks().remove("leaves");
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        panic!("it is gone");
    }
}

#[test]
fn a_hook_that_removes_itself_and_panics_then_harms_no_call() {
    let sentinel = Sentinel::new(FlowRule::per_second("job", 0));
    let leaves = Arc::new(Leaves(sentinel.clone()));
    sentinel.hooks().register("leaves", leaves);
    let refused = sentinel.try_enter(Call::new("job"));
    assert!(matches!(refused, Verdict::Block(_)));
    assert_eq!(sentinel.hooks().panics(), 1);
}

/// Panics when it is first asked.
#[derive(Debug, Default)]
struct Fragile(Counts);

impl Probe for Fragile {
    fn load(&self) -> Option<f64> {
        if self.0.count() == 0 {
            panic_any(Bomb);
        }
        Some(1.0)
    }

    fn cpu(&self) -> Option<f64> {
        Some(0.5)
    }

    fn memory(&self) -> Option<Memory> {
        if self.0.count() == 0 {
            panic_any(Bomb);
        }
        Memory::new(1, 2)
    }
}

#[test]
fn one_of_a_probe_leaves_it_to_be_asked_again() {
    let sampler = Sampler::new(Fragile::default());
    let first = sampler.sample(Tick::ZERO);
    assert_eq!((first.load(), first.cpu()), (None, Some(0.5)));
    let next = sampler.sample(Tick::from_millis(60_000));
    assert_eq!(next.load(), Some(1.0));

    let sampler = Sampler::new(Fragile::default());
    assert!(sampler.sample_memory(Tick::ZERO).is_none());
    let next = sampler.sample_memory(Tick::from_millis(60_000));
    assert!(next.is_some());
}

#[test]
fn one_of_a_source_is_an_error_and_it_is_polled_again() {
    let polls = Counts::default();
    let source = from_fn(move || {
        if polls.count() == 0 {
            panic_any(Bomb);
        }
        Ok(Some(FlowRule::per_second("job", 2).into()))
    });
    let watch = Watch::new(Sentinel::new(Rules::new()), source);
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Failed(_))));
    let next = watch.poll_once();
    assert!(matches!(next, Some(WatchEvent::Reloaded { .. })));
}

#[test]
fn one_of_a_callback_is_lost() {
    let source = from_fn(|| Ok(Some(FlowRule::per_second("job", 2).into())));
    let watch = Watch::new(Sentinel::new(Rules::new()), source).on_event(|_| panic_any(Bomb));
    let event = watch.poll_once();
    assert!(matches!(event, Some(WatchEvent::Reloaded { .. })));
}

#[test]
fn one_of_a_parser_is_an_error() {
    let file = format!("payloads-{}", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    std::fs::write(&path, "x").unwrap();
    let mut source = FileSource::new(&path, |_| panic_any(Bomb));
    let polled = source.poll();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(polled.unwrap_err().kind(), SourceErrorKind::Panicked);
}
