//! The password for an address without one: `PGPASSWORD`, or the password file, in libpq's order.
//!
//! Called for each connection, so that a changed password is used without a restart.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio_postgres::config::Host;

use super::address::DatabaseAddress;

/// Largest password file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Permissions of the group and of others: libpq refuses a file that has any of them.
const SHARED: u32 = 0o077;

/// A password from outside of the address, and a remark about the password file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FoundPassword {
    pub(super) password: Option<String>,
    remark: Option<String>,
}

impl FoundPassword {
    /// Returns the addition to a login error: the file of the password, or the reason why a file was not
    /// used.
    pub(super) fn remark(&self, error: &tokio_postgres::Error) -> String {
        let is_login = match error.as_db_error() {
            Some(said) => said.code().code().starts_with("28"),
            None => error.to_string().starts_with("invalid configuration"),
        };
        self.remark.as_ref().filter(|_| is_login).map_or_else(String::new, |remark| format!(" ({remark})"))
    }
}

/// Finds the password of this address, unless the address has one.
pub(super) fn find(address: &DatabaseAddress) -> FoundPassword {
    find_in(address, &|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn find_in(address: &DatabaseAddress, environment: &dyn Fn(&str) -> Option<OsString>) -> FoundPassword {
    if address.config.get_password().is_some() {
        return FoundPassword::default();
    }
    if let Some(password) = environment("PGPASSWORD").and_then(|password| password.into_string().ok()) {
        return FoundPassword {
            password: Some(password),
            remark: Some("the password is that of PGPASSWORD".into()),
        };
    }
    let named = address.password_file.clone().or_else(|| environment("PGPASSFILE").map(PathBuf::from));
    let usual = || environment("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(path) = named.or_else(usual) else { return FoundPassword::default() };
    let remark = |words: &str| Some(format!("the password file {} {words}", path.display()));
    match read(&path) {
        Ok(None) => FoundPassword::default(),
        Err(why) => FoundPassword { password: None, remark: remark(&format!("was not used: {why}")) },
        Ok(Some(file)) => match look_up(&file, address) {
            Ok(Some(password)) => {
                FoundPassword { password: Some(password), remark: remark("has this password") }
            }
            Ok(None) => FoundPassword { password: None, remark: remark("has no line for this database") },
            Err(why) => FoundPassword { password: None, remark: remark(why) },
        },
    }
}

/// Returns the text of the file; `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>, String> {
    // Checked before it is opened: opening a pipe would wait for its writer.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.is_file() {
        return Err("it is not a plain file".to_owned());
    }
    if metadata.mode() & SHARED != 0 {
        return Err("its group or others have access to it; use `chmod 600`".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}

/// Returns the password of the first matching line. One connection string has one password, so hosts of one
/// address must agree.
fn look_up(file: &str, address: &DatabaseAddress) -> Result<Option<String>, &'static str> {
    let config = &address.config;
    let system_user = || std::env::var("USER").unwrap_or_default();
    let user = config.get_user().map_or_else(system_user, ToOwned::to_owned);
    let database = config.get_dbname().unwrap_or(&user);
    let mut passwords = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = address.port(number).to_string();
        file.lines().find_map(|line| match host {
            Host::Tcp(name) => fitting(line, &[name, &port, database, &user]),
            Host::Unix(folder) => {
                let folder = folder.to_string_lossy();
                fitting(line, &[&folder, &port, database, &user])
                    .or_else(|| fitting(line, &["localhost", &port, database, &user]))
            }
        })
    });
    let first = passwords.next().flatten();
    match passwords.all(|other| other == first) {
        true => Ok(first),
        false => Err("has different passwords for the hosts of the address: one address has one password"),
    }
}

