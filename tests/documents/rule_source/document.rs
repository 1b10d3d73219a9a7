//! Files that hold documents, which need no parser of their own.

use tower_sentinel::document::{Kind, Problems};
use tower_sentinel::source::{FileSource, RuleSource, SourceErrorKind, Watch, WatchEvent};
use tower_sentinel::store::WhenDown;
use tower_sentinel::{FlowRule, IsolationRule, Rules, Sentinel};

use super::{Folder, limit};

#[test]
fn a_toml_file_holds_all_rules_or_none_with_every_mistake_and_its_place() {
    let folder = Folder::new();
    let good = "[[rules]]\nkind = 'flow'\nresource = 'r'\nthreshold = 3\n";
    let path = folder.write("rules", good);
    let mut source = FileSource::toml(&path);
    assert_eq!(source.poll().unwrap(), Some(limit(3)));

    let two_mistakes = good.replace('3', "-3").replace("thr", "tr");
    folder.replace("rules", &format!("{good}{two_mistakes}"));
    let error = source.poll().unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Invalid);
    assert_eq!(
        error.to_string(),
        format!(
            "{}: line 5, column 1: rules[1].threshold is missing, must be a number\n\
             line 8, column 1: rules[1].treshold is not known, did you mean `threshold`?",
            path.display()
        )
    );
    let problems = error.cause().unwrap().downcast_ref::<Problems>().unwrap();
    assert_eq!(problems.len(), 2);
    // It has been told.
    assert_eq!(source.poll().unwrap(), None);

    folder.replace("rules", "[[rules]]\nkind = flow\n");
    let error = source.poll().unwrap_err();
    let place = format!("{}: line 2, column ", path.display());
    assert!(error.to_string().starts_with(&place), "{error}");
    let cause = error.cause().unwrap().downcast_ref::<Problems>();
    assert_eq!(cause.unwrap().as_slice()[0].line(), Some(2));

    // A document that may be the first half of another one.
    folder.replace("rules", "# rules\n");
    let error = source.poll().unwrap_err().to_string();
    assert!(error.contains("rules is missing"), "{error}");
    folder.replace("rules", "rules = []\n");
    assert_eq!(source.poll().unwrap(), Some(Rules::new()));
}

#[test]
fn a_json_file_has_the_form_of_this_crate_or_of_sentinel() {
    let folder = Folder::new();
    let own = r#"{"rules": [{"kind": "isolation", "resource": "r", "max": 3}]}"#;
    let mut source = FileSource::json(folder.write("rules", own));
    let isolation = Rules::from(IsolationRule::new("r", 3));
    assert_eq!(source.poll().unwrap(), Some(isolation.clone()));

    folder.replace(
        "rules",
        r#"[{"resource": "r", "count": 3, "clusterMode": true}]"#,
    );
    assert_eq!(source.poll().unwrap(), Some(limit(3)));
    // The kind of these does not show.
    folder.replace("rules", r#"[{"resource": "r", "threshold": 3}]"#);
    let error = source.poll().unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("the kind of these rules does not show")
    );

    let path = folder.path("rules");
    let mut as_isolation = FileSource::sentinel(&path, Kind::Isolation);
    assert_eq!(as_isolation.poll().unwrap(), Some(isolation));
    let mut as_flow = FileSource::sentinel(&path, Kind::Flow);
    assert_eq!(
        as_flow.poll().unwrap(),
        Some(FlowRule::per_second("r", 3).into())
    );
    folder.replace("rules", own);
    let error = as_flow.poll().unwrap_err().to_string();
    assert!(
        error.ends_with("must be a list of Sentinel's rules"),
        "{error}"
    );
}

