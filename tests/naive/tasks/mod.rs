//! Tasks that come through `enter` and through the layers, and sleep until their turn
//! in tokio's paused time. Another engine hears the same, in the same order.

mod doors;

use std::cell::{Cell, RefCell, RefMut};
use std::fmt::Debug;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use http_body_util::BodyExt;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, advance, sleep};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::{Blocked, Entry, Rules, Sentinel};

use self::doors::{Doors, refusal, request};
use crate::generator::{Asked, Manner, TaskOp, Way};
use crate::oracle::{BEGIN, End, NS, RESOURCES};
use crate::saw;
use crate::side::{Told, touch};
use crate::support::{assert_at_rest, ms};

/// The other engine, which knows nothing of tasks and timers.
pub(crate) trait Other: 'static {
    type Refusal: Clone + Debug;

    fn is_right(&self, refusal: &Self::Refusal, found: &Blocked) -> bool;
    /// It is `now`, in ns.
    fn set(&mut self, now: u64);
    fn comes(&mut self, id: usize, asked: &Asked) -> Told<Self::Refusal>;
    /// Its turn has come.
    fn begins(&mut self, id: usize) -> Told<Self::Refusal>;
    /// It waits no more.
    fn goes(&mut self, id: usize);
    /// The head of its response is there, and its body goes on.
    fn responds(&mut self, id: usize, _end: End) {
        panic!("{id} has no body");
    }
    fn ends(&mut self, id: usize, end: End);
    /// What the rules become.
    fn reload(&mut self, index: Index) -> Rules;
    fn agrees(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError>;
    /// All calls have ended.
    fn rests(&mut self, _sentinel: &Sentinel) -> Result<(), TestCaseError> {
        Ok(())
    }
}

/// Where a call is.
#[derive(Clone, Debug)]
enum Stage<R> {
    Nowhere,
    Told(Told<R>),
    /// Until then, in ns; its timer was set at that time.
    Waits {
        start: u64,
        set: u64,
    },
    /// If it is dropped, it ends so.
    Runs(End),
}

/// What the tasks share.
struct Table<O: Other> {
    origin: Instant,
    sentinel: Sentinel,
    other: RefCell<O>,
    stages: RefCell<Vec<Stage<O::Refusal>>>,
    asked: RefCell<Vec<Asked>>,
    /// How long a service needs to get ready, in ms.
    delay: u64,
    is_broken: Cell<bool>,
    /// When all that was due has fired after time last passed at once.
    jumped: Cell<u64>,
    failure: RefCell<Option<String>>,
}

