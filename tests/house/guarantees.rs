//! Each guarantee has tests that exist, and all pages keep to their form.
//!
//! `docs/guarantees.md` has a promise in each line such as the first one below, by its title. Two other pages have a
//! section of that title with the details, and `docs/proofs.md` has one with lines such as the second.
//!
//! ```text
//! * **[Windows][limits-in-detail#windows].** A window that ends at ...
//!
//! * `tests/rules/flow.rs`: `a_test`, `another`
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The file and the name of each test that the list items of `proofs` name.
fn claims(proofs: &str) -> Vec<(String, String)> {
    let mut claims = Vec::new();
    for item in proofs.split("\n\n").flat_map(|list| list.split("\n* ")) {
        let Some(item) = item.trim_start_matches("* ").strip_prefix('`') else {
            continue;
        };
        let mut spans = item.split('`').step_by(2);
        let file = spans.next().unwrap();
        assert!(file.ends_with(".rs"), "{file} is no file of tests");
        claims.extend(
            spans
                .filter(|name| !name.is_empty())
                .map(|name| (file.to_owned(), name.to_owned())),
        );
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The title and the text of each section of `page`.
fn sections(page: &str) -> BTreeMap<&str, &str> {
    let sections = page.split("\n## ").skip(1);
    sections
        .map(|section| section.split_once('\n').unwrap())
        .collect()
}

#[test]
fn every_test_that_the_proofs_name_exists() {
    let proofs = read("docs/proofs.md");
    assert_eq!(missing(root(), &proofs), [""; 0]);
    let named = claims(&proofs).len();
    assert!(named >= 800, "only {named} tests were found on the page");
}

#[test]
fn every_promise_has_its_proofs_and_each_proof_its_promise() {
    let (guarantees, proofs) = (read("docs/guarantees.md"), read("docs/proofs.md"));
    let details = ["limits-in-detail", "engine-in-detail"];
    let details = details.map(|page| read(&format!("docs/{page}.md")));
    let details: Vec<_> = details
        .iter()
        .flat_map(|page| sections(page).into_keys())
        .collect();
    let titles = guarantees
        .lines()
        .filter_map(|line| line.strip_prefix("* **["));
    let promised: BTreeSet<_> = titles.map(|line| line.split(']').next().unwrap()).collect();
    let proved: BTreeSet<_> = sections(&proofs)
        .into_iter()
        .filter(|(_, section)| !claims(section).is_empty())
        .map(|(title, _)| title)
        .collect();
    assert!(promised.len() > 25);
    assert_eq!(proved, promised);
    assert_eq!(details.iter().copied().collect::<BTreeSet<_>>(), promised);
    assert_eq!(sections(&proofs).len(), proved.len());
    assert_eq!(details.len(), promised.len());
}

#[test]
fn a_name_without_a_test_is_found() {
    let page = "## A promise\n\n* `tests/house/guarantees.rs`: `no_such_test`,\n  \
        `a_name_without_a_test_is_found`, `missing`\n* `src/stat/models/mod.rs`: `two_takers_for_the_last_token`,\n  \
        `wish`\n* `tests/no_such_file.rs`: `any`\n\nText that names `nothing`.";
    let expected = [
        "tests/house/guarantees.rs: no_such_test",
        "tests/house/guarantees.rs: missing",
        "src/stat/models/mod.rs: wish",
        "tests/no_such_file.rs: any",
    ];
    assert_eq!(missing(root(), page), expected);
}

/// The pages that are modules of `guide`: the name of each module, and its file in `docs`.
fn guide() -> Vec<(String, String)> {
    let guide = read("src/guide.rs");
    let pages = guide.lines().filter_map(|line| line.strip_prefix("page!("));
    let pages = pages.map(|page| {
        let (module, file) = page.split_once(", \"").unwrap();
        (module.to_owned(), file.trim_end_matches("\");").to_owned())
    });
    let pages: Vec<_> = pages.collect();
    assert!(pages.len() > 20);
    pages
}

/// The lines of `page` outside of programs.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The names by which the headings and the marks of `page` are found.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page) {
        if line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let name = title.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c => (c.is_alphanumeric() || "-_".contains(c)).then_some(c),
            });
            anchors.insert(name.collect());
        }
        let marks = line.split("<a id=\"").skip(1);
        anchors.extend(marks.map(|mark| mark.split('"').next().unwrap().to_owned()));
    }
    anchors
}

/// The label and the target of each `[label]: target`.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('['));
    let definitions = lines.filter_map(|line| line.split_once("]: "));
    definitions
        .filter(|(_, target)| !target.starts_with("http"))
        .collect()
}

