//! What keyed rules inherit when a new set of rules is loaded.

use std::sync::Arc as StdArc;

use super::*;

#[test]
fn an_equal_rule_reuses_the_quotas_of_exceptions() {
    let make = |threshold: u32, old: Option<&KeyedRules>| {
        let rule = KeyedRule::per_second("r", threshold).except("a", 2);
        KeyedRules::new(
            vec![(0, rule)],
            old,
            Tick::ZERO,
            (|_| OnSuspicion(Box::new(|_| ())), &|| Duration::ZERO),
        )
        .unwrap()
    };
    let first = make(1, None);
    let [equal, other] = [make(1, Some(&first)), make(3, Some(&first))];
    let are_shared = |new: &KeyedRules| {
        StdArc::ptr_eq(&new.0[0].quotas.exceptions, &first.0[0].quotas.exceptions)
    };
    assert_eq!([are_shared(&equal), are_shared(&other)], [true, false]);
}
