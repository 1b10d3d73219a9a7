//! What becomes of a refusal: a response, or an error.

use bytes::Bytes;
use http::Response;

use crate::blocked::Blocked;

/// Refusals are responses, and the error type of the service stays what it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Respond;

/// Refusals are errors: a [`Blocked`](crate::Blocked) in a box.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fail;

/// [`Respond`] or [`Fail`].
pub trait Mode {
    /// What the future keeps of a refusal until it is polled.
    type Refusal;
}

impl Mode for Respond {
    type Refusal = Response<Bytes>;
}

impl Mode for Fail {
    type Refusal = Blocked;
}
