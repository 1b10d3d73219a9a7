//! Random calls of a key whose plan changes and comes back, compared with a naive key that knows
//! the number of its spent tokens exactly.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::budget::CostLedger;
use crate::keyed::KeyAccount;

/// The thresholds per second, as twice their number. Tokens of all of them cost whole nanoseconds.
const HALVES: [i128; 7] = [0, 4, 5, 10, 40, 100, 100_000];
/// All times are multiples of this number of nanoseconds, a ten-thousandth of a second.
const QUANTUM_NS: u64 = 100_000;
/// The grains of a token. In a quantum of time, a threshold of `halves / 2` earns `halves` grains.
/// So all numbers of grains are whole, and all debts are whole nanoseconds: no rounding is needed.
const TOKEN: i128 = 20_000;
/// The quanta of the ten intervals that bound a charge.
const TEN_INTERVALS: i128 = 100_000;

/// A step of the key.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Advances the clock by this number of quanta.
    Wait(u64),
    /// Advances the clock to about the end of the debt: this number of quanta before or after it.
    WaitForRest(i64),
    /// Takes tokens under a plan.
    Take { plan: Index, n: u32 },
    /// Takes all tokens that a plan has left, and as many more.
    TakeRest { plan: Index, more: u32 },
    /// Takes tokens, and refunds them at once.
    TakeInVain { plan: Index, n: u32 },
    /// Refunds one of the calls so far.
    GiveBack(Index),
    /// Admits a call whose cost is known only afterwards.
    Admit(Index),
    /// Charges units to one of the calls that were admitted.
    Charge { call: Index, units: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let plan = any::<Index>;
    let wait = prop_oneof![Just(0), 0..9_u64, 0..3_000_u64, 0..30_000_u64];
    let units = prop_oneof![3 => 1..9_u32, 1 => 1..70_000_u32, 1 => Just(u32::MAX)];
    prop_oneof![
        3 => wait.prop_map(Step::Wait),
        1 => (-2..3_i64).prop_map(Step::WaitForRest),
        6 => (plan(), 0..5_u32).prop_map(|(plan, n)| Step::Take { plan, n }),
        1 => (plan(), 0..2_u32).prop_map(|(plan, more)| Step::TakeRest { plan, more }),
        1 => (plan(), 0..5_u32).prop_map(|(plan, n)| Step::TakeInVain { plan, n }),
        4 => any::<Index>().prop_map(Step::GiveBack),
        1 => plan().prop_map(Step::Admit),
        1 => (any::<Index>(), units).prop_map(|(call, units)| Step::Charge { call, units }),
    ]
}

/// A plan: a threshold and a burst, or no limit.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Twice the threshold per second.
    halves: i128,
    burst: u32,
    is_unlimited: bool,
}

impl Plan {
    /// The grains that a key at rest may spend at once.
    fn capacity(self) -> i128 {
        match self.halves {
            0 => 0,
            halves => halves * TOKEN / 2 + i128::from(self.burst) * TOKEN,
        }
    }
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (0..HALVES.len(), 0..4_u32, 0..12_u32).prop_map(|(at, burst, chance)| Plan {
        halves: HALVES[at],
        burst,
        is_unlimited: chance == 0,
    });
    prop::collection::vec(plan, 1..5)
}

/// A debt: spent tokens that are earned back at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Debt {
    /// The spent grains at the time `at`.
    spent: i128,
    /// The time of the last change, in quanta.
    at: i128,
    /// The grains that are earned in a quantum.
    halves: i128,
}

impl Debt {
    /// The grains that are still spent at `now`; less than 0 since the debt has ended.
    fn rest(self, now: i128) -> i128 {
        self.spent - self.halves * (now - self.at)
    }

    /// Returns whether both are the same debt, so that no call has changed one into the other.
    fn is(self, other: Self) -> bool {
        self.halves == other.halves && self.rest(0) == other.rest(0)
    }
}

/// A call that the naive key has let pass.
#[derive(Clone, Copy, Debug)]
struct Paid {
    at: i128,
    /// The grains that the call has taken.
    taken: i128,
    /// The debt before the call, if it was at another rate.
    before: Option<Debt>,
    after: Debt,
}

/// The naive key.
#[derive(Clone, Copy, Debug, Default)]
struct Naive {
    debt: Option<Debt>,
}

impl Naive {
    /// The grains that are spent at `now`.
    fn spent(&self, now: i128) -> i128 {
        self.debt.map_or(0, |debt| debt.rest(now).max(0))
    }

