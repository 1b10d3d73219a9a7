//! The page of guarantees names tests that exist, and all pages keep to their form.
//!
//! Each section of that page ends with a paragraph such as
//!
//! ```text
//! Held by `tests/flow.rs`: `a_test`, `another`; `src/stat/models/mod.rs`: `a_model`.
//! ```
//!
//! in which every test belongs to the file named last before it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

/// The only section without tests.
const OPEN: &str = "What is not promised";

/// The file and the name of each test that `page` names.
fn claims(page: &str) -> Vec<(String, String)> {
    let mut claims = Vec::new();
    for paragraph in page
        .split("\n\n")
        .filter(|text| text.starts_with("Held by "))
    {
        let mut file = None;
        for span in paragraph.split('`').skip(1).step_by(2) {
            if span.ends_with(".rs") {
                file = Some(span);
            } else {
                let file = file.unwrap_or_else(|| panic!("{span} stands before any file"));
                claims.push((file.to_owned(), span.to_owned()));
            }
        }
    }
    claims
}

/// Whether `code` declares the test `name`: as a function under `#[test]` or
/// `#[tokio::test]`, or as a model by one of the macros in `models.rs`.
fn declares(code: &str, name: &str) -> bool {
    let mut is_test = false;
    let mut opens_model = false;
    for line in code.lines().map(str::trim) {
        let words = line.strip_prefix("async ").unwrap_or(line);
        let declared = words
            .strip_prefix("fn ")
            .and_then(|rest| rest.split('(').next());
        if let Some(declared) = declared {
            if is_test && declared == name {
                return true;
            }
            is_test = false;
        } else if opens_model && line.split_whitespace().next() == Some(name) {
            return true;
        }
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        opens_model = line == "model! {";
    }
    false
}

/// What `page` names and the files under `root` do not declare.
fn missing(root: &Path, page: &str) -> Vec<String> {
    let is_missing = |(file, name): &(String, String)| {
        let code = fs::read_to_string(root.join(file)).unwrap_or_default();
        !declares(&code, name)
    };
    let claims = claims(page).into_iter().filter(is_missing);
    claims
        .map(|(file, name)| format!("{file}: {name}"))
        .collect()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/guarantees.md")).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_test_that_the_page_names_exists() {
    let page = page();
    assert_eq!(missing(root(), &page), [""; 0]);
    let named = claims(&page).len();
    assert!(named >= 100, "only {named} tests were found on the page");
}

#[test]
fn every_section_names_its_tests() {
    let page = page();
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        let is_held = !claims(section).is_empty();
        assert_eq!(is_held, title != OPEN, "{title}");
    }
}

#[test]
fn a_name_without_a_test_is_found() {
    let page = "## A promise\n\nHeld by `tests/guarantees.rs`: `no_such_test`,\n\
        `a_name_without_a_test_is_found`, `missing`; `src/stat/models/mod.rs`: `two_takers_for_the_last_token`,\n\
        `wish`; `tests/no_such_file.rs`: `any`.\n\nText that names `nothing`.";
    let expected = [
        "tests/guarantees.rs: no_such_test",
        "tests/guarantees.rs: missing",
        "src/stat/models/mod.rs: wish",
        "tests/no_such_file.rs: any",
    ];
    assert_eq!(missing(root(), page), expected);
}

/// The lines of `page` beyond 120 columns, outside of tables and code.
fn too_long(page: &str) -> Vec<&str> {
    let mut is_code = false;
    let is_long = |line: &&str| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && !line.starts_with('|') && line.chars().count() > 120
    };
    page.lines().filter(is_long).collect()
}

#[test]
fn no_line_of_prose_has_more_than_120_columns() {
    let long = "a ".repeat(61);
    let page = format!("| {long}|\n```text\n{long}\n```\n{long}");
    assert_eq!(too_long(&page), [&*long]);
    let pages = [
        "README.md",
        "docs/cookbook.md",
        "docs/guarantees.md",
        "docs/migration.md",
    ];
    for page in pages {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert_eq!(too_long(&text), [""; 0], "{page}");
    }
}

/// The sections of `page` with a rule on origins.
fn by_origin(page: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in page.lines() {
        if line.starts_with("##") {
            section = line.trim_start_matches('#').trim();
        }
        if line.contains(".by_origin()") && found.last() != Some(&section) {
            found.push(section);
        }
    }
    found
}

/// Limits per caller are rules on parameters, but where a caller needs another rule.
#[test]
fn pages_and_examples_limit_each_caller_in_one_way() {
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let cookbook = read(&root().join("docs/cookbook.md"));
    assert_eq!(by_origin(&cookbook), ["Made-up keys"]);
    let migration = read(&root().join("docs/migration.md"));
    assert_eq!(by_origin(&migration), ["Sentinel for Java"]);
    assert_eq!(by_origin(&read(&root().join("README.md"))), [""; 0]);
    let examples = fs::read_dir(root().join("examples")).unwrap();
    let files: Vec<_> = examples.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 10);
    for file in files.iter().filter(|file| file.is_file()) {
        assert_eq!(by_origin(&read(file)), [""; 0], "{}", file.display());
    }
}
