//! The files of certificates and keys: read whole, and understood. Messages name the setting, the file and the mistake, and
//! never show a key.

use std::io::Read;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::crypto::provider;

/// The largest file, in bytes. Lists of revoked certificates are the largest of them.
const MAX_BYTES: usize = 16 << 20;

/// A mistake in a file, with the setting and the path.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct PemError {
    file: String,
    why: String,
}

/// A file in PEM, read whole. Two files are equal if their bytes are.
pub struct PemFile {
    name: String,
    bytes: Vec<u8>,
}

impl PartialEq for PemFile {
    fn eq(&self, other: &PemFile) -> bool {
        self.bytes == other.bytes
    }
}

impl PemFile {
    /// Reads the file that this setting names.
    ///
    /// # Errors
    /// If it cannot be read, or is too large.
    pub fn read(setting: &str, path: &Path) -> Result<PemFile, PemError> {
        let name = format!("`{setting}`, {}", path.display());
        match read(path) {
            Ok(bytes) => Ok(PemFile { name, bytes }),
            Err(why) => Err(PemError { file: name, why }),
        }
    }

    fn wrong(&self, why: impl Into<String>) -> PemError {
        PemError { file: self.name.clone(), why: why.into() }
    }

    /// Returns the certificates in it; at least one.
    ///
    /// # Errors
    /// If there is none, or the file is no PEM.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found.map_err(|error| self.wrong(not_pem(&error)))? {
            none if none.is_empty() => {
                Err(self.wrong("it holds no certificate: expected PEM, with `-----BEGIN CERTIFICATE-----`"))
            }
            found => Ok(found),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.wrong(
                "it holds no private key that can be used: expected PEM, with `-----BEGIN PRIVATE KEY-----`, and \
                 without a passphrase",
            ),
            error => self.wrong(not_pem(&error)),
        })
    }

    /// Returns the authorities in it; at least one.
    ///
    /// # Errors
    /// If there is none, or one cannot be used.
    pub fn authorities(&self) -> Result<RootCertStore, PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.map_err(|error| self.wrong(format!("a certificate in it cannot be used: {error}")))?;
        }
        Ok(roots)
    }

    /// Returns the lists of revoked certificates in it; at least one.
    ///
    /// # Errors
    /// If there is none, or the file is no PEM.
    pub fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&self.bytes).collect();
        match found.map_err(|error| self.wrong(not_pem(&error)))? {
            none if none.is_empty() => Err(self.wrong(
                "it holds no list of revoked certificates: expected PEM, with `-----BEGIN X509 CRL-----`",
            )),
            found => Ok(found),
        }
    }

    /// Returns the setting and the path, as messages show them.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The files of a certificate and its private key. Two are equal if their bytes are.
#[derive(PartialEq)]
pub struct CertifiedFiles {
    certificate: PemFile,
    key: PemFile,
}

impl CertifiedFiles {
    /// Reads the files that these two settings name.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(certificate: (&str, &Path), key: (&str, &Path)) -> Result<CertifiedFiles, PemError> {
        Ok(CertifiedFiles {
            certificate: PemFile::read(certificate.0, certificate.1)?,
            key: PemFile::read(key.0, key.1)?,
        })
    }

    /// Returns the certificate with its key.
    ///
    /// # Errors
    /// If they do not belong together, or one cannot be used.
    pub fn certified(&self) -> Result<CertifiedKey, PemError> {
        let (certificates, key) = (self.certificate.certificates()?, self.key.key()?);
        CertifiedKey::from_der(certificates, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => self.key.wrong(format!(
                "it is not the key of the first certificate in {}: the own certificate comes first, then those between it \
                 and its authority",
                self.certificate.name
            )),
            error @ Error::InvalidCertificate(_) => {
                self.certificate.wrong(format!("the first certificate in it cannot be used: {error}"))
            }
            error => self.key.wrong(format!("the key cannot be used: {error}")),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot open the file: {error}"))?;
    let unreadable = |error: std::io::Error| format!("cannot read the file: {error}");
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_BYTES { Err(format!("it has more than {MAX_BYTES} bytes")) } else { Ok(bytes) }
}

/// Returns the mistake without the parser's own text, which may repeat the contents of the file.
fn not_pem(error: &pem::Error) -> String {
    let what = match error {
        pem::Error::MissingSectionEnd { .. } => "a section in it has no end",
        pem::Error::IllegalSectionStart { .. } => "a section in it has a beginning that cannot be read",
        pem::Error::Base64Decode(_) => "what is between BEGIN and END is not base64",
        _ => "it cannot be read",
    };
    format!("it is not PEM: {what}")
}