impl<O: Other> Table<O> {
    fn new(origin: Instant, sentinel: Sentinel, other: O, delay: u64) -> Self {
        Self {
            origin,
            sentinel,
            other: RefCell::new(other),
            stages: RefCell::default(),
            asked: RefCell::default(),
            delay,
            is_broken: Cell::new(false),
            jumped: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// The number of one more call.
    fn add(&self, asked: Asked) -> usize {
        let id = self.asked.borrow().len();
        self.asked.borrow_mut().push(asked);
        self.stages.borrow_mut().push(Stage::Nowhere);
        id
    }

    fn check(&self, op: &dyn Debug) -> Result<(), TestCaseError> {
        let failure = self.failure.borrow_mut().take();
        prop_assert!(failure.is_none(), "{:?}: {}", op, failure.unwrap());
        self.other().agrees(&self.sentinel)
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// The other engine, at the present time.
    fn other(&self) -> RefMut<'_, O> {
        let mut other = self.other.borrow_mut();
        other.set(self.now());
        other
    }

    fn asked(&self, id: usize) -> Asked {
        self.asked.borrow()[id]
    }

    fn stage(&self, id: usize) -> Stage<O::Refusal> {
        self.stages.borrow()[id].clone()
    }

    fn set_stage(&self, id: usize, stage: Stage<O::Refusal>) {
        self.stages.borrow_mut()[id] = stage;
    }

    fn fail(&self, id: usize, found: &dyn Debug) {
        let (now, asked, stage) = (self.now(), self.asked(id), self.stage(id));
        let failure = format!("{id} at {now}: {found:?}, but is {stage:?}: {asked:?}");
        self.failure.borrow_mut().get_or_insert(failure);
    }

    fn comes(&self, id: usize) {
        let told = self.other().comes(id, &self.asked(id));
        self.set_stage(id, Stage::Told(told));
    }

    /// The call neither runs nor has been refused: it waits, or has not been told yet.
    fn stays(&self, id: usize) {
        match self.stage(id) {
            Stage::Told(Told::Wait(start)) => {
                let set = self.now();
                self.set_stage(id, Stage::Waits { start, set });
            }
            Stage::Told(Told::Pass) => self.fail(id, &"it does not run"),
            _ => {}
        }
    }

    /// Its future is polled for the first time.
    fn is_polled(&self, id: usize) {
        if let Stage::Waits { set, .. } = &mut self.stages.borrow_mut()[id] {
            *set = self.now();
        }
    }

    /// The call runs.
    fn starts(&self, id: usize, if_dropped: End) {
        let told = match self.stage(id) {
            Stage::Told(told) => {
                saw("starts");
                told
            }
            Stage::Waits { start, set } => {
                saw("starts after a wait");
                self.turn(id, start, set)
            }
            _ => return self.fail(id, &"it runs once more"),
        };
        if !matches!(told, Told::Pass) {
            self.fail(id, &("it runs", told));
        }
        self.set_stage(id, Stage::Runs(if_dropped));
    }

    /// The call is refused, at once or after its wait.
    fn is_refused(&self, id: usize, blocked: &Blocked) {
        let told = match self.stage(id) {
            Stage::Told(told) => told,
            Stage::Waits { start, set } => self.turn(id, start, set),
            _ => return self.fail(id, blocked),
        };
        let is_right = match &told {
            Told::Block(refusal) => self.other.borrow().is_right(refusal, blocked),
            _ => false,
        };
        saw("is refused");
        if !is_right {
            self.fail(id, &(blocked, told));
        }
        self.set_stage(id, Stage::Nowhere);
    }

    /// Its wait is over, and it is told what comes of it. A timer fires at the first
    /// whole millisecond after its time, and then the service gets ready.
    fn turn(&self, id: usize, start: u64, set: u64) -> Told<O::Refusal> {
        let fires = |at: u64| at.next_multiple_of(NS);
        let delay = match self.asked(id).way {
            Way::Enter => 0,
            _ => self.delay * NS,
        };
        let turn = if set >= start { set } else { fires(start) };
        let due = if delay == 0 {
            turn
        } else {
            fires(turn + delay)
        };
        let now = self.now();
        let most = match now % NS {
            0 => due,
            // tokio then counts its milliseconds from there, for each timer.
            part => due + part + if delay == 0 { 0 } else { NS },
        };
        let is_late = now > most && self.jumped.get() <= set;
        if now < start || now < due || is_late {
            self.fail(id, &("its turn", due));
        }
        self.other().begins(id)
    }

    /// From now on, the call ends like that if it is dropped.
    fn will_end(&self, id: usize, end: End) {
        match self.stage(id) {
            Stage::Runs(_) => self.set_stage(id, Stage::Runs(end)),
            _ => self.fail(id, &"it ends"),
        }
    }

    /// The call has a response whose body goes on.
    fn responds(&self, id: usize, end: End) {
        self.will_end(id, end);
        self.other().responds(id, end);
    }

    /// The task of the call is gone.
    fn leaves(&self, id: usize) {
        match self.stage(id) {
            Stage::Waits { .. } => self.other().goes(id),
            Stage::Told(Told::Wait(_)) => self.fail(id, &"it has gone before it was told"),
            Stage::Runs(end) => self.other().ends(id, end),
            _ => {}
        }
        self.set_stage(id, Stage::Nowhere);
    }
}

// === tasks ===

/// Held by the task of a call for as long as it lives.
struct Ticket<O: Other>(Rc<Table<O>>, usize);

impl<O: Other> Drop for Ticket<O> {
    fn drop(&mut self) {
        self.0.leaves(self.1);
    }
}

async fn enter<O: Other>(table: Rc<Table<O>>, id: usize) {
    let asked = table.asked(id);
    let ticket = Ticket(table, id);
    let table = &ticket.0;
    table.comes(id);
    let params = asked.asks.params();
    let mut entering = pin!(table.sentinel.enter(asked.asks.call(&params)));
    let told = |result: Result<Entry, Blocked>| match result {
        Ok(entry) => {
            table.starts(id, End::Good);
            Some(entry)
        }
        Err(blocked) => {
            table.is_refused(id, &blocked);
            None
        }
    };
    let first = poll_fn(|cx| Poll::Ready(entering.as_mut().poll(cx))).await;
    let entry = match first {
        Poll::Ready(result) => told(result),
        Poll::Pending => {
            table.stays(id);
            told(entering.await)
        }
    };
    if let Some(entry) = entry {
        sleep(ms(asked.work)).await;
        table.will_end(id, asked.end);
        asked.end.of(entry);
    }
}

async fn through<O: Other>(table: Rc<Table<O>>, id: usize, mut doors: Doors<O>) {
    let asked = table.asked(id);
    let ticket = Ticket(table, id);
    let table = &ticket.0;
    if doors.ready(asked.way).await.is_err() {
        return;
    }
    table.comes(id);
    let answer = doors.call(asked.way, request(id, asked));
    table.stays(id);
    if let Some(pause) = asked.pause {
        // Who made it may be called again meanwhile.
        drop(doors);
        sleep(ms(pause)).await;
    }
    table.is_polled(id);
    let answer = answer.await;
    if let Some(blocked) = refusal(&answer) {
        table.is_refused(id, blocked);
    } else if let Ok(response) = answer {
        // The call ends with its body.
        let _ = response.into_body().collect().await;
    }
}

/// Longer than any call may wait, get ready and run, and any quota needs to be whole.
const REST: Duration = Duration::from_secs(30);

/// Tells an engine with `rules`, through tasks, and `other` the same. In the end, all
/// tasks are aborted or have run; then comes `after`.
pub(crate) fn run<O: Other>(
    other: O,
    (rules, manner): (Rules, Manner),
    delay: u64,
    (ops, are_aborted): (Vec<TaskOp>, bool),
    after: impl FnOnce(&Sentinel, u64) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let tasks = async {
        let (origin, clock) = (Instant::now(), TokioClock::new());
        advance(ms(BEGIN)).await;
        let builder = Sentinel::builder().rules(rules).clock(clock);
        // As those of a bench.
        let builder = builder.max_origins(64);
        let sentinel = manner.configure(builder).build();
        touch(&sentinel);
        let table = Rc::new(Table::new(origin, sentinel, other, delay));
        let doors = Doors::new(&table, &table.sentinel);
        let mut tasks: Vec<JoinHandle<()>> = Vec::new();
        for op in ops {
            tasks.retain(|task| !task.is_finished());
            match op {
                TaskOp::Call(asked) => tasks.push(spawn(&table, asked, &doors)),
                TaskOp::Yield => yield_now().await,
                TaskOp::Sleep(ns) => sleep(Duration::from_nanos(ns)).await,
                TaskOp::Jump(ns) => {
                    // Breakers know times to 8 µs.
                    let step = if ns % 3 == 0 { 8_000 } else { NS };
                    let ns = ns / step * step;
                    table.jumped.set(table.now() + ns + NS);
                    advance(Duration::from_nanos(ns)).await;
                    // What is due by now fires before the next millisecond is over.
                    sleep(Duration::ZERO).await;
                }
                TaskOp::Abort(index) => {
                    if let Some(index) = index.checked_rem(tasks.len()) {
                        tasks.swap_remove(index).abort();
                        saw("is aborted");
                    }
                }
                TaskOp::Reload(index) => {
                    let rules = table.other().reload(index);
                    table.sentinel.reload(rules);
                    saw("reloaded");
                }
                TaskOp::Break => table.is_broken.set(true),
            }
            table.check(&op)?;
        }
        if are_aborted {
            tasks.iter().for_each(JoinHandle::abort);
        }
        sleep(REST).await;
        table.check(&"at rest")?;
        table.other().rests(&table.sentinel)?;
        prop_assert!(tasks.iter().all(JoinHandle::is_finished));
        for resource in RESOURCES {
            assert_at_rest(&table.sentinel, resource);
        }
        for node in table.sentinel.snapshot().nodes() {
            let left = (node.concurrency(), node.waiting(), node.held());
            prop_assert_eq!(left, (0, 0, 0), "{:?}", node);
            let totals = node.totals();
            prop_assert_eq!(totals.pass(), totals.complete() + totals.cancelled());
        }
        after(&table.sentinel, table.now())
    };
    LocalSet::new().block_on(&runtime, tasks)
}

fn spawn<O: Other>(table: &Rc<Table<O>>, asked: Asked, doors: &Doors<O>) -> JoinHandle<()> {
    let id = table.add(asked);
    match asked.way {
        Way::Enter => spawn_local(enter(table.clone(), id)),
        _ => spawn_local(through(table.clone(), id, doors.clone())),
    }
}
