//! What a file source sees, refuses and tells.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use tower_sentinel::source::{FileSource, RuleSource, SourceErrorKind};
use tower_sentinel::{FlowRule, InvalidRules, Rules};

use super::{Folder, HOUR, limit, parse};

fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Asserts that the source has new rules, and then nothing new.
#[track_caller]
fn assert_new(source: &mut FileSource, rules: &Rules) {
    assert_eq!(source.poll().unwrap().as_ref(), Some(rules));
    assert_quiet(source);
}

/// Asserts that the source tells of a problem once. Returns its text.
#[track_caller]
fn assert_told(source: &mut FileSource, kind: SourceErrorKind) -> String {
    let error = source.poll().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let path = source.path().display().to_string();
    assert!(error.to_string().starts_with(&path), "{error}");
    assert_quiet(source);
    error.to_string()
}

#[track_caller]
fn assert_quiet(source: &mut FileSource) {
    for _ in 0..3 {
        assert_eq!(source.poll().unwrap(), None);
    }
}

#[test]
fn the_first_poll_loads_and_the_next_tell_only_changes() {
    let folder = Folder::new();
    let mut source = FileSource::new(folder.write("rules", "r 1"), parse);
    assert_new(&mut source, &limit(1));
    folder.write("rules", "r 10");
    assert_new(&mut source, &limit(10));
    folder.write("rules", "r 10\ns 5");
    let two = limit(10).with(FlowRule::per_second("s", 5));
    assert_new(&mut source, &two);
}

#[test]
fn a_file_that_is_touched_or_replaced_by_an_equal_one_tells_nothing() {
    let folder = Folder::new();
    let path = folder.write("rules", "r 1");
    let mut source = FileSource::new(&path, parse);
    assert_new(&mut source, &limit(1));
    set_modified(&path, SystemTime::UNIX_EPOCH + HOUR);
    assert_quiet(&mut source);
    folder.replace("rules", "r 1");
    assert_quiet(&mut source);
}

#[test]
fn a_file_that_is_replaced_by_a_rename_is_seen() {
    let folder = Folder::new();
    let path = folder.write("rules", "r 1");
    let time = modified(&path);
    let mut source = FileSource::new(&path, parse);
    assert_new(&mut source, &limit(1));
    for number in [2, 3, 4] {
        folder.replace("rules", &format!("r {number}"));
        // An older file may well be the newer one.
        set_modified(&path, time - HOUR);
        assert_new(&mut source, &limit(number));
    }
}

#[test]
fn a_missing_file_is_told_once_and_what_comes_back_is_read() {
    let folder = Folder::new();
    let path = folder.path("rules");
    let mut source = FileSource::new(&path, parse);
    let text = assert_told(&mut source, SourceErrorKind::Io);
    assert!(text.contains(": cannot be read: "), "{text}");
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
    fs::remove_file(&path).unwrap();
    assert_told(&mut source, SourceErrorKind::Io);
    // The same rules again: that the trouble is over must be told.
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
}

#[test]
fn each_bad_content_is_told_once() {
    let folder = Folder::new();
    let path = folder.write("rules", "r 1");
    let mut source = FileSource::new(&path, parse);
    assert_new(&mut source, &limit(1));
    folder.write("rules", "r");
    let text = assert_told(&mut source, SourceErrorKind::Invalid);
    assert!(text.ends_with(": a line without a limit"), "{text}");
    // The same mistake again, in another file.
    folder.write("rules", "r 1\ns");
    assert_told(&mut source, SourceErrorKind::Invalid);
    folder.write("rules", "r -1");
    let error = source.poll().unwrap_err();
    let cause = error.cause().unwrap().downcast_ref::<InvalidRules>();
    assert_eq!(cause.unwrap().problems()[0].field(), "threshold");
    // What was said already is not said again by the chain of errors.
    assert!(error.source().is_none());
    // The rules that were good before the mistakes.
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
}

#[test]
fn an_empty_file_is_no_set_of_no_rules() {
    let folder = Folder::new();
    let mut source = FileSource::new(folder.write("rules", ""), parse);
    let text = assert_told(&mut source, SourceErrorKind::Empty);
    assert!(text.ends_with(": is empty"), "{text}");
    folder.write("rules", " \n\t\n");
    assert_told(&mut source, SourceErrorKind::Empty);
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
    // None at all, if the parser says so.
    let mut source = FileSource::new(folder.write("rules", "[]"), |_| Ok(Rules::new()));
    assert_new(&mut source, &Rules::new());
}

