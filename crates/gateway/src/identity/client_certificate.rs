//! Client certificates: a certificate of a trusted authority names the caller.
//!
//! Tenant and caller are names in the certificate, never its bytes or serial number, so that renewal keeps
//! the caller. rustls checks it during the handshake; this module checks that it is still accepted. Clients
//! get the same answer for every refused certificate; the log has the reason.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use metrics::counter;
use rustls::pki_types::CertificateDer;
use semel_core::{Clock, Principal, SystemClock, Timestamp};
use semel_http::Denied;
use semel_settings::{CertificateField, CertificateTenant, ClientCertificates};

use super::caller::IdentifyCaller;
use crate::tls::certificate::{Certificate, Names};
use crate::tls::server::{Accepting, Acceptor, PresentedCertificates};

/// Reason for refusing a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateFault {
    /// The certificate has expired since the handshake.
    Ended,
    /// The certificate is no longer accepted: it was revoked, or its authority is no longer trusted.
    Withdrawn,
    /// The certificate cannot be read.
    Malformed,
    /// The certificate lacks the configured name.
    Missing,
    /// The certificate has several names in the configured field.
    Several,
    /// The name is not plain text.
    Form,
    /// The name is empty, too long, or holds control characters.
    Name,
}

impl CertificateFault {
    fn as_str(self) -> &'static str {
        match self {
            CertificateFault::Ended => "ended",
            CertificateFault::Withdrawn => "withdrawn",
            CertificateFault::Malformed => "malformed",
            CertificateFault::Missing => "missing",
            CertificateFault::Several => "several",
            CertificateFault::Form => "form",
            CertificateFault::Name => "name",
        }
    }
}

/// Certificate that a client presented in its handshake. The listener puts it into each request.
pub(crate) struct Presented {
    chain: Vec<CertificateDer<'static>>,
    read: Option<Certificate>,
    acceptor: Acceptor,
    /// Verifier that checked the certificate last, and its verdict.
    checked: Mutex<(Arc<Accepting>, bool)>,
}

impl Presented {
    pub(crate) fn new(shown: PresentedCertificates, acceptor: Acceptor) -> Presented {
        let read = shown.chain.first().and_then(|first| Certificate::read(first).ok());
        let checked = Mutex::new((shown.checked_by, true));
        Presented { chain: shown.chain, read, acceptor, checked }
    }

    /// Returns the names in the certificate, if it is still accepted.
    fn names(&self, now: Timestamp) -> Result<&Names, CertificateFault> {
        let Certificate { ends, names } = self.read.as_ref().ok_or(CertificateFault::Malformed)?;
        if *ends < now {
            return Err(CertificateFault::Ended);
        }
        if self.still_accepted() { Ok(names) } else { Err(CertificateFault::Withdrawn) }
    }

    /// Returns true if the certificate is accepted now. It is checked again once the TLS files have changed.
    fn still_accepted(&self) -> bool {
        let current = self.acceptor.current();
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&checked.0, &current) {
            let accepted = current.accepts(&self.chain);
            *checked = (current, accepted);
        }
        checked.1
    }
}

/// Returns the function that names the caller by the certificate of the connection.
pub(crate) fn identify(settings: &ClientCertificates) -> IdentifyCaller {
    let settings = settings.clone();
    Box::new(move |parts: &Parts| {
        let presented = parts.extensions.get::<Arc<Presented>>().ok_or_else(Denied::anonymous)?;
        let principal = presented.names(SystemClock.now()).and_then(|names| principal(&settings, names));
        principal.map_err(|fault| {
            counter!("identity_certificates_refused_total", "check" => fault.as_str()).increment(1);
            tracing::info!(check = fault.as_str(), "a certificate was refused");
            Denied::unauthenticated()
        })
    })
}

fn principal(settings: &ClientCertificates, names: &Names) -> Result<Principal, CertificateFault> {
    let tenant = match &settings.tenant {
        CertificateTenant::Fixed(name) => name.clone(),
        CertificateTenant::Field(field) => name_in(*field, names)?,
    };
    Principal::new(&tenant, &name_in(settings.caller, names)?).map_err(|_| CertificateFault::Name)
}

/// Returns the name that a certificate has in this field, if it is the only one there and is text.
fn name_in(field: CertificateField, names: &Names) -> Result<String, CertificateFault> {
    let found = match field {
        CertificateField::CommonName => &names.common_names,
        CertificateField::Organization => &names.organizations,
        CertificateField::OrganizationalUnit => &names.organizational_units,
        CertificateField::Dns => &names.dns_names,
        CertificateField::Uri => &names.uris,
        CertificateField::Email => &names.emails,
    };
    match (&found[..], field) {
        ([], _) => Err(CertificateFault::Missing),
        ([None], _) => Err(CertificateFault::Form),
        // DNS names are case-insensitive.
        ([Some(name)], CertificateField::Dns) => Ok(name.to_ascii_lowercase()),
        ([Some(name)], _) => Ok(name.clone()),
        _ => Err(CertificateFault::Several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certificate::tests::names;

    fn caller(common_name: &[u8]) -> Result<String, CertificateFault> {
        let settings = ClientCertificates {
            tenant: CertificateTenant::Field(CertificateField::Organization),
            caller: CertificateField::CommonName,
        };
        principal(&settings, &names(common_name)).map(|principal| principal.caller().to_owned())
    }

    #[test]
    fn empty_long_or_control_character_certificate_names_are_refused() {
        assert_eq!(caller(b"alice").as_deref(), Ok("alice"));
        assert_eq!(caller(b"alice\0.example"), Err(CertificateFault::Name), "some end where a NUL is");
        assert_eq!(caller(b"alice\nbob"), Err(CertificateFault::Name));
        assert_eq!(caller(b""), Err(CertificateFault::Name));
        assert_eq!(caller(b"\xff"), Err(CertificateFault::Form));
        assert_eq!(caller(&[b'x'; 255]).map(|name| name.len()), Ok(255));
        assert_eq!(caller(&[b'x'; 256]), Err(CertificateFault::Name));
    }

    #[test]
    fn a_field_with_several_names_is_refused() {
        let mut two = names(b"alice");
        two.dns_names = vec![Some("A.Example".to_owned())];
        assert_eq!(name_in(CertificateField::Dns, &two).as_deref(), Ok("a.example"), "the same in any case");
        assert_eq!(name_in(CertificateField::Uri, &two), Err(CertificateFault::Missing));
        two.common_names.push(None);
        assert_eq!(
            name_in(CertificateField::CommonName, &two),
            Err(CertificateFault::Several),
            "also beside one that cannot be read"
        );
        two.common_names = vec![None];
        assert_eq!(name_in(CertificateField::CommonName, &two), Err(CertificateFault::Form));
    }

    #[test]
    fn every_certificate_field_displays_its_name() {
        for (name, field) in CertificateField::NAMES {
            assert_eq!(field.to_string(), *name);
        }
    }
}
