//! The checks of addresses whose grammar other crates know. Whoever loads a configuration gives them.

/// Checks of addresses: each refuses a text with the reason, in words that go on after a colon and show no password.
#[derive(Clone, Copy, Debug)]
pub struct AddressChecks {
    /// Checks the address of a PostgreSQL database.
    pub postgres: fn(&str) -> Result<(), String>,
    /// Checks the address of a service that is asked over HTTP.
    pub service: fn(&str) -> Result<(), String>,
    /// Checks the address of a look-up, in which placeholders stand for a command.
    pub look_up: fn(&str) -> Result<(), String>,
}
