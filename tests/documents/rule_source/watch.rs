//! What becomes of the rules in force, with a thread and without one.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::observe::journal::Journal;
use tower_sentinel::observe::page::Page;
use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::source::{
    FileSource, RuleSource, SourceError, SourceErrorKind, Watch, WatchEvent, from_fn,
};
use tower_sentinel::{Call, Clock, FlowRule, Rules, Sentinel, ThreadHandle, Verdict};

use super::{Folder, HOUR, PATIENCE, limit, parse, promptly};

// === without a thread ===

fn failure(event: Option<WatchEvent>) -> SourceErrorKind {
    match event {
        Some(WatchEvent::Failed(error)) => error.kind(),
        other => panic!("no failure: {other:?}"),
    }
}

#[track_caller]
fn assert_reloaded(event: Option<WatchEvent>, expected: usize) {
    match event {
        Some(WatchEvent::Reloaded { rules, .. }) => assert_eq!(rules, expected),
        other => panic!("not reloaded: {other:?}"),
    }
}

/// A source that gives these answers, and has nothing new after them.
fn answers(
    answers: impl IntoIterator<Item = Result<Option<Rules>, SourceError>>,
) -> impl RuleSource {
    let answers: Vec<_> = answers.into_iter().collect();
    let mut answers = answers.into_iter();
    from_fn(move || answers.next().unwrap_or(Ok(None)))
}

#[test]
fn the_rules_in_force_survive_whatever_becomes_of_the_file() {
    let folder = Folder::new();
    let path = folder.write("rules", "r 3");
    let sentinel = Sentinel::new(limit(1));
    let (tell, told) = mpsc::channel();
    let source = FileSource::new(&path, parse).max_bytes(20);
    let watch = Watch::new(sentinel.clone(), source)
        .on_event(move |event| tell.send(event.to_string()).unwrap());
    assert!(watch.last_error().is_none());
    assert_reloaded(watch.poll_once(), 1);
    let in_force = |rules: &Rules| {
        assert!(watch.poll_once().is_none());
        assert_eq!(sentinel.rules(), *rules);
    };
    in_force(&limit(3));

    folder.write("rules", "r 5\ns");
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Invalid);
    in_force(&limit(3));
    // The same mistake once more is told once more.
    folder.write("rules", "r 6\ns");
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Invalid);
    in_force(&limit(3));
    folder.write("rules", "");
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Empty);
    in_force(&limit(3));
    folder.write("rules", format!("r 5{}", " ".repeat(18)));
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::TooLarge);
    in_force(&limit(3));
    fs::remove_file(&path).unwrap();
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Io);
    in_force(&limit(3));
    assert_eq!(watch.last_error().unwrap().kind(), SourceErrorKind::Io);

    folder.write("rules", "r 3");
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Recovered)));
    in_force(&limit(3));
    folder.write("rules", "r 5\ns 7");
    assert_reloaded(watch.poll_once(), 2);
    in_force(&limit(5).with(FlowRule::per_second("s", 7)));
    assert_eq!(watch.reloads(), 2);
    assert!(watch.last_error().is_none());

    let name = path.display().to_string();
    let short: Vec<_> = told
        .try_iter()
        .map(|event| event.replace(&name, "F"))
        .collect();
    assert!(short[5].starts_with("rules kept: F: cannot be read: "));
    assert_eq!(
        [&short[..5], &short[6..]].concat(),
        [
            "1 rule in force",
            "rules kept: F: a line without a limit",
            "rules kept: F: a line without a limit",
            "rules kept: F: is empty",
            "rules kept: F: has more than 20 bytes",
            "rules readable again, and unchanged",
            "2 rules in force",
        ]
    );
}

/// Rules that are the same at each poll, an error in between, and a warning after that.
#[derive(Debug, Default)]
struct Warns(u32);

impl RuleSource for Warns {
    fn poll(&mut self) -> Result<Option<Rules>, SourceError> {
        self.0 += 1;
        match self.0 {
            2 => Err(SourceError::new("away")),
            _ => Ok(Some(limit(1))),
        }
    }

    fn warnings(&self) -> Vec<String> {
        Vec::from_iter((self.0 > 2).then(|| "a setting is ignored".to_owned()))
    }
}

#[test]
fn who_recovers_with_a_warning_is_told_once() {
    let watch = Watch::new(Sentinel::new(limit(1)), Warns::default());
    assert!(watch.poll_once().is_none());
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Other);
    let told = watch.poll_once();
    assert!(matches!(told, Some(WatchEvent::Warned { .. })));
    assert!(watch.last_error().is_none());
    assert!(watch.poll_once().is_none());
}

