//! Traces of the gateway: the exporter of the configuration, and the task that sends its spans.

use std::sync::Arc;

use anyhow::Context;
use http::HeaderValue;
use semel_core::{RandomIds, Tracer};
use semel_gateway::secret;
use semel_gateway::service::tls_settings;
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

fn exporter(settings: &TraceSettings) -> anyhow::Result<Tracing> {
    let sampler = Sampler::new(settings.sample_millionths);
    let authorization =
        match &settings.authorization_env {
            None => None,
            Some(name) => {
                let value = HeaderValue::from_str(&secret::of_variable(name)?);
                Some(value.with_context(|| {
                    format!("the variable {} cannot be the value of a header", name.as_str())
                })?)
            }
        };
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
