//! The outside tester: judges an HTTP endpoint, or the OpenAPI document that describes it, by the contract alone.
//!
//! [`verify`] sends commands to an endpoint and reports which rules it keeps. [`audit`] reads an OpenAPI document and reports
//! the endpoints that do not tell clients how to retry. The crate depends on no other crate of Semel but `semel-outgoing`, its
//! HTTP client: a tester that shared code with the gateway would share its mistakes.

pub mod audit;
mod client;
mod judge;
mod options;
mod probes;
mod report;
mod rules;
mod shape;
mod spelling;
mod text;

use std::time::Duration;

pub use client::NoAnswer;
pub use options::{AnswerProfile, OptionsError, VerifyOptions, VerifySettings};
pub use probes::ProbeError;
pub use report::VerifyReport;

/// The longest time of one run.
const MAX_RUN: Duration = Duration::from_secs(20 * 60);

/// The reason why a run has no report.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The run took longer than any may.
    #[error("gave up after {} s", MAX_RUN.as_secs())]
    TimedOut(#[source] tokio::time::error::Elapsed),
    /// The endpoint does not carry out a first command.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Tries every rule at the endpoint. Requests, concurrency, answers and time are bounded.
///
/// # Errors
/// If the endpoint cannot be reached, refuses a first command, or takes too long.
pub async fn verify(options: &VerifyOptions) -> Result<VerifyReport, VerifyError> {
    let report = tokio::time::timeout(MAX_RUN, probes::try_all(options)).await;
    Ok(report.map_err(VerifyError::TimedOut)??)
}
