//! Services of the platform and small tools, under the crate's own names: nothing here knows of
//! calls.

pub(crate) mod carry_over;
pub(crate) mod invalid;
pub(crate) mod number;
pub(crate) mod numbered;
pub(crate) mod order;
pub(crate) mod pace;
pub(crate) mod panics;
pub(crate) mod small_vec;
pub(crate) mod spread;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod timer;
pub(crate) mod wall;
