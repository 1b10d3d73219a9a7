//! Guards: rules that judge a call by its own properties alone, taking nothing and keeping no
//! state.
//!
//! A kind of rules that works in this way needs no special code in the engine: it adds a [`Guard`]
//! to the resource, whose guards are checked before all other rules. Guards are enum variants
//! instead of trait objects, as a call through a vtable costs 26 instructions more.

use super::Rule;
use super::authority::OriginList;
use crate::blocked::BlockKind;
use crate::call::Call;
use crate::hook::finding::Need;

/// Judges calls by their own properties.
#[derive(Debug)]
pub(crate) enum Guard {
    /// By their origin.
    Origins(OriginList),
}

/// The guards of a resource, in the order of the rules.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    list: Vec<RuledGuard>,
    /// Whether any guard reads the origin of calls.
    pub(crate) need_origin: bool,
}

/// A guard, with the index of its rule and the kind of its refusals.
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

    /// Returns the first rule that refuses `call`, and the kind of its refusals.
    #[inline]
    pub(crate) fn refusing(&self, call: &Call<'_>) -> Option<(BlockKind, u32)> {
        let refusing = self.list.iter().find(|it| it.guard.refuses(call));
        refusing.map(|it| (it.refuses, it.rule))
    }
}
