//! The layer from outside: real sockets, a real SQLite file, and a handler that does as a test tells it.

mod authorize;
mod codings;
mod contract;
mod cut_off;
mod disconnects;
mod faults;
mod frameworks;
mod identity;
mod input;
mod killed;
mod lab;
mod late_answers;
mod later;
mod later_lab;
mod limits;
mod outcomes;
mod paths;
mod replays;
mod resource;
mod retry_advice;
mod seen;
mod stored;
mod stripe;
mod tiers;
mod versions;
mod worker;
