//! Tests of the gateway from outside.

mod audit;
mod commands;
mod completions;
mod demo;
mod deploy;
mod doctor;
mod fingerprint;
mod form_clients;
mod gateway;
mod guard;
mod help;
mod ledger;
mod limits_page;
mod line;
mod readme;
mod reference;
mod routers;
mod snapshot;
mod stripe_sdks;
mod terminal;
mod third_party;
mod traces;
mod verify;