/// The targets of each `[text](target)`, but for those of other sites.
fn links(page: &str) -> Vec<&str> {
    let links = prose(page).flat_map(|line| line.split("](").skip(1));
    let targets = links.map(|link| link.split(')').next().unwrap());
    targets
        .filter(|target| !target.starts_with("http"))
        .collect()
}

/// Why nothing is at `target`, a path below `folder` or a place on `page`.
fn broken(folder: &str, page: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let there = match path {
        "" => page.to_owned(),
        path => match fs::read(root().join(folder).join(path)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => return Some(format!("there is no file for {target}")),
        },
    };
    let is_there = anchor.is_empty() || anchors(&there).contains(anchor);
    (!is_there).then(|| format!("there is no place for {target}"))
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let page = "# A page\n\n[a](#a-page) [b](#no-place) [c](no-file.md) [d](words.md#no-place)\n\n\
        ```text\n[e](#no-place)\n```";
    let wrong = |folder, page: &str| -> Vec<_> {
        let targets = links(page)
            .into_iter()
            .chain(definitions(page).into_values());
        targets
            .filter_map(|target| broken(folder, page, target))
            .collect()
    };
    let expected = [
        "there is no place for #no-place",
        "there is no file for no-file.md",
        "there is no place for words.md#no-place",
    ];
    assert_eq!(wrong("docs", page), expected);
    for file in fs::read_dir(root().join("docs")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            assert_eq!(
                wrong("docs", &read(&format!("docs/{name}"))),
                [""; 0],
                "{name}"
            );
        }
    }
    for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md"] {
        assert_eq!(wrong("", &read(name)), [""; 0], "{name}");
    }
}

/// In the crate's documentation a page is a module, so its links cannot be paths of files.
#[test]
fn each_label_leads_to_the_module_of_the_page_to_which_it_leads_in_the_file() {
    let guide_rs = read("src/guide.rs");
    let in_crate = definitions(&guide_rs);
    let module_of: BTreeMap<_, _> = guide()
        .into_iter()
        .map(|(module, file)| (file, module))
        .collect();
    let mut used = BTreeSet::new();
    for file in module_of.keys() {
        let page = read(&format!("docs/{file}"));
        for target in links(&page) {
            assert!(
                target.starts_with('#'),
                "{file}: {target} is no link in the crate's documentation"
            );
        }
        for (label, target) in definitions(&page) {
            let (path, anchor) = target
                .split_once('#')
                .map_or((target, None), |(path, it)| (path, Some(it)));
            let anchor = anchor
                .map(|anchor| format!("#{anchor}"))
                .unwrap_or_default();
            let expected = format!("crate::guide::{}{anchor}", module_of[path]);
            assert_eq!(
                in_crate.get(label),
                Some(&expected.as_str()),
                "{file}: [{label}]"
            );
            assert!(
                page.contains(&format!("][{label}]")),
                "{file} does not use [{label}]"
            );
            used.insert(label.to_owned());
        }
        let uses = prose(&page).flat_map(|line| line.split("][").skip(1));
        for label in uses.map(|rest| rest.split(']').next().unwrap()) {
            let is_defined = page.contains(&format!("\n[{label}]: "));
            assert!(is_defined, "{file}: [{label}] leads nowhere");
        }
    }
    let labels: BTreeSet<_> = in_crate.into_keys().map(str::to_owned).collect();
    assert_eq!(labels, used);
}

#[test]
fn no_page_for_users_has_more_than_350_lines() {
    for (_, file) in guide() {
        let lines = read(&format!("docs/{file}")).lines().count();
        assert!(lines <= 350, "docs/{file} has {lines} lines");
    }
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
    let pages = guide().into_iter().map(|(_, file)| format!("docs/{file}"));
    for page in pages.chain(["README.md".into(), "docs/proofs.md".into()]) {
        assert_eq!(too_long(&read(&page)), [""; 0], "{page}");
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
    let mut found = Vec::new();
    for (_, file) in guide() {
        let page = read(&format!("docs/{file}"));
        found.extend(by_origin(&page).into_iter().map(str::to_owned));
    }
    assert_eq!(found, ["Made-up keys", "Sentinel for Java"]);
    assert_eq!(by_origin(&read("README.md")), [""; 0]);
    let examples = fs::read_dir(root().join("examples")).unwrap();
    let files: Vec<_> = examples.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 10);
    for file in files.iter().filter(|file| file.is_file()) {
        let code = fs::read_to_string(file).unwrap();
        assert_eq!(by_origin(&code), [""; 0], "{}", file.display());
    }
}
