//! Reconciler of the settings: the providers to ask about operations, and the webhooks that may send events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use http::HeaderValue;
use semel_core::policy::StoreResponse;
use semel_core::{Evidence, OperationName, Record, Records};
use semel_flow::reconcile::{
    Finding, HttpLookUp, LookUp, NoLookUp, Reconciler, ReconcilerOptions, SourceBounds, WebhookSource,
    Webhooks,
};
use semel_gateway::secret;
use semel_gateway::service::tls_settings;
use semel_settings::{Config, LookUpConfig, OperationConfig, WebhookConfig};

use semel_stores::MemoryStore;

/// Returns true if the settings name a provider or a webhook.
pub fn is_wanted(config: &Config) -> bool {
    !config.webhooks.is_empty() || config.operations.iter().any(|operation| operation.reconcile.is_some())
}

/// Checks that everything from outside that the settings name is there, including secrets in the environment.
pub fn look(config: &Config) -> anyhow::Result<()> {
    if is_wanted(config) {
        let nothing = Arc::new(MemoryStore::new());
        webhooks(config, &Arc::new(reconciler(config, nothing.clone(), nothing)?))?;
    }
    Ok(())
}

/// Makes the reconciler that the settings describe.
pub fn reconciler(
    config: &Config,
    store: Arc<dyn Records>,
    evidence: Arc<dyn Evidence>,
) -> anyhow::Result<Reconciler> {
    let mut look_ups = HashMap::new();
    let mut longest = Duration::ZERO;
    for operation in &config.operations {
        let Some(asked) = &operation.reconcile else { continue };
        longest = longest.max(asked.timeout);
        let look_up = look_up(asked)
            .with_context(|| format!("`[operation.reconcile]` of the operation `{}`", operation.name))?;
        let look_up = Arc::new(look_up);
        look_ups.extend(operation.names().map(|name| (name.clone(), look_up.clone())));
    }
    // Each look-up has its own timeout; this one is for a look-up that exceeds it.
    let options = ReconcilerOptions { timeout: longest + Duration::from_secs(1), ..config.reconcile };
    let reconciler = Reconciler::new(store, evidence, Arc::new(LookUps(look_ups)), options);
    for webhook in &config.webhooks {
        reconciler.bind(webhook.name.as_str(), bounds(config, webhook));
    }
    Ok(reconciler)
}

/// Makes the webhooks, if there are any. This reconciler uses their events.
pub fn webhooks(config: &Config, reconciler: &Arc<Reconciler>) -> anyhow::Result<Option<Arc<Webhooks>>> {
    if config.webhooks.is_empty() {
        return Ok(None);
    }
    let mut webhooks = Webhooks::new(reconciler.clone());
    for webhook in &config.webhooks {
        let keys = webhook.secret_env.iter().map(|name| Ok(secret::of_variable(name)?.into_bytes()));
        let keys = keys
            .collect::<anyhow::Result<Vec<_>>>()
            .with_context(|| format!("`secret_env` of the webhook `{}`", webhook.name))?;
        let SourceBounds { operations, tenants, deduplicates } = bounds(config, webhook);
        let source = WebhookSource::new(webhook.name.as_str(), keys, operations, webhook.reading.clone())
            .tenants(tenants)
            .deduplicates(deduplicates)
            .scheme(webhook.scheme.clone())
            .tolerance(webhook.tolerance)
            .keep_unknown(webhook.keep_unknown)
            .keep_bodies(stores_bodies(config, webhook));
        let source = webhook.step.iter().fold(source, |source, step| source.step(step));
        webhooks = webhooks.source(source)?;
    }
    Ok(Some(Arc::new(webhooks)))
}

/// Returns the operations that a webhook may report on.
fn spoken_of<'a>(
    config: &'a Config,
    webhook: &'a WebhookConfig,
) -> impl Iterator<Item = &'a OperationConfig> {
    let named =
        |operation: &&OperationConfig| operation.names().any(|name| webhook.operations.contains(name));
    config.operations.iter().filter(named)
}

/// Returns a webhook's operations under every name of their records, and the tenants that it is bound to.
fn bounds(config: &Config, webhook: &WebhookConfig) -> SourceBounds {
    SourceBounds {
        operations: spoken_of(config, webhook).flat_map(|operation| operation.names().cloned()).collect(),
        tenants: webhook.tenants.clone(),
        deduplicates: webhook.deduplicates,
    }
}

/// Returns true if all of a webhook's operations store whole responses. An event is stored before its command
/// is known.
fn stores_bodies(config: &Config, webhook: &WebhookConfig) -> bool {
    spoken_of(config, webhook).all(|operation| operation.policy.store_response == StoreResponse::Full)
}

fn look_up(asked: &LookUpConfig) -> anyhow::Result<HttpLookUp> {
    let look_up = HttpLookUp::new(asked.url.as_str(), asked.reading.clone())?
        .timeout(asked.timeout)
        .tls(tls_settings(&asked.tls))?;
    let Some(name) = &asked.authorization_env else { return Ok(look_up) };
    let value = HeaderValue::from_str(&secret::of_variable(name)?)
        .with_context(|| format!("the variable {} cannot be the value of a header", name.as_str()))?;
    Ok(look_up.authorization(value))
}

/// Provider of each operation, if it has one.
struct LookUps(HashMap<OperationName, Arc<HttpLookUp>>);

#[async_trait]
impl LookUp for LookUps {
    async fn look_up(&self, record: &Record) -> Finding {
        match self.0.get(&record.operation) {
            Some(look_up) => look_up.look_up(record).await,
            None => NoLookUp.look_up(record).await,
        }
    }

    fn deduplicates(&self, record: &Record) -> bool {
        self.0.get(&record.operation).is_some_and(|look_up| look_up.deduplicates(record))
    }
}
