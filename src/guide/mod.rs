//! Pages to read, without items: words, recipes, promises, and the way here from elsewhere.

#[doc = include_str!("../../docs/cookbook.md")]
pub mod cookbook {}

#[doc = include_str!("../../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../../docs/migration.md")]
pub mod migration {}
