//! Documents: what is read from them, what is written back, and what is said
//! about bad ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad;
mod cluster;
mod embedded;
mod found;
mod go;
mod hostile;
mod java;
mod own;
mod rule_source;
mod spelling;
mod store;
mod whole;

use std::time::Duration;

use serde_json::Value;
use tower_sentinel::Rules;
use tower_sentinel::document::{Document, Format, Kind};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The rules of a document in which everything is good.
fn strict(document: &Document) -> Rules {
    let rules = document.strict().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(document.problems().as_slice(), []);
    rules
}

/// A document of Sentinel's that is good but for warnings.
fn sentinel(kind: Kind, list: &Value) -> Document {
    Document::read_sentinel(&list.to_string(), kind).unwrap()
}

/// A document as JSON in which the order of keys does not matter.
fn json(document: &Document) -> Value {
    serde_json::from_str(&document.write(Format::Json)).unwrap()
}

/// The problems as lines, without their places.
fn lines(document: &Document) -> Vec<String> {
    let lines = document.problems().iter().map(|problem| {
        let text = problem.to_string();
        let Some((line, column)) = problem.line().zip(problem.column()) else {
            return text;
        };
        let text = text.strip_prefix(&format!("line {line}, column {column}: "));
        text.expect("it begins with the place").to_owned()
    });
    lines.collect()
}
