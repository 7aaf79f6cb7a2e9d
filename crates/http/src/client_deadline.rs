//! The deadline that a client sets for its command: the field `Semel-Deadline`, the milliseconds that the client will wait in all.
//!
//! Invariant: a deadline only prevents a claim. A command that is claimed, and a record that is there, do not feel it.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use semel_core::Problem;
use semel_core::problem::ProblemKind;
use tokio::time::Instant;

/// The request header field with the client's time.
const DEADLINE: HeaderName = HeaderName::from_static("semel-deadline");

/// The maximum number of digits of the field: 115 days, which any moment can be moved by.
const MAX_DIGITS: usize = 10;

/// The moment at which a client stops waiting for its answer; none if it did not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientDeadline(Option<Instant>);

/// A deadline that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedDeadline;

impl From<MalformedDeadline> for Problem {
    fn from(_: MalformedDeadline) -> Problem {
        let detail = format!(
            "The Semel-Deadline field must appear at most once, with a number of milliseconds of 1 to {MAX_DIGITS} digits."
        );
        Problem::new(ProblemKind::MalformedRequest, detail)
    }
}

impl ClientDeadline {
    /// Reads the deadline of a request that arrived at this moment.
    pub(crate) fn read(headers: &HeaderMap, arrived: Instant) -> Result<ClientDeadline, MalformedDeadline> {
        let mut lines = headers.get_all(DEADLINE).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(ClientDeadline(None)),
            (Some(line), None) => {
                let time = milliseconds(line.as_bytes()).ok_or(MalformedDeadline)?;
                Ok(ClientDeadline(Some(arrived + time)))
            }
            (Some(_), Some(_)) => Err(MalformedDeadline),
        }
    }

    /// Returns true if the client has stopped waiting.
    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| end <= Instant::now())
    }
}

/// Reads a plain decimal number of milliseconds.
fn milliseconds(text: &[u8]) -> Option<Duration> {
    let is_plain = (1..=MAX_DIGITS).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()?;
    Some(Duration::from_millis(number))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(lines: &[&'static str], arrived: Instant) -> Result<ClientDeadline, MalformedDeadline> {
        let lines = lines.iter().map(|line| (DEADLINE, HeaderValue::from_static(line)));
        ClientDeadline::read(&lines.collect(), arrived)
    }

    #[test]
    fn one_plain_number_of_up_to_ten_digits_is_a_deadline() {
        let now = Instant::now();
        let in_ms = |time| Ok(ClientDeadline(Some(now + Duration::from_millis(time))));
        assert_eq!(read(&[], now), Ok(ClientDeadline(None)));
        for (line, time) in [("0", 0), ("007", 7), ("1500", 1500), ("9999999999", 9_999_999_999)] {
            assert_eq!(read(&[line], now), in_ms(time), "{line}");
        }
        for line in ["", "10000000000", "00000000001", "-1", "+1", "1.5", "1e3", "0x1", "1 ", "1s", "1, 1"] {
            assert_eq!(read(&[line], now), Err(MalformedDeadline), "{line}");
        }
        assert_eq!(read(&["5", "5"], now), Err(MalformedDeadline));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_over_at_its_moment_and_not_before() {
        let deadline = read(&["5"], Instant::now()).expect("it is one");
        tokio::time::advance(Duration::from_millis(4)).await;
        assert!(!deadline.is_over());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(deadline.is_over());
        assert!(!read(&[], Instant::now()).expect("there is none").is_over());
    }
}
