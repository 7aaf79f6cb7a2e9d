//! Semel in a service: the layer, its store, and the work in the background. Made once, in `main`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{Backend, StoreError};
use semel_http::{
    Builder, HoldBoard, IdempotencyLayer, Maintained, Maintenance, Shutdown, StoreWitness, WitnessError,
    Worker, WorkerOptions,
};

/// Time for which running commands are waited for when [`Semel::serve`] is told to stop.
#[cfg(feature = "axum")]
const DRAIN: Duration = Duration::from_secs(30);

/// Time within which a second signal counts as the first.
#[cfg(feature = "axum")]
const REPEATED_SIGNAL: Duration = Duration::from_secs(5);

/// Time for which connections may stay open after their commands have ended.
#[cfg(feature = "axum")]
const CLOSE: Duration = Duration::from_secs(5);

/// Makes the commands of a service safe to retry: the [layer](Semel::layer) around its routes, the store, and the work in the
/// background. Clones share their state.
///
/// ```no_run
/// # #[cfg(all(feature = "axum", feature = "sqlite"))] mod example {
/// use axum::{Router, routing::post};
/// use semel::{Principal, Semel};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let semel = Semel::builder(semel::open("sqlite:semel.db").await?)
///     .identify(|head| {
///         let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
///         Ok(Principal::new("acme", user.unwrap_or_default())?)
///     })
///     .build()?;
/// let app = Router::new().route("/payments", post(|| async { "charged once" })).layer(semel.layer());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// semel.serve(listener, app).await?;
/// # Ok(())
/// # }
/// # }
/// ```
#[derive(Clone)]
pub struct Semel {
    layer: IdempotencyLayer,
    store: Arc<dyn Backend>,
    maintenance: Maintenance,
    holds: Arc<HoldBoard>,
    witness: Option<PathBuf>,
}

impl Semel {
    /// Returns a builder on this store, which [`open`](crate::open) opens. Building starts nothing.
    pub fn builder(store: Arc<dyn Backend>) -> Builder<Semel> {
        let holds = HoldBoard::new(store.clone());
        let (kept, board) = (store.clone(), holds.clone());
        let finish = |layer: IdempotencyLayer| Semel {
            layer,
            store: kept,
            maintenance: Maintenance::default(),
            holds: board,
            witness: None,
        };
        Builder::new(store.clone(), finish).evidence(store.clone()).usage(store).holds(holds)
    }

    /// Changes the intervals of the work in the background.
    #[must_use]
    pub fn with_maintenance(mut self, change: impl FnOnce(&mut Maintenance)) -> Semel {
        change(&mut self.maintenance);
        self
    }

    /// Sets the file that remembers how far the store had come: a store that was restored from a backup is noticed by it at the
    /// next start, and fenced. Without it, only a running process notices. Put it where a restore does not restore it, too.
    #[must_use]
    pub fn with_witness(mut self, file: impl Into<PathBuf>) -> Semel {
        self.witness = Some(file.into());
        self
    }

    /// Returns the layer for the service's routes. Put it outside of every layer that has an effect.
    pub fn layer(&self) -> IdempotencyLayer {
        self.layer.clone()
    }

    /// Returns the store.
    pub fn store(&self) -> Arc<dyn Backend> {
        self.store.clone()
    }

    /// Returns the holds of the store, for workers and reconcilers that obey them.
    pub fn holds(&self) -> Arc<HoldBoard> {
        self.holds.clone()
    }

    /// Starts the work in the background: expired leases are swept, expired records deleted, holds read, the store compared with
    /// its witness. It stops when the result is dropped. For a service that does not call [`serve`](Semel::serve), before it serves.
    ///
    /// # Errors
    /// If the store cannot be compared with its [witness](Semel::with_witness).
    pub async fn start(&self) -> Result<Background, WitnessError> {
        let witness =
            StoreWitness::start(self.store.clone(), self.holds.clone(), self.witness.as_deref()).await?;
        let maintenance =
            self.layer.maintain(self.maintenance.clone(), self.store.clone(), self.store.clone().outbox());
        let holds = self.holds.clone();
        Ok(Background(tokio::spawn(async move {
            tokio::join!(maintenance, holds.run(), witness.run());
        })))
    }

