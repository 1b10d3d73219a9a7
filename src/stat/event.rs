//! What is counted, and how a call may end.

/// Something that a node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A call was admitted. Counted by weight, in the bucket in which it runs.
    Pass,
    /// A call was refused. Counted by weight.
    Block,
    /// An admitted call delivered a response or an error. Counted by weight
    /// when the call ends.
    Complete,
    /// A call that completed did so with a failure. Counted by weight.
    Error,
    /// An admitted call ended before it delivered anything, or tokens were
    /// spent on a call that never ran. Counted by weight.
    Cancelled,
    /// An admitted call had borrowed its place from a later bucket. Counted by
    /// weight when it starts.
    Occupied,
}

/// How a call ended that delivered a response or an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It did what it should.
    #[default]
    Success,
    /// It failed: counts as an error.
    Failure,
    /// Neither: it completed, and says nothing about the health of what was
    /// called.
    Ignore,
}
