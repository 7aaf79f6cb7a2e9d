//! The gateway as it is run: the real program, a real upstream, real sockets between them.

mod admin;
mod authority;
mod authorize;
mod canary;
mod contract;
mod crashes;
mod cut_off;
mod cut_off_lab;
mod encryption;
mod identity;
pub(crate) mod issuer;
mod jwt;
pub(crate) mod lab;
mod later;
mod limits;
mod load;
mod operating;
mod place;
mod postgres;
mod proxying;
mod reconciling;
mod smuggling;
mod stored;
mod threats;
mod tls;
mod tls_reload;
mod tls_upstream;
