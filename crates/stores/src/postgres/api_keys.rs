//! API keys in the same database as the records. [`api_keys`](crate::api_keys) describes keys and their
//! HMACs.

use semel_core::{Principal, Timestamp};
use tokio::sync::Mutex;

use super::address::DatabaseAddress;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::link::{Dialer, Link};
use super::{PostgresOpenError, PostgresOptions, connect, learn, prepare, schema};
use crate::access::Access;
use crate::api_keys::{ApiKey, KeyMac, NewApiKey, key_mac};

/// API keys of a database.
pub struct PostgresKeys {
    dialer: Dialer,
    link: Mutex<Link>,
    secret: [u8; 32],
}

impl PostgresKeys {
    /// Opens the keys of the database. Migrates it to this version's schema if needed.
    pub async fn open(address: &DatabaseAddress) -> Result<PostgresKeys, PostgresOpenError> {
        PostgresKeys::open_for(address, Access::Write).await
    }

    /// Opens the keys of the database for this access.
    pub async fn open_for(
        address: &DatabaseAddress,
        access: Access,
    ) -> Result<PostgresKeys, PostgresOpenError> {
        let (dialer, mut link) = connect(address, &PostgresOptions::default()).await?;
        prepare(address, access, &mut link).await?;
        learn(address, &dialer, &mut link).await?;
        let secret = secret(&mut link, access).await.map_err(|error| super::unreachable(address, &error))?;
        Ok(PostgresKeys { dialer, link: Mutex::new(link), secret })
    }

    /// Creates a key, and returns it: the key is never shown again.
    pub async fn create(&self, principal: &Principal) -> Result<(ApiKey, String), DbError> {
        let NewApiKey { id, text } = NewApiKey::draw();
        let mut link = self.link().await?;
        let created_at = schema::now(&mut *link).await?;
        let mac = key_mac(&self.secret, &text);
        let values = [
            SqlValue::Text(Some(&id)),
            SqlValue::Text(Some(principal.tenant())),
            SqlValue::Text(Some(principal.caller())),
            SqlValue::Bytes(Some(&mac)),
            SqlValue::Int(Some(created_at.as_millis())),
        ];
        let sql =
            "INSERT INTO semel_api_keys (id, tenant, caller, mac, created_at) VALUES ($1, $2, $3, $4, $5)";
        link.query(sql, &values).await?;
        Ok((ApiKey { id, principal: principal.clone(), created_at, revoked_at: None }, text))
    }

    /// Returns every key, revoked ones included, the oldest first.
    pub async fn list(&self) -> Result<Vec<ApiKey>, DbError> {
        let sql =
            "SELECT id, tenant, caller, created_at, revoked_at FROM semel_api_keys ORDER BY created_at, id";
        let key = |row: &SqlRow| {
            Ok(ApiKey {
                id: row.text(0).unwrap_or_default().to_owned(),
                principal: principal(row, 1)?,
                created_at: Timestamp::from_millis(row.int(3).unwrap_or(0)),
                revoked_at: row.int(4).map(Timestamp::from_millis),
            })
        };
        self.link().await?.query(sql, &[]).await?.iter().map(key).collect()
    }

    /// Revokes a key. Returns `false` if no valid key has this id.
    pub async fn revoke(&self, id: &str) -> Result<bool, DbError> {
        let mut link = self.link().await?;
        let now = schema::now(&mut *link).await?;
        let sql = "UPDATE semel_api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING revoked_at";
        Ok(!link
            .query(sql, &[SqlValue::Text(Some(id)), SqlValue::Int(Some(now.as_millis()))])
            .await?
            .is_empty())
    }

    /// Returns the HMACs of all valid keys, and their principals.
    pub async fn active(&self) -> Result<Vec<(KeyMac, Principal)>, DbError> {
        let sql = "SELECT mac, tenant, caller FROM semel_api_keys WHERE revoked_at IS NULL";
        let key = |row: &SqlRow| {
            let mac = row.bytes(0).and_then(|mac| mac[..].try_into().ok());
            let mac = mac.ok_or_else(|| DbError::unreadable("mac", "not 32 bytes long"))?;
            Ok((mac, principal(row, 1)?))
        };
        self.link().await?.query(sql, &[]).await?.iter().map(key).collect()
    }

    /// Returns the secret for the HMAC of a presented key.
    pub fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Returns the connection, and reconnects if it was lost.
    async fn link(&self) -> Result<tokio::sync::MutexGuard<'_, Link>, DbError> {
        let mut link = self.link.lock().await;
        if !link.is_usable() {
            *link = self.dialer.connect().await?;
        }
        Ok(link)
    }
}

async fn secret(link: &mut Link, access: Access) -> Result<[u8; 32], DbError> {
    let drawn = semel_core::ids::secret();
    // The first process draws the secret; every process reads the stored one.
    let sql = "INSERT INTO semel_secrets (name, value) VALUES ('api_keys', $1) ON CONFLICT DO NOTHING";
    if access == Access::Write {
        link.query(sql, &[SqlValue::Bytes(Some(&drawn))]).await?;
    }
    let rows = link.query("SELECT value FROM semel_secrets WHERE name = 'api_keys'", &[]).await?;
    let secret = rows.first().and_then(|row| row.bytes(0)).and_then(|value| value[..].try_into().ok());
    // Without keys, the secret is compared with nothing.
    let secret = secret.or((access == Access::Read && rows.is_empty()).then_some(drawn));
    secret.ok_or_else(|| DbError::unreadable("value", "there is no secret"))
}

fn principal(row: &SqlRow, column: usize) -> Result<Principal, DbError> {
    let name = |column| row.text(column).unwrap_or_default();
    Principal::new(name(column), name(column + 1))
        .map_err(|error| DbError::unreadable("tenant, caller", error))
}
