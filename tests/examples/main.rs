//! Every example does what it prints.
//!
//! The examples run as a user runs them, as programs on the real clock, so what
//! is asserted here is true at any speed. What passes in a time that is measured
//! from outside is bounded by the buckets that it can touch, and a burst is
//! repeated until one was quick enough to be told something sharp about.

mod dashboard;
mod resets;
mod rules_file;
mod server;
mod tiers;

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Long enough for a machine that does a lot besides.
const DEADLINE: Duration = Duration::from_secs(120);

const BUCKET: Duration = Duration::from_millis(500);

// === running examples ===

fn path_of(example: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop(); // the name
    path.pop(); // deps
    path.push("examples");
    path.push(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is missing: `cargo build --examples` makes it, and so does a whole `cargo test`",
        path.display()
    );
    path
}

/// What an example prints that ends by itself.
async fn output_of(example: &str) -> String {
    let mut command = tokio::process::Command::new(path_of(example));
    let output = timeout(DEADLINE, command.kill_on_drop(true).output())
        .await
        .expect("it ends by itself")
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    assert!(
        output.status.success(),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{text}");
    text
}

/// What stands behind `name` in the line that begins with it, with single
/// spaces.
fn row(output: &str, name: &str) -> String {
    let mut rows = output.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix(name)?;
        rest.starts_with([' ', ':']).then_some(rest)
    });
    let Some(rest) = rows.next() else {
        panic!("no line begins with {name:?}:\n{output}");
    };
    assert_eq!(rows.next(), None, "several lines begin with {name:?}");
    let words: Vec<_> = rest.trim_start_matches(':').split_whitespace().collect();
    words.join(" ")
}

/// The number between `before` and `after`.
fn number(text: &str, before: &str, after: &str) -> u64 {
    let found = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after))
        .and_then(|(number, _)| number.parse().ok());
    found.unwrap_or_else(|| panic!("no number between {before:?} and {after:?}: {text}"))
}

/// The most calls that can pass within `elapsed`, wherever it lies: it touches
/// so many buckets, and no two neighbours hold more than `limit`.
fn most(limit: usize, elapsed: Duration) -> usize {
    let whole = elapsed.as_nanos() / BUCKET.as_nanos();
    let buckets = usize::try_from(whole).expect("a test ends") + 2;
    limit * buckets.div_ceil(2)
}

// === those that end ===

#[tokio::test]
async fn window_shows_how_far_apart_two_full_bursts_are() {
    let output = output_of("window").await;
    for (window, figures) in [
        ("1 bucket (fixed)", "100 100 1 ms 100 %"),
        ("2 buckets (default)", "100 0 501 ms 100 %"),
        ("10 buckets", "100 0 901 ms 100 %"),
        ("2 buckets, strict", "100 0 1001 ms 67 %"),
        ("10 buckets, strict", "100 0 1001 ms 91 %"),
    ] {
        assert_eq!(row(&output, window), figures, "{window}");
    }
    assert!(output.contains("7 of 10 calls in one slice pass"));
    assert!(output.contains("its sum is 7 when 4 ms have passed"));
    assert!(output.contains("its sum is 0 when 5 ms have passed"));
}

#[tokio::test]
async fn priority_lets_five_wait_and_refuses_the_rest() {
    let output = output_of("priority").await;
    let rows: Vec<_> = (1..=10).map(|n| row(&output, &n.to_string())).collect();
    let passes = "passes passes";
    let first_waits = "passes waits 900 ms";
    let waits = "refused, retry in 900 ms waits 900 ms";
    // All five places of the next window are lent, so an ordinary call is told the one after it.
    // A prioritized call may wait for a second, so it is let in to wait a second earlier.
    let refused = "refused, retry in 1900 ms refused, retry in 900 ms";
    assert_eq!(
        rows,
        [
            passes,
            passes,
            first_waits,
            waits,
            waits,
            waits,
            waits,
            refused,
            refused,
            refused
        ]
    );
    let runs: Vec<_> = output
        .lines()
        .filter(|line| line.ends_with(" runs"))
        .collect();
    assert_eq!(
        runs,
        [3, 4, 5, 6, 7].map(|n| format!("at 1000 ms prioritized call {n} runs"))
    );
    for (at, becomes) in [
        ("at 1400 ms an ordinary call", "refused, retry in 600 ms"),
        ("at 1900 ms an ordinary call", "refused, retry in 100 ms"),
        ("at 2000 ms an ordinary call", "passes"),
    ] {
        assert_eq!(row(&output, at), becomes, "{at}");
    }
    assert_eq!(
        row(&output, "In all"),
        "11 passed, 5 of them after a wait, and 12 were refused."
    );
}

