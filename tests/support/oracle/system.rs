//! Rules on all inbound calls together, and limits that find themselves.

use tower_sentinel::system::{Capacity, SystemReason};
use tower_sentinel::{AdaptiveRule, SystemRule};

use super::call::{End, NS};

const SECOND: u64 = 1_000 * NS;
/// Of the window that figures are read from, which has two of them.
const BUCKET: u64 = SECOND / 2;

/// One rule.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Half calls a second.
    pub(crate) halves: Option<u32>,
    pub(crate) concurrency: Option<u32>,
    /// In µs.
    pub(crate) rt: Option<u64>,
    pub(crate) load: Option<f64>,
    pub(crate) capacity: Capacity,
    pub(crate) cpu: Option<f64>,
}

/// What the machine says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Says {
    pub(crate) load: Option<f64>,
    pub(crate) cpu: Option<f64>,
}

/// All inbound calls since the first rule on them, kept for ever.
#[derive(Debug, Default)]
pub(crate) struct System {
    pub(crate) limits: Vec<Limits>,
    counts: bool,
    pub(crate) says: Says,
    /// What was read last, and when the next reading is due, in ns.
    read: Says,
    due: u64,
    /// When a call began that passed, and its weight.
    passed: Vec<(u64, u32)>,
    ended: Vec<Ended>,
    running: usize,
}

/// A call that was not cancelled.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at: u64,
    rt_us: u64,
    n: u32,
}

impl Limits {
    pub(crate) fn rule(&self, index: usize) -> SystemRule {
        let mut rule = SystemRule::new()
            .capacity(self.capacity)
            .id(format!("system-{index}"));
        if let Some(halves) = self.halves {
            rule = rule.qps(f64::from(halves) / 2.0);
        }
        if let Some(most) = self.concurrency {
            rule = rule.concurrency(most);
        }
        if let Some(rt) = self.rt {
            rule = rule.rt(std::time::Duration::from_micros(rt));
        }
        if let Some(load) = self.load {
            rule = rule.load(load);
        }
        match self.cpu {
            Some(cpu) => rule.cpu(cpu),
            None => rule,
        }
    }

    /// The same with nothing that the machine says; `None` if nothing is left.
    pub(crate) fn without_machine(mut self) -> Option<Self> {
        (self.load, self.cpu) = (None, None);
        (!self.is_empty()).then_some(self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.halves.is_none()
            && self.concurrency.is_none()
            && self.rt.is_none()
            && self.load.is_none()
            && self.cpu.is_none()
    }
}

fn reaches(value: Option<f64>, limit: f64) -> bool {
    value.is_some_and(|value| value >= limit)
}

impl System {
    pub(crate) fn new(limits: Vec<Limits>) -> Self {
        let mut system = Self::default();
        system.reload(limits);
        system
    }

    pub(crate) fn reload(&mut self, limits: Vec<Limits>) {
        self.counts |= !limits.is_empty();
        self.limits = limits;
    }

    /// The tightest limit of a kind, and the first rule that has it.
    fn tightest<T: PartialOrd>(&self, limit: impl Fn(&Limits) -> Option<T>) -> Option<(T, usize)> {
        let limits = self.limits.iter().enumerate();
        let limits = limits.filter_map(|(index, limits)| Some((limit(limits)?, index)));
        limits.reduce(|first, other| if other.0 < first.0 { other } else { first })
    }

