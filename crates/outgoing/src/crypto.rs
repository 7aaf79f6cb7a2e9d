//! The cryptography of TLS: aws-lc-rs, and no other.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the cryptography that every connection uses.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
