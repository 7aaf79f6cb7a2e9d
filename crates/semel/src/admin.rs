//! The admin API and the console of the gateway, mounted in a service under a path of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use semel_flow::reconcile::Reconciler;
use semel_operations::admin::history::MetricsHistory;
use semel_operations::admin::{Admin, AdminGate, GivenToken, MetricsPage};
use semel_operations::busy_layer::BusyLayer;
use semel_settings::{Authorization, Config, OperationConfig, Route};
use semel_stores::Breaker;

pub use semel_settings::Role;

use crate::Semel;

/// Builds the router of a service's own admin API and console. Every request needs one of its tokens.
///
/// Nest it outside of the layer, which would take its actions for commands:
///
/// ```no_run
/// # #[cfg(feature = "sqlite")] mod example {
/// use axum::{Router, routing::post};
/// use semel::Semel;
/// use semel::admin::{AdminRouter, Role};
///
/// # fn example(semel: Semel, secret: String) -> Result<(), Box<dyn std::error::Error>> {
/// let ops = AdminRouter::new(&semel).token("otto", Role::Operator, secret).build()?;
/// let app = Router::new()
///     .route("/payments", post(|| async { "charged once" }))
///     .layer(semel.layer())
///     .nest("/ops", ops); // the console is at /ops/console/
/// # Ok(())
/// # }
/// # }
/// ```
pub struct AdminRouter {
    semel: Semel,
    tokens: Vec<GivenToken>,
    metrics: Option<MetricsPage>,
    reconciler: Option<Arc<Reconciler>>,
}

/// Reason why a router cannot be built: there is no token, or one cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct AdminRouterError(anyhow::Error);

impl AdminRouter {
    /// Begins a router for the commands of this service.
    pub fn new(semel: &Semel) -> AdminRouter {
        AdminRouter { semel: semel.clone(), tokens: Vec::new(), metrics: None, reconciler: None }
    }

    /// Adds a token of 32 to 1024 printable characters of ASCII. Logs and notes show its holder as `token:NAME`.
    #[must_use]
    pub fn token(mut self, name: impl Into<String>, role: Role, secret: impl Into<String>) -> AdminRouter {
        self.tokens.push(GivenToken { name: name.into(), role, secret: secret.into() });
        self
    }

    /// Adds the page of this process's metrics, in the text format of Prometheus, for `/metrics` and the charts of the console.
    #[must_use]
    pub fn metrics(mut self, page: impl Fn() -> String + Send + Sync + 'static) -> AdminRouter {
        self.metrics = Some(Arc::new(page));
        self
    }

    /// Adds the reconciler that looks for evidence when an operator asks for it.
    #[must_use]
    pub fn reconciler(mut self, reconciler: Arc<Reconciler>) -> AdminRouter {
        self.reconciler = Some(reconciler);
        self
    }

    /// Returns the router. With a page of metrics, it samples the page from now on, so call it inside a runtime.
    ///
    /// # Errors
    /// If there is no token, or one is too short, is not printable, or is given twice.
    pub fn build(self) -> Result<axum::Router, AdminRouterError> {
        let AdminRouter { semel, tokens, metrics, reconciler } = self;
        let (layer, store, config) = (semel.layer(), semel.store(), config(&semel));
        let gate = AdminGate::with_tokens(&config, &tokens).map_err(AdminRouterError)?;
        let history = MetricsHistory::new();
        if let Some(page) = &metrics {
            tokio::spawn(history.clone().run(page.clone()));
        }
        Ok(semel_operations::admin::router(Admin {
            store: Arc::new(Breaker::new(store.clone())),
            outbox: store.clone().outbox(),
            audit: store.clone(),
            holds: store,
            busy: Arc::new(BusyLayer(layer.busy())),
            reconciler,
            closing: Arc::new(AtomicBool::new(false)),
            metrics: metrics.unwrap_or_else(|| Arc::new(String::new)),
            log: None,
            gate,
            config,
            settings: Vec::new(),
            history,
            ledger: None,
        }))
    }
}

/// Returns the settings of the layer's operations, as a gateway would have them.
fn config(semel: &Semel) -> Config {
    let layer = semel.layer();
    let operation = |operation: &semel_http::LayerOperation| OperationConfig {
        name: operation.name.clone(),
        route: Route { method: operation.method.clone(), path: operation.path.clone() },
        policy: operation.policy.clone(),
        authorization: Authorization::default(),
        business_reference: operation.business_reference.clone(),
        exclude: Vec::new(),
        aliases: operation.former.clone(),
        allow: Vec::new(),
        anonymous: false,
        reconcile: None,
    };
    Config {
        defaults: layer.default_policy().clone(),
        operations: layer.operations().iter().map(operation).collect(),
        ..Config::default()
    }
}