    /// Does the work in the background once, for tests with a clock of their own.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn upkeep_once(&self) -> Result<Maintained, StoreError> {
        self.layer.maintain_once(&self.maintenance, &*self.store).await
    }

    /// Returns a worker that executes asynchronous commands with `app`, the service that the layer is put around. Run it in a
    /// task of its own.
    pub fn worker<S>(&self, app: S) -> Worker<S> {
        self.layer.worker(app, WorkerOptions::default())
    }

    /// Returns transactions on the connections of this pool, for `transact`, sealed as the store is.
    ///
    /// # Errors
    /// If the pool leads to another database than the one that has the records, or one of them cannot be asked.
    #[cfg(all(feature = "flow", feature = "postgres"))]
    pub async fn transactions(
        &self,
        pool: semel_flow::sqlx::PgPool,
    ) -> Result<semel_flow::PostgresTransactions, TransactionsError> {
        let transactions = semel_flow::PostgresTransactions::new(pool);
        let found =
            transactions.store_id().await.map_err(|error| TransactionsError::NoStore(error.to_string()))?;
        self.compare(found).await?;
        Ok(match self.store.vault() {
            Some(vault) => transactions.vault(vault),
            None => transactions,
        })
    }

    /// Returns transactions on this SQLite file, for `transact`, sealed as the store is.
    ///
    /// # Errors
    /// If the file is another one than that of the records, or cannot be used.
    #[cfg(all(feature = "flow", feature = "sqlite"))]
    pub async fn file_transactions(
        &self,
        path: impl AsRef<std::path::Path>,
    ) -> Result<semel_flow::SqliteTransactions, TransactionsError> {
        let no_store = |error: String| TransactionsError::NoStore(error);
        let opened =
            semel_flow::SqliteTransactions::open(path).map_err(|error| no_store(error.to_string()))?;
        let found = opened.store_id().await.map_err(|error| no_store(error.to_string()))?;
        self.compare(found).await?;
        Ok(match self.store.vault() {
            Some(vault) => opened.vault(vault),
            None => opened,
        })
    }

    #[cfg(all(feature = "flow", any(feature = "postgres", feature = "sqlite")))]
    async fn compare(&self, found: semel_core::StoreId) -> Result<(), TransactionsError> {
        match self.store.store_id().await? {
            Some(expected) if expected == found => Ok(()),
            expected => Err(TransactionsError::OtherStore { found, expected }),
        }
    }

    /// Waits for `signal`, then shuts down in good order while the server still serves: claims no more commands, waits for
    /// running ones, and turns those that still run after `limit` into `Unknown`.
    pub async fn drain_on(&self, signal: impl Future, limit: Duration) -> Shutdown {
        signal.await;
        self.layer.shutdown(limit).await
    }

    /// Serves `app` with the work in the background, until Ctrl-C or SIGTERM. Running commands then have 30 seconds to end, or
    /// until a second signal, unless it follows the first within 5 seconds.
    ///
    /// # Errors
    /// If the listener fails, or the store cannot be compared with its witness.
    #[cfg(feature = "axum")]
    pub async fn serve(&self, listener: tokio::net::TcpListener, app: axum::Router) -> std::io::Result<()> {
        // Supervisors and terminals often send a signal twice.
        let again = async {
            tokio::time::sleep(REPEATED_SIGNAL).await;
            terminated().await;
        };
        self.serve_with(listener, app, terminated(), async {
            tokio::select! {
                () = tokio::time::sleep(DRAIN) => {}
                () = again => {}
            }
        })
        .await
    }

    /// Serves `app` with the work in the background, until `signal` is ready. Running commands then have `limit` to end.
    ///
    /// # Errors
    /// If the listener fails, or the store cannot be compared with its witness.
    #[cfg(feature = "axum")]
    pub async fn serve_until(
        &self,
        listener: tokio::net::TcpListener,
        app: axum::Router,
        signal: impl Future,
        limit: Duration,
    ) -> std::io::Result<()> {
        self.serve_with(listener, app, signal, tokio::time::sleep(limit)).await
    }

    #[cfg(feature = "axum")]
    async fn serve_with(
        &self,
        listener: tokio::net::TcpListener,
        app: axum::Router,
        signal: impl Future,
        limit: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let _background = self.start().await.map_err(std::io::Error::other)?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = axum::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
        let mut serving = std::pin::pin!(serving.into_future());
        let draining = async {
            signal.await;
            self.layer.shutdown_until(limit).await
        };
        let ended = tokio::select! {
            served = &mut serving => return served,
            ended = draining => ended,
        };
        if !ended.drained {
            tracing::warn!(
                abandoned = ended.abandoned,
                "commands still ran at the end of the drain: they are unknown"
            );
        }
        drop(stop);
        // A client that keeps its connection open does not keep the process.
        tokio::time::timeout(CLOSE, serving).await.unwrap_or(Ok(()))
    }
}

/// Waits for Ctrl-C or SIGTERM.
#[cfg(feature = "axum")]
async fn terminated() {
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "Ctrl-C cannot be waited for");
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let ended = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(error) => {
                tracing::error!(%error, "SIGTERM cannot be waited for");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let ended = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = ended => {}
    }
}

/// The work in the background. It stops when this is dropped.
#[must_use = "the work in the background stops when this is dropped"]
#[derive(Debug)]
pub struct Background(tokio::task::JoinHandle<()>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reason why transactions cannot be used with this store.
#[cfg(all(feature = "flow", any(feature = "postgres", feature = "sqlite")))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionsError {
    /// The database has no records of Semel, or cannot be asked.
    #[error("the database of the transactions cannot be used: {0}")]
    NoStore(String),
    /// The database has the records of another store.
    #[error(
        "the transactions are on another database than the records: it has the store {found}, and the layer has {}. Open \
         both with the same address",
        .expected.map_or_else(|| "one in memory".to_owned(), |id| id.to_string())
    )]
    OtherStore {
        /// The store in the database of the transactions.
        found: semel_core::StoreId,
        /// The store of the layer; `None` if it is in memory.
        expected: Option<semel_core::StoreId>,
    },
    /// The store of the layer cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}
