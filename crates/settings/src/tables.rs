//! The tables of a configuration: each with its types, the list of its settings beside them, and its own rules.

pub(crate) mod admin;
pub(crate) mod authorization;
pub(crate) mod client_certificate;
pub(crate) mod cors;
pub(crate) mod defaults;
pub(crate) mod encryption;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod introspection;
pub(crate) mod jwt;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod look_up;
pub(crate) mod maintenance;
pub(crate) mod operation;
pub(crate) mod pass;
pub(crate) mod reconcile;
pub(crate) mod server;
pub(crate) mod sso;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod traces;
pub(crate) mod upstream;
pub(crate) mod webhook;
pub(crate) mod witness;
