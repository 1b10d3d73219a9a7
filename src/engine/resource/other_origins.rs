//! The state that all origins share that no rule names: the queues of the rules for them.
//!
//! A window for other origins is one for each of them, on its scope node. A queue is one for all:
//! the calls of all these origins start one after the other, as in Sentinel. So it stands beside
//! the scope nodes, on a node of its own, whose ring tells a warm-up how many have passed.

use std::time::Duration;

use super::optional::MadeOf;
use crate::engine::context::NodeOf;
use crate::rule::{CompiledRules, OriginRules, ResourceRules};
use crate::stat::Node;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OtherOrigins {
    node: Node,
    compiled: CompiledRules,
}

impl OtherOrigins {
    /// Creates the other origins of a resource under the rules `own`, over the node of `old`, if
    /// there was one.
    pub(super) fn new(
        made_of: &MadeOf<'_>,
        own: &ResourceRules,
        old: Option<&Self>,
    ) -> Option<Self> {
        let queued = own.origins.as_deref().map_or(&[][..], OriginRules::queued);
        if queued.is_empty() {
            return None;
        }
        let flows = made_of.rules.flows(made_of.text, queued);
        let before = old.map(|old| old.compiled.on(&old.node));
        let (shared, of) = (made_of.shared, NodeOf::ScopeNode);
        let (node, compiled) = shared.node(flows, before, own.longest_wait, of, made_of.now);
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
