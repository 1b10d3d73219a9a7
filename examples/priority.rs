//! Prioritized calls wait for the next free place; ordinary ones are refused.
//!
//! ```text
//! cargo run --example priority
//! ```
//!
//! tokio's time is paused: it jumps from timer to timer, so the figures are the same
//! in every run. Tests can use it in the same way.

use std::time::Duration;

use tokio::time::sleep;
use tower_sentinel::clock::TokioClock;
use tower_sentinel::{BoxError, Call, Clock, FlowRule, Sentinel, Verdict, Waiting};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let clock = TokioClock::new();
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("pay", 5))
        // A prioritized call may wait, but for less than a second.
        .occupy_timeout(Duration::from_secs(1))
        .clock(clock)
        .build();
    let ordinary = Call::new("pay");
    let prioritized = Call::new("pay").prioritized(true);

    sleep(Duration::from_millis(100)).await;
    println!("Five calls a second pass. At 100 ms, ten of each kind come, alternately:\n");
    println!("      ordinary                      prioritized");
    let mut queue = Vec::new();
    for number in 1..=10 {
        let (left, _) = describe(sentinel.try_enter(ordinary));
        let (right, waiting) = describe(sentinel.try_enter(prioritized));
        println!("{number:>4}  {left:<28}  {right}");
        queue.extend(waiting.map(|waiting| (number, waiting)));
    }

    println!();
    for (number, waiting) in queue {
        let entry = waiting.ready().await?;
        let now = clock.now().as_millis();
        println!("at {now} ms prioritized call {number} runs");
        drop(entry); // the call ends here
    }

    println!("\nThe waiting calls have borrowed all tokens of the next second:\n");
    for at in [1_400, 1_900, 2_000] {
        sleep(Duration::from_millis(at - clock.now().as_millis())).await;
        let (text, _) = describe(sentinel.try_enter(ordinary));
        println!("at {at} ms an ordinary call: {text}");
    }

    let node = sentinel.node("pay").ok_or("nobody has called")?;
    let totals = node.totals();
    println!(
        "\nIn all: {} passed, {} of them after a wait, and {} were refused.",
        totals.pass(),
        totals.waits(),
        totals.block(),
    );
    Ok(())
}

/// The verdict as text, and the `Waiting` of a call that waits. A call that passes
/// ends at once here.
fn describe(verdict: Verdict) -> (String, Option<Waiting>) {
    match verdict {
        Verdict::Pass(_) => ("passes".to_owned(), None),
        Verdict::Wait(waiting) => {
            let delay = waiting.delay().as_millis();
            (format!("waits {delay} ms"), Some(waiting))
        }
        Verdict::Block(blocked) => {
            let text = match blocked.retry_after() {
                Some(after) => format!("refused, retry in {} ms", after.as_millis()),
                None => "refused".to_owned(),
            };
            (text, None)
        }
        _ => unreachable!("there is no other verdict"),
    }
}
