//! Rules that change, limits that find themselves, and what can be seen of both engines.

use std::mem;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{NodeView, Verdict};

use super::Pair;
use crate::check::saw;
use crate::oracle::{Edit, Oracle, RESOURCES};

/// After more reloads, an engine may have all resources take the rules over at once: so
/// many older sets of rules may be held by calls, and no more.
const MANY: u32 = 8;

impl Pair {
    /// New rules come in force, for a resource when it is next called or looked at.
    pub(super) fn reload(&mut self, edit: Edit) -> Result<(), TestCaseError> {
        let mut rules = self.rules.clone();
        rules.edit(edit);
        let is_new = rules.rules() != self.rules.rules();
        prop_assert_eq!(self.bench.sentinel.reload(rules.rules()), is_new);
        for oracle in &mut self.oracles {
            for resource in RESOURCES {
                // Nothing keeps a resource in its place that has lost all its rules.
                if self.rules.names(resource) && !rules.names(resource) {
                    oracle.take_over(&rules, resource);
                }
            }
            oracle.rules = rules.clone();
        }
        self.oracles[0].system.reload(rules.limits.clone());
        self.found.clear();
        self.rules = rules;
        self.is_stale = true;
        self.reloads += u32::from(is_new);
        if self.reloads > MANY {
            self.take_over();
        }
        saw("reloaded");
        Ok(())
    }

    /// Every resource that is known takes the rules over.
    pub(super) fn take_over(&mut self) {
        for (way, oracle) in self.oracles.iter_mut().enumerate() {
            oracle.take_over_all(&self.rules);
            for resource in RESOURCES {
                match way {
                    0 => drop(self.bench.sentinel.node(resource)),
                    _ => drop(self.bench.sentinel.outbound_node(resource)),
                }
            }
        }
        self.is_stale = false;
    }

    pub(super) fn look(&mut self, index: Index) {
        self.take_over();
        let mut views = Vec::new();
        for resource in RESOURCES {
            let found = self.node(0, resource);
            let found = found.map_or(Vec::new(), |node| node.breakers());
            let circuits = self.oracles[0].circuits(resource);
            views.extend(
                found
                    .into_iter()
                    .zip(circuits.map(|circuit| circuit.number)),
            );
        }
        if !views.is_empty() {
            self.views.push(views.swap_remove(index.index(views.len())));
        }
    }

    /// Figures and states are the same. A look at a resource has it take new rules over.
    pub(super) fn compare(&mut self) -> Result<(), TestCaseError> {
        // They may be told in any order.
        let mut told = mem::take(&mut *self.changes.0.lock().unwrap());
        let oracles = self.oracles.iter_mut();
        let mut expected: Vec<_> = oracles.flat_map(Oracle::told).collect();
        for told in [&mut told, &mut expected] {
            told.sort_by_key(|(rule, from, to)| (rule.clone(), *from as u8, *to as u8));
        }
        prop_assert_eq!(told, expected);
        if self.is_stale {
            self.take_over();
        }
        let has_outbound = !self.oracles[1].came.is_empty();
        for way in 0..1 + usize::from(has_outbound) {
            for resource in RESOURCES {
                if let Some(node) = self.node(way, resource) {
                    self.oracles[way].agrees(resource, &node, self.now)?;
                    self.check_limit(way, resource, &node)?;
                } else {
                    let is_known = self.oracles[way].is_known(resource);
                    prop_assert!(!is_known || self.reloads > 0);
                }
            }
        }
        for (view, number) in &self.views {
            prop_assert_eq!(view.state(), self.oracles[0].circuit(*number).state());
        }
        self.oracles[0].agrees_on_all(&self.bench.sentinel, self.now)
    }
}

// === limits that find themselves ===

/// What is known of a limit that finds itself since a call ended last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    limit: Option<u32>,
    /// What is in force, which only a refusal tells of: less, while it is probed.
    told: Option<u32>,
    /// How many calls ran at once when the last one passed since then.
    pub(super) passed: u32,
}

impl Pair {
    /// Takes over what the engine says of the limit of `resource`, whose last call was
    /// told `verdict`.
    pub(super) fn learn(
        &mut self,
        way: usize,
        resource: &'static str,
        verdict: &Verdict,
    ) -> Result<(), TestCaseError> {
        let Some(adaptive) = self.rules.adaptives.get(resource) else {
            return Ok(());
        };
        let limit = self.node(way, resource).unwrap().adaptive_limit().unwrap();
        let found = self.found.entry((way, resource)).or_default();
        if let Verdict::Block(blocked) = verdict {
            if blocked.rule() == format!("adaptive-{resource}") {
                let told = blocked.limit().unwrap();
                prop_assert!(
                    (adaptive.floor..=limit).contains(&told),
                    "{told} of {adaptive:?}"
                );
                // It has been so since then.
                prop_assert!(found.passed <= told, "{} of {told}", found.passed);
                found.told.get_or_insert(told);
            }
        }
        let limit = found.told.unwrap_or(limit);
        self.oracles[way].found.insert(resource, limit);
        Ok(())
    }

    /// A limit stays in its range, and where it is while no call ends.
    pub(super) fn check_limit(
        &mut self,
        way: usize,
        resource: &'static str,
        node: &NodeView,
    ) -> Result<(), TestCaseError> {
        if let Some(adaptive) = self.rules.adaptives.get(resource) {
            let limit = node.adaptive_limit().unwrap();
            let range = adaptive.floor..=adaptive.ceiling;
            prop_assert!(range.contains(&limit), "{limit} of {adaptive:?}");
            let found = self.found.entry((way, resource)).or_default();
            prop_assert_eq!(*found.limit.get_or_insert(limit), limit);
        }
        Ok(())
    }
}
