//! Calls that wait for their turn, before circuit breakers whose rules change and
//! which operators open and close: whoever starts late is judged by the rules that
//! gave it its place.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{
    BlockKind, Blocked, BreakerView, Call, Entry, FlowRule, NotAdmitted, Rules, Verdict, Waiting,
};

use crate::breakers::{Breaker, End, Part, Place, breaker};
use crate::company::{Company, end, how};
use crate::crowd::Crowd;
use crate::setup::{BEGIN, NS, Setup, advance};
use crate::support::bench::Bench;
use crate::support::ms;
use crate::versions::{Edit, Version, edit};

const RESOURCE: &str = "a";

#[derive(Clone, Debug)]
enum Act {
    Advance(u64),
    /// Until all breakers let a call pass: an open time is over, or a lease.
    Rest,
    /// A call that waits in the queue, unless it weighs nothing.
    Call(u32),
    End(usize, End),
    Admit(usize),
    Drop(usize),
    Reload(Edit),
    Force(Index, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => advance().prop_map(Act::Advance),
        3 => Just(Act::Rest),
        6 => (0_u32..2).prop_map(Act::Call),
        5 => (any::<usize>(), how()).prop_map(|(index, how)| Act::End(index, how)),
        6 => any::<usize>().prop_map(Act::Admit),
        1 => any::<usize>().prop_map(Act::Drop),
        2 => edit(0, 2).prop_map(Act::Reload),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(index, opens)| Act::Force(index, opens)),
    ]
}

/// An engine with a queue, and its breakers as a naive one has them.
struct Queue {
    bench: Bench,
    crowd: Crowd,
    version: Version,
    /// With when they began.
    entries: Vec<(Entry, u64, Vec<Part>)>,
    waiting: Vec<(Waiting, Vec<Place>)>,
    now: u64,
}

impl Queue {
    fn new(breakers: Vec<Breaker>) -> Self {
        let version = Version::from(Company {
            setup: Setup::NONE,
            hots: Vec::new(),
            breakers,
        });
        Self {
            bench: Bench::new(Self::rules(&version)),
            crowd: Crowd::new(&version),
            version,
            entries: Vec::new(),
            waiting: Vec::new(),
            now: BEGIN * NS,
        }
    }

    fn rules(version: &Version) -> Rules {
        let queue = FlowRule::per_second(RESOURCE, 4).throttle(ms(60_000));
        version.rules().with(queue.id("queue"))
    }

    /// Where a call stands that comes now.
    fn places(&mut self) -> Vec<Place> {
        let circuits = self.crowd.circuits(RESOURCE);
        circuits.map(|circuit| circuit.place()).collect()
    }

    /// When all breakers let a call pass; `None`: nobody knows.
    fn available_at(&mut self, places: &[Place]) -> Option<u64> {
        places.iter().try_fold(self.now, |latest, place| {
            let circuit = self.crowd.circuit(place.circuit);
            Some(latest.max(circuit.room_by(*place, self.now)?))
        })
    }

