//! The rules that a set finds for a call.

use super::*;
use crate::call::Key;

#[test]
fn sentinels_origins_keep_their_meaning() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 1).for_origin("default"))
        .with(FlowRule::per_second("r", 2).for_origin("a"))
        .with(FlowRule::per_second("r", 3).for_origin("other"))
        .with(FlowRule::per_second("r", 4).by_origin())
        .with(FlowRule::per_second("r", 5).for_origin("10.0.0.1"))
        .with(FlowRule::per_second("r", 6).by_origin())
        .with(FlowRule::per_second("r", 7).for_origin("42"))
        .with(FlowRule::per_second("r", 8).in_context("42"));
    let set = RuleSet::new(rules.into(), 1, RuleSelection::Enforced);
    let of = set.of("r").unwrap();
    assert_eq!((&*of.anyone, &*of.params), (&[0][..], &[3, 5][..]));
    let origins = of.origins.as_ref().unwrap();
    assert_eq!(origins.of(&Key::Str("a")).flows, [1]);
    assert_eq!(origins.of(&Key::Str("b")).flows, [2]);
    assert_eq!(origins.of(&Key::Str("10.0.0.1")).flows, [4]);
    assert_eq!(origins.of(&Key::Ip([10, 0, 0, 1].into())).flows, [4]);
    assert_eq!(origins.of(&Key::Int(42)).flows, [6]);
    assert_eq!(origins.of_unnamed().flows, [2]);
    let contexts = of.contexts.as_ref().unwrap();
    for context in [Key::Str("42"), Key::Int(42)] {
        assert!(contexts.names(&context));
        assert_eq!(contexts.of(&context), [7]);
    }
    // The origin "other" is an origin like any other that no rule names.
    assert_eq!(origins.of(&Key::Str("other")).flows, [2]);
}

#[test]
fn a_rule_for_one_origin_applies_to_no_other() {
    let rules = Rules::from(FlowRule::per_second("r", 2).for_origin("a"));
    let set = RuleSet::new(rules.into(), 1, RuleSelection::Enforced);
    let origins = set.of("r").unwrap().origins.as_ref().unwrap();
    assert!(origins.applies_to(&Key::Str("a")));
    assert!(!origins.applies_to(&Key::Str("b")));
}
