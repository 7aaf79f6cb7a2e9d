//! Path of a client's request through the gateway, from its connection to the upstream and back.
//!
//! `semel-http` executes commands, and `semel-settings` has the settings. From the lowest module:
//!
//! - `peer`, `secret`, `hosts` and `upgrade` are facts that others share.
//! - `tls` encrypts; `identity` names callers; `forwarding` and `forward` write header fields; `authorize`
//!   asks a service about callers.
//! - `guard` and `entry` check incoming requests; `former_names` finds other names of their records.
//! - `upstream` has the connections to the service, and `proxy` forwards requests to it.
//! - `webhook` receives the events of providers, and `listener` accepts connections.

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
pub mod service;
pub mod tls;
pub mod upgrade;
pub mod upstream;
pub mod webhook;