#[test]
fn equal_rules_are_no_reload() {
    let sentinel = Sentinel::new(limit(1));
    let said = [limit(1), limit(2), limit(2), limit(1)];
    let watch = Watch::new(sentinel.clone(), answers(said.map(|rules| Ok(Some(rules)))));
    assert!(watch.poll_once().is_none());
    // What was counted stays, too.
    assert!(matches!(
        sentinel.try_enter(Call::new("r")),
        Verdict::Pass(_)
    ));
    assert_reloaded(watch.poll_once(), 1);
    assert!(watch.poll_once().is_none());
    assert_reloaded(watch.poll_once(), 1);
    assert!(watch.poll_once().is_none());
    assert_eq!(watch.reloads(), 2);
    assert_eq!(sentinel.node("r").unwrap().totals().pass(), 1);
}

#[test]
fn rules_that_the_program_loads_itself_stay_until_the_source_says_rules_again() {
    let folder = Folder::new();
    let sentinel = Sentinel::new(Rules::new());
    let source = FileSource::new(folder.write("rules", "r 1"), parse);
    let watch = Watch::new(sentinel.clone(), source);
    assert_reloaded(watch.poll_once(), 1);
    assert!(sentinel.reload(limit(7)));
    assert!(watch.poll_once().is_none());
    assert_eq!(sentinel.rules(), limit(7));
    folder.write("rules", "r 2");
    assert_reloaded(watch.poll_once(), 1);
    assert_eq!(sentinel.rules(), limit(2));
    // Also the old ones, after a trouble.
    assert!(sentinel.reload(limit(7)));
    fs::remove_file(folder.path("rules")).unwrap();
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Io);
    assert_eq!(sentinel.rules(), limit(7));
    folder.write("rules", "r 2");
    assert_reloaded(watch.poll_once(), 1);
    assert_eq!(sentinel.rules(), limit(2));
}

#[test]
fn a_source_that_repeats_an_error_or_a_panic_is_told_once() {
    let failing = |text| Err(SourceError::new(text));
    let said = [
        failing("away"),
        failing("away"),
        failing("busy"),
        failing("away"),
        Ok(None),
    ];
    let watch = Watch::new(Sentinel::new(limit(1)), answers(said));
    let told: Vec<_> = (0..5)
        .map(|_| watch.poll_once().map(|event| event.to_string()))
        .collect();
    let [away, busy] = ["away", "busy"].map(|text| Some(format!("rules kept: {text}")));
    // Nothing new is not the end of the trouble.
    assert_eq!(told, [away.clone(), None, busy, away, None]);
    assert_eq!(watch.last_error().unwrap().kind(), SourceErrorKind::Other);

    let mut polls = 0;
    let source = from_fn(move || {
        polls += 1;
        assert!(polls > 2, "not ready");
        Ok(Some(limit(2)))
    });
    let watch = Watch::new(Sentinel::new(limit(1)), source);
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Panicked);
    let text = watch.last_error().unwrap().to_string();
    assert_eq!(text, "the source panicked: not ready");
    assert!(watch.poll_once().is_none());
    assert_reloaded(watch.poll_once(), 1);
}

#[test]
fn rules_are_in_force_even_if_their_warnings_panic() {
    #[derive(Debug)]
    struct Wordless(Option<Rules>);

    impl RuleSource for Wordless {
        fn poll(&mut self) -> Result<Option<Rules>, SourceError> {
            Ok(self.0.take())
        }

        fn warnings(&self) -> Vec<String> {
            panic!("no words")
        }
    }

    let sentinel = Sentinel::new(limit(1));
    let watch = Watch::new(sentinel.clone(), Wordless(Some(limit(2))));
    assert_eq!(
        watch.poll_once().unwrap().to_string(),
        "1 rule in force, 1 warning: the source panicked: no words"
    );
    assert_eq!(sentinel.rules(), limit(2));
    assert!(watch.poll_once().is_none());
    assert!(watch.last_error().is_none());
}

#[test]
fn a_bad_file_is_told_once_by_a_source_that_is_made_anew_for_each_look() {
    let folder = Folder::new();
    let path = folder.write("rules", "r many");
    let source = from_fn(move || FileSource::new(&path, parse).poll());
    let watch = Watch::new(Sentinel::new(limit(1)), source);
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Invalid);
    for _ in 0..3 {
        assert!(watch.poll_once().is_none());
    }
    // The same mistake in another text.
    folder.write("rules", "s many");
    assert_eq!(failure(watch.poll_once()), SourceErrorKind::Invalid);
    assert!(watch.poll_once().is_none());
    folder.write("rules", "r 1");
    assert!(matches!(watch.poll_once(), Some(WatchEvent::Recovered)));
}