    /// Which rule refuses an inbound call, and by which limit.
    pub(crate) fn refuses(&mut self, n: u32, now: u64) -> Option<(SystemReason, usize)> {
        let load = self.tightest(|limits| limits.load);
        let cpu = self.tightest(|limits| limits.cpu);
        if (load.is_some() || cpu.is_some()) && now >= self.due {
            (self.read, self.due) = (self.says, now + SECOND);
        }
        if let Some((halves, index)) = self.tightest(|limits| limits.halves) {
            if 2 * (self.tokens(now) + n) > halves {
                return Some((SystemReason::Qps, index));
            }
        }
        if let Some((most, index)) = self.tightest(|limits| limits.concurrency) {
            if self.running >= most as usize {
                return Some((SystemReason::Concurrency, index));
            }
        }
        if let Some((most, index)) = self.tightest(|limits| limits.rt) {
            let ended = self.ended_in(now, BUCKET, 2);
            let sum: u64 = ended.iter().map(|ended| ended.rt_us).sum();
            if !ended.is_empty() && sum >= most * ended.len() as u64 {
                return Some((SystemReason::Rt, index));
            }
        }
        if let Some((most, index)) = load {
            let capacity = match self.limits[index].capacity {
                Capacity::Robust => self.robust(now),
                _ => self.by_buckets(now),
            };
            let is_over = self.running > 1 && self.running as f64 > capacity;
            if reaches(self.read.load, most) && is_over {
                return Some((SystemReason::Load, index));
            }
        }
        let (most, index) = cpu?;
        reaches(self.read.cpu, most).then_some((SystemReason::Cpu, index))
    }

    /// What passed in the window.
    fn tokens(&self, now: u64) -> u32 {
        let inside = |at: u64| at / BUCKET + 1 >= now / BUCKET;
        let passed = self.passed.iter().filter(|(at, _)| inside(*at));
        passed.map(|(_, n)| n).sum()
    }

    /// What ended in the last `count` steps of `length` up to that of `at`.
    fn ended_in(&self, at: u64, length: u64, count: u64) -> Vec<Ended> {
        let last = at / length;
        let inside = |at: u64| (at / length) <= last && at / length + count > last;
        let ended = self.ended.iter().filter(|ended| inside(ended.at));
        ended.copied().collect()
    }

    /// The most calls that a whole second of the last ten completed, times the least
    /// average time of one of them.
    fn robust(&self, now: u64) -> f64 {
        let (mut most, mut least) = (0, u64::MAX);
        for ago in 1..=10 {
            let ended = self.ended_in(now - ago * SECOND, SECOND, 1);
            if !ended.is_empty() {
                let rt_us: u64 = ended.iter().map(|ended| ended.rt_us).sum();
                most = most.max(ended.len());
                least = least.min(rt_us / ended.len() as u64);
            }
        }
        if most == 0 {
            return 10.0;
        }
        most as f64 * (least.max(1) * 1_000) as f64 / 1e9
    }

    /// The largest weight that a bucket of the window completed, in a second, times the
    /// least time of a call in the window.
    fn by_buckets(&self, now: u64) -> f64 {
        let weight = |at: u64| -> u32 {
            let ended = self.ended_in(at, BUCKET, 1);
            ended.iter().map(|ended| ended.n).sum()
        };
        let most = weight(now).max(weight(now - BUCKET)).max(1);
        let ended = self.ended_in(now, BUCKET, 2);
        let least = ended.iter().map(|ended| ended.rt_us).min();
        let least = least.unwrap_or(u64::MAX).clamp(1_000, 5_000_000);
        f64::from(most) * 2.0 * (least * 1_000) as f64 / 1e9
    }

    /// Whether a call that passes is counted.
    pub(crate) fn passes(&mut self, n: u32, now: u64) -> bool {
        if self.counts {
            self.passed.push((now, n));
            self.running += 1;
        }
        self.counts
    }

    /// A call of weight `n` ends that was counted, and took `rt` until its response.
    pub(crate) fn ends(&mut self, n: u32, rt: u64, now: u64, end: End) {
        self.running -= 1;
        if end != End::Cancelled {
            let rt_us = rt.min(60 * SECOND) / 1_000;
            self.ended.push(Ended { at: now, rt_us, n });
        }
    }
}

/// A limit that finds itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adaptive {
    pub(crate) floor: u32,
    pub(crate) ceiling: u32,
    pub(crate) start: u32,
}

impl Adaptive {
    pub(crate) fn rule(self, resource: &str) -> AdaptiveRule {
        AdaptiveRule::new(resource)
            .floor(self.floor)
            .ceiling(self.ceiling)
            .start(self.start)
            .burst(std::time::Duration::ZERO)
            .id(Self::id(resource))
    }

    pub(crate) fn id(resource: &str) -> String {
        format!("adaptive-{resource}")
    }
}
