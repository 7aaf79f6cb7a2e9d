//! Traces of the gateway: the exporter of the configuration, and the task that sends its spans.

use std::sync::Arc;

use anyhow::Context;
use http::HeaderValue;
use semel_core::{RandomIds, Tracer};
use semel_gateway::secret;
use semel_gateway::service::tls_settings;
use semel_outgoing::Client;
use semel_settings::TraceSettings;
use semel_traces::{Sampler, SpanSender, TraceExporter, TraceExporterOptions};

/// Exporter of traces, with its sampling decision for requests of untrusted peers.
pub(crate) struct Tracing {
    pub(crate) tracer: Arc<dyn Tracer>,
    pub(crate) sampler: Sampler,
    pub(crate) sender: SpanSender,
}

/// Makes the exporter of these settings.
pub(crate) async fn tracing(settings: &TraceSettings) -> anyhow::Result<Tracing> {
    let settings = settings.clone();
    // Files for TLS are read.
    tokio::task::spawn_blocking(move || exporter(&settings)).await?.context("`[traces]`")
}

/// Client of the collector, for `semel doctor`.
pub(crate) struct TraceCollector {
    pub(crate) client: Client,
    pub(crate) authorization: Option<HeaderValue>,
}

/// Makes a client of the collector of these settings, as the exporter does.
pub(crate) async fn collector(settings: &TraceSettings) -> anyhow::Result<TraceCollector> {
    let settings = settings.clone();
    // Files for TLS are read.
    let made = tokio::task::spawn_blocking(move || {
        let address = settings.endpoint.address().context("`endpoint`")?;
        let client = Client::new(address, tls_settings(&settings.tls))?;
        client.check()?;
        anyhow::Ok(TraceCollector { client, authorization: authorization(&settings)? })
    });
    made.await?.context("`[traces]`")
}

/// Returns the value of `Authorization` for the collector.
fn authorization(settings: &TraceSettings) -> anyhow::Result<Option<HeaderValue>> {
    let Some(name) = &settings.authorization_env else { return Ok(None) };
    let value = HeaderValue::from_str(&secret::of_variable(name)?);
    let mut value =
        value.with_context(|| format!("the variable {} cannot be the value of a header", name.as_str()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn exporter(settings: &TraceSettings) -> anyhow::Result<Tracing> {
    let sampler = Sampler::new(settings.sample_millionths);
    let authorization = authorization(settings)?;
    let options = TraceExporterOptions {
        service_name: settings.service_name.clone(),
        sampler,
        authorization,
        tls: tls_settings(&settings.tls),
        ..TraceExporterOptions::default()
    };
    let address = settings.endpoint.address().context("`endpoint`")?;
    let (exporter, sender) = TraceExporter::new(address, Arc::new(RandomIds), options)?;
    Ok(Tracing { tracer: Arc::new(exporter), sampler, sender })
}
