//! Exhaustive model of the protocol: every interleaving of a few requests, nodes, workers, a sweeper, a reaper, a
//! reconciler, an operator and a provider, with the faults between them.
//!
//! `semel_core::store_fence::decide` itself decides every change of a record; the model has no copy of it.
//! `docs/src/explanation/model.md` says what is modelled and what is not. No product links this crate.

pub mod check;
pub mod configuration;
mod fence;
pub mod invariants;
pub mod model;
pub mod parts;
pub mod promises;
pub mod protocol;
pub mod restore;
pub mod shipped;
mod steps;
mod store;
pub mod story;
pub mod variants;
pub mod world;