    /// The tokens that `plan` has left.
    fn left(&self, now: i128, plan: Plan) -> u32 {
        let left = (plan.capacity() - self.spent(now)) / TOKEN;
        left.clamp(0, u32::MAX.into()) as u32
    }

    /// The nanoseconds until `n` tokens are left under `plan`; `None` if they never are.
    fn wait_ns(&self, now: i128, plan: Plan, n: u32) -> Option<u64> {
        let needed = i128::from(n) * TOKEN;
        let over = self.spent(now) + needed - plan.capacity();
        let wait_ns = || match self.debt {
            Some(debt) if over > 0 => over * i128::from(QUANTUM_NS) / debt.halves,
            _ => 0,
        };
        (needed <= plan.capacity()).then(|| wait_ns() as u64)
    }

    /// Lets a call of `n` tokens pass if `plan` has them left. From then on all spent tokens are
    /// earned back at the rate of `plan`.
    fn take(&mut self, now: i128, plan: Plan, n: u32) -> Option<Paid> {
        if self.wait_ns(now, plan, n) != Some(0) {
            return None;
        }
        let taken = i128::from(n) * TOKEN;
        let is_other = |debt: &Debt| debt.rest(now) > 0 && debt.halves != plan.halves;
        let before = self.debt.filter(is_other);
        let after = Debt {
            spent: self.spent(now) + taken,
            at: now,
            halves: plan.halves,
        };
        self.debt = Some(after);
        Some(Paid {
            at: now,
            taken,
            before,
            after,
        })
    }

    /// Refunds a call: what it has taken, less what the faster of its own and the present rate has
    /// earned since. The debt before the call is restored if it was at another rate and nobody has
    /// changed the key since.
    fn refund(&mut self, now: i128, paid: Paid) {
        let Some(debt) = self.debt.filter(|debt| debt.rest(now) >= 0) else {
            return;
        };
        let (mut spent, mut halves) = (debt.rest(now), debt.halves);
        match paid.before.filter(|_| debt.is(paid.after)) {
            Some(before) if before.rest(now) > 0 => {
                (spent, halves) = (before.rest(now), before.halves);
            }
            Some(_) => spent = 0,
            None => {
                let earned = halves.max(paid.after.halves) * (now - paid.at);
                spent = (spent - (paid.taken - earned).max(0)).max(0);
            }
        }
        self.debt = Some(Debt {
            spent,
            at: now,
            halves,
        });
    }

    /// Admits a call of unknown cost if one token is left.
    fn admit(&mut self, now: i128, plan: Plan) -> bool {
        let is_admitted = self.left(now, plan) > 0;
        if let Some(debt) = self.debt.filter(|debt| is_admitted && debt.rest(now) > 0) {
            self.debt = Some(Debt {
                spent: debt.rest(now),
                at: now,
                halves: plan.halves,
            });
        }
        is_admitted
    }

    /// Charges `units` to a call that was admitted under `plan`. A debt keeps its rate. It becomes
    /// at most as long as the first token takes ten intervals. Returns the charged tokens.
    fn charge(&mut self, now: i128, plan: Plan, units: u32) -> u32 {
        let owed = self.spent(now);
        let halves = self
            .debt
            .filter(|_| owed > 0)
            .map_or(plan.halves, |debt| debt.halves);
        if halves == 0 {
            return 0;
        }
        let most = plan.capacity() + TEN_INTERVALS * halves - TOKEN;
        let spent = (owed + i128::from(units) * TOKEN).min(most).max(owed);
        if spent > owed {
            self.debt = Some(Debt {
                spent,
                at: now,
                halves,
            });
        }
        ((spent - owed) / TOKEN) as u32
    }
}

/// A change of the key, to be compared with what its plans allow.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A call takes a number of grains.
    Take { at: i128, plan: Plan, taken: i128 },
    /// A call that takes nothing yet passes.
    Admit(Plan),
    /// The call of the event with this number is refunded this number of grains or fewer.
    Refund(usize, i128),
}

/// The keys of a table, and the naive key.
struct Pair {
    keys: HotKeys,
    /// Each plan, prepared for the table.
    plans: Vec<(Plan, KeyLimit)>,
    naive: Naive,
    now: u64,
    /// The calls that may still be refunded. Those that have taken tokens have the number of their
    /// event.
    held: Vec<(KeyTokens, Option<(usize, Paid)>)>,
    admitted: Vec<(Plan, KeyAccount)>,
    events: Vec<Event>,
    charged: u64,
}

