//! Logs and metrics of a process, set up once at its start.

mod metrics;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use semel_settings::LogFormat;
use tracing_subscriber::EnvFilter;

pub use self::metrics::{METRICS, MetricGroup, MetricInfo, MetricKind};

/// Bucket bounds of the histograms in seconds: from a replay out of memory to a slow upstream.
const BOUNDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Logs events to the standard error, one line each. `RUST_LOG` selects them; `info` by default.
pub fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(crate::terminal::colours(&std::io::stderr()));
    // A second call, in a test, changes nothing.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
    };
}

/// Installs the metrics recorder, with the help text of every metric.
pub fn metrics() -> anyhow::Result<PrometheusHandle> {
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BOUNDS)?;
    let handle = builder.install_recorder()?;
    metrics::describe();
    Ok(handle)
}
