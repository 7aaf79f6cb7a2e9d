//! Stores of a peer: a database with the table of payments, a Redis if it needs one, and a folder. Each is private, on
//! loopback, and removed with its owner.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use semel_testkit::postgres::{Cluster, Database};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{Error, Peer, Store};

const PAYMENTS: &str =
    "CREATE TABLE payments (id uuid PRIMARY KEY, amount bigint NOT NULL, currency text NOT NULL,
    idempotency_key text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())";
/// Timeout of a Redis's start.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Server programs; the first one found is used.
const PROGRAMS: [&str; 2] = ["valkey-server", "redis-server"];

/// Stores of one peer.
pub struct Place {
    database: Database,
    payments: PgPool,
    redis: Option<Redis>,
    folder: TempDir,
}

impl Place {
    /// Prepares fresh stores for a peer, with a database of its own.
    pub async fn prepare(cluster: &Cluster, peer: &Peer) -> Result<Place, Error> {
        let database = cluster.create_database()?;
        let payments = PgPoolOptions::new().max_connections(2).connect(&database.url()).await?;
        sqlx::raw_sql(PAYMENTS).execute(&payments).await?;
        let redis = match peer.store {
            Store::Redis => Some(Redis::start(false).await?),
            Store::RedisDurable => Some(Redis::start(true).await?),
            _ => None,
        };
        let folder = tempfile::Builder::new().prefix("semel-peer-").tempdir()?;
        Ok(Place { database, payments, redis, folder })
    }

    /// Returns the database's address, for `DATABASE_URL`.
    pub fn database_url(&self) -> String {
        self.database.url()
    }

    /// Returns the Redis's address, for `REDIS_URL`.
    pub fn redis_url(&self) -> Option<String> {
        self.redis.as_ref().map(|redis| format!("redis://{}", redis.address))
    }

    /// Returns the folder for files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a CHECKPOINT, which writes the database's dirty pages to disk.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.database.sql("CHECKPOINT")?;
        Ok(())
    }

    /// Returns the number of payments under a key.
    pub async fn rows(&self, key: &str) -> Result<i64, Error> {
        let count = sqlx::query_scalar("SELECT count(*) FROM payments WHERE idempotency_key = $1");
        Ok(count.bind(key).fetch_one(&self.payments).await?)
    }

    /// Kills the store like a power failure, as far as processes allow, and starts it again.
    pub async fn lose_power(&mut self, cluster: &Cluster, store: Store) -> Result<(), Error> {
        match (&mut self.redis, store) {
            (Some(redis), _) => redis.kill_and_start().await,
            (None, Store::Postgresql) => {
                tokio::task::block_in_place(|| cluster.kill9().and_then(|()| cluster.restart()))?;
                // The pool's connections are broken; this first query finds that out.
                let _ = sqlx::query("SELECT 1").execute(&self.payments).await;
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }
}

/// A private Redis, or Valkey.
struct Redis {
    address: SocketAddr,
    folder: TempDir,
    durable: bool,
    process: Child,
}

impl Redis {
    async fn start(durable: bool) -> Result<Redis, Error> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = tempfile::Builder::new().prefix("semel-redis-").tempdir()?;
        let process = launch(address, folder.path(), durable)?;
        let mut redis = Redis { address, folder, durable, process };
        redis.wait().await?;
        Ok(redis)
    }

    async fn kill_and_start(&mut self) -> Result<(), Error> {
        self.process.kill().await?;
        self.process = launch(self.address, self.folder.path(), self.durable)?;
        self.wait().await
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !answers(self.address).await {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("Redis ended at once: {status}").into());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!("Redis did not answer within {} s", PATIENCE.as_secs()).into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

fn launch(address: SocketAddr, folder: &Path, durable: bool) -> Result<Child, Error> {
    let mut why = String::new();
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--daemonize", "no"]);
        // The peers' documentation asks for this: an evicted key would be a forgotten response.
        command.arg("--dir").arg(folder).args(["--maxmemory-policy", "noeviction"]);
        if durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) => why = format!("{why}{program}: {error}; "),
        }
    }
    Err(format!("{why}install Valkey or Redis 7 (Debian: `apt-get install redis-server`)").into())
}

async fn answers(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    matches!(tokio::time::timeout(PATIENCE, ask).await, Ok(Some(answer)) if &answer == b"+PONG")
}