#[tokio::test]
async fn per_ip_gives_each_client_a_quota_and_forging_gives_nothing() {
    let output = output_of("per_ip").await;
    for (client, row_of_client) in [
        ("a client", "203.0.113.7 3 2"),
        ("another client", "198.51.100.20 3 2"),
        ("the first, forging one", "192.0.2.1, 203.0.113.7 0 5"),
        (
            "the first, forging many",
            "10.1.1.1, 127.0.0.1, 203.0.113.7 0 5",
        ),
        ("one over IPv6", "2001:db8:1:2::a 3 2"),
        ("the same /64", "2001:db8:1:2:ffff::b 0 5"),
        ("another /64", "2001:db8:1:3::a 3 2"),
        ("through two proxies", "192.0.2.99, 127.0.0.2 3 2"),
    ] {
        assert_eq!(row(&output, client), row_of_client, "{client}");
    }
    for (address, counted) in [
        ("203.0.113.7", "3 12"),
        ("198.51.100.20", "3 2"),
        ("2001:db8:1:2::", "3 7"),
        ("2001:db8:1:3::", "3 2"),
        ("192.0.2.99", "3 2"),
    ] {
        assert_eq!(row(&output, address), counted, "{address}");
    }
    // Nobody else has been counted: neither the proxy nor a forged address.
    let (_, counted) = output.split_once("passed  refused").expect("two tables");
    assert_eq!(counted.trim().lines().count(), 5);
}

#[tokio::test]
async fn tonic_answers_resource_exhausted_and_says_when_to_retry() {
    let output = output_of("tonic").await;
    for number in 1..=3 {
        assert_eq!(row(&output, &format!("call {number}")), "4 degrees");
    }
    for call in ["call 4", "call 5"] {
        let refused = row(&output, call);
        let start = "ResourceExhausted, \"refused by flow\", retry in ";
        assert!(refused.starts_with(start), "{refused}");
        let pushback = number(&refused, start, " ms");
        assert!((1..=3_600_000).contains(&pushback), "{refused}");
    }
    let streams: Vec<_> = output
        .lines()
        .filter(|line| line.starts_with("stream"))
        .collect();
    assert_eq!(
        streams,
        [
            "stream 1: 4 degrees, and more to come",
            "stream 2: 19 degrees, and more to come",
            "stream 3: ResourceExhausted, \"refused by isolation\", retry in 1000 ms",
            "stream 1 is dropped",
            "stream 3: 4 degrees, and more to come",
        ]
    );
}

#[tokio::test]
async fn hyper_client_sends_no_more_than_the_rules_let_out() {
    let start = Instant::now();
    loop {
        let output = output_of("hyper_client").await;
        let elapsed = Duration::from_millis(number(&output, "These took ", " ms"));
        let requests: Vec<_> = (1..=8)
            .map(|n| row(&output, &format!("request {n}")))
            .collect();
        let sent = requests
            .iter()
            .filter(|text| *text == "200 OK from the upstream")
            .count();
        assert!(
            requests[..5]
                .iter()
                .all(|text| text == "200 OK from the upstream")
        );
        assert!(sent <= most(5, elapsed), "{sent} in {elapsed:?}");
        for refused in requests.iter().filter(|text| !text.starts_with("200")) {
            let by_flow = "call to \"127.0.0.1\" refused by flow rule \"five-a-second\", room in ";
            assert!(refused.starts_with(by_flow), "{refused}");
            assert!(number(refused, by_flow, " ms") <= 1_000, "{refused}");
        }
        assert_eq!(
            row(&output, "a third request"),
            "call to \"127.0.0.1\" refused by isolation rule \"two-at-once\""
        );
        assert_eq!(
            row(&output, "one is dropped, one more request"),
            "200 OK from the upstream"
        );
        assert_eq!(
            row(&output, "a request to /busy"),
            "429 Too Many Requests from the upstream, Retry-After: \"7\""
        );
        let all = row(&output, "In all");
        let in_all = number(&all, "", " sent");
        assert_eq!(in_all, sent as u64 + 4, "{all}");
        assert_eq!(number(&all, "seen ", "."), in_all, "{all}");
        assert!(number(&all, "sent, ", " refused") > 8 - sent as u64);
        if elapsed < BUCKET {
            assert_eq!(sent, 5);
            break;
        }
        assert!(start.elapsed() < DEADLINE, "no run was quick enough");
    }
}

