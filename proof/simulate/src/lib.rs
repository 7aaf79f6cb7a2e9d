//! Deterministic simulation: nodes of Semel over a simulated network, store, provider and clock, all drawn from a seed.
//! Nodes run the real code: the layer of `semel-http` with worker, sweeper and reaper, the reconciler of `semel-flow`, and
//! the state machine of `semel-core`. `semel-checker`, which uses no code of Semel, judges the history of each seed.
//! A seed always gives the same run, message for message, and so the same hash. Start with `course.rs`;
//! `docs/src/explanation/simulation.md` says what is simulated and what the simulation cannot find.

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
