//! The gateway from outside.

mod audit;
mod commands;
mod completions;
mod doctor;
mod fingerprint;
mod gateway;
mod guard;
mod help;
mod ledger;
mod limits_page;
mod readme;
mod routers;
mod snapshot;
mod third_party;
mod verify;
