//! The address of a database: `postgres://user:password@host/database?…`.
//!
//! tokio-postgres parses libpq-style URLs; this file adds the parameters that it does not know: those of TLS
//! and of the password file with libpq's meaning, and two of our own.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// Time for a session to begin at one of several hosts, if the address has no `connect_timeout`.
const HOST_TIMEOUT: Duration = Duration::from_secs(3);

/// A database's address.
#[derive(Clone)]
pub struct DatabaseAddress {
    pub(super) config: tokio_postgres::Config,
    /// Checked part of the server's certificate.
    pub(super) verification: Verification,
    /// Authorities for the server's certificate, if not those that the system trusts.
    pub(super) root_certificate: Option<PathBuf>,
    /// Password file, if not that of `PGPASSFILE` or `~/.pgpass`.
    pub(super) password_file: Option<PathBuf>,
    /// True to prepare statements once per connection. False for PgBouncer before 1.21.
    pub(super) prepared: bool,
    /// True to send changes in groups. False for engines without arrays.
    pub(super) groups: bool,
    /// Lowest timeline of a server that may be used; 0 for any.
    pub(super) lowest_timeline: u64,
}

/// Checked part of a server's certificate, by `sslmode` and `sslrootcert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// Nothing: the connection is encrypted, but the server is not authenticated.
    Nothing,
    /// The authority that signed it.
    Authority,
    /// The authority that signed it, and the name of the host.
    AuthorityAndName,
}

/// Reason why an address is invalid.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseAddressError {
    /// The text is no address of PostgreSQL. The driver's message does not repeat the address.
    #[error("not an address of PostgreSQL: {0}")]
    Invalid(String),
    /// The end of the password is ambiguous.
    #[error("an `@`, `/`, `?` or `#` in a name, a password or a parameter is written %40, %2F, %3F or %23")]
    Ambiguous,
    /// One of our own parameters has an invalid value.
    #[error("{name} is none of {choices}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Valid values.
        choices: &'static str,
    },
    /// An authority is given, but the mode checks no certificate.
    #[error(
        "sslrootcert is given, and sslmode=prefer, the default, checks no certificate: write sslmode=verify-full, \
         verify-ca or require as well"
    )]
    UncheckedRoot,
    /// The system's authorities are given without a check of the name. They sign for every name, so the name
    /// must be checked.
    #[error(
        "sslrootcert=system goes with sslmode=verify-full only: the system's authorities sign for anybody"
    )]
    UnnamedSystem,
}

impl FromStr for DatabaseAddress {
    type Err = DatabaseAddressError;

    fn from_str(text: &str) -> Result<DatabaseAddress, DatabaseAddressError> {
        if is_ambiguous(text) {
            return Err(DatabaseAddressError::Ambiguous);
        }
        // The driver would take it for a list of parameters, and repeat the unknown ones.
        let has_scheme = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        if text.starts_with("postgres") && !has_scheme {
            return Err(DatabaseAddressError::Invalid("`://` is missing".to_owned()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Vec::new();
        let (mut root_certificate, mut password_file) = (None, None);
        let (mut prepared, mut groups) = (true, true);
        let (mut mode, mut lowest_timeline) = (TlsMode::Prefer, 0);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslrootcert" => root_certificate = Some(PathBuf::from(decoded(value))),
                "passfile" => password_file = Some(PathBuf::from(decoded(value))),
                "prepared_statements" => prepared = flag("prepared_statements", value)?,
                "groups" => groups = flag("groups", value)?,
                "sslmode" => mode = tls_mode(value)?,
                "lowest_timeline" => lowest_timeline = timeline(value)?,
                _ => rest.push(pair),
            }
        }
        let query = rest.join("&");
        let plain = if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") };
        let config = tokio_postgres::Config::from_str(&plain);
        let mut config = config.map_err(|error| {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            DatabaseAddressError::Invalid(why)
        })?;
        if config.get_hosts().is_empty() {
            return Err(DatabaseAddressError::Invalid("it names no host".to_owned()));
        }
        let (names, addresses, ports) =
            (config.get_hosts().len(), config.get_hostaddrs().len(), config.get_ports().len());
        if (addresses > 0 && addresses != names) || (ports > 1 && ports != names) {
            let why = "it has more or fewer ports or values of hostaddr than hosts";
            return Err(DatabaseAddressError::Invalid(why.to_owned()));
        }
        let (verification, root_certificate) = mode.verification(root_certificate)?;
        // Unix sockets are not encrypted, whatever the mode, as in libpq.
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if is_local { SslMode::Disable } else { mode.driver() });
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        // After a failover, the former primary is read-only. Of several hosts, use the writable one.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(HOST_TIMEOUT);
        }
        config.keepalives_idle(Duration::from_secs(15));
        Ok(DatabaseAddress {
            config,
            verification,
            root_certificate,
            password_file,
            prepared,
            groups,
            lowest_timeline,
        })
    }
}

