//! Proposed rules: their problems, the changes that they would make, and their version.

use bytes::Bytes;
use http::header;
use http::{HeaderValue, Response, StatusCode};

use super::assets::etag;
use super::edits::answer;
use super::json::Json;
use crate::document::{Document, Format, Problem};
use crate::observe::diff::Difference;
use crate::rule::{InvalidRule, Rules};

/// The maximum number of problems, and of differences, in an answer.
const MOST_REPORTED: usize = 200;

/// A problem of a document, as it is written in an answer.
#[derive(Debug, Default)]
pub(super) struct ShownProblem {
    text: String,
    /// The line of the problem in the body, counted from 1, if it is known.
    line: Option<usize>,
    is_warning: bool,
}

impl ShownProblem {
    pub(super) fn of_each<'a, P>(problems: &'a [P]) -> Vec<Self>
    where
        Self: From<&'a P>,
    {
        problems.iter().map(Self::from).collect()
    }
}

impl From<&Problem> for ShownProblem {
    fn from(problem: &Problem) -> Self {
        Self {
            text: problem.to_string(),
            line: problem.line(),
            is_warning: problem.is_warning(),
        }
    }
}

impl From<&InvalidRule> for ShownProblem {
    fn from(problem: &InvalidRule) -> Self {
        Self {
            text: problem.to_string(),
            ..Self::default()
        }
    }
}

/// Reads the rules in `body`. Returns the rules and the warnings, or the problems of a body that
/// cannot be read.
pub(super) fn read(body: &[u8]) -> Result<(Rules, Vec<ShownProblem>), Vec<ShownProblem>> {
    let Ok(text) = std::str::from_utf8(body) else {
        let text = "the document is not UTF-8".to_owned();
        return Err(vec![ShownProblem {
            text,
            ..ShownProblem::default()
        }]);
    };
    let read =
        Document::read(text, Format::Json).and_then(|document| Ok((document.strict()?, document)));
    match read {
        Ok((rules, document)) => Ok((rules, ShownProblem::of_each(document.problems().as_slice()))),
        Err(problems) => Err(ShownProblem::of_each(problems.as_slice())),
    }
}

/// Returns `rules` as a document.
pub(super) fn written(rules: &Rules) -> String {
    Document::from_rules(rules).write(Format::Json)
}

/// Returns the version of `rules`. Equal sets have the same version, also in another process.
pub(super) fn tag_of(rules: &Rules) -> String {
    etag(written(rules).as_bytes())
}

/// Adds the version of `rules` to the headers of `answer`.
pub(super) fn tag(answer: &mut Response<Bytes>, rules: &Rules) {
    if let Ok(tag) = HeaderValue::from_str(&tag_of(rules)) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
}

/// Returns an answer with the problems of proposed rules, and the changes that they would make.
pub(super) fn report(
    status: StatusCode,
    problems: &[ShownProblem],
    diff: Option<&[Difference]>,
) -> Response<Bytes> {
    let mut json = Json::default();
    json.object(|json| {
        json.plain("count", problems.len());
        json.list(
            "problems",
            problems.iter().take(MOST_REPORTED),
            |json, problem| {
                json.object(|json| {
                    json.text("text", &problem.text);
                    json.number("line", problem.line.map(|line| line as f64));
                    json.plain("is_warning", problem.is_warning);
                });
            },
        );
        let Some(diff) = diff else {
            json.plain("diff", "null");
            return;
        };
        json.plain("changes", diff.len());
        json.list(
            "diff",
            diff.iter().take(MOST_REPORTED),
            |json, difference| {
                json.object(|json| {
                    json.text("kind", difference.kind);
                    json.text("resource", &difference.resource);
                    for (name, text) in [
                        ("rule", &difference.id),
                        ("before", &difference.before),
                        ("after", &difference.after),
                    ] {
                        match text {
                            Some(text) => json.text(name, text),
                            None => json.plain(name, "null"),
                        }
                    }
                });
            },
        );
    });
    answer(status, json.into_text())
}
