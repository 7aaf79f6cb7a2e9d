//! The files of certificates, keys and lists: read whole, and understood. Messages name the setting, the file and what is
//! wrong with it, and never show what is in a key.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::provider;
use crate::config;

/// The largest file. Lists of revoked certificates are the largest of them.
const MAX_BYTES: usize = 16 << 20;

/// What a file holds, and what messages call it.
pub(super) struct File {
    name: String,
    bytes: Vec<u8>,
}

impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.bytes == other.bytes
    }
}

impl File {
    /// Reads the file that this setting names.
    pub(super) fn read(table: &str, setting: &str, path: &Path) -> anyhow::Result<File> {
        let name = format!("`{table}.{setting}`, {}", path.display());
        let bytes = read(path).context(name.clone())?;
        Ok(File { name, bytes })
    }

    /// The same, if there is one.
    pub(super) fn read_any(table: &str, setting: &str, path: Option<&Path>) -> anyhow::Result<Option<File>> {
        path.map(|path| File::read(table, setting, path)).transpose()
    }

    /// The certificates in it; at least one.
    fn certificates(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| not_pem(&error)).context(self.name.clone())?;
        ensure!(
            !found.is_empty(),
            "{}: it holds no certificate: expected PEM, with `-----BEGIN CERTIFICATE-----`",
            self.name
        );
        Ok(found)
    }

    fn key(&self) -> anyhow::Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => anyhow::anyhow!(
                "{}: it holds no private key that can be used: expected PEM, with `-----BEGIN PRIVATE KEY-----`, and \
                 without a passphrase",
                self.name
            ),
            error => not_pem(&error).context(self.name.clone()),
        })
    }

    /// The authorities in it; at least one.
    pub(super) fn authorities(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let added = roots.add(certificate);
            added.with_context(|| format!("{}: a certificate in it cannot be used", self.name))?;
        }
        Ok(roots)
    }

    /// The lists of revoked certificates in it; at least one.
    pub(super) fn revoked(&self) -> anyhow::Result<Vec<CertificateRevocationListDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| not_pem(&error)).context(self.name.clone())?;
        ensure!(
            !found.is_empty(),
            "{}: it holds no list of revoked certificates: expected PEM, with `-----BEGIN X509 CRL-----`",
            self.name
        );
        Ok(found)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// What the files of a certificate and its key hold.
#[derive(PartialEq)]
pub(super) struct Own {
    certificate: File,
    key: File,
}

impl Own {
    pub(super) fn read(table: &str, own: &config::CertifiedKey) -> anyhow::Result<Own> {
        Ok(Own {
            certificate: File::read(table, "certificate", &own.certificate)?,
            key: File::read(table, "key", &own.key)?,
        })
    }

    /// The certificate with its key, if they belong together.
    pub(super) fn certified(&self) -> anyhow::Result<CertifiedKey> {
        let (certificates, key) = (self.certificate.certificates()?, self.key.key()?);
        let (certificate, key_name) = (self.certificate.name(), self.key.name());
        match CertifiedKey::from_der(certificates, key, &provider()) {
            Ok(own) => Ok(own),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => bail!(
                "{key_name}: it is not the key of the first certificate in {certificate}: the certificate of the listener \
                 itself comes first, then those between it and its authority"
            ),
            Err(error @ Error::InvalidCertificate(_)) => Err(error)
                .with_context(|| format!("{certificate}: the first certificate in it cannot be used")),
            Err(error) => Err(error).with_context(|| format!("{key_name}: the key cannot be used")),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let file = std::fs::File::open(path).context("cannot open the file")?;
    ensure!(file.metadata()?.is_file(), "it is no file");
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).context("cannot read the file")?;
    ensure!(bytes.len() <= MAX_BYTES, "it has more than {MAX_BYTES} bytes");
    Ok(bytes)
}

/// The words of the parser may repeat what is in the file.
fn not_pem(error: &pem::Error) -> anyhow::Error {
    let what = match error {
        pem::Error::MissingSectionEnd { .. } => "a section in it has no end",
        pem::Error::IllegalSectionStart { .. } => "a section in it has a beginning that cannot be read",
        pem::Error::Base64Decode(_) => "what is between BEGIN and END is not base64",
        _ => "it cannot be read",
    };
    anyhow::anyhow!("it is not PEM: {what}")
}
