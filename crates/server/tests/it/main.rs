//! The gateway from outside.

mod commands;
mod gateway;
mod guard;
