//! Tests of the exporter against a collector of our own on a real socket.

mod delivery;
mod losses;
mod receiver;
