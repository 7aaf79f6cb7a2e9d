//! The conformance suite on every store, and the tests of each store alone.

mod audit;
mod evidence;
mod memory;
mod postgres;
mod postgres_chaos;
mod postgres_clock;
mod postgres_doctor;
mod postgres_faults;
mod postgres_identity;
mod postgres_locks;
mod postgres_outages;
mod postgres_plans;
mod postgres_refusals;
mod postgres_replication;
mod postgres_schema;
mod postgres_tls;
mod requests;
mod sealed;
mod sqlite;
mod sqlite_clock;
mod sqlite_doctor;
mod sqlite_faults;
mod sqlite_place;
mod sqlite_processes;
mod suite;
mod usage;
