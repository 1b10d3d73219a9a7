//! The places where a call is judged and counted, narrow to wide.
//!
//! A call counts on its resource, and on a branch of it for its origin or its
//! context where there is one. Each of these is a *lane*: a ring with the rules
//! that are judged on it. A rule with a ring of its own is a lane as well.

use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::branch::{Branch, BranchKind};
use crate::call::{Call, Direction, Key};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::resource::Resource;
use crate::rule::{Basis, FlowRule, Gate, NoTurn, Quotas, Side, Standing};
use crate::stat::{Denied, LeapArray, Loan, MAX_TOKENS, Node, Taken, Wish};
use crate::sync::Arc;

/// The rings were replaced while the call was judged: it must come again.
#[derive(Debug)]
pub(crate) struct Moved;

/// Everything that counts a call.
#[derive(Debug)]
pub(crate) struct Places {
    resource: Arc<Resource>,
    origin: Option<Arc<Branch>>,
    context: Option<Arc<Branch>>,
    /// Whether the call counts among all inbound ones.
    is_inbound: bool,
}

/// What is left of a flow rule's quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaLeft {
    pub(crate) rule: StdArc<str>,
    pub(crate) limit: u32,
    pub(crate) interval: Duration,
    pub(crate) remaining: u32,
    /// Until more of it is there.
    pub(crate) reset: Duration,
}

/// One place where tokens are taken, in the order in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    OriginSide(usize),
    Origin,
    ResourceSide(usize),
    Resource,
    ContextSide(usize),
    Context,
    Inbound,
}

/// Tokens that a waiting call holds in one place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// In a coming bucket.
    Loan(Loan),
    /// In the present bucket, which the call will run in as well.
    Taken(Taken),
}

/// One place with what is judged there.
pub(crate) struct Lane<'a> {
    pub(crate) place: Place,
    pub(crate) ring: &'a LeapArray,
    /// The node whose figures come from the ring.
    pub(crate) node: Option<&'a Node>,
    quotas: Quotas<'a>,
    /// The rules of the quotas.
    indices: &'a [u32],
}

/// Why there is nothing to count a call on.
pub(crate) enum NoPlaces {
    /// The rule with this index refuses calls without a key.
    Refused(u32),
    Moved,
}

impl From<Moved> for NoPlaces {
    fn from(Moved: Moved) -> Self {
        Self::Moved
    }
}

/// Why a lane did not let a call pass.
pub(crate) enum Refusal {
    /// The rule with this index has no room.
    Full(u32),
    Moved,
}

// === impl Lane ===

impl Lane<'_> {
    pub(crate) fn take(&self, now: Tick, n: u32) -> Result<Taken, Refusal> {
        let taken = match self.node {
            Some(node) => node.acquire(now, n, &self.quotas),
            None => self.ring.acquire_at(now, n, &self.quotas),
        };
        taken.map_err(|denied| self.refusal(denied))
    }

    pub(crate) fn give_back(&self, taken: Taken, n: u32) {
        match self.node {
            Some(node) => node.give_back(taken, n),
            // A ring without figures: what comes too late just stays spent.
            None => {
                let _ = self.ring.refund_at(taken.bucket, n);
            }
        }
    }

    /// Holds tokens for `wish.from` or, if there is no room then, for the next
    /// time at which there is. A lane that has room now and whose present
    /// bucket is still open at that time takes them at once.
    pub(crate) fn hold(&self, wish: Wish) -> Result<Held, Refusal> {
        let is_present = self.ring.bucket_number(wish.from) <= self.ring.bucket_number(wish.now);
        if is_present {
            match self.take(wish.now, wish.n) {
                Ok(taken) => return Ok(Held::Taken(taken)),
                Err(Refusal::Moved) => return Err(Refusal::Moved),
                Err(Refusal::Full(_)) => {}
            }
        }
        let loan = match self.node {
            Some(node) => node.borrow_for(wish, &self.quotas),
            None => self.ring.borrow_for(wish, &self.quotas).loan,
        };
        match loan {
            Ok(loan) => Ok(Held::Loan(loan)),
            Err(denied) => Err(self.refusal(denied)),
        }
    }

    /// When each of its rules has room for `n` tokens; `None` if one never has.
    fn room_at(&self, now: Tick, n: u32) -> Option<Tick> {
        self.quotas.iter().try_fold(now, |latest, quota| {
            if self.ring.room(now, quota) >= n {
                return Some(latest);
            }
            Some(latest.max(self.ring.room_at(now, n, quota)?))
        })
    }

    #[cold]
    fn refusal(&self, denied: Denied) -> Refusal {
        match denied {
            Denied::Moved => Refusal::Moved,
            Denied::Full(index) => {
                Refusal::Full(self.indices.get(index).copied().unwrap_or_default())
            }
        }
    }
}

// === impl Places ===

impl Clone for Places {
    fn clone(&self) -> Self {
        Self {
            resource: self.resource.clone(),
            origin: self.origin.clone(),
            context: self.context.clone(),
            is_inbound: self.is_inbound,
        }
    }
}

