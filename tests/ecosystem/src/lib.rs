//! Programs of the guide that use clients of other crates: they run as tests of this documentation.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/outbound.md")]
mod outbound {}
