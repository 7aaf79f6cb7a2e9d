//! Verification of event signatures: the three schemes that providers use.

use std::time::Duration;

use http::HeaderMap;
use semel_core::Timestamp;
use semel_core::reading::Scheme;

use crate::signature::is_signed;

/// Maximum number of signatures checked in one header: more than two keys are never in use.
const MAX_SIGNATURES: usize = 8;

/// Reason why an event is not authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    /// The header is missing, repeated or malformed.
    #[error("the signature is missing or cannot be read")]
    Missing,
    /// No known key made the signature.
    #[error("the signature is not right")]
    Wrong,
    /// The signature is too old, or from the future.
    #[error("the signature is too old, or from the future")]
    OutOfTime,
}

/// Checks that one of the keys signed this, within `tolerance` of now.
pub(super) fn verify(
    scheme: &Scheme,
    keys: &[Vec<u8>],
    headers: &HeaderMap,
    body: &[u8],
    tolerance: Duration,
    now: Timestamp,
) -> Result<(), NotSigned> {
    let signed = |pieces: &[&[u8]], signatures: &[&str]| {
        signatures.iter().fold(false, |signed, signature| is_signed(keys, pieces, signature) | signed)
    };
    let right = |signed| if signed { Ok(()) } else { Err(NotSigned::Wrong) };
    match scheme {
        Scheme::Semel => {
            let event_id = one(headers, "semel-event-id")?;
            let Timed { time, signatures } = timed(one(headers, "semel-signature")?)?;
            right(signed(&[time.as_bytes(), b".", event_id.as_bytes(), b".", body], &signatures))?;
            in_time(time, tolerance, now)
        }
        Scheme::Stripe => {
            let Timed { time, signatures } = timed(one(headers, "stripe-signature")?)?;
            right(signed(&[time.as_bytes(), b".", body], &signatures))?;
            in_time(time, tolerance, now)
        }
        Scheme::Body(header) => {
            let signature =
                one(headers, header.as_str())?.strip_prefix("sha256=").ok_or(NotSigned::Missing)?;
            right(signed(&[body], &[signature]))
        }
    }
}

/// Checks that the head of an event has all that a signature needs, made within `tolerance` of now. The signature
/// itself needs the body.
pub(super) fn announced(
    scheme: &Scheme,
    headers: &HeaderMap,
    tolerance: Duration,
    now: Timestamp,
) -> Result<(), NotSigned> {
    match scheme {
        Scheme::Semel => {
            one(headers, "semel-event-id")?;
            in_time(timed(one(headers, "semel-signature")?)?.time, tolerance, now)
        }
        Scheme::Stripe => in_time(timed(one(headers, "stripe-signature")?)?.time, tolerance, now),
        Scheme::Body(header) => {
            let signature = one(headers, header.as_str())?.strip_prefix("sha256=");
            signature.map(drop).ok_or(NotSigned::Missing)
        }
    }
}

/// Returns the header of this name, if there is exactly one.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, NotSigned> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(|value| value.to_str()), values.next()) {
        (Some(Ok(value)), None) => Ok(value),
        (Some(_) | None, _) => Err(NotSigned::Missing),
    }
}

struct Timed<'a> {
    time: &'a str,
    signatures: Vec<&'a str>,
}

/// Parses `t=…,v1=…`, and ignores other pairs.
fn timed(header: &str) -> Result<Timed<'_>, NotSigned> {
    let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
    let of = |wanted: &'static str| parts().filter(move |(name, _)| *name == wanted).map(|(_, value)| value);
    let mut times = of("t");
    let (Some(time), None) = (times.next(), times.next()) else { return Err(NotSigned::Missing) };
    let signatures: Vec<&str> = of("v1").take(MAX_SIGNATURES).collect();
    if signatures.is_empty() || time.is_empty() || !time.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotSigned::Missing);
    }
    Ok(Timed { time, signatures })
}

