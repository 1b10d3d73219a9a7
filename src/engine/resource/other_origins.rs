//! The state shared by all origins that no rule names: the queues of the rules for "other" origins.
//!
//! A window for other origins exists once for each of these origins, on its scope node. A queue
//! exists only once: the calls of all these origins start in sequence, as in Alibaba Sentinel. So
//! the queue has its own node, in addition to the scope nodes. A warm-up reads the number of passed
//! calls from the ring of this node.

use std::time::Duration;

use super::optional::ResourceInputs;
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
    /// Creates the state of other origins for the rules `own` of a resource. Reuses the node of
    /// `old`, if there is one. Returns `None` if these rules have no queue.
    pub(super) fn new(
        made_of: &ResourceInputs<'_>,
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

    /// Returns the node of the queues and its rules.
    pub(crate) const fn node_with_rules(&self) -> (&Node, &CompiledRules) {
        (&self.node, &self.compiled)
    }

    /// Returns the time for which a call affects later calls.
    pub(super) fn memory(&self) -> Duration {
        self.compiled.memory(self.node.ring())
    }

    /// Returns the number of bytes that the state occupies on the heap.
    pub(super) fn footprint(&self) -> usize {
        self.node.footprint() + self.compiled.footprint()
    }
}
