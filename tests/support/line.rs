//! What becomes of calls that wait in line, as tests expect it.

use tower_sentinel::{Blocked, Call, NotAdmitted, Sentinel, Verdict, Waiting};

#[track_caller]
pub(crate) fn wait(sentinel: &Sentinel, call: Call<'_>) -> Waiting {
    match sentinel.try_enter(call) {
        Verdict::Wait(waiting) => waiting,
        other => panic!("it has to wait: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn not_yet(waiting: Waiting) -> Waiting {
    match waiting.admit() {
        Err(NotAdmitted::TooEarly(waiting)) => waiting,
        other => panic!("it has no place: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn refused(waiting: Waiting) -> Blocked {
    match waiting.admit() {
        Err(NotAdmitted::Blocked(blocked)) => blocked,
        other => panic!("it is refused: {other:?}"),
    }
}
