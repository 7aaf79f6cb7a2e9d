//! Tests of the guard's pure part, and of cases that only a test can make hyper produce. Every case of the
//! pure part is also fed byte by byte and in many other splits: the split must never change the passed bytes
//! or the refusal.

mod accepted;
mod agreement;
mod outbound;
mod properties;
mod refused;
mod stream;

use super::inbound::{Inbound, InboundDecision};
use super::refusal::GuardRefusal;

/// Limit on heads in these tests.
const MAX_HEAD: usize = 8 * 1024;

/// Result of feeding a connection.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    heads: usize,
    passed: usize,
    refusal: Option<GuardRefusal>,
}

/// Feeds a connection in pieces of these sizes, repeatedly.
fn feed(bytes: &[u8], sizes: &[usize]) -> Outcome {
    let mut inbound = Inbound::new(MAX_HEAD);
    let mut outcome = Outcome { heads: 0, passed: 0, refusal: None };
    let mut arrived = 0;
    let mut sizes = sizes.iter().cycle();
    while arrived < bytes.len() {
        arrived = (arrived + sizes.next().expect("there is at least one size")).min(bytes.len());
        loop {
            match inbound.inspect(&bytes[outcome.passed..arrived]) {
                Ok(InboundDecision::Hold) => break,
                Ok(InboundDecision::Pass(length)) => outcome.passed += length,
                Ok(InboundDecision::Head { length, .. }) => {
                    outcome.heads += 1;
                    outcome.passed += length;
                }
                Err(refusal) => return Outcome { refusal: Some(refusal), ..outcome },
            }
        }
    }
    outcome
}

/// Returns the outcome, which must be equal in every split.
fn outcome(bytes: &[u8]) -> Outcome {
    let whole = feed(bytes, &[bytes.len().max(1)]);
    for sizes in [&[1][..], &[2], &[3], &[7], &[1, 2, 3, 5, 8, 13], &[64, 1], &[4096]] {
        assert_eq!(feed(bytes, sizes), whole, "split {sizes:?} of {:?}", String::from_utf8_lossy(bytes));
    }
    whole
}
