//! Writes a snapshot as JSON.

use std::fmt::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use super::shedding::Shedding;
use super::snapshot::{NodeSnapshot, Snapshot};
use crate::breaker::BreakerState;
use crate::call::Criticality;
use crate::stat::Event;
use crate::store::{StoreErrorKind, StoreStatus};

impl Snapshot {
    /// Returns the snapshot as one JSON object.
    ///
    /// It contains the figures of [`Snapshot`] and, in the list `nodes`, the figures of each
    /// [`NodeSnapshot`], under the names of their methods. Response times are in milliseconds, or
    /// null if no call has ended. Rates are per second, under `pass_qps`, `block_qps`,
    /// `complete_qps` and `error_qps`. `name` is the name of an origin or a context.
    ///
    /// The state of single rules is in lists, whose entries have the id of the `rule`. A list is
    /// empty if there are no rules of its kind. Each node has these lists:
    ///
    /// * `breakers`: the `state` as the text of [`BreakerState`](crate::read::BreakerState)
    ///   (`closed`, `open`, `half-open`), `retry_after` in milliseconds or null, `in_state_for` in
    ///   milliseconds, `times_entered` with a number for each state, `bad_calls`, and
    ///   `since_last_bad_call` in milliseconds or null.
    /// * `keyed_rules`: `overflows`, `missing`, `resets`, `blocks` and `waiting`.
    /// * `budgets`: the fields of [`BudgetSnapshot`](crate::read::BudgetSnapshot).
    ///
    /// A node also has `adaptive_limit` and `shedding`, null without an adaptive rule. `shedding`
    /// has the classes that are `shut`, and for each class `bound`, `admitted` and `blocked`.
    ///
    /// These members are for the whole engine; `rules_since` is in milliseconds since 1970:
    ///
    /// * `rules`: all rules, with their `kind`, `resource` and `is_shadow`, their `limit` and its
    ///   `interval` in milliseconds, or null, and the calls they have refused as `blocked`.
    /// * `shadows`: the rules in shadow mode, with `would_block`.
    /// * `shared_rules`: the shared rules, with the fields of
    ///   [`SharedSnapshot`](crate::read::SharedSnapshot).
    /// * `store`: the fields of [`StoreStatus`](crate::store::StoreStatus), with times in
    ///   milliseconds, the `errors` by kind and the kind of the last error; null without a store.
    /// * `findings`: the `kind` as the text of [`FindingKind`](crate::hook::FindingKind), the
    ///   `resource`, and the whole sentence as `text`.
    ///
    /// Some figures are not included: the totals of all resources together; single buckets, the
    /// window added up, and the footprint of a node. The minute and the previous second of a node
    /// have only `pass`, `block`, `complete`, `error` and `occupied`, and its totals do not have
    /// `calls`, `rt` and `waited`. The refusals by each kind of rule are in the totals as
    /// `block_by`, under the [name](crate::BlockKind::as_str) of the kind, such as `keyed`.
    ///
    /// Counts and totals are whole numbers of up to 64 bits. A reader that stores numbers in
    /// floating point, as JavaScript does, rounds numbers above 2⁵³.
    ///
    /// Characters that would end a script, or change the direction of the text around them, are
    /// escaped, so the JSON can be embedded in a page or a log.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("</script>", 0));
    /// drop(sentinel.try_enter(Call::new("</script>").batch(3)));
    /// let json = sentinel.snapshot().to_json();
    /// let read: serde_json::Value = serde_json::from_str(&json)?;
    /// let node = &read["nodes"][0];
    /// assert_eq!((&node["resource"], &node["scope"]), (&"</script>".into(), &"resource".into()));
    /// assert_eq!((&node["totals"]["block"], &node["average_rt"]), (&3.into(), &().into()));
    /// assert_eq!(node["totals"]["block_by"]["flow"], 3);
    /// assert!(!json.contains("</script>"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_json(&mut json);
        json
    }

    /// Writes the snapshot as one object.
    fn write_json(&self, json: &mut String) -> fmt::Result {
        write!(
            json,
            "{{\"resources\":{},\"origins\":{},\"evicted\":{},\"overflowed\":{},\"rules_version\":{},\"rules_since\":{}",
            self.resources(),
            self.origins(),
            self.evicted(),
            self.overflowed(),
            self.rules_version(),
            millis(self.rules_since().duration_since(UNIX_EPOCH).ok()),
        )?;
        let rules = self.rules.all();
        write_list(json, "rules", rules.len(), &|json, place| {
            let rule = &rules[place];
            let settings = rule.settings();
            write_rule(json, rule.id())?;
            write!(json, ",\"kind\":\"{}\",\"resource\":", settings.kind())?;
            write_text(json, settings.resource())?;
            write!(json, ",\"is_shadow\":{}", settings.is_shadow())?;
            match settings.limit() {
                Some(limit) => write!(json, ",\"limit\":{limit}")?,
                None => json.push_str(",\"limit\":null"),
            }
            let (interval, blocked) = (millis(settings.interval()), rule.blocked());
            write!(json, ",\"interval\":{interval},\"blocked\":{blocked}}}")
        })?;
        let shadows = &self.shadows;
        write_list(json, "shadows", shadows.len(), &|json, place| {
            let (rule, would_block) = &shadows[place];
            write_rule(json, rule)?;
            write!(json, ",\"would_block\":{would_block}}}")
        })?;
        let shared_rules = self.shared_rules();
        write_list(json, "shared_rules", shared_rules.len(), &|json, place| {
            let shared = &shared_rules[place];
            write_rule(json, shared.rule())?;
            json.push_str(",\"store_key\":");
            match shared.store_key() {
                Some(key) => write_text(json, key)?,
                None => json.push_str("null"),
            }
            write!(
                json,
                ",\"cells\":{},\"in_hand\":{},\"granted\":{},\"waited\":{},\"refused\":{},\"local\":{},\"repaid\":{},\"lost\":{},\"resets\":{}}}",
                shared.cells(),
                shared.in_hand(),
                shared.granted(),
                shared.waited(),
                shared.refused(),
                shared.local(),
                shared.repaid(),
                shared.lost(),
                shared.resets(),
            )
        })?;
        match self.store() {
            Some(store) => write_store(json, store)?,
            None => json.push_str(",\"store\":null"),
        }
        let findings = self.findings();
        write_list(json, "findings", findings.len(), &|json, place| {
            let finding = &findings[place];
            write_rule(json, finding.rule())?;
            write!(json, ",\"kind\":\"{}\",\"resource\":", finding.kind())?;
            write_text(json, finding.resource())?;
            json.push_str(",\"text\":");
            write_text(json, &finding.to_string())?;
            json.push('}');
            Ok(())
        })?;
        let nodes = self.nodes();
        write_list(json, "nodes", nodes.len(), &|json, place| {
            nodes[place].write_json(json)
        })?;
        json.push('}');
        Ok(())
    }
}