/// Returns true if more than one `@` could end the password: a part of it would be taken for a host or a
/// parameter, and shown as one.
fn is_ambiguous(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest[..end].matches('@').count() > 1 || rest[end..].contains('@')
}

/// The modes of libpq, without `allow`, which prefers no encryption.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyAuthority,
    VerifyFull,
}

impl TlsMode {
    fn driver(self) -> SslMode {
        match self {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyAuthority | TlsMode::VerifyFull => SslMode::Require,
        }
    }

    /// Returns the checked part of a certificate, and the file with the authorities, if not the system's.
    fn verification(
        self,
        root: Option<PathBuf>,
    ) -> Result<(Verification, Option<PathBuf>), DatabaseAddressError> {
        let is_system = root.as_deref().is_some_and(|root| root == Path::new("system"));
        match (self, root) {
            (TlsMode::Disable, _) | (TlsMode::Prefer | TlsMode::Require, None) => {
                Ok((Verification::Nothing, None))
            }
            (TlsMode::Prefer, Some(_)) => Err(DatabaseAddressError::UncheckedRoot),
            (TlsMode::VerifyFull, _) if is_system => Ok((Verification::AuthorityAndName, None)),
            (TlsMode::Require | TlsMode::VerifyAuthority, _) if is_system => {
                Err(DatabaseAddressError::UnnamedSystem)
            }
            (TlsMode::VerifyFull, root) => Ok((Verification::AuthorityAndName, root)),
            (TlsMode::Require | TlsMode::VerifyAuthority, root) => Ok((Verification::Authority, root)),
        }
    }
}

fn tls_mode(value: &str) -> Result<TlsMode, DatabaseAddressError> {
    match value {
        "disable" => Ok(TlsMode::Disable),
        "prefer" => Ok(TlsMode::Prefer),
        "require" => Ok(TlsMode::Require),
        "verify-ca" => Ok(TlsMode::VerifyAuthority),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(DatabaseAddressError::Parameter {
            name: "sslmode",
            choices: "disable, prefer, require, verify-ca, verify-full",
        }),
    }
}

fn flag(name: &'static str, value: &str) -> Result<bool, DatabaseAddressError> {
    match value {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        _ => Err(DatabaseAddressError::Parameter { name, choices: "true, false" }),
    }
}

fn timeline(value: &str) -> Result<u64, DatabaseAddressError> {
    let invalid = DatabaseAddressError::Parameter { name: "lowest_timeline", choices: "1, 2, 3, …" };
    value.parse::<u32>().map(u64::from).map_err(|_| invalid)
}

/// Undoes percent-encoding; an invalid escape stays as it is.
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

