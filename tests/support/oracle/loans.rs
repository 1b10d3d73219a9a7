//! Which call may hold tokens of which bucket to come, where it can have none now.

use super::call::{Asks, NS};
use super::engine::Oracle;
use super::flow::{Flow, Whose};

/// Where a rule counts.
#[derive(Clone, Copy, PartialEq)]
enum Node {
    Resource,
    Origin,
    Context,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Oracle {
    /// The bucket whose tokens the call may hold, if it would rather wait; in ns.
    pub(crate) fn borrow(&self, call: &Asks, now: u64) -> Option<u64> {
        let flows = &self.rules.flows;
        // Not known where calls wait for their turns as well.
        let is_other = |flow: &Flow| flow.misses_key(call) || flow.queue.is_some();
        if !call.is_prioritized || flows.iter().any(is_other) {
            return None;
        }
        let patience = call.patience.unwrap_or(u64::MAX).min(self.longest_loan) * NS;
        let lanes = self.lanes(call);
        let starts = lanes.iter().flat_map(|lane| {
            let (length, _) = lane.flow.window();
            let starts = (now / length + 1..).map(move |bucket| bucket * length);
            starts.take_while(|start| *start < now + patience)
        });
        let mut starts: Vec<_> = starts.collect();
        starts.sort_unstable();
        starts.dedup();
        let agree = |at: &u64| lanes.iter().all(|lane| lane.agrees_to(call, now, *at));
        starts.into_iter().find(agree)
    }

    /// The rules that count `call`. Those of one node share their buckets with its figures,
    /// unless those were too many.
    fn lanes(&self, call: &Asks) -> Vec<Lane<'_>> {
        let mut lanes = Vec::new();
        let mut add = |flow, step| {
            let tokens = self.counted_with(flow, call).unwrap();
            lanes.push(Lane { flow, step, tokens });
        };
        for (node, most) in [
            (Node::Origin, 32),
            (Node::Context, 32),
            (Node::Resource, 256),
        ] {
            let flows = self.rules.flows.iter().filter(|flow| {
                let own = match flow.whose {
                    Whose::Each(..) | Whose::Origin(_) | Whose::OtherOrigins => Node::Origin,
                    Whose::Context(_) => Node::Context,
                    Whose::All | Whose::Related(_) => Node::Resource,
                };
                own == node && self.rules.key(flow, call).is_some()
            });
            let (mut step, mut span) = (500 * NS, 1_000 * NS);
            let mut shared = Vec::new();
            for flow in flows {
                let (length, counted) = flow.window();
                let wider = (gcd(step, length), span.max(length * counted));
                if wider.1 / wider.0 <= most {
                    (step, span) = wider;
                    shared.push(flow);
                } else {
                    add(flow, length);
                }
            }
            shared.into_iter().for_each(|flow| add(flow, step));
        }
        lanes
    }
}

/// A rule that counts a call.
struct Lane<'a> {
    flow: &'a Flow,
    /// How finely time is cut where it counts, in ns.
    step: u64,
    /// What has passed with the call, and when.
    tokens: Vec<(u64, u32)>,
}

impl Lane<'_> {
    /// Whether the rule lets `call`, which comes `now`, hold its tokens for then.
    fn agrees_to(&self, call: &Asks, now: u64, at: u64) -> bool {
        let Self { flow, step, tokens } = self;
        let (length, counted) = flow.window();
        let (present, bucket, weight) = (now / length, at / length, call.weight);
        if flow.fits(present, weight, tokens) {
            return true;
        }
        if !flow.lend.unwrap_or(!flow.is_strict) {
            return false;
        }
        let sum = |inside: &dyn Fn(u64) -> bool| -> u32 {
            let inside = tokens.iter().filter(|(at, _)| inside(*at));
            inside.map(|(_, weight)| weight).sum()
        };
        let leaving = if bucket + 1 > present + counted {
            // All of that window is to come.
            let is_kept = (bucket + 1 - counted..=bucket).all(|begin| {
                let window = begin..begin + counted;
                sum(&|at| window.contains(&(at / length))) + weight <= flow.limit
            });
            if !is_kept {
                return false;
            }
            flow.limit
        } else if flow.fits(bucket, weight, tokens) {
            sum(&|at| at / length + counted == bucket)
        } else {
            return false;
        };
        // Who takes nothing borrows nothing.
        if flow.ratio >= 1.0 || weight == 0 {
            return true;
        }
        let leaves = at / step * step % length == 0;
        let lent = sum(&|other| other / step == at / step);
        // Parts are whole hundredths here: exactly so many of what leaves.
        let hundredths = (flow.ratio * 100.0).round() as u32;
        leaves && lent + weight <= leaving * hundredths / 100
    }
}