impl Pair {
    fn new(plans: &[Plan]) -> Self {
        let keys = HotKeys::with_costs(spec(Counting::Refill, SECOND), Tick::ZERO);
        let prepare = |plan: &Plan| {
            let limit = keys.limit(plan.halves as f64 / 2.0, plan.burst);
            let limit = if plan.is_unlimited {
                KeyLimit::Unlimited
            } else {
                limit
            };
            (*plan, limit)
        };
        let plans = plans.iter().map(prepare).collect();
        Self {
            keys,
            plans,
            naive: Naive::default(),
            now: 0,
            held: Vec::new(),
            admitted: Vec::new(),
            events: Vec::new(),
            charged: 0,
        }
    }

    fn tick(&self) -> Tick {
        Tick::from_nanos(self.now * QUANTUM_NS)
    }

    /// Returns what each limited plan has left.
    fn left(&self) -> Vec<u32> {
        let limits = self.plans.iter().filter(|(plan, _)| !plan.is_unlimited);
        let left = limits.map(|(_, limit)| self.keys.left(self.tick(), digest(1), limit));
        left.collect()
    }

    /// Advances the clock if a debt ends at this very moment: a call at another rate may find it or
    /// not, which a later refund shows.
    fn leave_end(&mut self) {
        let now = self.now.into();
        self.now += u64::from(self.naive.debt.is_some_and(|debt| debt.rest(now) == 0));
    }

    /// Makes a call of `n` tokens, and compares the answer. Returns whether it passed.
    fn take(&mut self, plan: Index, n: u32) -> bool {
        let (plan, limit) = self.plans[plan.index(self.plans.len())];
        if self
            .naive
            .debt
            .is_some_and(|debt| debt.halves != plan.halves)
        {
            self.leave_end();
        }
        let now = i128::from(self.now);
        let taken = self.keys.take(self.tick(), digest(1), &limit, n);
        let is_counted = n > 0 && !plan.is_unlimited;
        let wait_ns = if is_counted {
            self.naive.wait_ns(now, plan, n)
        } else {
            Some(0)
        };
        let paid = is_counted.then(|| self.naive.take(now, plan, n)).flatten();
        match taken {
            Ok(taken) => {
                assert_eq!(wait_ns, Some(0), "{n} pass under {plan:?}");
                self.held
                    .push((taken, paid.map(|paid| (self.events.len(), paid))));
                self.events.extend(paid.map(|paid| Event::Take {
                    at: now,
                    plan,
                    taken: paid.taken,
                }));
                true
            }
            Err(full) => {
                let at = wait_ns.map(|ns| self.tick() + Duration::from_nanos(ns));
                assert_ne!(wait_ns, Some(0), "{n} are refused under {plan:?}");
                assert_eq!(full.available_at(), at, "{n} under {plan:?}");
                false
            }
        }
    }

    /// Refunds one of the calls that have passed.
    fn refund(&mut self, index: usize) {
        let (taken, paid) = self.held.swap_remove(index);
        self.keys.refund(|| self.tick(), &taken);
        if let Some((call, paid)) = paid {
            self.naive.refund(self.now.into(), paid);
            self.events.push(Event::Refund(call, paid.taken));
        }
    }

