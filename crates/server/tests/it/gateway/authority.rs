//! An authority that signs certificates, and TLS between clients and servers that show them.

pub(crate) use semel_testkit::authority::{Authority, Client, Connection, Shown, listener, shown};