#[test]
fn a_file_may_be_as_large_as_it_may_be_and_not_larger() {
    let folder = Folder::new();
    let path = folder.write("rules", "r 100");
    let mut source = FileSource::new(&path, parse).max_bytes(5);
    assert_new(&mut source, &limit(100));
    folder.write("rules", "r 1000");
    let text = assert_told(&mut source, SourceErrorKind::TooLarge);
    assert!(text.ends_with(": has more than 5 bytes"), "{text}");
    folder.write("rules", "r 200");
    assert_new(&mut source, &limit(200));

    // The default, by a file without blocks.
    let sparse = |bytes| File::create(&path).unwrap().set_len(bytes).unwrap();
    let mut source = FileSource::new(&path, parse);
    sparse(4 << 20);
    assert_told(&mut source, SourceErrorKind::Invalid);
    sparse((4 << 20) + 1);
    assert_told(&mut source, SourceErrorKind::TooLarge);
}

#[test]
fn bytes_that_are_no_text_are_told_with_their_place() {
    let folder = Folder::new();
    let mut source = FileSource::new(folder.write("rules", b"r 1\n\xff"), parse);
    let text = assert_told(&mut source, SourceErrorKind::NotUtf8);
    assert!(text.contains("index 4"), "{text}");
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
}

#[test]
fn a_directory_is_no_file() {
    let folder = Folder::new();
    let mut source = FileSource::new(&folder.0, parse);
    let text = assert_told(&mut source, SourceErrorKind::NotAFile);
    assert!(text.contains("is a directory"), "{text}");
}

