//! A naive engine: it remembers every call for ever, and adds up what a rule counts each
//! time it is asked.

mod agree;
mod breaker;
mod call;
mod circuit;
mod edit;
mod engine;
mod flow;
mod keyed;
mod ledger;
mod loans;
mod rules;
mod system;
mod verdict;

pub(crate) use breaker::{Breaker, Limit};
pub(crate) use call::{Asks, BEGIN, End, Given, NS, RESOURCES, VALUES, value};
pub(crate) use circuit::Change;
pub(crate) use edit::{Edit, Step};
pub(crate) use engine::{Oracle, Stage};
pub(crate) use flow::{Flow, Whose};
pub(crate) use keyed::{Count, Keyed, Of, UNLIMITED};
pub(crate) use rules::{Alone, Named, RuleSet, named};
pub(crate) use system::{Adaptive, Limits, Says};
pub(crate) use verdict::Why;
