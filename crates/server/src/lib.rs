//! The gateway: `semel serve` stands in front of any HTTP service and makes its commands safe to retry.
//!
//! Wiring only. What a command goes through is in `semel-http`; here is what surrounds it: `listener`, `guard` and
//! `head` take connections and requests, `peer` says from whom, `entry` which may come in, `hosts` by which names, `pass` with which exemptions, `identity` says who calls (`jwt` where a token says it,
//! `client_certificate` where a certificate does) and `authorize` whether they
//! may, `introspection` asks a service about both, `proxy` and `upstream` pass requests on, `forwarding` says from where they came, `request_id` names them, `cors` which pages may read our answers, `upgrade` and `tunnel` switch protocols, `tls` encrypts, `breaker` stands before the store, `reconcile`
//! and `webhook` find out what became of commands whose outcome is unknown, `ledger` compares what was done with what others
//! say, `admin` and `telemetry` show what happens, `config` reads the settings, and `gateway` puts them together.

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
