//! The state that all origins share that no rule names: the queues of the rules for them.
//!
//! A window for other origins is one for each of them, on its scope node. A queue is one for all:
//! the calls of all these origins start one after the other, as in Sentinel. So it stands beside
//! the scope nodes, on a node of its own, whose ring tells a warm-up how many have passed.

use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::clock::Tick;
use crate::engine::context::{EngineContext, NodeOf};
use crate::rule::{CompiledRules, OriginRules, ResourceRules, RuleSet};
use crate::stat::Node;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OtherOrigins {
    node: Node,
    compiled: CompiledRules,
}

impl OtherOrigins {
    /// Creates the other origins of the resource `text` under the rules `own`, over the node of
    /// `old`, if there was one.
    pub(super) fn new(
        rules: &RuleSet,
        own: &ResourceRules,
        text: &StdArc<str>,
        shared: &EngineContext,
        old: Option<&Self>,
        now: Tick,
    ) -> Option<Self> {
        let queued = own.origins.as_deref().map_or(&[][..], OriginRules::queued);
        if queued.is_empty() {
            return None;
        }
        let flows = rules.flows(text, queued);
        let before = old.map(|old| old.compiled.on(&old.node));
        let (node, compiled) = shared.node(flows, before, own.longest_wait, NodeOf::ScopeNode, now);
        Some(Self { node, compiled })
    }

    /// The checks of a call beside its scope node.
    pub(crate) const fn node_with_rules(&self) -> (&Node, &CompiledRules) {
        (&self.node, &self.compiled)
    }

    /// How long a call matters to the next one.
    pub(super) fn memory(&self) -> Duration {
        self.compiled.memory(self.node.ring())
    }

    /// Bytes that it occupies on the heap.
    pub(super) fn footprint(&self) -> usize {
        self.node.footprint() + self.compiled.footprint()
    }
}
