//! Rules in shadow mode: what they would refuse is told, and runs.
//!
//! They are judged by an engine of their own, with the figures that they would
//! have if they were enforced. It sees what the enforced rules let pass. What it
//! lets pass as well ends with the call that it watches; what it refuses is told,
//! and counted as blocked there; what it would let wait starts at once.

use crate::call::Call;
use crate::engine::Engine;
use crate::entry::{Entry, Verdict};
use crate::hook::{BlockEvent, Subject};

/// Judges `call`, which the enforced rules have given `verdict`.
#[cold]
pub(crate) fn watch(engine: &Engine, call: &Call<'_>, verdict: Verdict) -> Verdict {
    let Some(shadow) = engine.shadow() else {
        // It is just being made.
        return verdict;
    };
    match verdict {
        Verdict::Pass(mut entry) => {
            entry.watch(judge(engine, shadow, call));
            Verdict::Pass(entry)
        }
        Verdict::Wait(waiting) => {
            // Nobody knows when it will start; it says nothing about its end.
            if let Some(watching) = judge(engine, shadow, call) {
                watching.cancel();
            }
            Verdict::Wait(waiting)
        }
        refused @ Verdict::Block(_) => refused,
    }
}

/// The call as the rules that only watch see it, if they let it pass.
fn judge(engine: &Engine, shadow: &Engine, call: &Call<'_>) -> Option<Entry> {
    let blocked = match shadow.decide(call) {
        Verdict::Pass(entry) => return Some(entry),
        Verdict::Wait(waiting) => match waiting.begin() {
            Ok(entry) => return Some(entry),
            Err(blocked) => blocked,
        },
        Verdict::Block(blocked) => blocked,
    };
    let hooks = &engine.shared().hooks;
    if !hooks.is_empty() {
        let event = BlockEvent {
            subject: Subject {
                resource: blocked.resource(),
                direction: call.direction,
                weight: call.weight,
            },
            origin: call.origin,
            param: call.param_at(0).copied(),
            blocked: &blocked,
        };
        hooks.tell(|hook| hook.on_shadow_block(&event));
    }
    None
}
