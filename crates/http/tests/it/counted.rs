//! Metrics of one test: everything that its thread records.

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Metrics that a test's thread records.
pub(crate) struct Counted {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Counted {
    pub(crate) fn new() -> Counted {
        let recorder = PrometheusBuilder::new().build_recorder();
        Counted { handle: recorder.handle(), recorder }
    }

    /// Records until the guard is dropped.
    pub(crate) fn begin(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.recorder)
    }

    /// Returns the value of this series, such as `name{label="value"}`.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let text = self.handle.render();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().expect("a value is a number"))
    }

    /// Returns the series with their values whose names begin like this.
    pub(crate) fn series(&self, name: &str) -> Vec<String> {
        let text = self.handle.render();
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }
}
