//! Where the database is, and how to talk to it: `postgres://user:password@host/database?…`.
//!
//! Everything that libpq-style URLs say is understood as tokio-postgres does; four parameters are ours, since it
//! does not know them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};

/// A database's address.
#[derive(Clone)]
pub struct Address {
    pub(super) config: tokio_postgres::Config,
    /// Who must have signed the server's certificate, if not one of those that the system trusts.
    pub(super) root_certificate: Option<PathBuf>,
    /// Whether statements are prepared once for each connection. Off for PgBouncer before 1.21.
    pub(super) prepared: bool,
    /// Whether changes travel in groups. Off for engines that do not take arrays.
    pub(super) groups: bool,
}

/// Why an address is not one.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not an address of PostgreSQL. What the driver says does not repeat the address.
    #[error("not an address of PostgreSQL: {0}")]
    Invalid(String),
    /// Nobody can say where the password ends.
    #[error("an `@`, `/`, `?` or `#` in a name, a password or a parameter is written %40, %2F, %3F or %23")]
    Ambiguous,
    /// A parameter of ours has no such value.
    #[error("{name} is none of {choices}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What it may be.
        choices: &'static str,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if is_ambiguous(text) {
            return Err(AddressError::Ambiguous);
        }
        // The driver would take it for a list of parameters, and name what it does not know.
        if text.starts_with("postgres") && !text.contains("://") {
            return Err(AddressError::Invalid("`://` is missing".to_owned()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Vec::new();
        let (mut root_certificate, mut prepared, mut groups) = (None, true, true);
        let mut tls = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslrootcert" => root_certificate = Some(PathBuf::from(decoded(value))),
                "prepared_statements" => prepared = flag("prepared_statements", value)?,
                "groups" => groups = flag("groups", value)?,
                "sslmode" => tls = Some(ssl_mode(value)?),
                _ => rest.push(pair),
            }
        }
        let query = rest.join("&");
        let plain = if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") };
        let config = tokio_postgres::Config::from_str(&plain);
        let mut config = config.map_err(|error| {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            AddressError::Invalid(why)
        })?;
        if config.get_hosts().is_empty() {
            return Err(AddressError::Invalid("it names no host".to_owned()));
        }
        config.ssl_mode(tls.unwrap_or(SslMode::Prefer));
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        // After a failover, the former primary only reads. Of several hosts, the one that writes is meant.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(3));
        }
        config.keepalives_idle(Duration::from_secs(15));
        Ok(Address { config, root_certificate, prepared, groups })
    }
}

/// Whether more than one `@` could end the password: a part of it would be taken for a host or a parameter, and shown as one.
fn is_ambiguous(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest[..end].matches('@').count() > 1 || rest[end..].contains('@')
}

fn ssl_mode(value: &str) -> Result<SslMode, AddressError> {
    match value {
        "disable" => Ok(SslMode::Disable),
        "prefer" => Ok(SslMode::Prefer),
        // Whoever asks for TLS gets a certificate that was checked, its name included.
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(AddressError::Parameter {
            name: "sslmode",
            choices: "disable, prefer, require, verify-ca, verify-full",
        }),
    }
}

fn flag(name: &'static str, value: &str) -> Result<bool, AddressError> {
    match value {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        _ => Err(AddressError::Parameter { name, choices: "true, false" }),
    }
}

/// Undoes percent-encoding; what is not encoded rightly stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

impl Address {
    /// The host, port and database, without user or password.
    pub fn describe(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let ports = self.config.get_ports();
        let port = |number: usize| ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        let hosts: Vec<String> = hosts.enumerate().map(|(n, host)| format!("{host}:{}", port(n))).collect();
        let user = self.config.get_user().unwrap_or("");
        format!("{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        let plain: Address = "postgres://semel:s3cret@db.example/pay".parse().expect("it is an address");
        assert_eq!(plain.describe(), "db.example:5432/pay");
        assert!(plain.prepared && plain.groups && plain.root_certificate.is_none());
        assert_eq!(plain.config.get_ssl_mode(), SslMode::Prefer);
        let more: Address = "postgresql://semel@a:1,b:2/pay?sslmode=verify-full&sslrootcert=/etc/my%20ca.pem&prepared_statements=off&connect_timeout=9"
            .parse()
            .expect("it is an address");
        assert_eq!(more.describe(), "a:1,b:2/pay");
        assert_eq!(more.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(more.root_certificate, Some(PathBuf::from("/etc/my ca.pem")));
        assert!(!more.prepared);
        assert_eq!(more.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
    }

    #[test]
    fn an_error_does_not_repeat_the_password() {
        for wrong in [
            "postgres://semel:s3cret@db:port/pay",
            "postgres://semel:s3cret@db/pay?colour=s3cret",
            "postgres://semel:s3cret@db/pay?sslmode=maybe",
            "postgres://semel:half@s3cret@db/pay",
            "postgres://semel:half/s3cret@db/pay",
            "postgres://semel:half?s3cret@db/pay",
            "postgres://semel:half?s3cret=1@db/pay",
            "postgres://semel:half#s3cret@db/pay",
            "postgres://semel:half@s3cret@",
            "postgres://db/pay?password=half@s3cret",
            "postgres:semel:half=s3cret",
            "postgres:/semel:half=s3cret@db",
        ] {
            let error = wrong.parse::<Address>().err().expect("it is not an address").to_string();
            assert!(!error.contains("s3cret") && !error.contains("half"), "{error}");
        }
        let encoded: Address = "postgres://semel:half%40s3cret@db/pay".parse().expect("it is an address");
        assert_eq!(encoded.config.get_password(), Some(&b"half@s3cret"[..]));
        assert_eq!(encoded.describe(), "db:5432/pay");
    }
}
