//! What tasks share: where each call is, and another engine that hears the same.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::Index;
use tokio::time::Instant;
use tower_sentinel::{Blocked, Rules, Sentinel};

use super::calls::{Asked, Way};
use crate::check::saw;
use crate::oracle::{End, NS};

/// What a call is told; times are in ns.
#[derive(Clone, Debug)]
pub(crate) enum Told<R> {
    Pass,
    Wait(u64),
    Block(R),
}

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
pub(crate) struct Table<O: Other> {
    origin: Instant,
    pub(crate) sentinel: Sentinel,
    other: RefCell<O>,
    stages: RefCell<Vec<Stage<O::Refusal>>>,
    asked: RefCell<Vec<Asked>>,
    /// How long a service needs to get ready, in ms.
    pub(crate) delay: u64,
    pub(crate) is_broken: Cell<bool>,
    /// When all that was due has fired after time last passed at once.
    pub(crate) jumped: Cell<u64>,
    failure: RefCell<Option<String>>,
}

impl<O: Other> Table<O> {
    pub(crate) fn new(origin: Instant, sentinel: Sentinel, other: O, delay: u64) -> Self {
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
    pub(crate) fn add(&self, asked: Asked) -> usize {
        let id = self.asked.borrow().len();
        self.asked.borrow_mut().push(asked);
        self.stages.borrow_mut().push(Stage::Nowhere);
        id
    }

    pub(crate) fn check(&self, op: &dyn Debug) -> Result<(), TestCaseError> {
        let failure = self.failure.borrow_mut().take();
        prop_assert!(failure.is_none(), "{:?}: {}", op, failure.unwrap());
        self.other().agrees(&self.sentinel)
    }

    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// The other engine, at the present time.
    pub(crate) fn other(&self) -> RefMut<'_, O> {
        let mut other = self.other.borrow_mut();
        other.set(self.now());
        other
    }

    pub(crate) fn asked(&self, id: usize) -> Asked {
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

    pub(crate) fn comes(&self, id: usize) {
        let told = self.other().comes(id, &self.asked(id));
        self.set_stage(id, Stage::Told(told));
    }

    /// The call neither runs nor has been refused: it waits, or has not been told yet.
    pub(crate) fn stays(&self, id: usize) {
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
    pub(crate) fn is_polled(&self, id: usize) {
        if let Stage::Waits { set, .. } = &mut self.stages.borrow_mut()[id] {
            *set = self.now();
        }
    }

    /// The call runs.
    pub(crate) fn starts(&self, id: usize, if_dropped: End) {
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
    pub(crate) fn is_refused(&self, id: usize, blocked: &Blocked) {
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
    pub(crate) fn will_end(&self, id: usize, end: End) {
        match self.stage(id) {
            Stage::Runs(_) => self.set_stage(id, Stage::Runs(end)),
            _ => self.fail(id, &"it ends"),
        }
    }

    /// The call has a response whose body goes on.
    pub(crate) fn responds(&self, id: usize, end: End) {
        self.will_end(id, end);
        self.other().responds(id, end);
    }

    /// The task of the call is gone.
    pub(crate) fn leaves(&self, id: usize) {
        match self.stage(id) {
            Stage::Waits { .. } => self.other().goes(id),
            Stage::Told(Told::Wait(_)) => self.fail(id, &"it has gone before it was told"),
            Stage::Runs(end) => self.other().ends(id, end),
            _ => {}
        }
        self.set_stage(id, Stage::Nowhere);
    }
}
