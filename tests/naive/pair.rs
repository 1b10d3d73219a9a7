//! An engine and a naive one, which hear the same.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::hook::BreakerEvent;
use tower_sentinel::{Builder, Entry, Hook, Verdict};

use crate::breakers::{Change, Part};
use crate::company::{Op, end};
use crate::crowd::{Crowd, differ};
use crate::setup::{BEGIN, NS, RESOURCES};
use crate::support::bench::Bench;
use crate::versions::{Edit, Version};
use crate::wants::Wants;

/// What breakers tell.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<Change>>);

impl Hook for Changes {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let told = (event.rule().to_owned(), event.from(), event.to());
        self.0.lock().unwrap().push(told);
    }
}

/// After more reloads, an engine may have all resources take the rules over at once: so
/// many older sets of rules may be held by calls, and no more.
const MANY: u32 = 8;

pub(crate) struct Pair {
    pub(crate) bench: Bench,
    pub(crate) crowd: Crowd,
    changes: Arc<Changes>,
    /// The calls that run.
    entries: Vec<(Entry, usize, Vec<Part>)>,
    now: u64,
    /// What times are multiples of.
    step: u64,
    /// The rules in force.
    version: Version,
    /// How many there have been.
    reloads: u32,
}

impl Pair {
    pub(crate) fn new(version: Version) -> Self {
        let changes = Arc::new(Changes::default());
        let hook = |builder: Builder| builder.hook("changes", changes.clone());
        Self {
            bench: Bench::with(version.rules(), hook),
            changes,
            crowd: Crowd::new(&version),
            entries: Vec::new(),
            now: BEGIN * NS,
            // Breakers know times to 8 µs.
            step: if version.breakers.is_empty() {
                1
            } else {
                8_000
            },
            version,
            reloads: 0,
        }
    }

    /// The same, with breakers at some time.
    pub(crate) fn with_breakers(version: Version) -> Self {
        Self {
            step: 8_000,
            ..Self::new(version)
        }
    }

    pub(crate) fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Advance(ns) => {
                let ns = ns / self.step * self.step;
                self.now += ns;
                self.bench.clock.advance(Duration::from_nanos(ns));
            }
            Op::End(index, how) => {
                if let Some(index) = index.checked_rem(self.entries.len()) {
                    let (entry, seen, parts) = self.entries.swap_remove(index);
                    self.crowd.end(seen, parts, self.now, how);
                    end(entry, how);
                }
            }
            Op::Call(wants) => self.call(wants)?,
        }
        Ok(())
    }

    fn call(&mut self, wants: Wants) -> Result<(), TestCaseError> {
        let now = self.now;
        let expected = self.crowd.enter(wants, now);
        let found = wants.asked(|call| self.bench.sentinel.try_enter(call));
        match (found, expected) {
            (Verdict::Pass(entry), Ok(parts)) => {
                self.entries.push((entry, self.crowd.seen.len() - 1, parts));
            }
            (Verdict::Block(blocked), Err(why)) if why.is_told(&blocked, now) => {}
            (found, expected) => return Err(differ(wants, now, &found, &expected)),
        }
        Ok(())
    }

    /// New rules come in force, for a resource when it is next called or looked at.
    pub(crate) fn reload(&mut self, edit: Edit) -> Result<(), TestCaseError> {
        let mut version = self.version.clone();
        version.edit(edit);
        let is_new = version.rules() != self.version.rules();
        prop_assert_eq!(self.bench.sentinel.reload(version.rules()), is_new);
        for resource in RESOURCES {
            // Nothing keeps a resource in its place that has lost all its rules.
            if self.version.names(resource) && !version.names(resource) {
                self.crowd.take_over(&version, resource);
            }
        }
        self.version = version;
        self.reloads += u32::from(is_new);
        if self.reloads > MANY {
            self.take_over();
        }
        Ok(())
    }

    /// Every resource that is known takes the rules over.
    fn take_over(&mut self) {
        self.crowd.take_over_all(&self.version);
        for resource in RESOURCES {
            drop(self.bench.sentinel.node(resource));
        }
    }

    /// Figures and states are the same. Who looks at a resource has it take new
    /// rules over.
    pub(crate) fn compare(&mut self) -> Result<(), TestCaseError> {
        // They may be told in any order.
        let mut told = mem::take(&mut *self.changes.0.lock().unwrap());
        let mut expected = self.crowd.told();
        for told in [&mut told, &mut expected] {
            told.sort_by_key(|(rule, from, to)| (rule.clone(), *from as u8, *to as u8));
        }
        prop_assert_eq!(told, expected);
        self.crowd.take_over_all(&self.version);
        for resource in RESOURCES {
            if let Some(node) = self.bench.sentinel.node(resource) {
                self.crowd.agrees(resource, &node, self.now)?;
            }
        }
        Ok(())
    }
}