#[test]
fn what_a_file_of_sentinel_warns_of_is_told() {
    const IN_CLUSTER: &str = "line 1, column 32: [0].clusterMode is true: ignored, this process alone is limited, \
                              where Sentinel limits nothing while no token server answers";
    let folder = Folder::new();
    let list = |rest: &str| format!(r#"[{{"resource": "r", "count": 3{rest}}}]"#);
    let path = folder.write("rules", list(r#", "clusterMode": true"#));
    let sentinel = Sentinel::new(Rules::new());
    let in_cluster = format!("{}: {IN_CLUSTER}", path.display());
    let source = FileSource::sentinel(path, Kind::Flow);
    // In a box it is the same source.
    let source: Box<dyn RuleSource> = Box::new(source);
    let watch = Watch::new(sentinel.clone(), source);
    let event = watch.poll_once().unwrap();
    let told = format!("1 rule in force, 1 warning: {in_cluster}");
    assert_eq!(event.to_string(), told);
    let WatchEvent::Reloaded { warnings, .. } = event else {
        panic!("no reload: {event:?}");
    };
    assert_eq!(warnings, [in_cluster.as_str()]);
    assert_eq!(watch.warnings(), warnings);
    assert!(watch.poll_once().is_none());

    // Neither trouble nor its end changes what is warned of.
    folder.replace("rules", "[");
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Failed(_))));
    assert_eq!(watch.warnings(), warnings);
    folder.replace("rules", &list(r#", "clusterMode": true"#));
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Recovered)));

    // The same rules, with one setting more that is ignored.
    let two = list(r#", "clusterMode": true, "controlBehavior": 9"#);
    folder.replace("rules", &two);
    let event = watch.poll_once().unwrap();
    let told = format!("rules unchanged, 2 warnings, the first: {in_cluster}");
    assert_eq!(event.to_string(), told);
    let WatchEvent::Warned { warnings, .. } = event else {
        panic!("not warned: {event:?}");
    };
    assert_eq!(warnings.len(), 2);
    assert_eq!((watch.reloads(), sentinel.rules()), (1, limit(3)));

    // One less is nothing new.
    folder.replace("rules", &list(r#", "clusterMode": true"#));
    assert!(watch.poll_once().is_none());
    assert_eq!(watch.warnings(), [in_cluster.as_str()]);

    // Nothing to warn of any more.
    folder.replace("rules", &list(""));
    assert!(watch.poll_once().is_none());
    assert!(watch.warnings().is_empty());
}

#[test]
fn a_store_that_changes_while_the_program_runs_is_warned_of() {
    const NOTE: &str = "store is another one than at the start: the engine keeps the one that it \
                        has until the program is started again";
    let folder = Folder::new();
    let rule =
        |limit: u32| format!("[[rules]]\nkind = 'flow'\nresource = 'r'\nthreshold = {limit}\n");
    let with = |store: &str, limit| format!("{store}\n{}", rule(limit));
    let path = folder.write("rules", with("[store]\nnodes = 2", 3));
    let warning = format!("{}: {NOTE}", path.display());
    let sentinel = Sentinel::new(Rules::new());
    let watch = Watch::new(sentinel.clone(), FileSource::toml(&path));
    assert_eq!(watch.poll_once().unwrap().to_string(), "1 rule in force");
    // Rules change as ever, and the same store in another order is the same one.
    folder.replace("rules", &format!("{}[store]\nnodes = 2\n", rule(4)));
    assert_eq!(watch.poll_once().unwrap().to_string(), "1 rule in force");
    for store in ["[store]\nnodes = 3", "[store]", ""] {
        folder.replace("rules", &with(store, 5));
        let event = watch.poll_once();
        assert_eq!(watch.warnings(), [warning.as_str()], "{event:?}");
        assert_eq!(sentinel.rules(), limit(5));
    }
    folder.replace("rules", &with("[store]\nnodes = 2", 6));
    assert_eq!(watch.poll_once().unwrap().to_string(), "1 rule in force");
    assert!(watch.warnings().is_empty());
}

#[test]
fn a_file_of_sentinel_for_an_engine_with_a_store_has_shared_rules() {
    let folder = Folder::new();
    let list = r#"[{"resource": "r", "count": 3, "clusterMode": true,
        "clusterConfig": {"flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false}}]"#;
    let path = folder.write("rules", list);
    let shared = FlowRule::per_second("r", 3)
        .buckets(10)
        .id("cluster-7")
        .shared()
        .when_down(WhenDown::Open);
    let sources = || {
        [
            FileSource::sentinel(&path, Kind::Flow),
            FileSource::json(&path),
        ]
    };
    for source in sources() {
        let mut source = source.with_store();
        assert_eq!(source.poll().unwrap(), Some(shared.clone().into()));
        assert!(source.warnings().is_empty());
    }
    for mut source in sources() {
        assert_eq!(source.poll().unwrap(), Some(limit(3)));
        assert_eq!(source.warnings().len(), 1);
    }
}