    fn charge(&mut self, index: usize, units: u32) {
        self.leave_end();
        let (plan, account) = &self.admitted[index];
        self.keys.budget_of(account).book(self.tick(), units);
        self.charged += u64::from(self.naive.charge(self.now.into(), *plan, units));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(quanta) => self.now += quanta,
            Step::WaitForRest(off) => {
                let debt = self.naive.debt;
                let rest = debt.map_or(0, |debt| debt.rest(self.now.into()).max(0) / debt.halves);
                self.now += (rest as i64 + off).max(0) as u64;
            }
            Step::Take { plan, n } => {
                self.take(plan, n);
            }
            Step::TakeRest { plan, more } => {
                let of = self.plans[plan.index(self.plans.len())].0;
                self.take(plan, self.naive.left(self.now.into(), of) + more);
            }
            Step::TakeInVain { plan, n } => {
                let before = self.left();
                if self.take(plan, n) {
                    self.refund(self.held.len() - 1);
                }
                assert_eq!(
                    self.left(),
                    before,
                    "what is refunded at once leaves no trace"
                );
            }
            Step::GiveBack(call) if !self.held.is_empty() => {
                self.refund(call.index(self.held.len()));
            }
            Step::Admit(plan) => {
                let (plan, limit) = self.plans[plan.index(self.plans.len())];
                if !plan.is_unlimited {
                    self.leave_end();
                    let account = self
                        .keys
                        .budget(digest(1), limit)
                        .admit(self.tick(), 0, &|| self.tick());
                    assert_eq!(account.is_some(), self.naive.admit(self.now.into(), plan));
                    self.events
                        .extend(account.is_some().then_some(Event::Admit(plan)));
                    self.admitted.extend(account.map(|account| (plan, account)));
                }
            }
            Step::Charge { call, units } if !self.admitted.is_empty() => {
                self.charge(call.index(self.admitted.len()), units);
            }
            Step::GiveBack(_) | Step::Charge { .. } => {}
        }
        let limited = self.plans.iter().filter(|(plan, _)| !plan.is_unlimited);
        let left = limited.map(|(plan, _)| self.naive.left(self.now.into(), *plan));
        assert_eq!(
            self.left(),
            left.collect::<Vec<_>>(),
            "after {step:?} at {}",
            self.now
        );
        assert_eq!(self.keys.cost_figures().charged_total, self.charged);
    }

    /// Checks that over any time in which no earlier call is refunded, the calls that run have taken
    /// no more than the largest of their plans has, and the fastest plan so far earns meanwhile.
    fn check_sums(&self) {
        for first in 0..self.events.len() {
            let (mut fastest, mut most, mut sum) = (0, 0, 0);
            let mut start = None;
            for (number, event) in self.events.iter().enumerate() {
                match *event {
                    Event::Admit(plan) => fastest = fastest.max(plan.halves),
                    Event::Take { plan, .. } if number < first => {
                        // Tokens that were spent before may be earned back at this rate.
                        fastest = fastest.max(plan.halves);
                    }
                    Event::Take { at, plan, taken } => {
                        fastest = fastest.max(plan.halves);
                        most = most.max(plan.capacity());
                        sum += taken;
                        let length = at - *start.get_or_insert(at);
                        assert!(sum <= most + fastest * length, "{first} to {number}");
                    }
                    Event::Refund(..) if number < first => {}
                    Event::Refund(call, _) if call < first => break,
                    Event::Refund(_, taken) => sum -= taken,
                }
            }
        }
    }

    /// Checks that the key has its whole quota when its debt ends, and nothing before or after.
    fn check_rest(&mut self) {
        self.step(Step::WaitForRest(0));
        let is_whole = |pair: &Self| {
            let limited = pair.plans.iter().filter(|(plan, _)| !plan.is_unlimited);
            let whole: Vec<_> = limited
                .map(|(plan, _)| (plan.capacity() / TOKEN) as u32)
                .collect();
            pair.left() == whole
        };
        self.now += 1;
        assert!(is_whole(self), "the debt has ended");
        self.now += 1;
        assert_eq!(self.keys.keys_in_use(self.tick()), 0);
        assert!(is_whole(self), "nothing is left of the debt");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

    /// Checks what the docs promise of a refilled quota whose limit changes, without any tolerance,
    /// because all numbers of the test are whole:
    ///
    /// * A change of the plan keeps the number of spent tokens: under each plan as many are left as
    ///   it has in whole, less those that are spent. So a higher limit counts at once.
    /// * Spent tokens are earned back at the rate of the last plan under which a call has passed,
    ///   also if the call tells its cost only afterwards. Refused calls, calls of weight 0 and calls
    ///   of a plan without a limit change nothing, and a charge keeps the rate of the debt.
    /// * A refusal names the first moment at which the call would pass.
    /// * A refund gives back what the call has taken, less what has been earned since at the faster
    ///   of the call's rate and the present one. The debt that the call has found at another rate is
    ///   restored, unless the key has changed since. Nothing is left of a call that is refunded at
    ///   once.
    /// * Over any time in which no earlier call is refunded, the calls that run take at most what
    ///   the largest plan has, and what the fastest plan earns in that time.
    /// * When the debt has ended, the key is whole under all plans, and at rest.
    #[test]
    fn a_key_whose_plan_changes_and_comes_back_keeps_the_number_of_its_spent_tokens(
        plans in plans(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut pair = Pair::new(&plans);
        for step in steps {
            pair.step(step);
        }
        if pair.charged == 0 {
            pair.check_sums();
        }
        pair.check_rest();
    }
}
