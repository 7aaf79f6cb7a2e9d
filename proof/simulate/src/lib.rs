//! Deterministic simulation: nodes of Semel over a simulated network, store, provider and time, all drawn from a seed.
//!
//! What runs on a node is the real thing: the layer of `semel-http` with its worker, sweeper and reaper, the reconciler of
//! `semel-flow`, and the state machine of `semel-core`. What is simulated is everything around it. The history of each
//! seed is judged by `semel-checker`, which knows nothing of Semel's code. The same seed gives the same run, to the last
//! message; its hash says so.
//!
//! `course.rs` is where to begin. What is simulated how, and what this cannot find, is in `docs/simulation.md`.

mod broken;
mod clients;
mod course;
mod coverage;
mod faults;
mod forward;
mod happening;
mod ids;
mod link;
mod network;
mod node;
mod panics;
mod plan;
mod port;
mod provider;
mod reading;
mod run;
mod scribe;
mod server;
mod session;
mod settings;
mod store;
mod world;

pub use broken::Broken;
pub use coverage::{Coverage, SITUATIONS};
pub use run::{Options, Outcome, Summary, run, run_many};
