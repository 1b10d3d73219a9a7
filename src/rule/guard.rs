//! Guards: what judges a call by what the call brings, and neither takes nor keeps anything.
//!
//! A kind of rules of this sort needs no place in the engine: it gives a [`Guard`] to the resource,
//! which asks all its guards before any other rule. Guards are variants and no trait objects: a call
//! through a table of functions costs 26 instructions more.

use super::Rule;
use super::authority::OriginList;
use crate::blocked::BlockKind;
use crate::call::Call;
use crate::hook::finding::Need;

/// Judges calls by what they bring.
#[derive(Debug)]
pub(crate) enum Guard {
    /// By their origin.
    Origins(OriginList),
}

/// The guards of a resource, in the order of the rules.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    list: Vec<RuledGuard>,
    /// Whether one of them looks at the origin of calls.
    pub(crate) need_origin: bool,
}

/// A guard, and its rule.
#[derive(Debug)]
struct RuledGuard {
    rule: u32,
    refuses: BlockKind,
    guard: Guard,
}

impl Guard {
    #[inline]
    fn refuses(&self, call: &Call<'_>) -> bool {
        match self {
            Self::Origins(list) => !list.permits(call.origin.as_ref()),
        }
    }
}

impl Guards {
    /// Adds the guard of the rule at `index`.
    pub(super) fn add(&mut self, index: u32, rule: &Rule, guard: Guard) {
        let refuses = rule.info().refuses();
        self.need_origin |= rule.needs().contains(&Need::Origin);
        self.list.push(RuledGuard {
            rule: index,
            refuses,
            guard,
        });
    }

    /// The first rule that refuses `call`, and the kind of its refusals.
    #[inline]
    pub(crate) fn refusing(&self, call: &Call<'_>) -> Option<(BlockKind, u32)> {
        let refusing = self.list.iter().find(|it| it.guard.refuses(call));
        refusing.map(|it| (it.refuses, it.rule))
    }
}