    /// The call starts that stands there.
    fn start(&mut self, entry: Entry, places: &[Place]) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.available_at(places), Some(self.now));
        let (crowd, now) = (&mut self.crowd, self.now);
        let admit = |place: &Place| crowd.circuit(place.circuit).admit_by(*place, now);
        let parts = places.iter().map(admit).collect();
        self.entries.push((entry, now, parts));
        Ok(())
    }

    fn call(&mut self, n: u32) -> Result<(), TestCaseError> {
        let places = self.places();
        let available_at = self.available_at(&places);
        match self.bench.sentinel.try_enter(Call::new(RESOURCE).batch(n)) {
            Verdict::Pass(entry) => self.start(entry, &places)?,
            Verdict::Wait(waiting) => {
                prop_assert_eq!(available_at, Some(self.now));
                self.waiting.push((waiting, places));
            }
            Verdict::Block(blocked) if blocked.kind() == BlockKind::CircuitBreaker => {
                // The queue is asked as well for the time that it is told.
                prop_assert_ne!(available_at, Some(self.now));
                prop_assert_eq!(blocked.retry_after().is_some(), available_at.is_some());
            }
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn admit(&mut self, index: usize) -> Result<(), TestCaseError> {
        let (waiting, places) = self.waiting.swap_remove(index);
        match waiting.admit() {
            Ok(entry) => self.start(entry, &places),
            Err(NotAdmitted::TooEarly(waiting)) => {
                prop_assert!(waiting.start().as_nanos() > self.now);
                self.waiting.push((waiting, places));
                Ok(())
            }
            Err(NotAdmitted::Blocked(blocked)) => self.refused(&blocked, &places),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, blocked: &Blocked, places: &[Place]) -> Result<(), TestCaseError> {
        let available_at = self.available_at(places);
        prop_assert_eq!(blocked.kind(), BlockKind::CircuitBreaker);
        prop_assert_ne!(available_at, Some(self.now));
        let after = blocked.retry_after().map(|after| after.as_nanos() as u64);
        prop_assert_eq!(after, available_at.map(|at| at - self.now));
        Ok(())
    }

    fn advance(&mut self, ns: u64) {
        self.now += ns;
        self.bench.clock.advance(Duration::from_nanos(ns));
    }

    fn run(&mut self, act: Act) -> Result<(), TestCaseError> {
        match act {
            // Breakers know times to 8 µs.
            Act::Advance(ns) => self.advance(ns / 8_000 * 8_000),
            Act::Rest => {
                let places = self.places();
                if let Some(available_at) = self.available_at(&places) {
                    self.advance(available_at - self.now);
                }
            }
            Act::Call(n) => self.call(n)?,
            Act::End(index, how) => {
                if let Some(index) = index.checked_rem(self.entries.len()) {
                    let (entry, start, parts) = self.entries.swap_remove(index);
                    end(entry, how);
                    for part in parts {
                        let circuit = self.crowd.circuit(part.place.circuit);
                        circuit.end(part, start, self.now, how);
                    }
                }
            }
            Act::Admit(index) => {
                if let Some(index) = index.checked_rem(self.waiting.len()) {
                    self.admit(index)?;
                }
            }
            Act::Drop(index) => {
                if let Some(index) = index.checked_rem(self.waiting.len()) {
                    drop(self.waiting.swap_remove(index));
                }
            }
            Act::Reload(edit) => {
                self.version.edit(edit);
                self.bench.sentinel.reload(Self::rules(&self.version));
                self.crowd.take_over(&self.version, RESOURCE);
            }
            Act::Force(index, opens) => {
                let views = self.views();
                if let Some(index) = (!views.is_empty()).then(|| index.index(views.len())) {
                    if opens {
                        views[index].force_open();
                    } else {
                        views[index].force_close();
                    }
                    let mut circuits = self.crowd.circuits(RESOURCE);
                    circuits.nth(index).unwrap().force(opens);
                }
            }
        }
        Ok(())
    }

    fn views(&self) -> Vec<BreakerView> {
        let node = self.bench.sentinel.node(RESOURCE);
        node.map_or(Vec::new(), |node| node.breakers())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn who_has_waited_is_judged_by_the_rules_that_gave_it_its_place(
        breakers in prop::collection::vec(breaker(), 0..3),
        acts in prop::collection::vec(act(), 1..150),
    ) {
        let own = breakers.into_iter().map(|breaker| breaker.of(RESOURCE));
        let mut queue = Queue::new(own.collect());
        for act in acts {
            queue.run(act)?;
            let states: Vec<_> = queue.views().iter().map(BreakerView::state).collect();
            if queue.bench.sentinel.node(RESOURCE).is_some() {
                let expected: Vec<_> = queue.crowd.circuits(RESOURCE).map(|circuit| circuit.state()).collect();
                prop_assert_eq!(states, expected);
            }
        }
    }
}
