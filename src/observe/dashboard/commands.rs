//! Answers the dashboard's commands.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::VERSION;
use super::calendar::Calendar;
use super::lines::lines;
use super::problems::refusal_of;
use super::rules::{JavaForm, as_read, is_among, merged, written};
use super::start::hostname;
use super::tree::{list, tree};
use super::wire::{CommandRefused, FormParams};
use crate::base::pace::StepPace;
use crate::base::sync::Lock;
use crate::base::wall::wall_time;
use crate::call::Direction;
use crate::document::Document;
#[cfg(feature = "tracing")]
use crate::observe::journal::{log_changed_rules, log_refused_rules};
use crate::read::{ResourceReading, read_resources_paced};
use crate::sentinel::Sentinel;
use crate::source::{NotPut, RuleSink, SourceErrorKind, put};
use crate::stat::{Event, average_rt};

/// The work between two pauses, in resources read. It bounds how long a poll holds a worker.
pub(super) const PORTION: usize = 16;

/// All commands, each with its purpose.
const COMMANDS: [(&str, &str); 12] = [
    ("api", "lists the commands"),
    ("basicInfo", "tells the name of the program and of the host"),
    (
        "clusterNode",
        "lists the resources; type=notZero: those that were called in the last minute",
    ),
    ("getClusterMode", "tells that there is no cluster"),
    (
        "getParamFlowRules",
        "lists the rules for each value of a parameter",
    ),
    (
        "getRules",
        "lists the rules of a type: flow, degrade, system, authority",
    ),
    ("jsonTree", "shows the resources as a tree"),
    ("metric", "tells each second between startTime and endTime"),
    (
        "setParamFlowRules",
        "replaces the rules for each value of a parameter by data",
    ),
    ("setRules", "replaces the rules of a type by data"),
    (
        "systemStatus",
        "tells figures of all inbound calls together",
    ),
    ("version", "tells whose protocol this is"),
];

/// The author of the dashboard's changes of rules, in log lines.
#[cfg(feature = "tracing")]
const BY: &str = "dashboard";

/// The engine and the settings that the commands read and change.
#[derive(Debug)]
pub(super) struct Commands {
    sentinel: Sentinel,
    app: String,
    calendar: Lock<Calendar>,
    sink: Option<Box<dyn RuleSink>>,
}

impl Commands {
    pub(super) fn new(sentinel: Sentinel, app: String, sink: Option<Box<dyn RuleSink>>) -> Self {
        let time = &sentinel.registry().shared().time;
        let now = time.check_for_creation(time.read());
        Self {
            calendar: Lock::new(Calendar::new(now, wall_time())),
            sentinel,
            app,
            sink,
        }
    }

    /// Carries out `command` and returns its answer. `pace` sets the pauses of commands that only
    /// read.
    pub(super) async fn answer(
        &self,
        command: &str,
        params: &FormParams,
        is_post: bool,
        pace: &mut StepPace,
    ) -> Result<String, CommandRefused> {
        let registry = self.sentinel.registry();
        let answer = match command {
            "api" => COMMANDS
                .map(|(name, purpose)| json!({ "url": format!("/{name}"), "desc": purpose }))
                .into_iter()
                .collect::<Value>()
                .to_string(),
            "basicInfo" => json!({ "app": self.app, "machine": hostname() }).to_string(),
            "version" => VERSION.to_owned(),
            "clusterNode" => {
                let is_busy = params.get("type") == Some("notZero");
                list(registry, is_busy, pace).await
            }
            "jsonTree" => tree(registry, pace).await,
            "metric" => return self.metric(params, pace).await,
            "systemStatus" => self.system_status(pace).await,
            "getClusterMode" => json!({
                "mode": -1, "lastModified": 0, "clientAvailable": false, "serverAvailable": false,
            })
            .to_string(),
            "getRules" => {
                let form = type_of(params)?;
                written(registry.rules().rules(), form, pace).await
            }
            "getParamFlowRules" => {
                written(registry.rules().rules(), JavaForm::ParamFlow, pace).await
            }
            "setRules" => {
                let form = type_of(params)?;
                return self.replace(form, params, is_post);
            }
            "setParamFlowRules" => return self.replace(JavaForm::ParamFlow, params, is_post),
            unknown => {
                let shown: String = unknown.chars().take(64).collect();
                return Err(CommandRefused::bad(format!("Unknown command `{shown}`")));
            }
        };
        Ok(answer)
    }