impl DatabaseAddress {
    /// Returns the host, port and database, without user or password.
    pub fn describe(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> =
            hosts.enumerate().map(|(number, host)| format!("{host}:{}", self.port(number))).collect();
        let user = self.config.get_user().unwrap_or("");
        format!("{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or(user))
    }

    /// Returns the time for a session to begin at one of several hosts.
    pub(super) fn host_timeout(&self) -> Duration {
        self.config.get_connect_timeout().copied().unwrap_or(HOST_TIMEOUT)
    }

    /// Returns the port of the host with this number.
    pub(super) fn port(&self, number: usize) -> u16 {
        let ports = self.config.get_ports();
        ports.get(number).or(ports.first()).copied().unwrap_or(5432)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_the_scheme_shows_no_password() {
        let slip = "postgres:/semel:hunter=2://hunter@db/pay".parse::<DatabaseAddress>();
        assert_eq!(
            slip.err().map(|error| error.to_string()).as_deref(),
            Some("not an address of PostgreSQL: `://` is missing")
        );
    }

    #[test]
    fn an_address_says_where_and_how() {
        let plain: DatabaseAddress =
            "postgres://semel:s3cret@db.example/pay".parse().expect("it is an address");
        assert_eq!(plain.describe(), "db.example:5432/pay");
        assert!(plain.prepared && plain.groups && plain.root_certificate.is_none());
        assert_eq!(plain.config.get_ssl_mode(), SslMode::Prefer);
        let more: DatabaseAddress = "postgresql://semel@a:1,b:2/pay?sslmode=verify-full&sslrootcert=/etc/my%20ca.pem&prepared_statements=off&connect_timeout=9"
            .parse()
            .expect("it is an address");
        assert_eq!(more.describe(), "a:1,b:2/pay");
        assert_eq!(more.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(more.root_certificate, Some(PathBuf::from("/etc/my ca.pem")));
        assert!(!more.prepared);
        assert_eq!(more.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
    }

    #[test]
    fn a_certificate_is_checked_as_libpq_does() {
        let read = |parameters: &str| {
            let address: Result<DatabaseAddress, DatabaseAddressError> =
                format!("postgres://semel@db/pay?{parameters}").parse();
            address.map(|address| (address.config.get_ssl_mode(), address.verification))
        };
        for (parameters, mode, verification) in [
            ("", SslMode::Prefer, Verification::Nothing),
            ("sslmode=disable&sslrootcert=ca.pem", SslMode::Disable, Verification::Nothing),
            ("sslmode=prefer", SslMode::Prefer, Verification::Nothing),
            ("sslmode=require", SslMode::Require, Verification::Nothing),
            ("sslmode=require&sslrootcert=ca.pem", SslMode::Require, Verification::Authority),
            ("sslmode=verify-ca&sslrootcert=ca.pem", SslMode::Require, Verification::Authority),
            ("sslmode=verify-full&sslrootcert=ca.pem", SslMode::Require, Verification::AuthorityAndName),
            ("sslmode=verify-full&sslrootcert=system", SslMode::Require, Verification::AuthorityAndName),
            ("sslmode=verify-full", SslMode::Require, Verification::AuthorityAndName),
        ] {
            assert_eq!(read(parameters).ok(), Some((mode, verification)), "{parameters}");
        }
        for parameters in ["sslrootcert=ca.pem", "sslmode=prefer&sslrootcert=ca.pem"] {
            let error = read(parameters).expect_err("nothing would be checked").to_string();
            assert!(error.contains("sslmode=verify-full") && error.contains("sslrootcert"), "{error}");
        }
        assert!(matches!(
            read("sslmode=require&sslrootcert=system"),
            Err(DatabaseAddressError::UnnamedSystem)
        ));
        let local: DatabaseAddress =
            "postgres://semel@%2Frun%2Fpostgresql/pay?sslmode=require".parse().expect("it is one");
        assert_eq!(local.config.get_ssl_mode(), SslMode::Disable, "a socket of the file system");
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
            let error = wrong.parse::<DatabaseAddress>().err().expect("it is not an address").to_string();
            assert!(!error.contains("s3cret") && !error.contains("half"), "{error}");
        }
        let encoded: DatabaseAddress =
            "postgres://semel:half%40s3cret@db/pay".parse().expect("it is an address");
        assert_eq!(encoded.config.get_password(), Some(&b"half@s3cret"[..]));
        assert_eq!(encoded.describe(), "db:5432/pay");
    }
}