#[test]
fn a_callback_may_poll_and_may_panic() {
    let said = [1, 2, 3].map(|number| Ok(Some(limit(number))));
    let mut source = answers(said);
    let watch = Arc::new_cyclic(|own: &std::sync::Weak<Watch>| {
        let own = own.clone();
        let mut calls = 0;
        Watch::new(Sentinel::new(Rules::new()), from_fn(move || source.poll())).on_event(
            move |_| {
                calls += 1;
                // This thread is polling already.
                assert!(own.upgrade().unwrap().poll_once().is_none());
                assert_ne!(calls, 2, "the second call");
            },
        )
    });
    for reloads in 1..=3 {
        assert_reloaded(watch.poll_once(), 1);
        assert_eq!(watch.reloads(), reloads);
    }
}

#[test]
fn a_clock_that_panics_keeps_no_rules_from_being_reloaded() {
    #[derive(Debug)]
    struct Fragile(AtomicBool);

    impl Clock for Fragile {
        fn now(&self) -> Tick {
            assert!(!self.0.swap(false, Ordering::Relaxed), "no time");
            Tick::ZERO
        }
    }

    let clock = Arc::new(Fragile(AtomicBool::new(false)));
    let as_clock: Arc<dyn Clock> = clock.clone();
    let sentinel = Sentinel::builder().clock(as_clock).build();
    let said = [2, 3].map(|number| Ok(Some(limit(number))));
    let watch = Watch::new(sentinel.clone(), answers(said));
    clock.0.store(true, Ordering::Relaxed);
    for number in [2, 3] {
        assert_reloaded(watch.poll_once(), 1);
        assert_eq!(sentinel.rules(), limit(number));
    }
    assert!(!clock.0.load(Ordering::Relaxed), "it was read");
}

// === by a thread ===

/// A source that is asked on another thread and answered by the test.
struct Puppet {
    asked: mpsc::Receiver<()>,
    answer: mpsc::Sender<Result<Option<Rules>, SourceError>>,
}

impl Puppet {
    fn new() -> (Self, impl RuleSource) {
        let (ask, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let source = from_fn(move || {
            // At the end of a test nobody listens, and nobody answers.
            let _ = ask.send(());
            answered.recv().unwrap_or(Ok(None))
        });
        (Self { asked, answer }, source)
    }

    /// Waits for the next question and answers it.
    fn answers(&self, answer: Result<Option<Rules>, SourceError>) {
        self.asked.recv_timeout(PATIENCE).unwrap();
        self.answer.send(answer).unwrap();
    }
}

/// A watch, and what it tells.
fn telling(sentinel: &Sentinel, source: impl RuleSource) -> (Watch, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let watch = Watch::new(sentinel.clone(), source)
        // At the end of a test nobody listens.
        .on_event(move |event| drop(tell.send(event.to_string())));
    (watch, told)
}

/// The same on a thread alone.
fn spawned(
    sentinel: &Sentinel,
    source: impl RuleSource,
    every: Duration,
) -> (ThreadHandle, mpsc::Receiver<String>) {
    let (watch, told) = telling(sentinel, source);
    (watch.spawn(every).unwrap(), told)
}

#[test]
fn a_thread_puts_in_force_what_the_source_says_and_tells_what_it_could_not() {
    let sentinel = Sentinel::new(limit(1));
    let (puppet, source) = Puppet::new();
    let (watch, told) = telling(&sentinel, source);
    let handle = watch.clone().spawn(Duration::ZERO).unwrap();
    // It goes first if the test fails: else the thread would wait for an answer.
    let puppet = puppet;
    let next = || told.recv_timeout(PATIENCE).unwrap();
    puppet.answers(Ok(Some(limit(2))));
    assert_eq!(next(), "1 rule in force");
    assert_eq!((sentinel.rules(), watch.reloads()), (limit(2), 1));
    assert!(watch.is_up());
    puppet.answers(Ok(None));
    puppet.answers(Err(SourceError::new("away")));
    puppet.answers(Err(SourceError::new("away")));
    assert_eq!(next(), "rules kept: away");
    assert_eq!(watch.last_error().unwrap().to_string(), "away");
    assert!(!watch.is_up());
    puppet.answers(Ok(Some(Rules::new())));
    assert_eq!(next(), "0 rules in force");
    assert_eq!((sentinel.rules(), watch.reloads()), (Rules::new(), 2));
    assert!(watch.last_error().is_none());
    puppet.answers(Ok(Some(limit(3))));
    drop(puppet);
    promptly(move || handle.stop());
    assert_eq!(sentinel.rules(), limit(3));
    // What has come of it is known when the thread has gone.
    assert_eq!((watch.is_up(), watch.reloads()), (true, 3));
    assert!(watch.last_poll().is_some());
    drop(watch);
    // All has been told, and nobody is left who could tell more.
    assert_eq!(told.iter().collect::<Vec<_>>(), ["1 rule in force"]);
}

#[test]
fn stopping_does_not_wait_for_the_next_poll() {
    let sentinel = Sentinel::new(limit(1));
    let source = answers([2, 3].map(|number| Ok(Some(limit(number)))));
    let (watch, told) = spawned(&sentinel, source, HOUR);
    assert!(told.recv_timeout(PATIENCE).is_ok());
    assert_eq!(sentinel.rules(), limit(2));
    promptly(move || watch.stop());
    // The source is gone with the thread, and was not asked again.
    assert_eq!(told.recv(), Err(mpsc::RecvError));
    assert_eq!(sentinel.rules(), limit(2));
}

#[test]
fn dropping_the_handle_stops_the_thread_even_before_its_first_poll() {
    for _ in 0..50 {
        let (watch, told) = spawned(&Sentinel::new(limit(1)), answers([]), HOUR);
        promptly(move || drop(watch));
        assert_eq!(told.recv(), Err(mpsc::RecvError));
    }
}

#[test]
fn a_thread_can_be_told_to_look_now() {
    let folder = Folder::new();
    let sentinel = Sentinel::new(Rules::new());
    let source = FileSource::new(folder.write("rules", "r 1"), parse);
    let (watch, told) = telling(&sentinel, source);
    let _handle = watch.clone().spawn(HOUR).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "1 rule in force");
    folder.replace("rules", "r 2");
    // The thread may still be about to leave its first poll.
    assert_reloaded(watch.poll_once(), 1);
    assert_eq!(sentinel.rules(), limit(2));
}

