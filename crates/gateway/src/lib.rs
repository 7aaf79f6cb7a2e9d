//! The way of a client's request through the gateway, from its connection to the upstream and back.
//!
//! The way of a command is in `semel-http`, the settings are in `semel-settings`. From the lowest:
//!
//! - `peer`, `secret`, `hosts` and `upgrade` are facts that others share.
//! - `tls` encrypts; `identity` names callers; `forwarding` and `forward` write header fields; `authorize` asks whether
//!   callers may.
//! - `guard` and `entry` check requests on their way in; `former_names` finds the names that their records may have.
//! - `upstream` has the connections to the service, and `proxy` passes requests on to it.
//! - `webhook` takes the events of providers, and `listener` takes connections.

pub mod authorize;
pub mod entry;
pub mod former_names;
pub mod forward;
pub mod forwarding;
pub mod guard;
pub mod hosts;
pub mod identity;
pub mod listener;
pub mod peer;
pub mod proxy;
pub mod secret;
pub mod tls;
pub mod upgrade;
pub mod upstream;
pub mod webhook;
