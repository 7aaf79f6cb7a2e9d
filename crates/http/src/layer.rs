//! The layer that a service author puts around a service. `builder.rs` configures it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use semel_core::outbox::Outbox;
use semel_core::{Change, Decision, Policy, Reason, StoreError, Upkeep};
use tower::Layer;

use crate::busy::BusyCallers;
use crate::maintenance::{Maintained, Maintenance};
use crate::operations::LayerOperation;
use crate::service::Idempotency;
use crate::shared::Shared;
use crate::worker::{Worker, WorkerOptions};

/// Makes the commands of a service safe to retry. Clones share their state.
///
/// Put it outside of every layer that has an effect, and inside of no layer that changes the request's path.
///
/// ```
/// use std::sync::Arc;
/// use semel_http::{Denied, IdempotencyLayer, Operation};
/// use semel_stores::MemoryStore;
/// use semel_core::Principal;
///
/// let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
///     .identify(|request| {
///         let user = request.headers.get("x-user").and_then(|value| value.to_str().ok());
///         Principal::new("acme", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
///     })
///     .operation(Operation::new("payments.create", "POST /payments"))
///     .build()?;
/// # Ok::<(), semel_http::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

impl IdempotencyLayer {
    pub(crate) fn new(shared: Shared) -> IdempotencyLayer {
        IdempotencyLayer { shared: Arc::new(shared) }
    }

    /// Returns the names of the operations, as metrics show them.
    pub fn operation_names(&self) -> impl Iterator<Item = &str> {
        self.shared.operations.labels().rules().iter().map(|label| &**label)
    }

    /// Returns the operations, in the order of the builder.
    pub fn operations(&self) -> &[LayerOperation] {
        self.shared.operations.told()
    }

    /// Returns the policy of commands that match no operation.
    pub fn default_policy(&self) -> &Policy {
        self.shared.operations.defaults()
    }

    /// Returns the busiest callers and the most repeated keys of this process.
    pub fn busy(&self) -> Arc<BusyCallers> {
        self.shared.observer.busy.clone()
    }

    /// Returns the maintenance of this layer's store, which runs until it is dropped. It labels metrics with the layer's operations,
    /// lets the layer notice retries of records that it deleted, and records the depth of an outbox, if one is given.
    pub fn maintain(
        &self,
        maintenance: Maintenance,
        store: Arc<dyn Upkeep>,
        outbox: Option<Arc<dyn Outbox>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (labels, reaped) = (self.shared.operations.labels().clone(), self.shared.observer.reaped.clone());
        let busy = self.busy();
        async move {
            tokio::join!(maintenance.run_with(store, labels, reaped, outbox), busy.keep_gauge());
        }
    }

    /// Sweeps and reaps everything that is due, once, as [`maintain`](Self::maintain) does again and again.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn maintain_once(
        &self,
        maintenance: &Maintenance,
        store: &dyn Upkeep,
    ) -> Result<Maintained, StoreError> {
        let (labels, reaped) = (self.shared.operations.labels(), &self.shared.observer.reaped);
        maintenance.once_with(store, labels, reaped).await
    }

    /// Returns a worker that executes asynchronous commands with `inner`, the service that this layer is put around. If no worker
    /// on the same store [runs](Worker::run), the commands wait until `start_within` is over, and are given up.
    ///
    /// The service gets the request as the client sent it, without its trailers, the fields of its connection, and its
    /// credentials (unless the operation keeps them). Its extensions hold an [`Execution`](crate::Execution), which names the
    /// caller, and nothing of the layers in front.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// use axum::{Extension, Router, routing::post};
    /// use semel_core::{Principal, policy::Mode};
    /// use semel_http::{Denied, Execution, IdempotencyLayer, Maintenance, Operation, WorkerOptions};
    ///
    /// async fn make_report(Extension(execution): Extension<Execution>, what: String) -> String {
    ///     format!("{what}, for {}", execution.principal().caller())
    /// }
    ///
    /// # async fn example(store: Arc<dyn semel_core::Upkeep>) -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = IdempotencyLayer::builder(store.clone())
    ///     .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
    ///     .operation(Operation::new("reports.create", "POST /reports").mode(Mode::Async))
    ///     .build()?;
    /// let app = Router::new().route("/reports", post(make_report));
    /// tokio::spawn(layer.worker(app.clone(), WorkerOptions::default()).run());
    /// tokio::spawn(Maintenance::default().run(store));
    /// let app = app.layer(layer.clone());
    /// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// axum::serve(listener, app).await?;
    /// layer.shutdown(Duration::from_secs(30)).await; // of the worker, too
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker<S>(&self, inner: S, options: WorkerOptions) -> Worker<S> {
        Worker::new(self.shared.clone(), inner, options)
    }

    /// Shuts down in good order: claims no more commands, waits for running ones, and turns those that still run after `limit`
    /// into `Unknown`, so that they do not run again unseen. Call it while the server still serves.
    pub async fn shutdown(&self, limit: Duration) -> Shutdown {
        self.shutdown_until(tokio::time::sleep(limit)).await
    }

    /// Shuts down as [`shutdown`](Self::shutdown) does, and waits for running commands until `limit` is ready.
    pub async fn shutdown_until(&self, limit: impl Future<Output = ()>) -> Shutdown {
        let running = &self.shared.running;
        running.close();
        let drained = tokio::select! {
            biased;
            () = running.drained() => true,
            () = limit => false,
        };
        let mut abandoning = tokio::task::JoinSet::new();
        for (id, fence) in running.left() {
            let shared = self.shared.clone();
            abandoning.spawn(async move {
                let change = Change::abandon(fence, Reason::ShutDown);
                let answer = shared.apply(&id, None, &change).await?;
                Ok::<_, StoreError>(answer.decision)
            });
        }
        let mut abandoned = 0;
        while let Some(result) = abandoning.join_next().await {
            match result {
                // Fenced: the command has ended meanwhile.
                Ok(Ok(decision)) => abandoned += usize::from(decision == Decision::Applied),
                Ok(Err(error)) => tracing::warn!(%error, "a command was left to its lease at shutdown"),
                Err(error) => tracing::error!(%error, "a command was left to its lease at shutdown"),
            }
        }
        if let Some(quotas) = &self.shared.quotas {
            quotas.tell().await;
        }
        Shutdown { drained, abandoned }
    }
}

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// True if every running command ended within the limit.
    pub drained: bool,
    /// The number of commands that still ran, and are `Unknown` now.
    pub abandoned: usize,
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, self.shared.clone())
    }
}
