//! Parts of a run that writes a history, shared by the runs that break one machine (`semel-chaos`) and a cluster
//! (`semel-cluster`): processes, a client, the history's writer, and reading of answers and records.

pub mod answer;
pub mod client;
pub mod judgement;
pub mod process;
pub mod program;
pub mod reading;
pub mod record;
pub mod scribe;