impl NodeSnapshot {
    /// Writes the node as one object.
    fn write_json(&self, json: &mut String) -> fmt::Result {
        json.push_str("{\"resource\":");
        write_text(json, self.resource())?;
        let (direction, kind) = (self.direction(), self.scope().as_str());
        let is_listed = self.is_listed();
        write!(
            json,
            ",\"direction\":\"{direction}\",\"scope\":\"{kind}\",\"is_listed\":{is_listed}"
        )?;
        if let Some(name) = self.scope().name() {
            json.push_str(",\"name\":");
            write_text(json, name)?;
        }
        for event in [Event::Pass, Event::Block, Event::Complete, Event::Error] {
            write!(json, ",\"{event}_qps\":{}", self.qps(event))?;
        }
        write!(
            json,
            ",\"average_rt\":{},\"min_rt\":{},\"concurrency\":{},\"waiting\":{},\"held\":{},\"slots_in_use\":{},\"adaptive_limit\":",
            millis(self.average_rt()),
            millis(self.min_rt()),
            self.concurrency(),
            self.waiting(),
            self.held(),
            self.slots_in_use(),
        )?;
        match self.adaptive_limit() {
            Some(limit) => write!(json, "{limit}")?,
            None => json.push_str("null"),
        }
        write_shedding(json, self.shedding())?;
        let breakers = self.breakers();
        write_list(json, "breakers", breakers.len(), &|json, place| {
            let breaker = &breakers[place];
            write_rule(json, breaker.rule())?;
            let (state, retry_after) = (breaker.state(), millis(breaker.retry_after()));
            let [closed, open, half_open] = BreakerState::ALL.map(|it| breaker.times_entered(it));
            write!(
                json,
                ",\"state\":\"{state}\",\"retry_after\":{retry_after},\"in_state_for\":{},\"times_entered\":{{\"closed\":{closed},\"open\":{open},\"half-open\":{half_open}}},\"bad_calls\":{},\"since_last_bad_call\":{}}}",
                millis(Some(breaker.in_state_for())),
                breaker.bad_calls(),
                millis(breaker.since_last_bad_call()),
            )
        })?;
        let keyed_rules = self.keyed_rules();
        write_list(json, "keyed_rules", keyed_rules.len(), &|json, place| {
            let params = &keyed_rules[place];
            write_rule(json, params.rule())?;
            let (overflows, missing) = (params.overflows(), params.missing());
            let (waiting, resets, blocks) = (params.waiting(), params.resets(), params.blocks());
            write!(
                json,
                ",\"overflows\":{overflows},\"missing\":{missing},\"resets\":{resets},\"blocks\":{blocks},\"waiting\":{waiting}}}"
            )
        })?;
        let budgets = self.budgets();
        write_list(json, "budgets", budgets.len(), &|json, place| {
            let budget = &budgets[place];
            write_rule(json, budget.rule())?;
            json.push_str(",\"unit\":");
            write_text(json, budget.unit())?;
            write!(
                json,
                ",\"is_by_key\":{},\"limit\":{},\"used\":{},\"reserved\":{},\"left\":{},\"charged_total\":{},\"reserved_total\":{},\"over_total\":{},\"untold_total\":{},\"cut_total\":{}}}",
                budget.is_by_key(),
                budget.limit(),
                budget.used(),
                budget.reserved(),
                budget.left(),
                budget.charged_total(),
                budget.reserved_total(),
                budget.over_total(),
                budget.untold_total(),
                budget.cut_total(),
            )
        })?;
        for (name, bucket) in [
            ("minute", self.minute()),
            ("previous_second", self.previous_second()),
        ] {
            match bucket {
                Some(bucket) => write!(
                    json,
                    ",\"{name}\":{{\"pass\":{},\"block\":{},\"complete\":{},\"error\":{},\"occupied\":{}}}",
                    bucket.pass(),
                    bucket.block(),
                    bucket.complete(),
                    bucket.error(),
                    bucket.occupied(),
                )?,
                None => write!(json, ",\"{name}\":null")?,
            }
        }
        let totals = self.totals();
        write!(
            json,
            ",\"totals\":{{\"pass\":{},\"block\":{},\"complete\":{},\"error\":{},\"cancelled\":{},\"occupied\":{},\"panicked\":{},\"waits\":{},\"waiting_dropped\":{},\"block_by\":{{",
            totals.pass(),
            totals.block(),
            totals.complete(),
            totals.error(),
            totals.cancelled(),
            totals.occupied(),
            totals.panicked(),
            totals.waits(),
            totals.waiting_dropped(),
        )?;
        for (place, (kind, count)) in totals.blocks().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(json, "{comma}\"{kind}\":{count}")?;
        }
        json.push_str("}}}");
        Ok(())
    }
}

