//! Four processes that spend one budget on one server, and one of them that is killed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::redis::Server;
use crate::{errors, named, started};

/// Tells a child what it is, as `url role seed`.
const CHILD: &str = "SENTINEL_TEST_CHILD_BUDGET";
const TOKENS: u32 = 400_000;
/// A bucket that lasts longer than the test, so what all have charged in it is what counts.
const LONG: Duration = Duration::from_secs(360 * 86_400);
const RESERVED: u32 = 400;
const CLIENTS: u32 = 10;
/// A client stops when it is refused so often, one time after the other.
const GIVES_UP: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// The calls that run when their process is killed, and what each of them has reserved.
const RUNNING: u32 = 10;
const RUNNING_RESERVED: u32 = 2_000;

fn call(reserved: u32) -> Call<'static> {
    Call::new("/v1").reserve("tokens", reserved)
}

/// A call after the other, at most so many, until the budget is spent. Each costs less than it
/// reserves. Returns what they have cost.
async fn spend(sentinel: Sentinel, seed: u32, most: u32) -> u32 {
    let (mut spent, mut refused) = (0, 0);
    for call_number in seed..seed + most {
        let Ok(mut entry) = sentinel.enter(call(RESERVED)).await else {
            refused += 1;
            if refused == GIVES_UP {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        refused = 0;
        let cost = call_number * 37 % (RESERVED + 1);
        if call_number % 2 == 0 {
            entry.charge("tokens", cost / 2);
        }
        tokio::time::sleep(Duration::from_millis(u64::from(call_number * 7 % 10))).await;
        entry.settle("tokens", cost);
        spent += cost;
    }
    spent
}

/// The child: it prints what its calls have cost. Alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<_> = told.split(' ').collect();
    let seed: u32 = words[2].parse().unwrap();
    let mut rule = FlowRule::per("/v1", TOKENS, LONG)
        .buckets(1)
        .cost("tokens")
        .shared();
    if words[1] == "dies" {
        // It draws nothing in advance, which would be lost as well.
        rule = rule.exact();
    }
    // The machine may be busy: late answers would be an outage, which has another bound.
    let wait = Duration::from_secs(5);
    let (sentinel, handle) = started(named(words[0]), rule, wait).await;
    let before = errors(&sentinel);
    if words[1] == "dies" {
        println!("spent {}", spend(sentinel.clone(), seed, 30).await);
        let mut running = Vec::new();
        for _ in 0..RUNNING {
            running.push(sentinel.enter(call(RUNNING_RESERVED)).await.unwrap());
        }
        println!("runs");
        std::future::pending::<()>().await;
    }
    println!("spent {}", spend(sentinel.clone(), seed, 1).await);
    let clients = (1..=CLIENTS).map(|client| {
        let sentinel = sentinel.clone();
        tokio::spawn(spend(sentinel, seed + client * 1_000, 1_000))
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        println!("spent {}", client.await.unwrap());
    }
    assert_eq!(errors(&sentinel), before, "no draw has failed");
    handle.shutdown().await;
}

/// A process that spends, and what it has told.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    spent: u32,
}

impl Process {
    fn start(server: &Server, role: &str, number: u32) -> Self {
        let told = format!("{} {role} {}", server.url(), number * 100_000);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["budget_processes::child", "--exact", "--nocapture"])
            .env(CHILD, told)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        Self {
            child,
            lines: BufReader::new(out).lines(),
            spent: 0,
        }
    }

    /// Reads on until a line has `word`, or to the end.
    fn read_until(&mut self, word: &str) -> bool {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some((_, spent)) = line.split_once("spent ") {
                self.spent += spent.parse::<u32>().unwrap();
            }
            if line.contains(word) {
                return true;
            }
        }
        false
    }

    /// What it has spent when it has ended.
    fn end(mut self) -> u32 {
        assert!(!self.read_until("runs"));
        assert!(self.child.wait().unwrap().success());
        self.spent
    }
}

#[tokio::test]
async fn four_processes_spend_one_budget() {
    let Some(server) = Server::start("budget-processes", &[]).await else {
        return;
    };
    let processes = [1, 2, 3, 4].map(|number| Process::start(&server, "spends", number));
    let spent: u32 = processes.map(Process::end).iter().sum();
    println!("{spent} of {TOKENS} are spent");
    assert!(spent <= TOKENS, "{spent} are spent");
    assert!(spent >= TOKENS / 100 * 97, "only {spent} are spent");
}

#[tokio::test]
async fn a_process_that_is_killed_takes_what_its_calls_have_reserved_along() {
    const LOST: u32 = RUNNING * RUNNING_RESERVED;
    let Some(server) = Server::start("budget-killed", &[]).await else {
        return;
    };
    let mut killed = Process::start(&server, "dies", 1);
    assert!(killed.read_until("runs"));
    let mut others = [2, 3, 4].map(|number| Process::start(&server, "spends", number));
    assert!(others[0].read_until("spent"));
    // The others spend.
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let spent = killed.spent + others.map(Process::end).iter().sum::<u32>();
    println!("{spent} of {TOKENS} are spent, and {LOST} were reserved");
    assert!(spent <= TOKENS - LOST, "{spent} are spent");
    assert!(
        spent >= (TOKENS - LOST) / 100 * 97,
        "only {spent} are spent"
    );
}