fn in_time(seconds: &str, tolerance: Duration, now: Timestamp) -> Result<(), NotSigned> {
    let millis = seconds.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1000));
    let sent = Timestamp::from_millis(millis.ok_or(NotSigned::OutOfTime)?);
    // One of the two is zero. The sent time is truncated to seconds, so one more second is allowed.
    let apart = now.since(sent).max(sent.since(now));
    if apart <= tolerance.saturating_add(Duration::from_secs(1)) { Ok(()) } else { Err(NotSigned::OutOfTime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_500);
    const TOLERANCE: Duration = Duration::from_secs(300);

    /// Made with `openssl dgst -sha256 -hmac`, not with the code under test.
    const STRIPE: &str = "144214d972de2dd60f7c842fe66c2af6b19b9eb5cd6c5c64be48b4ab37f987dc";
    const BODY: &str = "d8a09955182b7f716cf9b96652c5858c1834c622bc0daa82c241d447c378fcdf";
    const SEMEL: &str = "8415cbf700aa8cecbb01adc3fc1789c29d53319faa8f6d165ee87c61dab698de";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("tests send valid headers"));
        }
        headers
    }

    fn check(
        scheme: &Scheme,
        lines: &[(&'static str, &str)],
        body: &str,
        now: Timestamp,
    ) -> Result<(), NotSigned> {
        let keys = [b"another key, 16 bytes".to_vec(), b"a key of the provider".to_vec()];
        let headers = headers(lines);
        let verified = verify(scheme, &keys, &headers, body.as_bytes(), TOLERANCE, now);
        let announced = announced(scheme, &headers, TOLERANCE, now);
        let about_the_body = verified == Err(NotSigned::Wrong);
        assert!(
            about_the_body || announced == verified,
            "{announced:?} before the body, {verified:?} after it"
        );
        verified
    }

    #[test]
    fn each_signature_scheme_accepts_a_valid_signature() {
        let stripe = format!("t=1790000000,v0=x,v1={},v1={STRIPE}", "0".repeat(64));
        assert_eq!(check(&Scheme::Stripe, &[("stripe-signature", &stripe)], "{}", NOW), Ok(()));
        let body = format!("sha256={BODY}");
        assert_eq!(check(&Scheme::body(), &[("x-hub-signature-256", &body)], "{}", NOW), Ok(()));
        let semel = format!("t=1790000000,v1={SEMEL}");
        let lines = [("semel-event-id", "e1"), ("semel-signature", semel.as_str())];
        assert_eq!(check(&Scheme::Semel, &lines, "{}", NOW), Ok(()));
    }

    #[test]
    fn a_changed_event_or_signature_is_refused() {
        let signed = format!("t=1790000000,v1={SEMEL}");
        let later = format!("t=1790000001,v1={SEMEL}");
        let wrong = format!("t=1790000000,v1={}", SEMEL.replace('0', "1"));
        let table = [
            ("another body", [("semel-event-id", "e1"), ("semel-signature", &signed)], "{ }"),
            ("another id", [("semel-event-id", "e2"), ("semel-signature", &signed)], "{}"),
            ("another time", [("semel-event-id", "e1"), ("semel-signature", &later)], "{}"),
            ("another signature", [("semel-event-id", "e1"), ("semel-signature", &wrong)], "{}"),
        ];
        for (what, lines, body) in table {
            assert_eq!(check(&Scheme::Semel, &lines, body, NOW), Err(NotSigned::Wrong), "{what}");
        }
        // A signature of one scheme is not valid in another.
        let as_body = format!("sha256={SEMEL}");
        let lines = [("x-hub-signature-256", as_body.as_str())];
        assert_eq!(check(&Scheme::body(), &lines, "{}", NOW), Err(NotSigned::Wrong));
    }

    #[test]
    fn a_signature_that_cannot_be_read_is_none() {
        for header in
            ["", "t=1790000000", "v1=00", "t=,v1=00", "t=-1,v1=00", "t=1,t=2,v1=00", "t=1e3,v1=00", "x"]
        {
            let found = check(&Scheme::Stripe, &[("stripe-signature", header)], "{}", NOW);
            assert_eq!(found, Err(NotSigned::Missing), "{header}");
        }
        let good = format!("t=1790000000,v1={STRIPE}");
        let twice = [("stripe-signature", good.as_str()), ("stripe-signature", good.as_str())];
        assert_eq!(check(&Scheme::Stripe, &twice, "{}", NOW), Err(NotSigned::Missing));
        for cut in [&STRIPE[..62], &STRIPE[..63], "zz"] {
            let header = format!("t=1790000000,v1={cut}");
            let found = check(&Scheme::Stripe, &[("stripe-signature", &header)], "{}", NOW);
            assert_eq!(found, Err(NotSigned::Wrong), "{cut}");
        }
    }

    #[test]
    fn a_signature_is_accepted_up_to_300_seconds_early_or_late() {
        let header = format!("t=1790000000,v1={STRIPE}");
        let at = |seconds: i64| {
            let now = Timestamp::from_millis(1_790_000_000_000 + seconds * 1000);
            check(&Scheme::Stripe, &[("stripe-signature", &header)], "{}", now)
        };
        for seconds in [-300, 0, 300] {
            assert_eq!(at(seconds), Ok(()), "{seconds}");
        }
        for seconds in [-302, 302, 86_400, -86_400] {
            assert_eq!(at(seconds), Err(NotSigned::OutOfTime), "{seconds}");
        }
    }
}