/// Whether the second poll meets the first one nobody decides: hence the rounds.
#[test]
fn a_poll_beside_another_one_asks_after_it() {
    for _ in 0..50 {
        let sentinel = Sentinel::new(limit(1));
        let (puppet, source) = Puppet::new();
        let (watch, told) = telling(&sentinel, source);
        let handle = watch.clone().spawn(HOUR).unwrap();
        puppet.asked.recv_timeout(PATIENCE).unwrap();
        let (tell, begun) = mpsc::channel();
        let beside = thread::spawn(move || {
            tell.send(()).unwrap();
            let event = watch.poll_once();
            (watch, event)
        });
        begun.recv_timeout(PATIENCE).unwrap();
        puppet.answer.send(Ok(Some(limit(2)))).unwrap();
        puppet.answers(Ok(Some(limit(3))));
        let (watch, event) = beside.join().unwrap();
        assert_reloaded(event, 1);
        assert_eq!((sentinel.rules(), watch.reloads()), (limit(3), 2));
        drop(puppet);
        promptly(move || handle.stop());
        drop(watch);
        assert_eq!(told.iter().count(), 2);
    }
}

#[test]
fn readers_of_a_watch_do_not_keep_it_alive() {
    let sentinel = Sentinel::new(limit(1));
    let (watch, told) = telling(&sentinel, answers([Err(SourceError::new("away"))]));
    let metrics = Metrics::new(&sentinel).watch("rules", &watch);
    let journal = Journal::new(&sentinel).watch("rules", &watch);
    let page = Page::new(&sentinel).watch("rules", &watch);
    assert!(watch.poll_once().is_some());
    drop(watch);
    // The source and the callback are gone.
    assert_eq!(told.try_recv().unwrap(), "rules kept: away");
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    let text = metrics.render(TextFormat::Classic);
    assert!(text.contains("sentinel_rule_source_up{source=\"rules\"} 0\n"));
    drop((journal, page));
}

#[test]
fn a_callback_may_stop_the_thread_that_calls_it() {
    let (hand_over, handed_over) = mpsc::channel::<ThreadHandle>();
    let (tell, told) = mpsc::channel();
    let said = [1, 2].map(|number| Ok(Some(limit(number))));
    let sentinel = Sentinel::new(Rules::new());
    let watch = Watch::new(sentinel.clone(), answers(said)).on_event(move |event| {
        handed_over.recv().unwrap().stop();
        tell.send(event.to_string()).unwrap();
    });
    hand_over
        .send(watch.spawn(Duration::ZERO).unwrap())
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "1 rule in force");
    assert_eq!(
        told.recv_timeout(PATIENCE),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    assert_eq!(sentinel.rules(), limit(1));
}

#[test]
fn a_thread_survives_sources_that_panic() {
    let mut polls = 0;
    let source = from_fn(move || {
        polls += 1;
        match polls {
            1 => panic!("at first"),
            2 => Ok(Some(limit(2))),
            _ => Ok(None),
        }
    });
    let sentinel = Sentinel::new(limit(1));
    let (_watch, told) = spawned(&sentinel, source, Duration::ZERO);
    let next = || told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next(), "rules kept: the source panicked: at first");
    assert_eq!(next(), "1 rule in force");
    assert_eq!(sentinel.rules(), limit(2));
}
