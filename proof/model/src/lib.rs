//! The protocol, tried exhaustively: every interleaving of a few requests, nodes, workers, a sweeper, a reaper, a
//! reconciler, an operator and a provider, with everything that can go wrong between them.
//!
//! Every change of a record is decided by `semel_core::transition`, not by a copy of it. `docs/model.md` says what is
//! modelled, what is not, and what that means. Never linked into a product.

pub mod check;
pub mod configuration;
pub mod invariants;
pub mod model;
pub mod parts;
pub mod promises;
pub mod protocol;
pub mod shipped;
mod steps;
mod store;
pub mod story;
pub mod variants;
pub mod world;
