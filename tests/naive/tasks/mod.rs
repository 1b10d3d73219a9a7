//! Tasks that come through `enter` and through the layers, and sleep until their turn
//! in tokio's paused time. Another engine hears the same, in the same order.

pub(crate) mod calls;
mod doors;
pub(crate) mod table;

use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, advance, sleep};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::{Blocked, Entry, Rules, Sentinel};

use self::calls::{Asked, Manner, TaskOp, Way, touch};
use self::doors::{Doors, refusal, request};
use self::table::{Other, Table};
use crate::check::saw;
use crate::oracle::{BEGIN, End, NS, RESOURCES};
use crate::support::{assert_at_rest, ms};

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