#[test]
fn a_parser_that_panics_has_refused_the_text() {
    let folder = Folder::new();
    let mut source = FileSource::new(folder.write("rules", "?"), |text| match text {
        "?" => panic!("what is {text}"),
        "!" => std::panic::panic_any(1_u8),
        _ => parse(text),
    });
    let text = assert_told(&mut source, SourceErrorKind::Panicked);
    assert!(text.ends_with(": the parser panicked: what is ?"), "{text}");
    folder.write("rules", "!");
    assert_told(&mut source, SourceErrorKind::Panicked);
    folder.write("rules", "r 1");
    assert_new(&mut source, &limit(1));
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    use super::super::{promptly, set_mode};
    use super::*;

    #[test]
    fn other_content_of_the_same_length_and_time_is_seen() {
        let folder = Folder::new();
        let path = folder.write("rules", "r 1");
        let time = modified(&path);
        let mut source = FileSource::new(&path, parse);
        assert_new(&mut source, &limit(1));
        for number in [2, 3, 2, 9] {
            folder.write("rules", format!("r {number}"));
            set_modified(&path, time);
            assert_eq!(modified(&path), time);
            assert_new(&mut source, &limit(number));
        }
    }

    #[test]
    fn links_that_are_swapped_as_kubernetes_does_it_are_seen() {
        let folder = Folder::new();
        let version = |name: &str, text: &str| {
            fs::create_dir(folder.path(name)).unwrap();
            set_mode(&folder.path(name), 0o755);
            folder.write(&format!("{name}/rules"), text);
        };
        // rules → ..data/rules, ..data → ..1
        version("..1", "r 1");
        symlink("..1", folder.path("..data")).unwrap();
        symlink("..data/rules", folder.path("rules")).unwrap();
        // Its mode is that of the volumes of a ConfigMap.
        set_mode(&folder.0, 0o777);
        let time = modified(&folder.path("..1/rules"));
        let mut source = FileSource::new(folder.path("rules"), parse);
        assert_new(&mut source, &limit(1));
        for number in 2..5 {
            let (old, new) = (format!("..{}", number - 1), format!("..{number}"));
            version(&new, &format!("r {number}"));
            set_modified(&folder.path(&new).join("rules"), time);
            symlink(&new, folder.path("..data_tmp")).unwrap();
            fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
            fs::remove_dir_all(folder.path(&old)).unwrap();
            assert_new(&mut source, &limit(number));
        }
        // For a moment, or for good, it leads nowhere.
        fs::remove_dir_all(folder.path("..4")).unwrap();
        assert_told(&mut source, SourceErrorKind::Io);
    }

    /// A mount needs privileges; the path of an open file leads to one without a
    /// name as well.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_mounted_file_that_is_replaced_outside_is_told_once() {
        use std::os::fd::AsRawFd;

        let folder = Folder::new();
        let open = File::open(folder.write("rules", "r 1")).unwrap();
        let mounted = format!("/proc/self/fd/{}", open.as_raw_fd());
        // Who may replace it cannot be asked of such a path.
        let source = || FileSource::new(&mounted, parse).allow_world_writable(true);
        let mut seen_before = source();
        assert_new(&mut seen_before, &limit(1));
        // It has another name.
        fs::hard_link(folder.path("rules"), folder.path("old")).unwrap();
        folder.replace("rules", "r 2");
        assert_quiet(&mut seen_before);
        fs::remove_file(folder.path("old")).unwrap();
        // It may be a rename that is under way.
        assert_eq!(seen_before.poll().unwrap(), None);
        let text = assert_told(&mut seen_before, SourceErrorKind::Io);
        assert!(text.ends_with("mount its directory"), "{text}");
        // One without a name from the start may be on a file system without such counts.
        assert_new(&mut source(), &limit(1));
    }

    #[test]
    fn what_is_neither_a_file_nor_a_directory_is_not_even_opened() {
        let folder = Folder::new();
        let path = folder.path("rules");
        let mut source = FileSource::new(&path, parse);
        symlink("/dev/null", &path).unwrap();
        let text = assert_told(&mut source, SourceErrorKind::NotAFile);
        assert!(text.contains("a device"), "{text}");
        fs::remove_file(&path).unwrap();
        // To open a pipe is to wait for who writes to it.
        let status = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(status.expect("mkfifo is part of POSIX").success());
        // It is the same trouble, so a source that knows of the device is quiet.
        assert_quiet(&mut source);
        promptly(move || {
            assert_told(
                &mut FileSource::new(&path, parse),
                SourceErrorKind::NotAFile,
            );
        });
    }

    #[test]
    fn a_file_that_anyone_may_change_is_refused_unless_it_may_be() {
        let folder = Folder::new();
        let path = folder.write("rules", "r 1");
        let mut source = FileSource::new(&path, parse);
        assert_new(&mut source, &limit(1));
        // Its group may; that is the owner's decision.
        set_mode(&path, 0o664);
        assert_quiet(&mut source);
        set_mode(&path, 0o646);
        let text = assert_told(&mut source, SourceErrorKind::WorldWritable);
        assert!(
            text.ends_with("anyone may write to it (mode 0646)"),
            "{text}"
        );
        let allowing = || FileSource::new(&path, parse).allow_world_writable(true);
        assert_new(&mut allowing(), &limit(1));
        set_mode(&path, 0o644);
        assert_new(&mut source, &limit(1));

        set_mode(&folder.0, 0o757);
        folder.write("rules", "r 2");
        let text = assert_told(&mut source, SourceErrorKind::WorldWritable);
        assert!(text.ends_with("(mode 0757)"), "{text}");
        assert_new(&mut allowing(), &limit(2));
        // Here only owners replace what is theirs.
        set_mode(&folder.0, 0o1757);
        assert_new(&mut source, &limit(2));
    }

    #[test]
    fn a_link_that_anyone_may_replace_must_lead_to_a_file_of_the_same_owner() {
        let folder = Folder::new();
        fs::create_dir(folder.path("open")).unwrap();
        set_mode(&folder.path("open"), 0o777);
        let path = folder.path("open/rules");
        symlink(folder.write("mine", "r 1"), &path).unwrap();
        let mut source = FileSource::new(&path, parse);
        assert_new(&mut source, &limit(1));
        // Somebody else's: made by who may do so, found by who may not.
        let theirs = folder.write("theirs", "r 2");
        let theirs = match chown(&theirs, Some(65_534), None) {
            Ok(()) => theirs,
            Err(_) => PathBuf::from("/etc/passwd"),
        };
        fs::remove_file(&path).unwrap();
        symlink(&theirs, &path).unwrap();
        let text = assert_told(&mut source, SourceErrorKind::WorldWritable);
        assert!(text.contains("anyone may replace it in "), "{text}");
        // Nobody else may put a link here.
        set_mode(&folder.path("open"), 0o755);
        let expected = source.poll().map(|rules| rules.is_some());
        if theirs.starts_with(&folder.0) {
            assert!(expected.unwrap());
        } else {
            assert_eq!(expected.unwrap_err().kind(), SourceErrorKind::Invalid);
        }
    }

    #[test]
    fn a_link_in_a_safe_place_does_not_make_what_it_leads_to_safe() {
        let folder = Folder::new();
        fs::create_dir(folder.path("open")).unwrap();
        set_mode(&folder.path("open"), 0o777);
        folder.write("open/rules", "r 1");
        symlink("open/rules", folder.path("link")).unwrap();
        let mut source = FileSource::new(folder.path("link"), parse);
        let text = assert_told(&mut source, SourceErrorKind::WorldWritable);
        assert!(text.ends_with("/open (mode 0777)"), "{text}");
        set_mode(&folder.path("open"), 0o755);
        assert_new(&mut source, &limit(1));
    }

    #[test]
    fn a_name_without_a_directory_is_one_of_the_working_directory() {
        // Nothing of that name is there: it gets as far as looking for it.
        let mut source = FileSource::new("no-such-rules", parse);
        assert_told(&mut source, SourceErrorKind::Io);
        // A file that every run of these tests has where it runs.
        let mut source = FileSource::new("Cargo.toml", |_| Ok(limit(1)));
        match source.poll() {
            Ok(rules) => assert_eq!(rules, Some(limit(1))),
            // The checkout is somebody's who lets anyone write there.
            Err(error) => assert_eq!(error.kind(), SourceErrorKind::WorldWritable),
        }
    }
}
