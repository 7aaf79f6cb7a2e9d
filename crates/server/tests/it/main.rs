//! The gateway from outside.

mod audit;
mod commands;
mod fingerprint;
mod gateway;
mod guard;
mod verify;
