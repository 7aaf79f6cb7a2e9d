//! `source = "client-certificate"`: the settings of `[identity]` about the certificates of clients.

use std::fmt;

use crate::engine::findings::Findings;
use crate::engine::kind::Words;

/// The parts of a certificate that name tenant and caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The source of the tenant.
    pub tenant: CertificateTenant,
    /// The part that names the caller within the tenant.
    pub caller: CertificateField,
}

/// The source of the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateTenant {
    /// One tenant for all callers.
    Fixed(String),
    /// Part of the certificate that names the tenant.
    Field(CertificateField),
}

/// A part of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The common name of the subject.
    CommonName,
    /// The organization of the subject.
    Organization,
    /// The organizational unit of the subject.
    OrganizationalUnit,
    /// DNS name among the alternative names.
    Dns,
    /// URI among the alternative names.
    Uri,
    /// Email address among the alternative names.
    Email,
}

impl CertificateField {
    /// Every field and its name in the configuration.
    pub const NAMES: &'static [(&'static str, CertificateField)] = &[
        ("subject.CN", CertificateField::CommonName),
        ("subject.O", CertificateField::Organization),
        ("subject.OU", CertificateField::OrganizationalUnit),
        ("san.dns", CertificateField::Dns),
        ("san.uri", CertificateField::Uri),
        ("san.email", CertificateField::Email),
    ];
}

impl fmt::Display for CertificateField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            CertificateField::NAMES.iter().find(|(_, field)| field == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Settings of `[identity]` about client certificates, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct CertificateTable {
    pub(crate) tenant_field: CertificateField,
    pub(crate) caller_field: CertificateField,
    pub(crate) fixed_tenant: Option<String>,
}

impl Default for CertificateTable {
    fn default() -> CertificateTable {
        CertificateTable {
            tenant_field: CertificateField::Organization,
            caller_field: CertificateField::CommonName,
            fixed_tenant: None,
        }
    }
}

impl Words for CertificateField {
    const WORDS: &'static [(&'static str, Self)] = CertificateField::NAMES;
}

/// Checks the settings about client certificates, and combines them.
pub(crate) fn check(findings: &mut Findings, table: &CertificateTable) -> Option<ClientCertificates> {
    if !findings.are_readable(&["identity.fixed_tenant", "identity.tenant_field", "identity.caller_field"]) {
        return None;
    }
    let tenant = match &table.fixed_tenant {
        None => CertificateTenant::Field(table.tenant_field),
        Some(name) => {
            if findings.is_set("identity.tenant_field") {
                let message = "conflicts with `fixed_tenant`, which also names the tenant: remove one of \
                               them";
                findings.error(findings.origin("identity.tenant_field"), "identity.tenant_field", message);
            }
            CertificateTenant::Fixed(name.clone())
        }
    };
    Some(ClientCertificates { tenant, caller: table.caller_field })
}
