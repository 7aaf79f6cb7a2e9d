//! Files that the TLS settings name.

use std::path::Path;

use semel_outgoing::pem::{CertifiedFiles, PemError, PemFile};
use semel_settings::CertifiedKey;

/// Reads the file that a setting names, if it names one.
pub(super) fn read_any(table: &str, setting: &str, path: Option<&Path>) -> Result<Option<PemFile>, PemError> {
    path.map(|path| PemFile::read(&format!("{table}.{setting}"), path)).transpose()
}

/// Reads the files of a certificate and its key.
pub(super) fn read_own(table: &str, own: &CertifiedKey) -> Result<CertifiedFiles, PemError> {
    let (certificate, key) = (format!("{table}.certificate"), format!("{table}.key"));
    CertifiedFiles::read((&certificate, &own.certificate), (&key, &own.key))
}
