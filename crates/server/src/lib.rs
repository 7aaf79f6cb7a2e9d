//! The gateway: `semel serve` stands in front of any HTTP service and makes its commands safe to retry.
//!
//! Wiring only: the way of a command is in `semel-http`, the settings are in `semel-settings`, which is called `config`
//! here. From the lowest:
//!
//! - `peer`, `secret`, `keys` and `hosts` are facts that others share.
//! - `tls` encrypts, `forwarding` and `forward` write header fields, `upstream` has the connections to the service.
//! - `identity` names callers, `authorize` asks whether they may.
//! - `guard`, `head`, `entry`, `pass`, `cors`, `upgrade`, `tunnel`, `paced` and `request_id` check requests on their way in;
//!   `proxy` passes them on; `listener` takes connections.
//! - `breaker` stands before the store; `encryption`, `reconcile`, `webhook`, `ledger`, `former_names` and `operate` look after
//!   what is stored.
//! - `admin` and `telemetry` show what happens, `gateway` puts everything together, and `cli` is the command line.

pub mod admin;
pub mod authorize;
pub mod breaker;
mod certificates;
pub mod cli;
pub mod cors;
mod encryption;
pub mod entry;
mod event_places;
mod former_names;
pub mod forward;
pub mod forwarding;
pub mod gateway;
pub mod guard;
pub mod head;
pub mod hosts;
pub mod identity;
mod keys;
pub mod ledger;
pub mod listener;
mod operate;
mod paced;
pub mod pass;
pub mod peer;
pub mod proxy;
pub mod reconcile;
pub mod request_id;
mod secret;
pub mod telemetry;
mod terminal;
mod tls;
pub mod tunnel;
pub mod upgrade;
pub mod upstream;
pub mod webhook;

pub use semel_settings as config;
