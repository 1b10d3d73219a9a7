//! Describes what a rule allows in one line, for people.
//!
//! Names of origins and values are left out, even if rules contain them: bystanders can see a page.

use std::fmt::Write;
use std::time::Duration;

use crate::observe::span::time;
use crate::rule::{Rule, Setting};

/// The settings of a rule, by name.
pub(super) struct RuleSettings(Vec<(&'static str, Setting)>);

/// Describes the limits of `rule`, such as `120/s for each origin, queue up to 500 ms`.
pub(super) fn limit(rule: &Rule) -> String {
    let known = RuleSettings::of(rule);
    let mut words = String::new();
    // Writing to a string cannot fail.
    let _ = match rule.itself() {
        Rule::Flow(_) => known.flow(&mut words),
        Rule::Keyed(_) => known.keyed_rule(&mut words),
        Rule::Isolation(_) => known.isolation(&mut words),
        Rule::Adaptive(_) => known.adaptive(&mut words),
        Rule::CircuitBreaker(_) => known.circuit_breaker(&mut words),
        Rule::Authority(_) => known.authority(&mut words),
        Rule::System(_) => known.system(&mut words),
        // A kind without a special description.
        _ => known.figures(&mut words),
    };
    words
}

// === impl RuleSettings ===

impl RuleSettings {
    /// Returns the settings of `rule`.
    pub(super) fn of(rule: &Rule) -> Self {
        Self(rule.settings().0)
    }

    /// Returns the setting `name`, if it is set.
    pub(super) fn find(&self, name: &str) -> Option<&Setting> {
        let mut all = self.0.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns the number `name`, with or without a fraction.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.find(name)? {
            Setting::Number(number) => Some(*number),
            Setting::Count(count) => Some(f64::from(*count)),
            _ => None,
        }
    }

    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        match self.find(name)? {
            Setting::Time(time) => Some(*time),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.find(name)? {
            Setting::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the length of the list `name`.
    fn length(&self, name: &str) -> Option<usize> {
        match self.find(name)? {
            Setting::Thresholds(_, list) => Some(list.len()),
            Setting::Texts(list) => Some(list.len()),
            _ => None,
        }
    }

    /// Writes the figures among the settings, each with its name.
    fn figures(&self, words: &mut String) -> std::fmt::Result {
        for (name, setting) in &self.0 {
            let figure = match setting {
                Setting::Number(number) => number.to_string(),
                Setting::Count(count) => count.to_string(),
                Setting::Time(span) => time(*span),
                _ => continue,
            };
            let comma = if words.is_empty() { "" } else { ", " };
            write!(words, "{comma}{name} {figure}")?;
        }
        Ok(())
    }

    /// Writes the number of calls, or of units of cost, that are allowed, and the time for them.
    fn rate(&self, words: &mut String) -> std::fmt::Result {
        let threshold = self.number("threshold").unwrap_or_default();
        write!(words, "{threshold}")?;
        if let Some(unit) = self.text("cost") {
            write!(words, " {unit}")?;
        }
        if let Some(period) = self.text("calendar") {
            write!(words, " in each {period}")?;
            return match self.number("utc_offset") {
                Some(minutes) => {
                    let sign = if minutes < 0.0 { '-' } else { '+' };
                    let minutes = minutes.abs() as u32;
                    write!(
                        words,
                        " by UTC{sign}{:02}:{:02}",
                        minutes / 60,
                        minutes % 60
                    )
                }
                None => Ok(()),
            };
        }
        match self.time("interval") {
            Some(Duration::ZERO) | None => Ok(()),
            Some(interval) if interval == Duration::from_secs(1) => write!(words, "/s"),
            Some(interval) => write!(words, " in {}", time(interval)),
        }
    }

    fn flow(&self, words: &mut String) -> std::fmt::Result {
        self.rate(words)?;
        if self.find("by_origin").is_some() {
            words.push_str(" for each origin");
        }
        self.add_scope(words)?;
        if self.find("in_context").is_some() {
            words.push_str(", in one context");
        }
        self.add_time(words, ", queue up to", "throttle")?;
        self.add_time(words, ", warm-up", "warm_up")?;
        if let Some(threshold) = self.number("memory_threshold") {
            write!(words, ", {threshold} where memory is short")?;
        }
        self.missing(words)
    }

    fn keyed_rule(&self, words: &mut String) -> std::fmt::Result {
        match self.number("concurrency") {
            Some(most) => write!(words, "{most} at once")?,
            None => self.rate(words)?,
        }
        match (self.text("param"), self.number("param_at")) {
            (Some(name), _) => write!(words, " for each {name:?}")?,
            (None, Some(index)) => write!(words, " for each value of parameter {index}")?,
            (None, None) if self.find("by_origin").is_some() => words.push_str(" for each origin"),
            (None, None) => words.push_str(" for each value"),
        }
        self.add_time(words, ", queue up to", "throttle")?;
        if let Some(burst) = self.number("burst") {
            write!(words, ", {burst} more in a burst")?;
        }
        if let Some(capacity) = self.number("capacity") {
            write!(words, ", {capacity} in a burst")?;
        }
        for (name, word) in [
            ("except", "exception"),
            ("except_unlimited", "unlimited value"),
            ("tier", "tier"),
            ("tier_unlimited", "unlimited tier"),
        ] {
            if let Some(length) = self.length(name) {
                let s = if length == 1 { "" } else { "s" };
                write!(words, ", {length} {word}{s}")?;
            }
        }
        self.add_time(words, ", blocked for", "block_for")?;
        self.missing(words)
    }

    fn isolation(&self, words: &mut String) -> std::fmt::Result {
        write!(words, "{} at once", self.number("max").unwrap_or_default())?;
        self.add_scope(words)?;
        self.add_time(words, ", queue up to", "queue")
    }

    fn adaptive(&self, words: &mut String) -> std::fmt::Result {
        let floor = self.number("floor").unwrap_or(1.0);
        let ceiling = self.number("ceiling").unwrap_or(200.0);
        write!(words, "{floor} to {ceiling} at once, by response times")
    }

    fn circuit_breaker(&self, words: &mut String) -> std::fmt::Result {
        if let Some(ratio) = self.number("slow_ratio") {
            write!(words, "opens at {} slower", percent(ratio))?;
            self.add_time(words, " than", "max_rt")?;
        } else if let Some(ratio) = self.number("error_ratio") {
            write!(words, "opens at {} failed", percent(ratio))?;
        } else if let Some(count) = self.number("error_count") {
            write!(words, "opens at {count} failed")?;
        } else if let Some(count) = self.number("consecutive_errors") {
            write!(words, "opens at {count} failed in a row")?;
        } else if self.find("pushback") == Some(&Setting::Flag(true)) {
            write!(words, "opens at a pushback")?;
            return self.add_time(words, ", for up to", "open_up_to");
        }
        if let Some(calls) = self.number("last_calls") {
            write!(words, " of the last {calls}")?;
        }
        self.add_time(words, " in", "interval")?;
        self.add_time(words, ", for", "open_for")?;
        self.add_time(words, " up to", "open_up_to")
    }

    fn authority(&self, words: &mut String) -> std::fmt::Result {
        let (list, before) = match self.length("allow") {
            Some(allowed) => (allowed, "only"),
            None => (self.length("deny").unwrap_or_default(), "all but"),
        };
        let s = if list == 1 { "" } else { "s" };
        write!(words, "{before} {list} listed origin{s}")
    }

    fn system(&self, words: &mut String) -> std::fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.number("qps").map(|qps| format!("{qps}/s")));
        parts.extend(
            self.number("concurrency")
                .map(|most| format!("{most} at once")),
        );
        parts.extend(
            self.number("cpu")
                .map(|cpu| format!("CPU below {}", percent(cpu))),
        );
        parts.extend(self.number("load").map(|load| format!("load below {load}")));
        parts.extend(self.time("rt").map(|rt| format!("RT below {}", time(rt))));
        words.push_str(&parts.join(", "));
        Ok(())
    }

    /// Adds which calls the rule counts, unless it counts all calls of its resource.
    fn add_scope(&self, words: &mut String) -> std::fmt::Result {
        match self.text("for_origin") {
            Some("other") => words.push_str(" for each other origin"),
            Some(_) => words.push_str(" for one origin"),
            None => {}
        }
        match self.text("when") {
            Some(related) => write!(words, ", counted on {related:?}"),
            None => Ok(()),
        }
    }

    /// Adds the text `before` and the time `name`, if it is set.
    fn add_time(&self, words: &mut String, before: &str, name: &str) -> std::fmt::Result {
        match self.time(name) {
            Some(value) => write!(words, "{before} {}", time(value)),
            None => Ok(()),
        }
    }

    /// Adds what the rule does with calls without a key, if this is set.
    fn missing(&self, words: &mut String) -> std::fmt::Result {
        match self.text("missing") {
            Some(missing) => write!(words, ", without a key: {missing}"),
            None => Ok(()),
        }
    }
}

/// Writes a share between 0 and 1 in percent.
fn percent(share: f64) -> String {
    // Rounding to twelve digits hides the binary error of shares such as 0.07.
    let percent = (share * 1e14).round() / 1e12;
    format!("{percent} %")
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::{
        AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
        MissingKey, SystemRule,
    };

    #[test]
    fn a_kind_without_a_description_is_described_by_its_figures() {
        let queue = Duration::from_millis(1_500);
        let rule = Rule::from(IsolationRule::new("secret", 9).queue(queue).id("x"));
        let mut words = String::new();
        RuleSettings(rule.settings().0).figures(&mut words).unwrap();
        assert_eq!(words, "max 9, queue 1500 ms");
    }

    #[test]
    fn each_kind_of_rule_is_described_in_one_line() {
        let ms = Duration::from_millis;
        let cases: Vec<(Rule, &str)> = vec![
            (FlowRule::per_second("a", 120).into(), "120/s"),
            (FlowRule::per_minute("a", 1.5).into(), "1.5 in 1 min"),
            (
                FlowRule::per("a", 5, ms(90_000))
                    .by_origin()
                    .missing(MissingKey::Refuse)
                    .into(),
                "5 in 90 s for each origin, without a key: refuse",
            ),
            (
                FlowRule::per_second("a", 5)
                    .throttle(ms(500))
                    .warm_up(ms(10_000))
                    .into(),
                "5/s, queue up to 500 ms, warm-up 10 s",
            ),
            (
                FlowRule::per_second("a", 5)
                    .for_origin("ann")
                    .when("b")
                    .into(),
                "5/s for one origin, counted on \"b\"",
            ),
            (
                FlowRule::per_second("a", 9).memory(0.7..0.9, 3).shadow(),
                "9/s, 3 where memory is short",
            ),
            (
                KeyedRule::per_second("a", 5)
                    .param("user")
                    .except("ann", 9)
                    .burst(4)
                    .into(),
                "5/s for each \"user\", 4 more in a burst, 1 exception",
            ),
            (
                KeyedRule::concurrency("a", 2)
                    .by_origin()
                    .tier("gold", 3)
                    .tier("x", 4)
                    .into(),
                "2 at once for each origin, 2 tiers",
            ),
            (
                KeyedRule::per_hour("a", 7)
                    .param_at(-1)
                    .block_for(ms(7_200_000))
                    .into(),
                "7 in 1 h for each value of parameter -1, blocked for 2 h",
            ),
            (
                FlowRule::per_calendar_day("a", 9).cost("tokens").into(),
                "9 tokens in each day",
            ),
            (
                KeyedRule::per_calendar_month("a", 2_000_000).into(),
                "2000000 in each month for each value",
            ),
            (
                KeyedRule::per_calendar_day("a", 9).utc_offset(-330).into(),
                "9 in each day by UTC-05:30 for each value",
            ),
            (
                FlowRule::per_second("a", 5).for_origin("other").into(),
                "5/s for each other origin",
            ),
            (
                FlowRule::per_minute("a", 9_000).cost("tokens").into(),
                "9000 tokens in 1 min",
            ),
            (
                KeyedRule::per_second("a", 64)
                    .cost("KiB")
                    .tier("pro", 512)
                    .into(),
                "64 KiB/s for each value, 1 tier",
            ),
            (
                IsolationRule::new("a", 8).queue(ms(20)).into(),
                "8 at once, queue up to 20 ms",
            ),
            (
                IsolationRule::new("a", 8).for_origin("other").into(),
                "8 at once for each other origin",
            ),
            (
                IsolationRule::new("a", 8).when("b").into(),
                "8 at once, counted on \"b\"",
            ),
            (
                AdaptiveRule::new("a").into(),
                "1 to 200 at once, by response times",
            ),
            (
                CircuitBreakerRule::error_ratio("a", 0.07)
                    .open_for(ms(5_000))
                    .into(),
                "opens at 7 % failed in 1 s, for 5 s",
            ),
            (
                CircuitBreakerRule::slow_ratio("a", ms(200), 0.5)
                    .last_calls(50)
                    .open_up_to(ms(60_000))
                    .into(),
                "opens at 50 % slower than 200 ms of the last 50, for 10 s up to 1 min",
            ),
            (
                CircuitBreakerRule::consecutive_errors("a", 5).into(),
                "opens at 5 failed in a row, for 10 s",
            ),
            (
                CircuitBreakerRule::pushback("a").into(),
                "opens at a pushback",
            ),
            (
                CircuitBreakerRule::pushback("a")
                    .open_up_to(ms(5_000))
                    .into(),
                "opens at a pushback, for up to 5 s",
            ),
            (
                AuthorityRule::allow("a", ["ann"]).into(),
                "only 1 listed origin",
            ),
            (
                AuthorityRule::deny("a", ["x", "y"]).into(),
                "all but 2 listed origins",
            ),
            (
                SystemRule::new()
                    .cpu(0.85)
                    .load(4)
                    .qps(9)
                    .rt(ms(50))
                    .concurrency(3)
                    .into(),
                "9/s, 3 at once, CPU below 85 %, load below 4, RT below 50 ms",
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(limit(&rule), expected, "{rule:?}");
        }
    }
}