    /// Returns the counts of each second of the last minute, as lines.
    async fn metric(
        &self,
        params: &FormParams,
        pace: &mut StepPace,
    ) -> Result<String, CommandRefused> {
        let registry = self.sentinel.registry();
        let time = &registry.shared().time;
        let now = time.check_for_creation(time.read());
        let calendar = {
            let mut calendar = self.calendar.lock();
            calendar.update(now, wall_time());
            calendar.clone()
        };
        lines(registry, &calendar, now, params, pace).await
    }

    /// Returns the figures of all inbound calls, as in [`Sentinel::inbound`].
    async fn system_status(&self, pace: &mut StepPace) -> String {
        let registry = self.sentinel.registry();
        let (mut pass, mut block, mut complete) = (0, 0, 0);
        let (mut calls, mut rt, mut concurrency) = (0, Duration::ZERO, 0_u32);
        let mut add = |reading: &ResourceReading<'_>| {
            if reading.direction() != Direction::Inbound {
                return;
            }
            let present = reading.present();
            let (node, now) = (present.node(), present.now);
            pass += node.sum(now, Event::Pass);
            block += node.sum(now, Event::Block);
            complete += node.sum(now, Event::Complete);
            let (more, longer) = node.calls_and_rt(now);
            calls += more;
            rt += longer;
            concurrency = concurrency.saturating_add(node.concurrency(now));
        };
        read_resources_paced(registry, pace, 1, &mut add).await;
        let interval = registry.shared().config.shape.interval();
        let rate = |event: Event, sum| event.per_second(sum, interval);
        // In Sentinel, `b` is the rate of refusals, `r` the average response time in milliseconds,
        // and `t` the number of calls in flight.
        json!({
            "rqps": rate(Event::Complete, complete),
            "qps": rate(Event::Pass, pass),
            "b": rate(Event::Block, block),
            "r": average_rt(calls, rt.as_micros() as u64).map_or(0.0, |rt| rt.as_secs_f64() * 1_000.0),
            "t": concurrency,
        })
        .to_string()
    }

    /// Replaces the rules that `form` can express with the rules in the parameter `data`.
    fn replace(
        &self,
        form: JavaForm,
        params: &FormParams,
        is_post: bool,
    ) -> Result<String, CommandRefused> {
        let replaced = self.try_replace(form, params, is_post);
        #[cfg(feature = "tracing")]
        if let Err(refused) = &replaced {
            // For three of the five types of rules the dashboard does not show the reason.
            log_refused_rules(BY, &refused.text);
        }
        replaced
    }

    /// Does the work of [`replace`](Self::replace), without a log line for a refusal.
    fn try_replace(
        &self,
        form: JavaForm,
        params: &FormParams,
        is_post: bool,
    ) -> Result<String, CommandRefused> {
        let Some(sink) = &self.sink else {
            let text = "rules are read only here: give the program a sink by Dashboard::push";
            return Err(CommandRefused::bad(text));
        };
        if !is_post {
            let text = "rules are changed by POST";
            return Err(CommandRefused::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let data = params
            .get("data")
            .ok_or_else(|| CommandRefused::bad("data is missing, must be a list of rules"))?;
        let document = Document::read_sentinel(data, form.kind()).map_err(|problems| {
            let what = problems
                .iter()
                .next()
                .map_or("", |problem| problem.allowed());
            CommandRefused::bad(format!("data is no list of rules: {what}"))
        })?;
        let sent: Vec<Value> = serde_json::from_str(data)
            .map_err(|_| CommandRefused::bad("data is no list of rules"))?;
        let has_store = self.sentinel.store().is_some();
        let document = if has_store {
            document.with_store()
        } else {
            document
        };

        let _turn = self.sentinel.begin_change();
        let before = self.sentinel.rules();
        let known = as_read(&before, form);
        let is_known = |value: &Value| is_among(&known, form, value);
        if let Some(why) = refusal_of(document.problems(), form, &sent, has_store, is_known) {
            return Err(CommandRefused::bad(why));
        }
        let pushed = document.lenient().0;
        let merged = merged(&before, form, pushed).map_err(CommandRefused::bad)?;
        let replaces_all = params.get("replace") == Some("all");
        if let Some(why) = merged.why_not_read().filter(|_| !replaces_all) {
            return Err(CommandRefused::bad(why));
        }
        let after = merged.rules;
        match put(&self.sentinel, &**sink, &before, &after) {
            Ok(false) => {}
            Ok(true) => {
                #[cfg(feature = "tracing")]
                log_changed_rules(BY, &before, &after);
            }
            Err(NotPut::Invalid(invalid)) => return Err(CommandRefused::bad(invalid.to_string())),
            Err(NotPut::NotKept(why)) => {
                let status = match why.kind() {
                    SourceErrorKind::Changed => StatusCode::BAD_REQUEST,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                return Err(CommandRefused::new(status, why.to_string()));
            }
        }
        Ok("success".to_owned())
    }
}

/// Returns the type of rules that the parameter `type` names.
fn type_of(params: &FormParams) -> Result<JavaForm, CommandRefused> {
    match params.get("type") {
        Some("flow") => Ok(JavaForm::Flow),
        Some("degrade") => Ok(JavaForm::Degrade),
        Some("system") => Ok(JavaForm::System),
        Some("authority") => Ok(JavaForm::Authority),
        _ => Err(CommandRefused::bad("invalid type")),
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::call::Call;
    use crate::clock::ManualClock;
    use crate::rule::{FlowRule, Rules};

    /// Returns the number of polls that the answer to `command` takes.
    fn polls(commands: &Commands, command: &str, query: &str) -> usize {
        let (mut params, mut pace) = (FormParams::default(), StepPace::of(PORTION));
        params.add(query).unwrap();
        let mut answer = pin!(commands.answer(command, &params, false, &mut pace));
        let mut cx = Context::from_waker(Waker::noop());
        let mut polls = 1;
        loop {
            if let Poll::Ready(answered) = answer.as_mut().poll(&mut cx) {
                assert!(answered.is_ok(), "{answered:?}");
                return polls;
            }
            polls += 1;
            // Between two polls, calls and other readers are not blocked.
            drop(commands.sentinel.try_enter(Call::new("/0")));
            assert!(polls % 100 > 0 || commands.sentinel.inbound().sum(Event::Pass) > 0);
        }
    }

    #[test]
    fn no_poll_of_a_command_reads_more_than_a_few_resources() {
        const COUNT: usize = 2_000;
        let clock = ManualClock::new();
        let rules = (0..COUNT).map(|n| FlowRule::per_second(format!("/{n}"), 1_000));
        let sentinel = Sentinel::builder()
            .rules(Rules::build(rules).unwrap())
            .clock(clock.clone())
            .build();
        for number in 0..COUNT {
            drop(sentinel.try_enter(Call::new(&*format!("/{number}"))));
        }
        clock.advance(Duration::from_millis(1_100));
        let commands = Commands::new(sentinel, "shop".to_owned(), None);
        // `steps` is the work per resource or rule: 1 to read it, 1 to write it, and in a tree 1 to
        // add it to the sum. Reading the seconds of a minute counts 2, and so does a rule.
        for (command, query, steps) in [
            ("metric", "startTime=0", 3),
            ("clusterNode", "", 2),
            ("clusterNode", "type=notZero", 2),
            ("jsonTree", "type=root", 3),
            ("getRules", "type=flow", 2),
            ("getParamFlowRules", "", 2),
            ("systemStatus", "", 1),
        ] {
            let polls = polls(&commands, command, query);
            let least = steps * COUNT / PORTION;
            assert!(polls >= least, "{command} {query}: {polls} of {least}");
        }
    }
}
