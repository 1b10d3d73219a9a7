//! Reads the rules of an engine, and the load of the machine, into families.

use std::time::UNIX_EPOCH;

use super::collect::Collector;
use super::family::{Id, Text, Value};
use crate::base::pace::StepPace;
use crate::engine::registry::Registry;
use crate::rule::{Rule, RuleSelection, RuleSet};

impl Collector {
    /// Adds the samples of the rules. Returns the number of rules that are left without series.
    pub(super) async fn add_rules(
        &mut self,
        rules: &RuleSet,
        max_rules: usize,
        pace: &mut StepPace,
    ) -> usize {
        let mut kinds = [0_u64; Rule::KINDS.len()];
        let (mut shadows, mut left_out) = (0_u64, 0);
        for (number, (rule, label)) in rules.listed().with_labels().enumerate() {
            pace.spend(1).await;
            let has_series = number < max_rules;
            left_out += usize::from(!has_series);
            let kind = rule.kind();
            let own = || {
                [
                    ("rule", Text::from(&label.id)),
                    ("kind", kind_label(kind).into()),
                ]
            };
            let is_enforced = rules.part() == RuleSelection::Enforced && !rule.is_shadow();
            if is_enforced {
                if has_series {
                    self.push(Id::RuleBlocked, own(), Value::Count(label.refused()));
                }
                let place = Rule::KINDS.iter().position(|it| *it == kind);
                kinds[place.unwrap_or_default()] += 1;
            } else {
                shadows += 1;
            }
            if !has_series {
                continue;
            }
            let [id, kind] = own();
            let labels = || {
                let resource = Text::Shared(rule.resource().into());
                [id.clone(), kind.clone(), ("resource", resource)]
            };
            if let Some(limit) = rule.limit() {
                self.push(Id::RuleLimit, labels(), Value::Figure(limit));
            }
            if let Some(interval) = rule.interval() {
                let seconds = Value::Figure(interval.as_secs_f64());
                self.push(Id::RuleInterval, labels(), seconds);
            }
        }
        let all = Rule::KINDS.iter().map(|kind| kind_label(kind)).zip(kinds);
        let all = all.chain([("shadow", shadows)]);
        for (kind, count) in all {
            self.push(Id::Rules, [("kind", kind.into())], Value::Count(count));
        }
        self.count(Id::RulesReloads, rules.version());
        let since = rules.made_at().duration_since(UNIX_EPOCH);
        let since = Value::Figure(since.unwrap_or_default().as_secs_f64());
        self.push(Id::RulesLastReload, [], since);
        left_out
    }

    /// Adds the load of the machine, and the limits of system rules.
    pub(super) fn add_system(&mut self, registry: &Registry, rules: &RuleSet) {
        if let Some(sampler) = &registry.shared().config.sampler {
            // Sampled here, because nothing else samples the load unless a rule depends on it.
            let time = &registry.shared().time;
            let now = time.check_for_creation(time.read());
            let readings = sampler.sample(now);
            for (id, figure) in [
                (Id::SystemLoad, readings.load()),
                (Id::SystemCpu, readings.cpu()),
            ] {
                if let Some(figure) = figure {
                    self.push(id, [], Value::Figure(figure));
                }
            }
            if let Some(memory) = sampler.sample_memory(now) {
                for (kind, bytes) in [("used", memory.used()), ("limit", memory.limit())] {
                    self.push(
                        Id::SystemMemory,
                        [("kind", kind.into())],
                        Value::Count(bytes),
                    );
                }
            }
        }
        let limits = rules.limits();
        for (limit, figure) in [
            ("qps", limits.qps.map(|it| it.value)),
            ("concurrency", limits.concurrency.map(|it| it.value.into())),
            ("rt_seconds", limits.rt.map(|it| it.value.as_secs_f64())),
            ("load", limits.load.map(|it| it.value)),
            ("cpu_ratio", limits.cpu.map(|it| it.value)),
        ] {
            if let Some(figure) = figure {
                self.push(
                    Id::SystemLimit,
                    [("limit", limit.into())],
                    Value::Figure(figure),
                );
            }
        }
    }
}

/// Returns the label of a kind of rules.
fn kind_label(kind: &'static str) -> &'static str {
    match kind {
        "circuit-breaker" => "circuit_breaker",
        other => other,
    }
}
