//! The import order of `src/`: a module imports only from lines above its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top. Modules of one line may import from each other only where
/// they stand in one folder. The rooms of the engine stand here one by one.
const ORDER: &[&[&str]] = &[
    &["base"],
    &["clock", "call"],
    &["blocked"],
    &["stat"],
    &["shape"],
    &["adaptive", "breaker", "budget"],
    &["keyed"],
    &["store"],
    &["system"],
    &["hook"],
    &["rule"],
    &["document"],
    &["engine/context"],
    &["engine/resource"],
    &["engine/registry"],
    &["engine/call"],
    &["engine/pipeline"],
    &["engine"],
    &["engine/shadow"],
    &["engine/core"],
    &["read"],
    &["sentinel"],
    &["source"],
    &["key"],
    &["middleware"],
    &["observe"],
    &["guide"],
];

/// The rooms of the engine; all its other files are the room `engine`.
fn is_room(inner: &str) -> bool {
    let rooms = ORDER.iter().copied().flatten();
    rooms
        .filter_map(|room| room.strip_prefix("engine/"))
        .any(|room| room == inner)
}

fn line_of(module: &str) -> usize {
    ORDER
        .iter()
        .position(|line| line.contains(&module))
        .unwrap_or_else(|| panic!("src/{module} has no place in the order"))
}

/// The room of a path below `src` or `crate`, by its first two names.
fn room_of(first: &str, second: Option<&str>) -> String {
    match second {
        Some(second) if first == "engine" && is_room(second) => format!("engine/{second}"),
        _ => first.to_owned(),
    }
}

pub(crate) fn sources() -> Vec<PathBuf> {
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
    let path = file.strip_prefix(src).unwrap().with_extension("");
    let mut names = path.iter().map(|name| name.to_str().unwrap());
    room_of(names.next().unwrap(), names.next())
}

/// The part of a file that is not tests.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let tests = text.find("\n#[cfg(all(test").unwrap_or(text.len());
    text[..tests].to_owned()
}

