//! Gate that holds the first call until the test releases it.

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Expected,
    Held,
    Released,
}

/// Gate that holds one call.
pub(crate) struct Gate(watch::Sender<Stage>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(watch::Sender::new(Stage::Expected))
    }
}

impl Gate {
    /// Holds a call until the gate is open.
    pub(crate) async fn hold(&self) {
        let mut stage = self.0.subscribe();
        self.0.send_if_modified(|stage| {
            *stage == Stage::Expected && {
                *stage = Stage::Held;
                true
            }
        });
        let _ = stage.wait_for(|stage| *stage == Stage::Released).await;
    }

    /// Waits until a call is held.
    pub(crate) async fn is_held(&self) {
        let _ = self.0.subscribe().wait_for(|stage| *stage != Stage::Expected).await;
    }

    /// Opens the gate for good.
    pub(crate) fn open(&self) {
        self.0.send_replace(Stage::Released);
    }
}
