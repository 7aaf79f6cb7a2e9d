//! Logs and metrics of a process, set up once at its start.

mod metrics;

use std::sync::{Arc, OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use semel_operations::admin::log_level::LogLevel;
use semel_settings::{LogFormat, StoreLocation};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use self::metrics::without_series;
pub use self::metrics::{METRICS, MetricGroup, MetricInfo, MetricKind};

/// Bucket bounds of the histograms in seconds: from a replay out of memory to a slow upstream.
const BOUNDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Directives of the log without `RUST_LOG`.
const USUAL: &str = "info";

/// Filter of this process's log, once [`log`] has set it up.
static LEVEL: OnceLock<Arc<LogLevel>> = OnceLock::new();

/// Logs events to the standard error, one line each. `RUST_LOG` selects them; `info` by default.
pub fn log(format: LogFormat) {
    let usual = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_else(|_| USUAL.to_owned());
    let usual = if EnvFilter::try_new(&usual).is_ok() { usual } else { USUAL.to_owned() };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&usual))
        .with_writer(std::io::stderr)
        .with_ansi(crate::terminal::colours(&std::io::stderr()));
    // A second call, in a test, changes nothing.
    let level = match format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let level = level(usual, builder.reload_handle());
            builder.finish().try_init().map(|()| level)
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_span_list(false).with_filter_reloading();
            let level = level(usual, builder.reload_handle());
            builder.finish().try_init().map(|()| level)
        }
    };
    if let Ok(level) = level {
        let _ = LEVEL.set(level);
    }
}

/// Returns the filter of this process's log; `None` if the log is another program's.
pub fn log_level() -> Option<Arc<LogLevel>> {
    LEVEL.get().cloned()
}

/// Makes the filter of a log that can be reloaded.
fn level<S: 'static>(usual: String, handle: Handle<EnvFilter, S>) -> Arc<LogLevel> {
    let apply = move |directives: &str| {
        let filter = EnvFilter::try_new(directives).map_err(|error| format!("`filter`: {error}."))?;
        handle.reload(filter).map_err(|error| format!("The filter cannot be changed: {error}."))
    };
    LogLevel::new(usual, Box::new(apply))
}

/// Installs the metrics recorder, with the help text of every metric.
pub fn metrics() -> anyhow::Result<PrometheusHandle> {
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BOUNDS)?;
    let handle = builder.install_recorder()?;
    metrics::describe();
    Ok(handle)
}

/// Registers the version of the program with the kind of its store, and the gateway's own counters with 0.
pub(crate) fn begin(operations: &[String], store: &StoreLocation) {
    let store = match store {
        StoreLocation::Memory => "memory",
        StoreLocation::Sqlite(_) => "sqlite",
        StoreLocation::Postgres(_) => "postgres",
    };
    ::metrics::gauge!("semel_build_info", "version" => env!("CARGO_PKG_VERSION"), "store" => store).set(1.0);
    metrics::begin(operations);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panics with it").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("nobody panics with it").clone()).expect("it is text")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_filter_of_the_log_changes_while_it_runs_and_goes_back() {
        let (lines, usual) = (Lines::default(), USUAL.to_owned());
        let writer = lines.clone();
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&usual))
            .with_writer(move || writer.clone())
            .with_filter_reloading();
        let level = level(usual, builder.reload_handle());
        let _here = tracing::subscriber::set_default(builder.finish());
        let say = |text: &str| {
            tracing::debug!(text);
            tracing::debug!(target: "h2::codec", text);
        };
        say("before");
        level.set("debug", Duration::from_secs(60)).expect("it is a filter");
        say("meanwhile");
        tokio::time::sleep(Duration::from_secs(61)).await;
        say("after");
        let text = lines.text();
        assert!(text.contains("meanwhile") && !text.contains("h2::codec"), "{text}");
        assert!(!text.contains("before") && !text.contains("after"), "{text}");
        assert!(text.contains("log_level_reset"), "{text}");
    }
}
