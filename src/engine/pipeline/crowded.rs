//! Refusals of full windows while many threads refuse at once, without a write to shared words.
//!
//! An ordinary refusal writes to six words that all threads share: it holds the resource and lets
//! it go, counts once on the node and once on the rule, and holds the rule's label until the answer
//! is dropped. Where a crowd refuses, threads wait for these words in turns. So there the call is
//! judged while the table keeps the resource from being freed, counts go to
//! [stripes](crate::base::spread), and the label is the thread's own copy. A call that is not
//! refused has taken nothing, and goes the ordinary way.

use super::fast_path::check_own_ring;
use crate::blocked::{BlockKind, Blocked};
use crate::call::Call;
use crate::clock::timekeeper::Glance;
use crate::engine::call::ring::own_ring_available_at;
use crate::engine::registry::own_label;
use crate::engine::resource::{PathKind, Resource};
use crate::hook::Interest;
use crate::stat::Denied;

/// Returns whether a crowd may have refused `call`: nothing but the window of `resource` judges it,
/// no hook is notified, and it is no call that rules in shadow mode judge.
pub(crate) fn may_refuse_in_crowd(resource: &Resource, call: &Call<'_>) -> bool {
    let is_window_only =
        resource.path_kind() == PathKind::Fast && resource.fixed_slot_limit().is_none();
    let shared = resource.shared();
    let is_told = shared.hooks.want(Interest::BLOCK) || shared.part.is_shadow();
    is_window_only && !call.prioritized && !is_told
}

/// The refusal of `call`, if the window of the crowded `resource` is full.
pub(crate) fn refuse_in_crowd(
    resource: &Resource,
    call: &Call<'_>,
    now: Glance,
) -> Option<Blocked> {
    if !may_refuse_in_crowd(resource, call) {
        return None;
    }
    let (now, weight, node) = (resource.check_time(now), call.weight, resource.node());
    let Err(Denied::Full(rule)) = check_own_ring(resource, now, weight) else {
        return None;
    };
    let (tokens, interval) = resource.rules().flow(rule)?.advertised();
    let at = own_ring_available_at(resource, now, weight);
    let text = resource.text();
    let label = own_label(resource.rules().label(rule), text);
    let blocked = Blocked::by(BlockKind::Flow, label, text)
        .with_retry_after(at.map(|at| resource.time_until(at, now)))
        .with_limit(tokens, interval);
    node.block_in_crowd(now, weight);
    blocked.count_in_crowd(weight);
    Some(blocked)
}
