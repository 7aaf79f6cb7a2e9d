//! The gateway from outside.

mod audit;
mod commands;
mod completions;
mod fingerprint;
mod gateway;
mod guard;
mod verify;
