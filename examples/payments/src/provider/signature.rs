//! Signature of events.

use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Returns the value of `Semel-Signature`: the send time in seconds since 1970, and the HMAC-SHA256 of `t.eventId.body`
/// in hex.
pub fn signature(secret: &str, seconds: i64, event_id: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(format!("{seconds}.{event_id}.{body}").as_bytes());
    let mut text = format!("t={seconds},v1=");
    for byte in mac.finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `printf '1700000000.evt_1.{"a":1}' | openssl dgst -sha256 -hmac 'a secret of both'`.
    #[test]
    fn a_signature_equals_the_one_computed_by_openssl() {
        let expected = "t=1700000000,v1=22dac0e41998d41cdb1d74eeaaeef441840431edb90638918f8c77d109810efa";
        assert_eq!(signature("a secret of both", 1_700_000_000, "evt_1", r#"{"a":1}"#), expected);
    }
}
