//! Rules that are written: all of them or none, and never over somebody else's.

use std::fs;

use tower_sentinel::source::{
    FileSource, InMemory, RuleFile, RuleSink, RuleSource, SourceErrorKind,
};
use tower_sentinel::{FlowRule, KeyedRule, Rules};

use super::Folder;

fn five() -> Rules {
    Rules::new()
        .with(FlowRule::per_second("/search", 5).id("search"))
        .with(KeyedRule::per_minute("/login", 3).by_origin().shadow())
}

fn six() -> Rules {
    FlowRule::per_second("/search", 6).into()
}

/// The names in the folder of `path`.
fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(&folder.0).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_again() {
    let folder = Folder::new();
    let path = folder.path("rules");
    let forms = [
        (RuleFile::toml(&path), FileSource::toml(&path)),
        (RuleFile::json(&path), FileSource::json(&path)),
    ];
    for (sink, mut source) in forms {
        let _ = fs::remove_file(&path);
        sink.store(&Rules::new(), &five()).unwrap();
        assert_eq!(source.poll().unwrap(), Some(five()));
        sink.store(&five(), &six()).unwrap();
        sink.store(&six(), &Rules::new()).unwrap();
        assert_eq!(source.poll().unwrap(), Some(Rules::new()));
        assert_eq!(names(&folder), ["rules"]);
    }
}

#[test]
fn a_file_that_was_changed_meanwhile_stays_as_it_is() {
    let folder = Folder::new();
    let path = folder.path("rules.toml");
    let sink = RuleFile::toml(&path);
    sink.store(&Rules::new(), &five()).unwrap();
    let written = fs::read_to_string(&path).unwrap();
    for other in [
        written.replace("= 5", "= 7"),
        "half".to_owned(),
        String::new(),
    ] {
        fs::write(&path, &other).unwrap();
        let error = sink.store(&five(), &six()).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Changed, "{other:?}");
        assert!(error.to_string().contains("rules.toml"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
    }
    fs::write(&path, b"\xff").unwrap();
    assert_eq!(
        sink.store(&five(), &six()).unwrap_err().kind(),
        SourceErrorKind::Changed
    );
    // A comment changes no rule.
    fs::write(&path, format!("# ours\n{written}")).unwrap();
    sink.store(&five(), &six()).unwrap();
    assert_eq!(names(&folder), ["rules.toml"]);
}

#[test]
fn what_cannot_be_written_is_an_error_that_leaves_nothing() {
    let folder = Folder::new();
    let sink = RuleFile::toml(folder.path("missing/rules.toml"));
    let error = sink.store(&Rules::new(), &five()).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Io);
    assert!(error.to_string().contains("cannot be written"), "{error}");
    let directory = RuleFile::toml(&folder.0);
    let error = directory.store(&Rules::new(), &five()).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::NotAFile);
    assert_eq!(names(&folder), [""; 0]);
    // Something has the name of the file that is written first.
    let path = folder.path("rules.toml");
    let beside = folder.path(&format!(".rules.toml.{}.tmp", std::process::id()));
    fs::write(&beside, "theirs").unwrap();
    let error = RuleFile::toml(&path)
        .store(&Rules::new(), &five())
        .unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Io);
    assert_eq!(fs::read_to_string(&beside).unwrap(), "theirs");
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn the_mode_and_the_link_of_the_file_stay() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let (real, link) = (folder.path("real.toml"), folder.path("link.toml"));
    let sink = RuleFile::toml(&link);
    RuleFile::toml(&real).store(&Rules::new(), &five()).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    super::set_mode(&real, 0o640);
    sink.store(&five(), &six()).unwrap();
    assert!(link.is_symlink());
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(FileSource::toml(&real).poll().unwrap(), Some(six()));
}

#[cfg(unix)]
#[test]
fn a_file_that_anyone_may_write_is_not_written() {
    let folder = Folder::new();
    let path = folder.path("rules.toml");
    RuleFile::toml(&path).store(&Rules::new(), &five()).unwrap();
    super::set_mode(&path, 0o666);
    let error = RuleFile::toml(&path).store(&five(), &six()).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::WorldWritable);
    assert_eq!(
        FileSource::toml(&path)
            .allow_world_writable(true)
            .poll()
            .unwrap(),
        Some(five())
    );
}

#[test]
fn a_sink_says_what_becomes_of_changes() {
    assert!(InMemory.note().contains("gone"));
    assert!(RuleFile::toml("a.toml").note().contains("comments"));
    assert_eq!(
        RuleFile::json("a.json").note(),
        "Changes are written to a.json."
    );
}

#[test]
fn the_store_of_a_file_stays_when_its_rules_are_written() {
    let folder = Folder::new();
    let shared = |limit: u32| Rules::from(FlowRule::per_second("r", limit).shared());
    let section = "[store]\nurl_env = 'REDIS_URL'\nnodes = 3\n";
    let rule = "[[rules]]\nkind = 'flow'\nresource = 'r'\nthreshold = 5\nshared = true\n";
    let path = folder.write("rules", format!("{rule}{section}"));
    let (sink, mut source) = (RuleFile::toml(&path), FileSource::toml(&path));
    assert_eq!(source.poll().unwrap(), Some(shared(5)));
    sink.store(&shared(5), &shared(6)).unwrap();
    assert_eq!(source.poll().unwrap(), Some(shared(6)));
    assert!(source.warnings().is_empty(), "it is the same store");
    sink.store(&shared(6), &Rules::new()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("REDIS_URL") && text.contains("nodes = 3"),
        "{text}"
    );
}
