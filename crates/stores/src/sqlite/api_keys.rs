//! API keys in the same file as the records. [`api_keys`](crate::api_keys) describes keys and their HMACs.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use semel_core::scope::PrincipalError;
use semel_core::{Principal, Timestamp, ids};

use super::{SqliteOpenError, SqliteOptions, Trouble, connect, place, queries};
use crate::access::Access;
use crate::api_keys::{ApiKey, KeyMac, NewApiKey, key_mac};

/// API keys of a file.
pub struct ApiKeys {
    connection: Connection,
    secret: [u8; 32],
}

impl ApiKeys {
    /// Opens the keys of the file. Creates it if needed.
    pub fn open(path: impl AsRef<Path>) -> Result<ApiKeys, SqliteOpenError> {
        ApiKeys::open_for(path, Access::Write)
    }

    /// Opens the keys of the file for this access.
    pub fn open_for(path: impl AsRef<Path>, access: Access) -> Result<ApiKeys, SqliteOpenError> {
        let path = path.as_ref();
        let open = || -> Result<ApiKeys, Trouble> {
            let options = SqliteOptions { access, ..SqliteOptions::default() };
            let mut connection = connect(path, &options)?;
            place::adopt(&mut connection, path, &options)?;
            let secret = secret(&connection, access)?;
            Ok(ApiKeys { connection, secret })
        };
        open().map_err(|trouble| trouble.at(path))
    }

    /// Creates a key, and returns it: the key is never shown again.
    pub fn create(&self, principal: &Principal) -> rusqlite::Result<(ApiKey, String)> {
        let NewApiKey { id, text } = NewApiKey::draw();
        let created_at = queries::now(&self.connection)?;
        self.connection.execute(
            "INSERT INTO semel_api_keys (id, tenant, caller, mac, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id, principal.tenant(), principal.caller(), self.mac(&text), created_at],
        )?;
        let created_at = Timestamp::from_millis(created_at);
        Ok((ApiKey { id, principal: principal.clone(), created_at, revoked_at: None }, text))
    }

    /// Returns every key, revoked ones included, the oldest first.
    pub fn list(&self) -> rusqlite::Result<Vec<ApiKey>> {
        self.connection
            .prepare("SELECT id, tenant, caller, created_at, revoked_at FROM semel_api_keys ORDER BY created_at, id")?
            .query_map([], |row| {
                Ok(ApiKey {
                    id: row.get(0)?,
                    principal: principal(&row.get::<_, String>(1)?, &row.get::<_, String>(2)?)?,
                    created_at: Timestamp::from_millis(row.get(3)?),
                    revoked_at: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
                })
            })?
            .collect()
    }

    /// Revokes a key. Returns `false` if no valid key has this id.
    pub fn revoke(&self, id: &str) -> rusqlite::Result<bool> {
        let now = queries::now(&self.connection)?;
        let sql = "UPDATE semel_api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        Ok(self.connection.execute(sql, params![id, now])? == 1)
    }

    /// Returns the HMACs of all valid keys, and their principals.
    pub fn active(&self) -> rusqlite::Result<Vec<(KeyMac, Principal)>> {
        self.connection
            .prepare("SELECT mac, tenant, caller FROM semel_api_keys WHERE revoked_at IS NULL")?
            .query_map([], |row| {
                Ok((row.get(0)?, principal(&row.get::<_, String>(1)?, &row.get::<_, String>(2)?)?))
            })?
            .collect()
    }

    /// Returns the secret for the HMAC of a presented key.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn mac(&self, key: &str) -> KeyMac {
        key_mac(&self.secret, key)
    }
}

/// Returns the number of valid keys. A file from before there were keys has none.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let keys = match count("SELECT count(*) FROM sqlite_schema WHERE name = 'semel_api_keys'")? {
        0 => 0,
        _ => count("SELECT count(*) FROM semel_api_keys WHERE revoked_at IS NULL")?,
    };
    Ok(u64::try_from(keys).unwrap_or(0))
}

fn secret(connection: &Connection, access: Access) -> rusqlite::Result<[u8; 32]> {
    let drawn = ids::secret();
    // The first process draws the secret; every process reads the stored one.
    let sql = "INSERT INTO semel_secrets (name, value) VALUES ('api_keys', ?1) ON CONFLICT DO NOTHING";
    let read = |connection: &Connection| {
        connection
            .query_row("SELECT value FROM semel_secrets WHERE name = 'api_keys'", [], |row| row.get(0))
            .optional()
    };
    match read(connection)? {
        Some(secret) => return Ok(secret),
        // There are no keys yet, so the secret is compared with nothing.
        None if access == Access::Read => return Ok(drawn),
        None => {}
    }
    connection.execute(sql, [drawn])?;
    read(connection)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn principal(tenant: &str, caller: &str) -> rusqlite::Result<Principal> {
    Principal::new(tenant, caller).map_err(|error: PrincipalError| {
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lets_its_caller_in_until_it_is_revoked() {
        let folder = std::env::temp_dir().join(format!("semel-api-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("there is room");
        let path = folder.join("semel.db");
        let keys = ApiKeys::open(&path).expect("the file opens");
        let alice = Principal::new("acme", "alice").expect("it is a name");
        let (made, text) = keys.create(&alice).expect("it is made");
        assert_eq!((text.len(), &text[..6]), (70, "semel_"));
        let other = ApiKeys::open(&path).expect("the file opens again");
        assert_eq!(other.active().expect("it reads"), [(key_mac(&other.secret(), &text), alice)]);
        assert_eq!(other.list().expect("it reads"), std::slice::from_ref(&made));
        assert!(keys.revoke(&made.id).expect("it writes"));
        assert!(!keys.revoke(&made.id).expect("it writes"), "it was revoked before");
        assert_eq!(other.active().expect("it reads"), []);
        assert!(other.list().expect("it reads")[0].revoked_at.is_some());
        for entry in std::fs::read_dir(&folder).expect("it is there").flatten() {
            let bytes = std::fs::read(entry.path()).expect("it reads");
            assert!(
                !bytes.windows(text.len()).any(|window| window == text.as_bytes()),
                "the key is not kept"
            );
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
