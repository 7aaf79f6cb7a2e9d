//! The memory store conforms.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Records;
use semel_stores::MemoryStore;
use semel_testkit::ManualClock;
use semel_testkit::conformance::{Capabilities, Subject};

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

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: false, loses_answers: false, references: true }
    }
}

semel_testkit::conformance_tests!(memory());
