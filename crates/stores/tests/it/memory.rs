//! The memory store conforms.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use semel_core::{Holds, Records};
use semel_stores::MemoryStore;
use semel_testkit::ManualClock;
use semel_testkit::conformance::{self, Capabilities, Subject};

struct Memory {
    store: Arc<MemoryStore>,
    clock: ManualClock,
}

fn memory() -> Memory {
    let clock = ManualClock::new();
    Memory { store: Arc::new(MemoryStore::with_clock(clock.clone())), clock }
}

#[async_trait::async_trait]
impl Subject for Memory {
    fn store(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: false, loses_answers: false, references: true }
    }
}

semel_testkit::conformance_tests!(memory());

#[tokio::test]
async fn a_reference_that_cannot_be_taken_back_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    conformance::run("a_reference_that_another_command_holds_is_not_taken_back_silently", &memory()).await;
    let counted = page.render();
    let is_counted = |line: &str| {
        line.strip_prefix("idempotency_reference_conflicts_total ").is_some_and(|count| count != "0")
    };
    assert!(counted.lines().any(is_counted), "{counted}");
}
