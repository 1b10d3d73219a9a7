//! Writes the problems of rules that a dashboard has sent, in the terms of its forms.
//!
//! A person has filled in a form for one rule, and has not seen the document that carries it. So a
//! problem names the resource and the field, by the form's Chinese label and by its key. The
//! dashboard shows no warnings, so a warning that a rule would do something else than was asked for
//! is a problem here.

use serde_json::Value;

use super::form::JavaForm;
use crate::document::{Problem, Problems};

/// The maximum number of problems in an answer.
const MOST_REPORTED: usize = 5;
/// The maximum length of a resource's name in an answer, in characters.
const MOST_NAME: usize = 100;

/// A rule as the dashboard has sent it.
struct SentRule<'a> {
    form: JavaForm,
    value: &'a Value,
}

/// Returns why the rules `sent` cannot come into force, if `problems` holds a reason. A warning is
/// no reason if its rule `is_known`: the rule is then in force already, exactly as it was sent.
pub(super) fn refusal_of(
    problems: &Problems,
    form: JavaForm,
    sent: &[Value],
    has_store: bool,
    is_known: impl Fn(&Value) -> bool,
) -> Option<String> {
    let mut found: Vec<(usize, &Problem)> = Vec::new();
    for problem in problems {
        let index = problem.index().unwrap_or(0);
        let changes = !problem.is_warning()
            || !problem.is_harmless() && !sent.get(index).is_some_and(&is_known);
        if changes {
            found.push((index, problem));
        }
    }
    if found.is_empty() {
        return None;
    }
    // The newest rule, which was sent last, is reported first.
    found.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
    let mut lines: Vec<String> = found
        .iter()
        .take(MOST_REPORTED)
        .map(|(index, problem)| {
            let value = sent.get(*index).unwrap_or(&Value::Null);
            SentRule { form, value }.message(problem, has_store)
        })
        .collect();
    if found.len() > MOST_REPORTED {
        lines.push(format!("and {} more", found.len() - MOST_REPORTED));
    }
    lines.push(
        "Nothing has changed. The dashboard would send this rule again with the next one: open its \
         list of rules of this type before."
            .to_owned(),
    );
    Some(lines.join("\n"))
}

impl SentRule<'_> {
    /// Returns the line about a `problem` of this rule.
    fn message(&self, problem: &Problem, has_store: bool) -> String {
        let name = self.name();
        let path = problem.path();
        let path = path.split_once(']').map_or(path, |(_, rest)| rest);
        let path = path.trim_start_matches('.');
        let (value, allowed) = (problem.value(), problem.allowed());
        if path.is_empty() {
            return if problem.is_warning() {
                format!("{name}: {value}, and would be {allowed}")
            } else {
                format!("{name}: is {value}, must be {allowed}")
            };
        }
        let field = match self.label(path) {
            Some(label) => format!("{label} ({path})"),
            None => path.to_owned(),
        };
        if path == "clusterMode" && !has_store {
            return format!(
                "{name}: {field} must be off: this program has no store over which processes count \
                 together (Builder::store)"
            );
        }
        if problem.is_warning() {
            format!("{name}: {field} is {value}, and would be {allowed}")
        } else {
            format!("{name}: {field} is {value}, must be {allowed}")
        }
    }

    /// Returns the name by which the message calls the rule: its resource, shortened.
    fn name(&self) -> String {
        if self.form == JavaForm::System {
            return "system rule".to_owned();
        }
        match self.value["resource"].as_str() {
            Some(name) => name.chars().take(MOST_NAME).collect(),
            None => "a rule without a resource".to_owned(),
        }
    }

    /// Returns the form's label for the field at `path`.
    fn label(&self, path: &str) -> Option<&'static str> {
        let at = |key: &str| self.value[key].as_i64();
        let config = &self.value["clusterConfig"];
        let key = path.split(['.', '[']).next().unwrap_or(path);
        Some(match (self.form, key) {
            (JavaForm::System, "highestSystemLoad") => "LOAD",
            (JavaForm::System, "avgRt") => "RT",
            (JavaForm::System, "maxThread") => "线程数",
            (JavaForm::System, "qps") => "入口 QPS",
            (JavaForm::System, "highestCpuUsage") => "CPU 使用率",
            (_, "resource") => "资源名",
            (JavaForm::Flow, "limitApp") => "针对来源",
            (JavaForm::Authority, "limitApp") => "流控应用",
            (JavaForm::Authority, "strategy") => "授权类型",
            (JavaForm::Flow, "grade") => "阈值类型",
            (JavaForm::Degrade, "grade") => "熔断策略",
            (JavaForm::Degrade, "count") => match at("grade") {
                Some(1) => "比例阈值",
                Some(2) => "异常数",
                _ => "最大 RT",
            },
            (JavaForm::Degrade, "slowRatioThreshold") => "比例阈值",
            (JavaForm::Degrade, "timeWindow") => "熔断时长",
            (JavaForm::Degrade, "minRequestAmount") => "最小请求数",
            (JavaForm::Degrade, "statIntervalMs") => "统计时长",
            (_, "count") if self.value["clusterMode"] != true => "单机阈值",
            (_, "count") if config["thresholdType"] == 1 => "集群阈值",
            (_, "count") => "均摊阈值",
            (_, "clusterMode") => "是否集群",
            (_, "clusterConfig") if path.ends_with("thresholdType") => "集群阈值模式",
            (_, "clusterConfig") if path.ends_with("fallbackToLocalWhenFail") => "失败退化",
            (_, "strategy") => "流控模式",
            (_, "refResource") if at("strategy") == Some(1) => "关联资源",
            (_, "refResource") => "入口资源",
            (_, "controlBehavior") => "流控效果",
            (_, "warmUpPeriodSec") => "预热时长",
            (_, "maxQueueingTimeMs") => "超时时间",
            (_, "paramIdx") => "参数索引",
            (_, "durationInSec") => "统计窗口时长",
            (_, "paramFlowItemList") => "参数例外项",
            _ => return None,
        })
    }
}