// === adaptive ===

#[tokio::test]
async fn adaptive_finds_the_slots_again_when_half_are_gone_and_after_a_spike() {
    let output = output_of("adaptive").await;
    // slots, work, limit, answered, refused, 99 %, of one second
    let at = |second: &str| {
        let row = row(&output, second);
        let numbers = row.split(' ').filter_map(|word| word.parse().ok());
        numbers.collect::<Vec<u64>>()
    };
    for (second, slots) in [("30", 20), ("35", 10), ("60", 10), ("80", 10)] {
        let [found_slots, _, limit, answered, _, slowest] = at(second)[..] else {
            panic!("six numbers in second {second}:\n{output}");
        };
        assert_eq!(found_slots, slots);
        // A queue of half as many calls keeps all of them at work.
        assert!(
            (slots..=slots * 3 / 2).contains(&limit),
            "{second}: {limit}"
        );
        // A probe may be under way.
        assert!(answered >= slots * 19, "{second}: {answered}");
        assert!(slowest <= 100, "{second}: {slowest} ms");
    }
    // During the spike it stays above the floor.
    assert!(at("62")[2] >= 2);
}

// === protection and shaping ===

#[tokio::test]
async fn circuit_breaker_lets_one_call_in_three_seconds_find_out() {
    let output = output_of("circuit_breaker").await;
    assert_eq!(
        row(&output, "2400 ms"),
        "Closed → Open (50 % of the calls failed)"
    );
    let changes = output.lines().filter(|line| line.contains(" → ")).count();
    assert_eq!(changes, 5, "opens, two probes, one of them good");
    assert_eq!(
        row(&output, "86"),
        "calls were answered, 6 failed, and 58 were refused at once."
    );
}

#[tokio::test]
async fn hot_key_limits_each_client_and_a_million_made_up_ones_change_nothing() {
    let output = output_of("hot_key").await;
    // It comes rested, so two more in the first second.
    assert_eq!(row(&output, "1"), "2000 7 1998 1998 1000");
    for second in 2..=10 {
        assert_eq!(row(&output, &second.to_string()), "2000 5 1998 1998 1000");
    }
    let [before, after, then] = ["before", "after", "then"].map(|when| row(&output, when));
    let bytes = number(&before, "place, ", " bytes");
    assert_eq!(
        before,
        format!("1 values, 0 calls without a place, {bytes} bytes")
    );
    // Places for 65536 values or more, of 16 bytes each.
    let values = number(&after, "", " values");
    assert!(values >= 65_536 && values * 16 <= bytes, "{after}");
    assert_eq!(number(&after, "place, ", " bytes"), bytes);
    // Those without a place share one quota.
    let passed = number(&output, "In all, ", " of them passed");
    assert!((values - 1..values + 5).contains(&passed), "{passed}");
    assert_eq!(
        number(&after, "values, ", " calls without") + values - 1,
        1_000_000
    );
    assert_eq!(number(&then, "", " values"), 2);
    for (client, told) in [
        ("the hot client", ["is refused", "passes"]),
        ("a client that has not called", ["is refused", "passes"]),
    ] {
        let start = format!("  {client}: ");
        let lines = output.lines().filter_map(|line| line.strip_prefix(&start));
        assert_eq!(lines.collect::<Vec<_>>(), told, "{client}");
    }
}

