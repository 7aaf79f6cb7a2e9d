//! The gateway from outside.

mod commands;
mod gateway;
mod guard;
mod verify;
