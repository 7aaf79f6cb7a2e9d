//! API keys of the configured store.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use http::HeaderName;
use semel_core::Principal;
use semel_settings::StoreLocation;
use semel_stores::Access;
use semel_stores::api_keys::{ApiKey, KeyMac};
use semel_stores::postgres::PostgresKeys;
use semel_stores::sqlite::ApiKeys;

/// Header that may carry an API key instead of `Authorization: Bearer`.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// API keys of a store.
#[derive(Clone)]
pub enum StoredApiKeys {
    /// Keys in a SQLite file.
    Sqlite(Arc<Mutex<ApiKeys>>),
    /// Keys in a PostgreSQL database.
    Postgres(Arc<PostgresKeys>),
}

impl StoredApiKeys {
    /// Opens the keys in the store of the records.
    pub async fn open(location: &StoreLocation, access: Access) -> anyhow::Result<StoredApiKeys> {
        match location {
            StoreLocation::Memory => {
                anyhow::bail!("keys need a store that keeps them: set `store` to sqlite:PATH or postgres://…")
            }
            StoreLocation::Sqlite(path) => StoredApiKeys::open_file(path, access),
            StoreLocation::Postgres(url) => {
                Ok(StoredApiKeys::Postgres(Arc::new(PostgresKeys::open_for(&url.address()?, access).await?)))
            }
        }
    }

    fn open_file(path: &Path, access: Access) -> anyhow::Result<StoredApiKeys> {
        Ok(StoredApiKeys::Sqlite(Arc::new(Mutex::new(ApiKeys::open_for(path, access)?))))
    }

    /// Makes a key and returns it. The key is never shown again.
    pub async fn create(&self, principal: &Principal) -> anyhow::Result<(ApiKey, String)> {
        match self {
            StoredApiKeys::Sqlite(keys) => {
                let principal = principal.clone();
                on_file(keys, move |keys| keys.create(&principal)).await
            }
            StoredApiKeys::Postgres(keys) => Ok(keys.create(principal).await?),
        }
    }

    /// Returns every key including revoked ones, the oldest first.
    pub async fn list(&self) -> anyhow::Result<Vec<ApiKey>> {
        match self {
            StoredApiKeys::Sqlite(keys) => on_file(keys, ApiKeys::list).await,
            StoredApiKeys::Postgres(keys) => Ok(keys.list().await?),
        }
    }

    /// Revokes a key. Returns `false` if no active key has this id.
    pub async fn revoke(&self, id: &str) -> anyhow::Result<bool> {
        match self {
            StoredApiKeys::Sqlite(keys) => {
                let id = id.to_owned();
                on_file(keys, move |keys| keys.revoke(&id)).await
            }
            StoredApiKeys::Postgres(keys) => Ok(keys.revoke(id).await?),
        }
    }

    /// Returns the HMACs of all active keys, with their callers.
    pub(crate) async fn active(&self) -> anyhow::Result<Vec<(KeyMac, Principal)>> {
        match self {
            StoredApiKeys::Sqlite(keys) => on_file(keys, ApiKeys::active).await,
            StoredApiKeys::Postgres(keys) => Ok(keys.active().await?),
        }
    }

    /// Returns the secret for the HMAC of a presented key.
    pub(crate) fn secret(&self) -> [u8; 32] {
        match self {
            StoredApiKeys::Sqlite(keys) => keys.lock().unwrap_or_else(PoisonError::into_inner).secret(),
            StoredApiKeys::Postgres(keys) => keys.secret(),
        }
    }
}

/// Runs a blocking file operation on a thread that may block.
async fn on_file<T, E>(
    keys: &Arc<Mutex<ApiKeys>>,
    act: impl FnOnce(&ApiKeys) -> Result<T, E> + Send + 'static,
) -> anyhow::Result<T>
where
    T: Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let keys = keys.clone();
    let acting = move || act(&keys.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(tokio::task::spawn_blocking(acting).await.context("the task ended early")??)
}
