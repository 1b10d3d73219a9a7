//! Calls that find a permit in hand on the fast path, beside the same calls through all checks.
//!
//! Each history is played by two engines, each over a store of its own. Their rules are the same,
//! but that one engine has a list of callers, which refuses none of these calls and sends all
//! through every check. `SENTINEL_SEED` sets the seed of the first history.

use std::time::Duration;

use tower_sentinel::clock::TokioClock;
use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::store::{
    Fault, MemoryStore, StoreErrorKind, StoreHandle, StoreSettings, WhenDown,
};
use tower_sentinel::{
    AuthorityRule, Blocked, Call, Entry, FlowRule, IsolationRule, Rules, Sentinel, Verdict, Waiting,
};

use super::ms;
use super::support::Rng;

const HISTORIES: usize = 100;
const STEPS: usize = 250;
const LIST: &str = "list-of-callers";

/// How a history is set up, as its seed chooses.
#[derive(Clone, Debug)]
struct Plan {
    interval_ms: u64,
    buckets: u32,
    limit: u32,
    is_exact: bool,
    when_down: WhenDown,
    /// The limits of a local window and of calls at once, and whether a call waits for these.
    window: Option<u32>,
    slots: Option<(u32, bool)>,
    is_started: bool,
    delay_ms: u64,
}

/// One of the two engines, and what is left of its calls.
struct Twin {
    store: MemoryStore,
    sentinel: Sentinel,
    handle: Option<StoreHandle>,
    running: Vec<Entry>,
    waiting: Vec<Waiting>,
}

/// What happened, to tell whether it was worth a look.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    waited: usize,
    by_window: usize,
    by_slots: usize,
    by_shared: usize,
    by_store: usize,
}

impl Plan {
    fn new(rng: &mut Rng) -> Self {
        let when_down = match rng.below(4) {
            0 => WhenDown::Closed,
            1 => WhenDown::Open,
            _ => WhenDown::LocalShare,
        };
        Self {
            interval_ms: [200, 500, 1_000][rng.below(3)],
            buckets: [1, 2, 4][rng.below(3)],
            limit: 1 + rng.below(60) as u32,
            is_exact: rng.one_in(5),
            when_down,
            window: rng.one_in(2).then(|| 1 + rng.below(12) as u32),
            slots: rng
                .one_in(2)
                .then(|| (1 + rng.below(4) as u32, rng.one_in(3))),
            is_started: !rng.one_in(4),
            delay_ms: rng.below(3) as u64,
        }
    }

    fn rules(&self, limit: u32) -> Rules {
        let interval = Duration::from_millis(self.interval_ms);
        let shared = FlowRule::per("/v1", limit, interval).buckets(self.buckets);
        let shared = shared.id("shared").shared().when_down(self.when_down);
        let mut rules = Rules::new().with(if self.is_exact {
            shared.exact()
        } else {
            shared
        });
        if let Some(window) = self.window {
            rules = rules.with(FlowRule::per("/v1", window, interval / 2).id("window"));
        }
        if let Some((slots, waits)) = self.slots {
            let slots = IsolationRule::new("/v1", slots).id("slots");
            rules = rules.with(if waits { slots.queue(ms(30)) } else { slots });
        }
        rules
    }
}

impl Twin {
    fn new(plan: &Plan, clock: TokioClock, has_list: bool) -> Self {
        let store = MemoryStore::with_clock(clock);
        if plan.delay_ms > 0 {
            store.set_fault(Some(Fault::SlowAnswer(ms(plan.delay_ms))));
        }
        let mut twin = Self {
            sentinel: Sentinel::builder()
                .clock(clock)
                .store(store.clone())
                .store_settings(StoreSettings::new().nodes(2))
                .build(),
            store,
            handle: None,
            running: Vec::new(),
            waiting: Vec::new(),
        };
        twin.reload(plan, plan.limit, has_list);
        if plan.is_started {
            twin.handle = Some(twin.sentinel.start_store().unwrap());
        }
        twin
    }

    fn reload(&self, plan: &Plan, limit: u32, has_list: bool) {
        let mut rules = plan.rules(limit);
        if has_list {
            rules = rules.with(AuthorityRule::deny("/v1", ["eve"]).id(LIST));
        }
        self.sentinel.reload(rules);
    }

