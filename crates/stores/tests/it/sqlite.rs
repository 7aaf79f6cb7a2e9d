//! The SQLite store conforms.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Store;
use semel_stores::SqliteStore;
use semel_testkit::conformance::{Capabilities, Subject};
use tempfile::TempDir;

struct Sqlite {
    store: Arc<SqliteStore>,
    folder: TempDir,
}

fn sqlite() -> Sqlite {
    let folder = TempDir::new().expect("there is room for a test");
    let store = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
    Sqlite { store: Arc::new(store), folder }
}

#[async_trait::async_trait]
impl Subject for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.store.shift_clock(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, loses_answers: true, references: true }
    }

    fn lose_next_answer(&self) {
        self.store.lose_next_commit_answer();
    }

    async fn open_again(&self) -> Arc<dyn Store> {
        Arc::new(
            SqliteStore::open(self.folder.path().join("semel.db")).expect("the file can be opened again"),
        )
    }
}

semel_testkit::conformance_tests!(sqlite());
