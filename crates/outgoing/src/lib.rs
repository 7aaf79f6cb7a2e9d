//! Outgoing HTTP: the one client for every service that Semel asks something, except the upstream.
//!
//! - [`Address`]: an `http://` or `https://` address.
//! - [`TlsSettings`]: the authorities to trust there, and the certificate to show.
//! - [`Client`]: sends each request over a connection of its own.
//! - [`Pool`]: keeps connections for questions that have no effect.
//! - [`pem`]: the files of certificates and keys.
//!
//! Connecting, the whole exchange, the head and the body of an answer are bounded. No redirect is followed. An answer that
//! breaks off is an [`Error`], which tells a request that was never sent from one that may have arrived.

mod address;
mod client;
mod connection;
mod crypto;
mod error;
pub mod pem;
mod pool;
pub mod tls;

pub use address::{Address, AddressError};
pub use client::Client;
pub use connection::{Connection, ServiceAnswer, Stream};
pub use error::Error;
pub use pool::Pool;
pub use tls::{CertificateFiles, TlsError, TlsSettings, Trust};
