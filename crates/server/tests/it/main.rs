//! The gateway from outside.

mod audit;
mod commands;
mod gateway;
mod guard;
mod verify;
