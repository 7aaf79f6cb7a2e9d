//! Reading of transport errors: the fault of an attempt, from an error and its sources. Called by both transports.
//!
//! Whatever is not known to come before the connection was made counts as sent.

use std::error::Error;
use std::io;

use crate::transport::AttemptFault;

/// Most sources of an error that are looked at.
const MAX_SOURCES: u32 = 32;

/// Texts of the system for a name that does not exist: glibc, musl, macOS, Windows. Any other error of a name counts as
/// temporary. The standard library does not tell them apart in another way.
const NO_SUCH_NAME: [&str; 8] = [
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "Name has no usable address",
    "nodename nor servname provided, or not known",
    "No such host is known",
    "os error 11001",
    "os error 11004",
];

/// Returns the fault of an error, given whether the connection had been made.
pub(crate) fn fault_of(error: &(dyn Error + 'static), was_connected: bool) -> AttemptFault {
    let mut fault = if was_connected { AttemptFault::Lost } else { AttemptFault::Connect };
    let mut current = Some(error);
    for _ in 0..MAX_SOURCES {
        let Some(error) = current else { break };
        if is_certificate(error) {
            return AttemptFault::Certificate;
        }
        if !was_connected && is_name(error) {
            return name_fault(error);
        }
        if was_connected && is_timeout(error) {
            fault = AttemptFault::Timeout;
        }
        current = source_of(error);
    }
    fault
}

/// Returns the next source. The one inside of an I/O error is not among its `source`s.
fn source_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
}

fn is_certificate(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
}

fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Returns true for an error of hyper's connector, or of the standard library, about a name.
fn is_name(error: &(dyn Error + 'static)) -> bool {
    let text = error.to_string();
    text.starts_with("dns error") || text.starts_with("failed to lookup address information")
}

fn name_fault(error: &(dyn Error + 'static)) -> AttemptFault {
    let mut current = Some(error);
    for _ in 0..MAX_SOURCES {
        let Some(error) = current else { break };
        let text = error.to_string();
        if NO_SUCH_NAME.iter().any(|known| text.contains(known)) {
            return AttemptFault::UnknownHost;
        }
        current = source_of(error);
    }
    AttemptFault::Name
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    /// Error with a source, as libraries nest them.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Nested {
        text: &'static str,
        source: io::Error,
    }

    fn nested(text: &'static str, source: io::Error) -> Nested {
        Nested { text, source }
    }

    #[test]
    fn a_certificate_is_found_inside_of_an_io_error() {
        let refused = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = nested("client error", io::Error::other(nested("tls", io::Error::other(refused))));
        assert_eq!(fault_of(&error, false), AttemptFault::Certificate);
    }

    #[test]
    fn another_error_of_tls_before_the_connection_is_tried_again() {
        let error = nested("tls", io::Error::other(rustls::Error::HandshakeNotComplete));
        assert_eq!(fault_of(&error, false), AttemptFault::Connect);
    }

    #[test]
    fn only_a_name_that_is_known_not_to_exist_is_an_unknown_host() {
        let fault = |text: &'static str| {
            let text = format!("failed to lookup address information: {text}");
            fault_of(&nested("dns error", io::Error::other(text)), false)
        };
        assert_eq!(fault("Name or service not known"), AttemptFault::UnknownHost);
        assert_eq!(fault("Temporary failure in name resolution"), AttemptFault::Name);
        assert_eq!(fault("something new"), AttemptFault::Name);
    }

    #[test]
    fn an_error_after_the_connection_was_made_is_lost_whatever_it_says() {
        for kind in
            [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe]
        {
            assert_eq!(fault_of(&nested("send", kind.into()), true), AttemptFault::Lost);
        }
        let text = "failed to lookup address information: Name or service not known";
        assert_eq!(fault_of(&nested("dns error", io::Error::other(text)), true), AttemptFault::Lost);
        assert_eq!(fault_of(&nested("read", io::ErrorKind::TimedOut.into()), true), AttemptFault::Timeout);
    }

    #[test]
    fn a_connection_that_times_out_was_never_made() {
        assert_eq!(
            fault_of(&nested("connect", io::ErrorKind::TimedOut.into()), false),
            AttemptFault::Connect
        );
    }
}
