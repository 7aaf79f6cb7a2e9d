//! The facade as a service uses it: over sockets, on a real file.

mod admin;
mod clients;
mod service;
