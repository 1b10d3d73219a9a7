//! Replays borrowing from coming buckets. One `LeapArray` stands for the second, and its loans are
//! the borrowed tokens; another stands for the minute.

use std::time::Duration;

use super::super::oracle::reserve;
use super::{Step, Subject, at, millis, ms};
use crate::clock::Tick;
use crate::stat::{LeapArray, Loan};
use serde_json::{Value, json};

/// Arrays that stand for the recorded second and the recorded minute.
pub(crate) struct OccupySubject {
    /// The buckets of the current second.
    second: LeapArray,
    /// The seconds of the last minute. As in the recorded object, borrowed tokens count here from
    /// the loan on.
    minute: LeapArray,
    /// The recorded limit of the wait for borrowed tokens.
    patience: Duration,
}

impl Subject for OccupySubject {
    fn new(config: &Value) -> Result<Self, String> {
        let buckets = config["sample_count"].as_u64().unwrap_or(0) as u32;
        let array = |interval, buckets| {
            LeapArray::new(interval, buckets).map_err(|error| error.to_string())
        };
        Ok(Self {
            second: array(millis(config, "interval_ms"), buckets)?,
            minute: array(Duration::from_secs(60), 60)?,
            patience: millis(config, "occupy_timeout_ms"),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        let now = step.now();
        match step.op.as_str() {
            "add_pass" => {
                self.second.add(now, step.weight());
                self.minute.add(now, step.weight());
                Value::Null
            }
            "occupy" => {
                let loan = self.borrow(step, now);
                if loan.is_some() {
                    self.minute.add(now, step.weight());
                }
                granted(now, loan)
            }
            "try_occupy" => {
                let loan = self.borrow(step, now);
                if let Some(loan) = loan {
                    assert!(self.second.cancel(now, loan), "nobody else is here");
                }
                granted(now, loan)
            }
            "add_waiting" => {
                self.hold(now, at(step.int("at_ms")), step.weight());
                Value::Null
            }
            "add_occupied_pass" => {
                self.minute.add(now, step.weight());
                Value::Null
            }
            "waiting" => json!({ "value": self.second.waiting(now) }),
            "pass_qps" => json!({ "value": self.second.qps(now) }),
            "read" => json!({
                "pass_qps": self.second.qps(now),
                "waiting": self.second.waiting(now),
                "windows": counts(self.second.buckets(now)),
                "borrowed": counts(self.second.loans(now)),
                // Always 0 in the record: the recorded implementation reads this figure from the
                // counter of the second, but adds to that of the minute.
                "occupied_pass_qps": 0.0,
                "minute_pass": self.minute.sum(now),
            }),
            _ => step.unknown(),
        }
    }
}

impl OccupySubject {
    /// Borrows tokens under the threshold of `step`.
    fn borrow(&self, step: &Step, now: Tick) -> Option<Loan> {
        let interval = self.second.interval();
        let limit = (step.number("threshold") * interval.as_secs_f64()) as u32;
        let quota = self
            .second
            .quota(interval, limit)
            .expect("the whole window");
        let n = step.weight();
        reserve(&self.second, now, n, &[quota], self.patience)
            .0
            .ok()
    }

    /// Holds tokens for the bucket of `at` if that is the next bucket. If it is an earlier bucket,
    /// counts them at once.
    fn hold(&self, now: Tick, at: Tick, n: u32) {
        let next = self.second.bucket_start(now) + self.second.bucket_length();
        if self.second.bucket_start(at) == next {
            let patience = self.second.bucket_length() + Duration::from_nanos(1);
            let _held = reserve(&self.second, now, n, &[], patience);
        } else if at < next {
            self.second.add(now, n);
        }
    }
}

/// The recorded form of an answer to a call that borrows.
fn granted(now: Tick, loan: Option<Loan>) -> Value {
    match loan {
        Some(loan) => {
            json!({ "granted": true, "wait_ms": (loan.start() - now).as_millis() as u64 })
        }
        None => json!({ "granted": false }),
    }
}

/// The recorded form of the buckets that have tokens.
fn counts(buckets: impl Iterator<Item = (Tick, u32)>) -> Value {
    buckets
        .filter(|(_, count)| *count > 0)
        .map(|(start, count)| json!([ms(start), count]))
        .collect()
}
