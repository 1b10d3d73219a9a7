//! The import order of `src/`: a module imports only from lines above its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top. Modules of one line may import from each other only where
/// they stand in one folder.
const ORDER: &[&[&str]] = &[
    &["sync"],
    &["clock"],
    &["caught"],
    &[
        "block_kind",
        "call",
        "small_vec",
        "number",
        "partners",
        "repeat",
        "timer",
        "timekeeper",
    ],
    &["stat"],
    &["shape"],
    &["adaptive", "breaker", "hot"],
    &["system"],
    &["blocked"],
    &["finding"],
    &["hook"],
    &["rule"],
    &["document"],
    &["shared"],
    &["resource"],
    &["branch", "recent"],
    // One call's way through the engine: judged by the pipeline over the tables
    // of the engine, it ends as an entry.
    TOGETHER,
    &["report"],
    &["sentinel"],
    &["source"],
    &["key"],
    &["rejection"],
    &["middleware"],
    &["observe"],
    &["guide"],
];

/// Modules that make up one thing in several files.
const TOGETHER: &[&str] = &[
    "pipeline",
    "call_nodes",
    "ruled_ring",
    "engine",
    "entry",
    "waiting",
    "verdict",
    "shadow",
];

fn line_of(module: &str) -> usize {
    ORDER
        .iter()
        .position(|line| line.contains(&module))
        .unwrap_or_else(|| panic!("src/{module} has no place in the order"))
}

fn sources() -> Vec<PathBuf> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    files.sort();
    files
}

fn module_of(file: &Path) -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let first = file.strip_prefix(src).unwrap().components().next().unwrap();
    let first = first.as_os_str().to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// The part of a file that is not tests.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let tests = text.find("\n#[cfg(all(test").unwrap_or(text.len());
    text[..tests].to_owned()
}

#[test]
fn modules_import_only_from_lower_lines() {
    let mut seen = 0;
    for file in sources() {
        let module = module_of(&file);
        if module == "lib" {
            continue;
        }
        let own = line_of(&module);
        for (number, line) in code_of(&file).lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for (at, _) in code.match_indices("crate::") {
                let rest = &code[at + "crate::".len()..];
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                let place = format!("{}:{}", file.display(), number + 1);
                assert!(!name.is_empty(), "{place}: a group of imports at the root");
                let is_own = name == module
                    || (TOGETHER.contains(&module.as_str()) && TOGETHER.contains(&name.as_str()));
                assert!(
                    is_own || line_of(&name) < own,
                    "{place}: {module} imports {name}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "only {seen} imports were found");
}

/// What of the standard library's `sync` any module may name: nobody waits for it once it
/// is there.
const SHARED: [&str; 4] = ["Arc", "Weak", "LazyLock", "OnceLock"];

/// The names that `code` takes from the standard library's `sync`.
fn names_of_sync(code: &str) -> Vec<String> {
    let first_word = |text: &str| -> String {
        let text = text.trim_start().chars();
        text.take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let uses = code.split("std::sync::").skip(1);
    uses.flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => {
            let list = list
                .split('}')
                .next()
                .unwrap()
                .trim_end_matches([',', '\n', ' ']);
            list.split(',').map(first_word).collect()
        }
        None => vec![first_word(rest)],
    })
    .collect()
}

#[test]
fn locks_and_atomics_come_from_one_module() {
    let mut seen = 0;
    for file in sources().iter().filter(|file| module_of(file) != "sync") {
        for name in names_of_sync(&code_of(file)) {
            let is_shared = SHARED.contains(&&*name);
            assert!(is_shared, "{}: std::sync::{name}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} names were found");
}

#[test]
fn a_lock_or_an_atomic_is_found_however_it_is_named() {
    let code = "// std::sync::Barrier\nuse std::sync::{Arc as StdArc, atomic::{AtomicU32, fence}};\n\
        use std::sync::{\n    Mutex,\n    Weak,\n};\nfn f(lock: &std::sync::RwLock<u8>) {}";
    let expected = ["Arc", "atomic", "fence", "Mutex", "Weak", "RwLock"];
    assert_eq!(names_of_sync(code), expected);
}

#[test]
fn every_file_opens_with_one_sentence_and_stays_small() {
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} has no opening sentence",
            file.display()
        );
        let code = code_of(&file);
        let lines = code.lines().map(str::trim);
        let count = lines
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count();
        assert!(count <= 400, "{} has {count} lines of code", file.display());
    }
}

#[test]
fn there_is_no_unsafe_code() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(
        fs::read_to_string(manifest)
            .unwrap()
            .contains("unsafe_code = \"forbid\"")
    );
}