/// Returns the password of this line, if its four other fields match or are `*`.
fn fitting(line: &str, wanted: &[&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for wanted in wanted {
        let (field, after) = field(rest);
        // An escaped star is a name.
        let fits = rest.starts_with("*:") || field == *wanted;
        rest = after.filter(|_| fits)?;
    }
    Some(field(rest).0).filter(|password| !password.is_empty())
}

/// Returns the text up to the next colon, and the text after it. A backslash escapes the next character.
fn field(text: &str) -> (String, Option<&str>) {
    let mut field = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            ':' => return (field, Some(&text[at + 1..])),
            '\\' => field.extend(letters.next().map(|(_, letter)| letter)),
            letter => field.push(letter),
        }
    }
    (field, None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn address(text: &str) -> DatabaseAddress {
        text.parse().expect("it is an address")
    }

    fn password(file: &str, url: &str) -> Option<String> {
        look_up(file, &address(url)).expect("its hosts agree")
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let file = "# comment\ndb:5432:pay:other:no\ndb:5433:*:semel:second\n*:*:pay:semel:a\\:b\\\\c\n*:*:*:*:last\n";
        for (url, expected) in [
            ("postgres://semel@db/pay", "a:b\\c"),
            ("postgres://semel@db:5433/pay", "second"),
            ("postgres://other@db/pay", "no"),
            ("postgres://semel@db/books", "last"),
            ("postgres://semel@%2Frun%2Fpostgresql/pay", "a:b\\c"),
        ] {
            assert_eq!(password(file, url).as_deref(), Some(expected), "{url}");
        }
        assert_eq!(password("db:5432:pay:semel\nshort\n\n", "postgres://semel@db/pay"), None);
        assert_eq!(
            password("localhost:*:*:*:socket", "postgres://semel@%2Ftmp/pay").as_deref(),
            Some("socket")
        );
        assert_eq!(password("\\*:*:*:*:no", "postgres://semel@db/pay"), None, "an escaped star is a name");
    }

    #[test]
    fn hosts_with_different_passwords_get_none() {
        let hosts = address("postgres://semel@a,b/pay");
        assert_eq!(look_up("*:*:*:*:one", &hosts), Ok(Some("one".to_owned())));
        assert!(look_up("a:*:*:*:one\nb:*:*:*:two", &hosts).is_err());
        assert!(look_up("a:*:*:*:one", &hosts).is_err());
    }

    #[test]
    fn a_password_is_looked_for_where_libpq_does_and_in_that_order() {
        let folder = tempfile::TempDir::new().expect("there is room");
        let write = |name: &str, mode: u32, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("there is room");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            path
        };
        let (usual, named) =
            (write(".pgpass", 0o600, "*:*:*:*:usual"), write("named", 0o600, "*:*:*:*:named"));
        let (shared, own) = (write("shared", 0o640, "*:*:*:*:shared"), write("own", 0o400, "*:*:*:*:own"));
        let find = |url: &str, variables: &[(&str, &Path)]| {
            let variables: Vec<(String, OsString)> = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_os_str().to_owned()))
                .collect();
            find_in(&address(url), &|name| {
                variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            })
        };
        let bare = "postgres://semel@db/pay";
        let home = ("HOME", folder.path());
        let all = [home, ("PGPASSFILE", &named), ("PGPASSWORD", Path::new("variable"))];
        assert_eq!(find("postgres://semel:inside@db/pay", &all), FoundPassword::default());
        assert_eq!(find(bare, &all).password.as_deref(), Some("variable"));
        assert_eq!(find(bare, &all[..2]).password.as_deref(), Some("named"));
        assert_eq!(find(bare, &all[..1]).password.as_deref(), Some("usual"), "{}", usual.display());
        let parameter = format!("{bare}?passfile={}", own.display());
        assert_eq!(find(&parameter, &all[..2]).password.as_deref(), Some("own"));
        let refused = find(bare, &[("PGPASSFILE", &shared)]);
        assert_eq!(refused.password, None);
        assert!(refused.remark.as_deref().is_some_and(|why| why.contains("chmod 600")), "{refused:?}");
        let folder = find(bare, &[("PGPASSFILE", folder.path())]);
        assert!(folder.remark.as_deref().is_some_and(|why| why.contains("plain file")), "{folder:?}");
        assert_eq!(find(bare, &[("PGPASSFILE", Path::new("/nowhere/file"))]), FoundPassword::default());
    }
}
