//! What the processes have said, and what it amounts to.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::Server;

/// Latencies are counted in so many steps, each an eighth of a power of two of a microsecond.
pub(crate) const BUCKETS: usize = 256;

pub(crate) fn bucket_of(latency: Duration) -> usize {
    let us = (latency.as_nanos() as f64 / 1e3).max(1.0);
    ((us.log2() * 8.0) as usize).min(BUCKETS - 1)
}

/// The CPU time of a process so far, in ms.
pub(crate) fn cpu_of(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let after_name = &text[text.rfind(')').unwrap() + 2..];
    let words: Vec<_> = after_name.split(' ').collect();
    // In hundredths of a second: of the program and of the system for it.
    10 * (words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap())
}

pub(crate) struct Child(std::process::Child);

/// What one of them has said.
pub(crate) struct Said {
    /// When, in ms; whether its store is there; calls made and done, draws and trips.
    at: Vec<[u64; 6]>,
    latency: Vec<u64>,
    passed: u64,
    cpu_ms: u64,
}

/// What all of them amount to.
pub(crate) struct Figures {
    all: Vec<Vec<[u64; 6]>>,
    latency: Vec<u64>,
    calls: u64,
    passed: u64,
    cpu_ms: u64,
    server_ms: u64,
}

impl Child {
    pub(crate) fn start(
        server: &Server,
        kind: &str,
        per_second: u32,
        secs: u64,
        number: u64,
    ) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", &server.url(), kind])
            .args([per_second.to_string(), secs.to_string(), number.to_string()])
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn end(mut self) -> Said {
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(self.0.wait().unwrap().success());
        let mut said = Said {
            at: Vec::new(),
            latency: Vec::new(),
            passed: 0,
            cpu_ms: 0,
        };
        for line in text.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            match name {
                "at" => said.at.push(numbers.try_into().unwrap()),
                "latency" => said.latency = numbers,
                "passed" => said.passed = numbers[0],
                "cpu" => said.cpu_ms = numbers[0],
                _ => {}
            }
        }
        said
    }
}

impl Figures {
    pub(crate) fn of(said: &[Said], server_ms: u64) -> Self {
        let sum = |of: &dyn Fn(&Said) -> u64| said.iter().map(of).sum();
        let latency = (0..BUCKETS).map(|place| sum(&|said| said.latency[place]));
        let latency: Vec<u64> = latency.collect();
        Self {
            calls: latency.iter().sum(),
            latency,
            passed: sum(&|said| said.passed),
            cpu_ms: sum(&|said| said.cpu_ms),
            all: said.iter().map(|said| said.at.clone()).collect(),
            server_ms,
        }
    }

    /// How often a process has said that its store is not there, once they have begun.
    pub(crate) fn not_live(&self) -> usize {
        let said = self.all.iter().flatten();
        said.filter(|at| at[0] > 1_000 && at[1] == 0).count()
    }

    /// How long after `begin` the last of them is live, and stays so; `None` if one never is.
    pub(crate) fn live_after(&self, begin: Duration) -> Option<Duration> {
        let begin = begin.as_millis() as u64;
        let mut last = begin;
        for said in &self.all {
            if said.last()?[1] == 0 {
                return None;
            }
            let away = said.iter().rfind(|at| at[0] > begin && at[1] == 0);
            last = last.max(away.map_or(begin, |at| at[0] + 50));
        }
        Some(Duration::from_millis(last - begin))
    }

    pub(crate) fn draws_per_call_after(&self, ms: u64) -> f64 {
        let (mut draws, mut calls) = (0, 0);
        for said in &self.all {
            let first = said.iter().find(|at| at[0] >= ms).unwrap();
            let last = said.last().unwrap();
            draws += last[4] - first[4];
            calls += last[2] - first[2];
        }
        draws as f64 / calls as f64
    }

    /// In µs: so many percent of the calls took no longer.
    pub(crate) fn latency(&self, percent: u64) -> f64 {
        let mut left = (self.calls * percent).div_ceil(100);
        let place = self.latency.iter().position(|count| {
            let is_there = *count >= left;
            left = left.saturating_sub(*count);
            is_there
        });
        ((place.unwrap() as f64 + 0.5) / 8.0).exp2()
    }

    /// In µs.
    pub(crate) fn cpu_per_call(&self) -> f64 {
        1e3 * self.cpu_ms as f64 / self.calls as f64
    }

    /// In µs.
    pub(crate) fn server_per_call(&self) -> f64 {
        1e3 * self.server_ms as f64 / self.calls as f64
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |index: usize| -> u64 {
            self.all
                .iter()
                .map(|said| said.last().unwrap()[index])
                .sum()
        };
        write!(
            f,
            "{} calls, {:.1} % passed, {} not done, p50 {:.2} ms, p90 {:.2}, p99 {:.2}, most {:.0}; {:.1} draws a trip, {:.3} a call; \
             cpu per call {:.1} us, of the server {:.1} us; not live {} times",
            self.calls,
            100.0 * self.passed as f64 / self.calls as f64,
            sum(2) - sum(3),
            self.latency(50) / 1e3,
            self.latency(90) / 1e3,
            self.latency(99) / 1e3,
            self.latency(100) / 1e3,
            sum(4) as f64 / sum(5).max(1) as f64,
            sum(4) as f64 / sum(3).max(1) as f64,
            self.cpu_per_call(),
            self.server_per_call(),
            self.not_live(),
        )
    }
}
