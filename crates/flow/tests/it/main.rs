//! Commands in one transaction: their guarantees on PostgreSQL and on SQLite.
//!
//! `lab.rs` has the databases. A behaviour that both share is written once, and `both!` generates a test of it on each.

mod lab;

mod bulk;
mod commands;
mod deferred;
mod ended_by_work;
mod foreign_keys;
mod http;
mod killed;
mod late_evidence;
mod look_up;
mod lost_commits;
mod outbox;
mod outbox_backlog;
mod outbox_http;
mod outbox_killed;
mod phase_verdicts;
mod phases;
mod phases_http;
mod phases_killed;
mod phases_postgres;
mod portable;
mod postgres;
mod reconcile;
mod reconcile_killed;
mod records;
mod rides;
mod round_trips;
mod sealed;
mod signals;
mod sqlite;
mod standbys;
mod webhooks;
