//! Recipes, and the way here from other crates: pages to read, without items.

#[doc = include_str!("../../docs/cookbook.md")]
pub mod cookbook {}

#[doc = include_str!("../../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../../docs/migration.md")]
pub mod migration {}
