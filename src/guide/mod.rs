//! Pages without items: a cookbook with a glossary, guarantees, and migration from other crates.

#[doc = include_str!("../../docs/cookbook.md")]
pub mod cookbook {}

#[doc = include_str!("../../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../../docs/migration.md")]
pub mod migration {}
