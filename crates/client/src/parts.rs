//! Settings of a client: made by its builder, read by the client.

use std::sync::Arc;

use crate::clock::{ClientClock, MachineClock};
use crate::hook::AttemptHook;
use crate::journal::IntentJournal;
use crate::options::{ClientOptions, ClientProfile};
use crate::random::{RandomSource, SystemRandom};

/// Settings of a client and its clones.
pub(crate) struct ClientParts {
    pub(crate) profile: ClientProfile,
    pub(crate) options: ClientOptions,
    pub(crate) caller: String,
    pub(crate) journal: Option<Arc<dyn IntentJournal>>,
    pub(crate) hook: AttemptHook,
    pub(crate) clock: Arc<dyn ClientClock>,
    pub(crate) random: Arc<dyn RandomSource>,
}

impl Default for ClientParts {
    fn default() -> ClientParts {
        ClientParts {
            profile: ClientProfile::default(),
            options: ClientOptions::default(),
            caller: String::new(),
            journal: None,
            hook: Arc::new(|_| {}),
            clock: Arc::new(MachineClock::default()),
            random: Arc::new(SystemRandom),
        }
    }
}