impl Places {
    /// The resource alone, for a call that no other node counts.
    #[inline]
    pub(crate) const fn alone(resource: Arc<Resource>) -> Self {
        Self {
            resource,
            origin: None,
            context: None,
            is_inbound: false,
        }
    }

    /// The resource, and all inbound calls if they are counted.
    pub(crate) fn only(resource: Arc<Resource>) -> Self {
        Self {
            is_inbound: counts_inbound(&resource),
            resource,
            origin: None,
            context: None,
        }
    }

    /// Everything that counts `call`.
    pub(crate) fn find(
        engine: &Engine,
        resource: &Arc<Resource>,
        call: &Call<'_>,
        now: Tick,
    ) -> Result<Self, NoPlaces> {
        let shared = resource.shared();
        let mut room = None;
        let origin = match (&call.origin, resource.origins()) {
            (Some(origin), rules) => {
                let origin = origin.shortened(&shared.hash, &mut room);
                let is_wanted =
                    shared.origins || rules.is_some_and(|rules| rules.applies_to(origin));
                is_wanted.then(|| engine.branch(resource, BranchKind::Origin, origin, now))
            }
            (None, Some(rules)) => {
                if let Some(rule) = rules.refusing() {
                    return Err(NoPlaces::Refused(rule));
                }
                let is_wanted = !rules.of_missing().is_empty();
                let name = &Key::MISSING;
                is_wanted.then(|| engine.branch(resource, BranchKind::Missing, name, now))
            }
            (None, None) => None,
        };
        let mut room = None;
        let context = call.context.as_ref().and_then(|context| {
            let context = context.shortened(&shared.hash, &mut room);
            let rules = resource.contexts();
            let is_wanted = shared.contexts || rules.is_some_and(|rules| rules.names(context));
            is_wanted.then(|| engine.branch(resource, BranchKind::Context, context, now))
        });
        Ok(Self {
            is_inbound: counts_inbound(resource),
            resource: resource.clone(),
            origin: origin.transpose()?.flatten(),
            context: context.transpose()?.flatten(),
        })
    }

    pub(crate) const fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Every node that counts the call.
    #[inline]
    pub(crate) fn each(&self, mut f: impl FnMut(&Node)) {
        f(self.resource.node());
        if let Some(origin) = &self.origin {
            f(origin.node());
        }
        if let Some(context) = &self.context {
            f(context.node());
        }
        if self.is_inbound {
            if let Some(inbound) = self.inbound() {
                f(inbound);
            }
        }
    }

    /// The node of all inbound calls, if this one counts there.
    fn inbound(&self) -> Option<&Node> {
        let inbound = self.resource.shared().inbound.get();
        inbound.filter(|_| self.is_inbound)
    }

    /// What is left of the quota that has the smallest part left.
    pub(crate) fn quota_left(&self, now: Tick) -> Option<QuotaLeft> {
        let rules = self.resource.rules();
        let part = |left: u32, limit: u32| f64::from(left) / f64::from(limit.max(1));
        self.lanes(now)
            .flat_map(|lane| {
                let ring = lane.ring;
                let all = lane.quotas.iter().copied().zip(lane.indices);
                let limited = all.filter(|(quota, _)| quota.limit() < MAX_TOKENS);
                let left = limited.map(|(quota, &index)| {
                    let left = ring.room(now, &quota);
                    (ring, quota, index, left)
                });
                left.collect::<Vec<_>>()
            })
            .min_by(|a, b| part(a.3, a.1.limit()).total_cmp(&part(b.3, b.1.limit())))
            .map(|(ring, quota, index, remaining)| QuotaLeft {
                rule: rules.id(index),
                limit: quota.limit(),
                interval: rules
                    .flow(index)
                    .map(FlowRule::interval)
                    .unwrap_or_default(),
                remaining,
                reset: ring.next_change(now, &quota) - now,
            })
    }

    /// The rule that looks at another resource and finds no room there for `n`
    /// tokens, and when there will be some.
    pub(crate) fn full_related(
        &self,
        engine: &Engine,
        now: Tick,
        n: u32,
    ) -> Option<(u32, Option<Tick>)> {
        let direction = self.resource.direction();
        self.resource.related().iter().find_map(|&index| {
            let rule = self.resource.rules().flow(index)?;
            let Basis::Related(related) = rule.basis() else {
                return None;
            };
            let related = Self::only(engine.known(direction, related, now)?);
            let lane = related
                .lanes(now)
                .find(|lane| lane.indices.contains(&index))?;
            let place = lane.indices.iter().position(|known| *known == index)?;
            let quota = lane.quotas[place].limited_to(rule.limit());
            let is_full = lane.ring.room(now, &quota) < n;
            is_full.then(|| (index, lane.ring.room_at(now, n, &quota)))
        })
    }