/// Writes the state of a store, without the text of its last error.
fn write_store(json: &mut String, store: &StoreStatus) -> fmt::Result {
    write!(
        json,
        ",\"store\":{{\"state\":\"{}\",\"since\":{},\"nodes\":{},\"trip\":{},\"trips\":{},\"draws\":{},\"counters\":{},\"last_error\":",
        store.state().as_str(),
        millis(Some(store.since())),
        store.nodes(),
        millis(Some(store.trip())),
        store.trips(),
        store.draws(),
        store.counters(),
    )?;
    match store.last_error() {
        Some(error) => write!(json, "\"{}\"", error.kind())?,
        None => json.push_str("null"),
    }
    json.push_str(",\"errors\":{");
    for (place, kind) in StoreErrorKind::ALL.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(json, "{comma}\"{kind}\":{}", store.errors(kind))?;
    }
    json.push_str("}}");
    Ok(())
}

/// Returns whether `c` would end a script or a line, or change the direction of the text around
/// it. All these characters have at most four hexadecimal digits, so `\uXXXX` can express them.
const fn must_be_escaped(c: char) -> bool {
    matches!(
        c,
        '<' | '>'
            | '&'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// Writes `rt` in milliseconds, or null. It divides only once, so that a time in whole microseconds
/// gets no further digits by rounding.
fn millis(rt: Option<Duration>) -> String {
    match rt {
        Some(rt) => (rt.as_nanos() as f64 / 1e6).to_string(),
        None => "null".to_owned(),
    }
}

/// Writes which calls of each class an adaptive rule admits.
fn write_shedding(json: &mut String, shedding: Option<Shedding>) -> fmt::Result {
    let Some(shedding) = shedding else {
        json.push_str(",\"shedding\":null");
        return Ok(());
    };
    json.push_str(",\"shedding\":{\"shut\":[");
    for (index, class) in shedding.shut().iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(json, "{comma}\"{class}\"")?;
    }
    json.push(']');
    for class in Criticality::ALL {
        write!(
            json,
            ",\"{class}\":{{\"bound\":{},\"admitted\":{},\"blocked\":{}}}",
            shedding.bound(class),
            shedding.admitted(class),
            shedding.refused(class),
        )?;
    }
    json.push('}');
    Ok(())
}

/// Writes a list of `count` items under `key`, as another member of the object. `write` writes the
/// item at an index.
fn write_list(
    json: &mut String,
    key: &str,
    count: usize,
    write: &dyn Fn(&mut String, usize) -> fmt::Result,
) -> fmt::Result {
    write!(json, ",\"{key}\":[")?;
    for place in 0..count {
        if place > 0 {
            json.push(',');
        }
        write(json, place)?;
    }
    json.push(']');
    Ok(())
}

/// Begins an object, with the id of a rule as its first member.
fn write_rule(json: &mut String, id: &str) -> fmt::Result {
    json.push_str("{\"rule\":");
    write_text(json, id)
}

/// Writes `text` as a JSON string.
pub(crate) fn write_text(json: &mut String, text: &str) -> fmt::Result {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c.is_control() || must_be_escaped(c) => {
                write!(json, "\\u{:04x}", c as u32)?;
            }
            c => json.push(c),
        }
    }
    json.push('"');
    Ok(())
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut json = String::new();
        write_text(&mut json, text).unwrap();
        json
    }

    #[test]
    fn times_in_whole_microseconds_are_written_exactly() {
        for us in 0..10_000_u64 {
            let (whole, part) = (us / 1_000, us % 1_000);
            let digits = format!("{whole}.{part:03}");
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            assert_eq!(millis(Some(Duration::from_micros(us))), digits);
        }
        assert_eq!(millis(None), "null");
    }

    #[test]
    fn a_written_text_is_parsed_to_the_same_text() {
        let all: String = ('\0'..='\u{3000}').chain(['\u{1f980}']).collect();
        let read: String = serde_json::from_str(&written(&all)).unwrap();
        assert_eq!(read, all);
        assert_eq!(written("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }

    #[test]
    fn characters_that_end_a_script_or_change_direction_are_escaped() {
        // All characters that change the direction in the Unicode bidirectional algorithm.
        let turning = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                       \u{2066}\u{2067}\u{2068}\u{2069}";
        for c in turning
            .chars()
            .chain("<>&\u{2028}\u{2029}\u{7f}\u{85}".chars())
        {
            assert_eq!(written(&c.to_string()), format!("\"\\u{:04x}\"", c as u32));
        }
    }
}
