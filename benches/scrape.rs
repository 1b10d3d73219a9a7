//! What a reader pays for the text of an engine, by how many resources have series of their own.
//!
//! ```text
//! cargo bench --bench scrape
//! ```
//!
//! Each resource has two rules and histograms with the default ranges. Calls pay nothing.

mod support;

use support::Bench;
use tower_sentinel::observe::{Metrics, TextFormat};
use tower_sentinel::{Call, CircuitBreakerRule, FlowRule, Rules, Sentinel};

fn main() {
    let one = text(1);
    println!("1 resource: {} bytes", one().len());
    let mut bench = Bench::against("the text of an engine", "1 resource", read(one));
    for (name, resources) in [("10 resources", 10), ("200 resources", 200)] {
        let text = text(resources);
        println!("{name}: {} bytes", text().len());
        bench.add(name, read(text));
    }
    bench.print();
}

fn read(text: impl Fn() -> String) -> impl FnMut() {
    move || assert!(text().ends_with('\n'))
}

/// Makes the text of an engine of so many resources, each time anew.
fn text(resources: usize) -> impl Fn() -> String {
    let name = |number| format!("/resource/number/{number}");
    let rules = (0..resources).map(|number| FlowRule::per_second(name(number), 1_000));
    let rules = Rules::build(rules).expect("they are good");
    let sentinel = Sentinel::builder()
        .rules(rules.with(CircuitBreakerRule::error_ratio("*", 0.5)))
        .histograms()
        .build();
    for number in 0..resources {
        drop(sentinel.try_enter(Call::new(&*name(number))));
    }
    let metrics = Metrics::new(&sentinel);
    move || metrics.render(TextFormat::OpenMetrics)
}
