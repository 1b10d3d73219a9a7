//! The patches of `ci/mutants` fit the code, and find the models that have no twin.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::layering::sources;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn patches() -> Vec<(String, String)> {
    let files = fs::read_dir(root().join("ci/mutants")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let patches = files.filter(|file| file.extension().is_some_and(|it| it == "patch"));
    let read = |file: std::path::PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(file).unwrap())
    };
    patches.map(read).collect()
}

/// What each hunk of a patch expects to find, beside the file in which it does.
fn expected(patch: &str) -> Vec<(String, String)> {
    let mut hunks: Vec<(String, String)> = Vec::new();
    let (mut file, mut left) = (String::new(), 0);
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("--- a/") {
            name.clone_into(&mut file);
        } else if let Some(range) = line.strip_prefix("@@ -") {
            let range = range.split(' ').next().unwrap();
            left = range
                .split_once(',')
                .map_or(1, |(_, lines)| lines.parse().unwrap());
            hunks.push((file.clone(), String::new()));
        } else if left > 0 && !line.starts_with('+') {
            let (_, text) = &mut hunks.last_mut().unwrap();
            text.push_str(line.get(1..).unwrap_or(""));
            text.push('\n');
            left -= 1;
        }
    }
    hunks
}

#[test]
fn every_patch_fits_the_code() {
    let mut hunks = 0;
    for (name, patch) in patches() {
        for (file, text) in expected(&patch) {
            let code = fs::read_to_string(root().join(&file)).unwrap_or_default();
            assert!(code.contains(&text), "{name} expects in {file}:\n{text}");
            hunks += 1;
        }
    }
    assert!(hunks > 60, "{hunks} hunks were looked at");
}

#[test]
fn a_patch_that_does_not_fit_is_found() {
    let patch = "--- a/src/x.rs\n+++ b/src/x.rs\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n \n-- \n2.0\n";
    assert_eq!(expected(patch), [("src/x.rs".into(), "a\nb\n\n".into())]);
}

#[test]
fn every_planted_bug_stands_in_the_table_of_models() {
    let read = |file| fs::read_to_string(root().join(file)).unwrap();
    let (sync, page) = (read("src/base/sync/mod.rs"), read("docs/architecture.md"));
    let (_, bugs) = sync.split_once("pub(crate) enum Bug {").unwrap();
    let (bugs, _) = bugs.split_once("\n}").unwrap();
    let names = bugs
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    let names: Vec<&str> = names.filter(|it| !it.starts_with("//")).collect();
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name} is in no row");
    }
    assert!(names.len() > 90, "{} bugs were found", names.len());
}

#[test]
fn a_model_without_a_twin_is_named_by_a_patch() {
    let patches = patches();
    let named: BTreeSet<&str> = patches
        .iter()
        .flat_map(|(_, patch)| patch.lines())
        .filter_map(|line| line.strip_prefix("# models: ")?.rsplit("::").next())
        .collect();
    let mut bare = 0;
    for file in sources() {
        let code = fs::read_to_string(&file).unwrap();
        let heads = code.split("model! {").skip(1);
        for head in heads.filter_map(|model| model.split_once(';')) {
            if head.0.contains("fails with") || head.0.contains('$') {
                continue;
            }
            let name = head.0.split_whitespace().next().unwrap();
            assert!(
                named.contains(name),
                "no twin and no patch fails with {name}"
            );
            bare += 1;
        }
    }
    assert!(bare >= 8, "{bare} models were found");
}

/// `--skip` of a name that no test has any more would run the twin.
#[test]
fn each_test_that_the_checks_skip_exists() {
    let run = fs::read_to_string(root().join(".ci/run")).unwrap();
    let skipped: Vec<&str> = run
        .split("--skip ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert!(skipped.len() >= 5, "{skipped:?}");
    let code: String = sources()
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    for name in skipped {
        assert!(code.contains(&format!("{name}:")), "no twin is {name}");
    }
}