#[tokio::test]
async fn throttle_spaces_calls_evenly_and_fills_the_gap_of_the_last_one() {
    let output = output_of("throttle").await;
    assert_eq!(
        row(&output, "a window"),
        "now now now now now - - - - - - - ms"
    );
    assert_eq!(
        row(&output, "a queue of at most 1 s"),
        "now 200 400 600 800 1000 - - - - - - ms"
    );
    assert_eq!(
        row(&output, "the queue is full"),
        "the next call is refused"
    );
    assert_eq!(
        row(&output, "the last one has left"),
        "the next call waits 1000 ms"
    );
}

#[tokio::test]
async fn warm_up_goes_from_a_third_to_all_and_is_cold_after_a_pause() {
    let output = output_of("warm_up").await;
    let passed = |second: &str| -> usize {
        let row = row(&output, &format!("{second} s"));
        let (passed, bar) = row.split_once(' ').expect("a number and a bar");
        assert_eq!(bar.len().to_string(), passed);
        bar.len()
    };
    assert_eq!((passed("1"), passed("37")), (20, 20));
    let ramp: Vec<_> = (1..=16).map(|second| passed(&second.to_string())).collect();
    assert!(ramp.is_sorted(), "{ramp:?}");
    assert_eq!(ramp[11..], [60; 5]);
}

#[tokio::test]
async fn system_refuses_inbound_calls_from_ninety_percent_on() {
    let output = output_of("system").await;
    for (second, refused) in [
        (0, false),
        (1, false),
        (2, false),
        (3, true),
        (4, true),
        (5, false),
    ] {
        let row = row(&output, &format!("second {second},"));
        assert_eq!(
            row.contains("refused by system rule \"system-0\""),
            refused,
            "{row}"
        );
        assert!(row.ends_with("outbound passes"), "{row}");
    }
}

#[tokio::test]
async fn llm_charges_a_client_that_leaves_early_what_it_has_reserved() {
    let output = output_of("llm").await;
    for (client, expected) in [
        // Requests, charged, untold, refused.
        ("ann", "2 240 0 0"),
        ("bob, who leaves early", "6 900 3 3"),
        ("eve", "20 2400 0 0"),
        ("joe, without usage", "5 105 0 0"),
    ] {
        assert_eq!(row(&output, client), expected, "{client}");
    }
}

#[tokio::test]
async fn shadow_says_whom_each_candidate_would_refuse() {
    let output = output_of("shadow").await;
    for expected in [
        "ann 20 0 0 0 0",
        "bob 40 0 8 0 0",
        "eve 400 0 368 291 71",
        "ann 20 0",
        "bob 40 0",
        "eve 400 291",
    ] {
        let lines = output.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.join(" ")
        });
        assert_eq!(
            lines.filter(|line| line == expected).count(),
            1,
            "{expected}:\n{output}"
        );
    }
}

#[tokio::test]
async fn shared_refuses_where_the_store_is_away_and_the_rule_says_so() {
    let output = output_of("shared").await;
    assert!(output.contains("The store is live: "), "{output}");
    // What each choice lets pass in the seconds 1 to 6.
    let rows = |begins: &str| {
        let section = output.lines().skip_while(|line| !line.starts_with(begins));
        let rows = section.skip(1).take(3).map(|line| {
            let counts = line.split_whitespace().skip(1);
            let counts: Vec<usize> = counts.map(|count| count.parse().unwrap()).collect();
            assert_eq!(counts.len(), 6, "{line}");
            counts
        });
        let rows: Vec<_> = rows.collect();
        <[Vec<usize>; 3]>::try_from(rows).unwrap_or_else(|_| panic!("{begins}:\n{output}"))
    };
    for away in ["is unreachable", "gives no answer"] {
        let [share, closed, open] = rows(away);
        // Of the second 3 the store is away all the time.
        assert!(share[2] > 0, "{away}: {share:?}");
        assert!(closed[2] < share[2], "{away}: {closed:?} of {share:?}");
        assert!(open[2] > share[2], "{away}: {open:?} of {share:?}");
        assert!(closed[5] > 0, "{away}: {closed:?}");
    }
    for there in ["is there", "answers after 20 ms", "loses its data"] {
        for choice in rows(there) {
            assert!(choice.iter().all(|&count| count > 0), "{there}: {choice:?}");
        }
    }
}