/// The names of a path, as far as it is one of plain names.
fn names_at(path: &str) -> Vec<String> {
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let names = path[..end.unwrap_or(path.len())].split("::");
    names.map(str::to_owned).collect()
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
                let names = names_at(rest);
                let name = room_of(&names[0], names.get(1).map(String::as_str));
                let place = format!("{}:{}", file.display(), number + 1);
                assert!(!name.is_empty(), "{place}: a group of imports at the root");
                assert!(
                    name == module || line_of(&name) < own,
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
    for file in sources()
        .iter()
        .filter(|file| !file.to_str().unwrap().contains("/src/base/sync/"))
    {
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

/// A page of the project.
fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Whether `text` has a function `name`.
fn has_function(text: &str, name: &str) -> bool {
    let head = format!("fn {name}");
    let mut behind = text
        .match_indices(&head)
        .map(|(at, it)| &text[at + it.len()..]);
    behind.any(|rest| rest.starts_with(['(', '<']))
}

#[test]
fn each_step_of_a_walk_names_a_function_of_its_file() {
    let contributing = page("CONTRIBUTING.md");
    let (_, rest) = contributing.split_once("## Follow a request").unwrap();
    let (walks, _) = rest.split_once("\n## ").unwrap();
    let mut steps = 0;
    // A file and, right behind it, a function.
    let spans: Vec<&str> = walks.split('`').collect();
    for triple in spans.windows(3) {
        let [file, between, function] = triple else {
            unreachable!("they are three");
        };
        if file.ends_with(".rs") && between.trim().is_empty() && !between.is_empty() {
            let text = page(&format!("src/{file}"));
            assert!(has_function(&text, function), "{file} has no {function}");
            steps += 1;
        }
    }
    assert!(steps >= 20, "only {steps} steps were found");
    // All other files that are named are there, too.
    for file in spans.iter().filter(|span| span.ends_with(".rs")) {
        let is_there = sources().iter().any(|path| path.ends_with(file));
        assert!(is_there || *file == "models.rs", "src/{file} is not there");
    }
}

/// The bodies of the functions `name` in `text`, which is formatted.
fn bodies(text: &str, name: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    for (at, _) in text.match_indices(&format!("fn {name}")) {
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = &text[start..];
        let indent = &line[..line.len() - line.trim_start().len()];
        if has_function(&text[at..], name) {
            let (body, _) = line.split_once(&format!("\n{indent}}}\n")).unwrap();
            bodies.push(body.to_owned());
        }
    }
    bodies
}

#[test]
fn the_way_down_to_the_compare_and_swap_has_twelve_functions() {
    let contributing = page("CONTRIBUTING.md");
    let (_, rest) = contributing.split_once("The way down has twelve").unwrap();
    let (way, _) = rest.split_once("\n\n").unwrap();
    let mut file = String::new();
    let mut functions = Vec::new();
    for span in way.split('`').skip(1).step_by(2) {
        if span.ends_with(".rs") {
            file = page(&format!("src/{span}"));
        } else {
            functions.push((span, bodies(&file, span)));
        }
    }
    assert_eq!(functions.len(), 12);
    let next = functions.iter().skip(1).map(|(name, _)| format!("{name}("));
    let next = next.chain(["compare_exchange(".to_owned()]);
    for ((name, bodies), next) in functions.iter().zip(next) {
        let calls = bodies.iter().any(|body| body.contains(&next));
        assert!(calls, "`{name}` does not call `{next}..)`");
    }
}

#[test]
fn the_picture_of_the_architecture_names_what_is_there() {
    let architecture = page("docs/architecture.md");
    let (_, rest) = architecture.split_once("```text\nsrc/\n").unwrap();
    let (tree, rest) = rest.split_once("```").unwrap();
    let mut rooms = Vec::new();
    let mut folder = String::new();
    let mut seen = 0;
    for line in tree.lines() {
        let depth = line.chars().take_while(|c| "│├└─ ".contains(*c)).count();
        let name: String = line
            .chars()
            .skip(depth)
            .take_while(|c| !c.is_whitespace())
            .collect();
        if depth > 8 || name.is_empty() {
            continue;
        }
        let name = name.trim_end_matches('/').trim_end_matches(".rs");
        let path = if depth <= 4 {
            rooms.push(name.to_owned());
            folder = name.to_owned();
            name.to_owned()
        } else {
            format!("{folder}/{name}")
        };
        let src = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(&path);
        let is_there = src.is_dir() || src.with_extension("rs").is_file();
        assert!(is_there, "src/{path} is not there");
        seen += 1;
    }
    assert!(seen > 50, "only {seen} names were found");
    // Every module of the root is in the tree, and only those.
    let mut modules: Vec<_> = sources().iter().map(|file| module_of(file)).collect();
    modules.retain(|module| !module.contains('/'));
    modules.dedup();
    rooms.sort();
    modules.sort();
    modules.dedup();
    assert_eq!(rooms, modules);
    // The words and the models follow.
    assert!(rest.contains("## Words") && rest.contains("## Models"));
    let order = ORDER.iter().flat_map(|line| line.iter());
    for module in order.filter(|module| !module.contains('/')) {
        assert!(
            architecture.contains(module),
            "{module} is not in the picture"
        );
    }
}

/// The name of the type or trait that `line` declares. What `type` declares in an implementation,
/// behind spaces, is not one.
fn declared_type(line: &str) -> Option<&str> {
    let is_inner = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let mut words = line.split(' ');
    match words.next()? {
        "struct" | "enum" | "trait" => {}
        "type" if !is_inner => {}
        _ => return None,
    }
    let rest = words.next()?;
    let end = rest.find(|c: char| !c.is_alphanumeric());
    let name = &rest[..end.unwrap_or(rest.len())];
    name.starts_with(char::is_uppercase).then_some(name)
}

#[test]
fn no_type_has_the_name_of_another() {
    let mut places = std::collections::HashMap::new();
    let mut seen = 0;
    for file in sources() {
        // Tests have helpers of their own.
        let is_test = |part: &std::ffi::OsStr| {
            let part = part.to_str().unwrap().trim_end_matches(".rs");
            ["tests", "models", "oracle", "simulation"].contains(&part)
        };
        // What stands in for the types of a feature that is off has their names.
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if file.iter().any(is_test) || stem.starts_with("no_") {
            continue;
        }
        for line in code_of(&file).lines() {
            let Some(name) = declared_type(line) else {
                continue;
            };
            seen += 1;
            let place = file.display().to_string();
            // One type may be declared twice in a file, for two configurations.
            if let Some(other) = places.insert(name.to_owned(), place.clone()) {
                assert_eq!(other, place, "{name} stands in both");
            }
        }
    }
    assert!(seen > 400, "too few: {seen}");
}

#[test]
fn a_type_is_found_however_it_is_declared() {
    let found = [
        "pub struct A<T> {",
        "struct B;",
        "    pub(super) enum C {",
        "pub(in crate::rule) trait D: Send {",
        "type E = u32;",
        "pub(crate) struct F(u32);",
    ];
    assert_eq!(
        found.map(declared_type),
        ["A", "B", "C", "D", "E", "F"].map(Some)
    );
    let others = [
        "    type Item = u32;",
        "impl G {",
        "// struct H",
        "let structure = 1;",
    ];
    assert_eq!(others.map(declared_type), [None; 4]);
}
