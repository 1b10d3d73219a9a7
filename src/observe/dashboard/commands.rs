//! The commands, and the answer to each.

use http::StatusCode;
use serde_json::{Value, json};

use super::calendar::Calendar;
use super::lines::lines;
use super::problems::told;
use super::rules::{JavaForm, as_read, is_among, merged, written};
use super::tree::{list, tree};
use super::wire::{CommandRefused, FormParams};
use super::{VERSION, hostname};
use crate::base::panics::catch_panic_or;
use crate::base::sync::Lock;
use crate::clock::wall_time;
use crate::document::Document;
#[cfg(feature = "tracing")]
use crate::observe::journal::{tell_changed, tell_refused};
use crate::rule::Rules;
use crate::sentinel::Sentinel;
use crate::source::{RuleSink, SourceError, SourceErrorKind};
use crate::stat::Event;

/// All commands, and what each is for.
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

/// The hand that changes rules here, in log lines.
#[cfg(feature = "tracing")]
const BY: &str = "dashboard";

/// Rules are in force that the sink does not have.
const HALF_DONE: &str = "partial success (write data source failed)";

/// The engine and the settings that the commands read and change.
#[derive(Debug)]
pub(super) struct Commands {
    sentinel: Sentinel,
    app: String,
    calendar: Lock<Calendar>,
    sink: Option<Box<dyn RuleSink>>,
    /// Held while rules are replaced.
    unsaved: Lock<Option<Unsaved>>,
}

/// Rules of the sink that are not those in force, since it failed.
#[derive(Debug)]
struct Unsaved {
    kept: Rules,
    /// The version of those in force.
    version: u64,
}

impl Commands {
    pub(super) fn new(sentinel: Sentinel, app: String, sink: Option<Box<dyn RuleSink>>) -> Self {
        let time = &sentinel.registry().shared().time;
        let now = time.check_making(time.read());
        Self {
            calendar: Lock::new(Calendar::new(now, wall_time())),
            sentinel,
            app,
            sink,
            unsaved: Lock::new(None),
        }
    }

    /// Carries out `command`.
    pub(super) fn answer(
        &self,
        command: &str,
        params: &FormParams,
        is_post: bool,
    ) -> Result<String, CommandRefused> {
        let told = match command {
            "api" => COMMANDS
                .map(|(name, purpose)| json!({ "url": format!("/{name}"), "desc": purpose }))
                .into_iter()
                .collect::<Value>()
                .to_string(),
            "basicInfo" => json!({ "app": self.app, "machine": hostname() }).to_string(),
            "version" => VERSION.to_owned(),
            "clusterNode" => list(&self.sentinel, params.get("type") == Some("notZero")),
            "jsonTree" => tree(&self.sentinel),
            "metric" => return self.metric(params),
            "systemStatus" => self.system_status(),
            "getClusterMode" => json!({
                "mode": -1, "lastModified": 0, "clientAvailable": false, "serverAvailable": false,
            })
            .to_string(),
            "getRules" => written(&self.sentinel.rules(), type_of(params)?),
            "getParamFlowRules" => written(&self.sentinel.rules(), JavaForm::ParamFlow),
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
        Ok(told)
    }

    fn metric(&self, params: &FormParams) -> Result<String, CommandRefused> {
        let time = &self.sentinel.registry().shared().time;
        let now = time.check_making(time.read());
        let mut calendar = self.calendar.lock();
        calendar.look(now, wall_time());
        lines(&self.sentinel, &calendar, now, params)
    }

    fn system_status(&self) -> String {
        let all = self.sentinel.inbound();
        let rt = all
            .average_rt()
            .map_or(0.0, |rt| rt.as_secs_f64() * 1_000.0);
        json!({
            "rqps": all.qps(Event::Complete),
            "qps": all.qps(Event::Pass),
            "b": all.qps(Event::Block),
            "r": rt,
            "t": all.concurrency(),
        })
        .to_string()
    }

    /// Replaces the rules that `form` can show by those of `data`.
    fn replace(
        &self,
        form: JavaForm,
        params: &FormParams,
        is_post: bool,
    ) -> Result<String, CommandRefused> {
        let replaced = self.try_replace(form, params, is_post);
        #[cfg(feature = "tracing")]
        if let Err(refused) = &replaced {
            // For three of the five types the dashboard shows no message.
            tell_refused(BY, &refused.text);
        }
        replaced
    }

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

        let mut unsaved = self.unsaved.lock();
        let before = self.sentinel.rules();
        let known = as_read(&before, form);
        let is_known = |value: &Value| is_among(&known, form, value);
        if let Some(why) = told(document.problems(), form, &sent, has_store, is_known) {
            return Err(CommandRefused::bad(why));
        }
        let pushed = document.lenient().0;
        let merged = merged(&before, form, pushed).map_err(CommandRefused::bad)?;
        let replaces_all = params.get("replace") == Some("all");
        if let Some(why) = merged.is_blind().filter(|_| !replaces_all) {
            return Err(CommandRefused::bad(why));
        }
        let after = merged.rules;
        let version = self.sentinel.rules_version();
        // Others than these have come into force since, so the sink has what they come from.
        let kept = unsaved.take().filter(|it| it.version == version);
        let kept = kept.map_or_else(|| before.clone(), |it| it.kept);
        if kept == after && before == after {
            return Ok("success".to_owned());
        }
        let store = || sink.store(&kept, &after);
        let stored = catch_panic_or(store, |_| Err(SourceError::new("the sink panicked")));
        match stored {
            Ok(()) => {
                self.put_in_force(&before, after);
                Ok("success".to_owned())
            }
            // Rules that another hand has written come into force, or are to be looked at.
            Err(why) if why.kind() == SourceErrorKind::Changed => {
                if kept != before {
                    *unsaved = Some(Unsaved { kept, version });
                }
                Err(CommandRefused::bad(why.to_string()))
            }
            Err(_) => {
                self.put_in_force(&before, after);
                let version = self.sentinel.rules_version();
                *unsaved = Some(Unsaved { kept, version });
                Ok(HALF_DONE.to_owned())
            }
        }
    }

    /// Replaces the rules `before` by those `after`, and tells what has changed.
    fn put_in_force(&self, before: &Rules, after: Rules) {
        if *before == after {
            return;
        }
        #[cfg(feature = "tracing")]
        tell_changed(BY, before, &after);
        self.sentinel.reload(after);
    }
}

fn type_of(params: &FormParams) -> Result<JavaForm, CommandRefused> {
    match params.get("type") {
        Some("flow") => Ok(JavaForm::Flow),
        Some("degrade") => Ok(JavaForm::Degrade),
        Some("system") => Ok(JavaForm::System),
        Some("authority") => Ok(JavaForm::Authority),
        _ => Err(CommandRefused::bad("invalid type")),
    }
}
