//! A complete payment service, and the payment provider that it calls, each in a process of its own.

pub mod provider;
pub mod service;