    /// The answer to a call, in words.
    fn call(&mut self, call: Call<'_>) -> String {
        match self.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.running.push(entry);
                "passes".to_owned()
            }
            Verdict::Wait(waiting) => {
                let delay = waiting.delay();
                self.waiting.push(waiting);
                format!("waits {delay:?}")
            }
            Verdict::Block(blocked) => refusal(&blocked),
            other => panic!("{other:?}"),
        }
    }

    /// Lets a call that waits go on, and tells how.
    async fn go_on(&mut self, waiting: Waiting) -> String {
        match waiting.ready().await {
            Ok(entry) => {
                self.running.push(entry);
                "starts".to_owned()
            }
            Err(blocked) => refusal(&blocked),
        }
    }

    fn end(&mut self, index: usize, is_failure: bool) {
        let mut entry = self.running.swap_remove(index);
        if is_failure {
            entry.fail();
        }
    }

    /// All figures that both engines have. While the store is away, the task comes by at random
    /// moments, and only then it counts what is lost.
    fn figures(&self, is_away: bool) -> Vec<String> {
        let snapshot = self.sentinel.snapshot();
        let shared = &snapshot.shared_rules()[0];
        let in_hand = format!("in hand: {} repaid: {}", shared.in_hand(), shared.repaid());
        let draws = format!("draws: {} keys: {}", self.store.draws(), self.store.keys());
        let text = Metrics::new(&self.sentinel).render(TextFormat::Classic);
        // The list and its kind; and the moments at which a store that is away is probed are random.
        let others = ["#", "authority", LIST, "timestamp", "store_errors"];
        let is_other = |line: &str| {
            let is_lost = is_away && line.contains("shared_lost");
            is_lost || others.iter().any(|other| line.contains(other))
        };
        let lines = text.lines().filter(|line| !is_other(line));
        let lines = lines.map(str::to_owned);
        lines.chain([in_hand, draws]).collect()
    }
}

fn refusal(blocked: &Blocked) -> String {
    format!("{blocked} {:?}", blocked.retry_after())
}

/// Plays the history of `plan` on both engines.
async fn play(plan: &Plan, rng: &mut Rng, tally: &mut Tally) {
    let clock = TokioClock::new();
    let mut twins = [false, true].map(|has_list| Twin::new(plan, clock, has_list));
    let fails_at = rng.one_in(3).then(|| rng.below(STEPS));
    for step in 0..STEPS {
        if fails_at == Some(step) {
            // For good: else it would be found to be back at random moments.
            let fault = Fault::Error(StoreErrorKind::Unreachable);
            twins
                .iter()
                .for_each(|twin| twin.store.set_fault(Some(fault)));
        }
        match rng.below(40) {
            0 => {
                let limit = 1 + rng.below(60) as u32;
                for (twin, has_list) in twins.iter().zip([false, true]) {
                    twin.reload(plan, limit, has_list);
                }
            }
            1..10 => tokio::time::sleep(Duration::from_micros(rng.below(60_000) as u64)).await,
            10..16 if !twins[0].running.is_empty() => {
                let index = rng.below(twins[0].running.len());
                let is_failure = rng.one_in(3);
                twins
                    .iter_mut()
                    .for_each(|twin| twin.end(index, is_failure));
            }
            16..20 if !twins[0].waiting.is_empty() => {
                let index = rng.below(twins[0].waiting.len());
                let [first, second] = &mut twins;
                let waiting = [&mut *first, &mut *second].map(|twin| twin.waiting.remove(index));
                if rng.one_in(4) {
                    drop(waiting);
                    continue;
                }
                let [a, b] = waiting;
                let (fast, full) = tokio::join!(first.go_on(a), second.go_on(b));
                assert_eq!(fast, full, "step {step}");
            }
            _ => {
                let call = Call::new("/v1").origin("ann");
                let call = call.batch([0, 1, 1, 1, 1, 2, 3, 70][rng.below(8)]);
                let call = call.prioritized(rng.one_in(8));
                let call = if rng.one_in(4) {
                    call.patience(Duration::ZERO)
                } else {
                    call
                };
                let [fast, full] = twins.each_mut().map(|twin| twin.call(call));
                assert_eq!(fast, full, "step {step}: {call:?}");
                tally.add(&fast);
            }
        }
        if !rng.one_in(6) {
            continue;
        }
        let is_away = fails_at.is_some_and(|at| at <= step);
        let [fast, full] = twins.each_ref().map(|twin| twin.figures(is_away));
        assert_eq!(fast.len(), full.len());
        for (fast, full) in fast.iter().zip(&full) {
            assert_eq!(fast, full, "step {step}");
        }
    }
}

impl Tally {
    fn add(&mut self, answer: &str) {
        let of = |name: &str| usize::from(answer.contains(name));
        self.passed += usize::from(answer == "passes");
        self.waited += of("waits");
        self.by_window += of("\"window\"");
        self.by_slots += of("\"slots\"");
        self.by_store += of("without its store");
        self.by_shared += of("\"shared\"");
    }
}

#[test]
fn a_permit_in_hand_is_the_same_on_the_fast_path_and_through_all_checks() {
    let mut seeds = Rng::seeded();
    let mut tally = Tally::default();
    for history in 0..HISTORIES {
        let seed = seeds.next();
        let mut rng = Rng::of(seed);
        let plan = Plan::new(&mut rng);
        println!("history {history}, seed {seed}: {plan:?}");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(&plan, &mut rng, &mut tally));
    }
    println!("{tally:?}");
    let least = HISTORIES * 5;
    assert!(tally.passed > least && tally.waited > least, "{tally:?}");
    assert!(
        tally.by_window > least && tally.by_slots > least,
        "{tally:?}"
    );
    assert!(
        tally.by_shared > least && tally.by_store > HISTORIES,
        "{tally:?}"
    );
}
