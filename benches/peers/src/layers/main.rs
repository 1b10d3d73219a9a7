//! What a layer costs a call, admitted and refused, ours beside other crates'.
//!
//! All layers run in one process and on one thread, in rounds: each round calls
//! every one of them for a moment, so that a slow minute of the machine hits
//! them alike. Times are CPU time of the thread, medians over the rounds; a
//! ratio is the median of the ratios of each round.
//!
//! Arguments, if any, are parts of names: then only these run, for a profiler.

mod calls;
mod floor;
mod ours;
mod theirs;

use calls::Operation;

const ROUNDS: usize = 201;
const WARM_UP: usize = 5;

const BARE: &str = "bare service";
const FLOOR: &str = "look-up, three additions, two readings of quanta";
const HELD_FLOOR: &str = "the same, held until the body ends";
const GOVERNOR_IP: &str = "tower_governor, peer address";
const SENTINEL_TOWER: &str = "sentinel-tower, one flow rule";
const ONE_QUANTA: &str = "ours, one flow rule, quanta";
const ONE_INSTANT: &str = "ours, one flow rule, Instant";
const ORIGIN_QUANTA: &str = "ours, flow rule by address, quanta";
const ORIGIN_INSTANT: &str = "ours, flow rule by address, Instant";
const THREE: &str = "ours, three window rules, quanta";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    // Peers ask for one when they are made.
    let _guard = runtime.enter();
    sentinel_core::init_default().expect("its defaults");

    let mut admitted = theirs::admitted();
    admitted.extend(ours::admitted());
    let mut refused = theirs::refused(&runtime);
    refused.extend(ours::refused());

    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        measure(admitted.iter_mut().chain(&mut refused).collect());
        Report { admitted, refused }.print();
        return;
    }
    admitted.append(&mut refused);
    admitted.retain(|operation| wanted.iter().any(|part| operation.name.contains(part)));
    measure(admitted.iter_mut().collect());
    for operation in admitted {
        println!("{}: {:.1} ns", operation.name, median(operation.ns));
    }
}

fn measure(mut operations: Vec<&mut Operation>) {
    for operation in &mut operations {
        operation.calibrate();
    }
    for round in 0..WARM_UP + ROUNDS {
        for operation in &mut operations {
            operation.turn(round >= WARM_UP);
        }
    }
}

/// What was measured.
struct Report {
    admitted: Vec<Operation>,
    refused: Vec<Operation>,
}

impl Report {
    fn print(&self) {
        let bare = self.admitted(BARE);
        let governor = added(self.admitted(GOVERNOR_IP), bare);
        println!("| admitted | ns | added to bare | times bare | added, beside {GOVERNOR_IP} |");
        println!("|---|---:|---:|---:|---:|");
        for operation in &self.admitted {
            let added = added(&operation.ns, bare);
            println!(
                "| {} | {:.1} | {:.1} | {:.2} | {:.2} |",
                operation.name,
                median(operation.ns.clone()),
                median(added.clone()),
                ratio(&operation.ns, bare),
                ratio(&added, &governor),
            );
        }

        let governor = self.refused(GOVERNOR_IP);
        let admitted = self.admitted(ONE_QUANTA);
        println!(
            "\n| refused | ns | beside {GOVERNOR_IP}, refused | beside {ONE_QUANTA}, admitted |"
        );
        println!("|---|---:|---:|---:|");
        for operation in &self.refused {
            println!(
                "| {} | {:.1} | {:.4} | {:.2} |",
                operation.name,
                median(operation.ns.clone()),
                ratio(&operation.ns, governor),
                ratio(&operation.ns, admitted),
            );
        }
        self.print_bars();
    }

    /// What we want to hold, and what it is.
    fn print_bars(&self) {
        println!("\n| bar | at most | added cost | whole call |");
        println!("|---|---:|---:|---:|");
        let bare = self.admitted(BARE);
        let print = |what: String, most: f64, ours: &[f64], theirs: &[f64]| {
            let added = ratio(&added(ours, bare), &added(theirs, bare));
            let whole = ratio(ours, theirs);
            println!("| {what} | {most:.3} | {added:.3} | {whole:.3} |");
        };
        for (ours, theirs, most) in [
            (ONE_QUANTA, GOVERNOR_IP, 1.0),
            (ONE_QUANTA, FLOOR, 1.2),
            (ORIGIN_QUANTA, GOVERNOR_IP, 1.0),
            (ONE_INSTANT, GOVERNOR_IP, 1.4),
            (ORIGIN_INSTANT, GOVERNOR_IP, 1.4),
            (ONE_QUANTA, SENTINEL_TOWER, 1.0 / 15.0),
            (THREE, ONE_QUANTA, 1.15),
        ] {
            let what = format!("admitted: {ours}, beside {theirs}");
            print(what, most, self.admitted(ours), self.admitted(theirs));
        }
        for ours in [ONE_QUANTA, ORIGIN_QUANTA] {
            let theirs = self.refused(GOVERNOR_IP);
            let what = format!("refused: {ours}, beside {GOVERNOR_IP}");
            print(what, 1.0 / 50.0, self.refused(ours), theirs);
            let what = format!("{ours}: refused beside admitted");
            print(what, 2.0, self.refused(ours), self.admitted(ours));
        }
    }

    fn admitted(&self, name: &str) -> &[f64] {
        find(&self.admitted, name)
    }

    fn refused(&self, name: &str) -> &[f64] {
        find(&self.refused, name)
    }
}

fn find<'a>(operations: &'a [Operation], name: &str) -> &'a [f64] {
    let found = operations.iter().find(|operation| operation.name == name);
    &found.expect("it is measured").ns
}

/// What each round cost above `bare`.
fn added(ns: &[f64], bare: &[f64]) -> Vec<f64> {
    ns.iter().zip(bare).map(|(ns, bare)| ns - bare).collect()
}

fn ratio(ns: &[f64], base: &[f64]) -> f64 {
    median(ns.iter().zip(base).map(|(ns, base)| ns / base).collect())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