    /// When every rule has room for `n` tokens if nobody else takes any; `None`
    /// if one never has.
    pub(crate) fn room_at(&self, now: Tick, n: u32) -> Option<Tick> {
        self.lanes(now)
            .try_fold(now, |latest, lane| Some(latest.max(lane.room_at(now, n)?)))
    }

    /// Whether a rule lets calls stand in a line.
    pub(crate) fn is_paced(&self) -> bool {
        self.gates().any(|(_, gate)| !gate.lines().is_empty())
    }

    /// A turn in every line, or in none: for a call of weight `n`.
    pub(crate) fn line_up(&self, now: Tick, n: u32) -> Result<Vec<Standing>, NoTurn> {
        let mut turns = Vec::new();
        let lines = self
            .gates()
            .flat_map(|(node, gate)| gate.lines().iter().map(move |line| (node, line)));
        for (node, line) in lines {
            match line.join(now, n, node.ring()) {
                Ok(turn) => turns.extend(turn),
                Err(none) => {
                    turns.iter().for_each(Standing::leave);
                    return Err(none);
                }
            }
        }
        Ok(turns)
    }

    /// The first rule that has no room for `n` tokens now.
    pub(crate) fn full_rule(&self, now: Tick, n: u32) -> Option<u32> {
        self.lanes(now).find_map(|lane| {
            let full = lane
                .quotas
                .iter()
                .position(|quota| lane.ring.room(now, quota) < n);
            lane.indices.get(full?).copied()
        })
    }

    fn gates(&self) -> impl Iterator<Item = (&Node, &Gate)> {
        let branches = self.origin.iter().chain(&self.context);
        branches
            .map(|branch| (branch.node(), branch.gate()))
            .chain([(self.resource.node(), self.resource.gate())])
    }

    /// One more waiting call everywhere, unless there are too many somewhere.
    pub(crate) fn start_waiting(&self) -> bool {
        let resource = (self.resource.node(), self.resource.gate().max_waiting());
        let branches = [&self.origin, &self.context];
        let branches = branches.into_iter().flatten();
        let nodes = std::iter::once(resource)
            .chain(branches.map(|branch| (branch.node(), branch.gate().max_waiting())))
            .chain(self.inbound().map(|node| (node, u32::MAX)));
        let mut started = Vec::new();
        for (node, most) in nodes {
            if !node.start_waiting(most) {
                started.into_iter().for_each(Node::stop_waiting);
                return false;
            }
            started.push(node);
        }
        true
    }

    /// Gives back what is held in one place.
    pub(crate) fn cancel(&self, place: Place, now: Tick, held: Held, n: u32) {
        let Some(lane) = self.lanes(now).find(|lane| lane.place == place) else {
            return;
        };
        match (held, lane.node) {
            (Held::Taken(taken), _) => lane.give_back(taken, n),
            (Held::Loan(loan), Some(node)) => node.cancel_loan(now, loan),
            (Held::Loan(loan), None) => {
                let _ = lane.ring.cancel(now, loan);
            }
        }
    }

    /// The lanes of the call, narrow to wide.
    pub(crate) fn lanes(&self, now: Tick) -> impl Iterator<Item = Lane<'_>> {
        let origin = self.origin.iter().flat_map(move |branch| {
            sides(branch.gate(), now, Place::OriginSide).chain([own(
                Place::Origin,
                branch.node(),
                branch.gate(),
            )])
        });
        let resource = &*self.resource;
        let sides = sides(resource.gate(), now, Place::ResourceSide);
        let main = own(Place::Resource, resource.node(), resource.gate());
        let context = self.context.iter().flat_map(move |branch| {
            crate::places::sides(branch.gate(), now, Place::ContextSide).chain([own(
                Place::Context,
                branch.node(),
                branch.gate(),
            )])
        });
        let inbound = self.inbound().map(|node| Lane {
            place: Place::Inbound,
            ring: node.ring(),
            node: Some(node),
            quotas: Quotas::Fixed(&[]),
            indices: &[],
        });
        origin
            .chain(context)
            .chain(sides)
            .chain([main])
            .chain(inbound)
    }
}

/// Whether calls of `resource` count among all inbound ones.
#[inline]
fn counts_inbound(resource: &Resource) -> bool {
    let is_inbound = resource.direction() == Direction::Inbound;
    is_inbound && resource.shared().inbound.get().is_some()
}

fn own<'a>(place: Place, node: &'a Node, gate: &'a Gate) -> Lane<'a> {
    Lane {
        place,
        ring: node.ring(),
        node: Some(node),
        quotas: Quotas::Fixed(gate.quotas()),
        indices: gate.rules(),
    }
}

fn sides<'a>(
    gate: &'a Gate,
    now: Tick,
    place: impl Fn(usize) -> Place + 'a,
) -> impl Iterator<Item = Lane<'a>> {
    gate.sides()
        .iter()
        .enumerate()
        .map(move |(index, side): (usize, &Side)| Lane {
            place: place(index),
            ring: side.ring(),
            node: None,
            quotas: side.quotas(now),
            indices: side.rule(),
        })
}
