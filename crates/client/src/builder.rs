//! Builder of a client. All settings have defaults; the mistakes in them are reported by `build`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::client::{ClientCore, CommandClient};
use crate::clock::ClientClock;
use crate::hook::AttemptEvent;
use crate::journal::IntentJournal;
#[cfg(feature = "tower")]
use crate::layer::CommandLayer;
use crate::options::{ClientOptions, ClientProfile};
use crate::origin::parse_origin;
use crate::parts::ClientParts;
use crate::random::RandomSource;
#[cfg(feature = "reqwest")]
use crate::reqwest_transport::ReqwestTransport;
use crate::transport::Transport;

/// Settings of a client before it is made.
#[must_use = "a builder makes nothing until `build` is called"]
pub struct CommandClientBuilder {
    origins: Vec<String>,
    parts: ClientParts,
    #[cfg(feature = "reqwest")]
    http: Option<reqwest::ClientBuilder>,
}

impl CommandClient {
    /// Makes a client of the profile `Semel` with default settings, for these origins, such as `https://pay.example`.
    ///
    /// # Errors
    /// If an origin cannot be read, or the certificates of the system cannot be loaded.
    #[cfg(feature = "reqwest")]
    pub fn new(
        origins: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<CommandClient, InvalidClientError> {
        CommandClient::builder(origins).build()
    }

    /// Begins the settings of a client for these origins, such as `https://pay.example`.
    pub fn builder(origins: impl IntoIterator<Item = impl Into<String>>) -> CommandClientBuilder {
        CommandClientBuilder {
            origins: origins.into_iter().map(Into::into).collect(),
            parts: ClientParts::default(),
            #[cfg(feature = "reqwest")]
            http: None,
        }
    }
}

impl CommandClientBuilder {
    /// Sets the dialect of the servers.
    pub fn profile(mut self, profile: ClientProfile) -> CommandClientBuilder {
        self.parts.profile = profile;
        self
    }

    /// Sets the limits.
    pub fn options(mut self, options: ClientOptions) -> CommandClientBuilder {
        self.parts.options = options;
        self
    }

    /// Sets the journal, which commands with an intent need.
    pub fn journal(self, journal: impl IntentJournal) -> CommandClientBuilder {
        self.shared_journal(Arc::new(journal))
    }

    /// Sets a journal that other clients use as well.
    pub fn shared_journal(mut self, journal: Arc<dyn IntentJournal>) -> CommandClientBuilder {
        self.parts.journal = Some(journal);
        self
    }

    /// Sets the client's name for itself in the journal. It resumes entries of this name only.
    pub fn caller(mut self, caller: impl Into<String>) -> CommandClientBuilder {
        self.parts.caller = caller.into();
        self
    }

    /// Sets a function that is called before each attempt. It must not block.
    pub fn on_attempt(
        mut self,
        hook: impl Fn(&AttemptEvent) + Send + Sync + 'static,
    ) -> CommandClientBuilder {
        self.parts.hook = Arc::new(hook);
        self
    }

    /// Sets the source of time, for tests.
    pub fn clock(mut self, clock: impl ClientClock) -> CommandClientBuilder {
        self.parts.clock = Arc::new(clock);
        self
    }

    /// Sets the source of random numbers, for tests.
    pub fn random(mut self, random: impl RandomSource) -> CommandClientBuilder {
        self.parts.random = Arc::new(random);
        self
    }

    /// Sets certificates, credentials and proxies. The client turns redirects, retries and decompression off, and sets
    /// the time for a connection.
    #[cfg(feature = "reqwest")]
    pub fn http(mut self, http: reqwest::ClientBuilder) -> CommandClientBuilder {
        self.http = Some(http);
        self
    }

    /// Makes the client, over reqwest.
    ///
    /// # Errors
    /// If a setting is out of its range, or reqwest cannot be set up.
    #[cfg(feature = "reqwest")]
    pub fn build(mut self) -> Result<CommandClient, InvalidClientError> {
        let http = self.http.take().unwrap_or_default();
        // A connection that takes longer than half of the attempt is given up: by then, nothing was sent for sure.
        let connect_timeout = self.parts.options.attempt_timeout / 2;
        let transport = ReqwestTransport::with_connect_timeout(http, connect_timeout);
        let transport = transport.map_err(|error| InvalidClientError::new("http", error.to_string()))?;
        self.build_over(transport)
    }

    /// Makes the client over another transport.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn build_over(self, transport: impl Transport) -> Result<CommandClient, InvalidClientError> {
        Ok(CommandClient::new_over(Arc::new(self.core()?), Arc::new(transport)))
    }

    /// Makes a layer for services that send one request.
    ///
    /// # Errors
    /// If a setting is out of its range.
    #[cfg(feature = "tower")]
    pub fn layer(self) -> Result<CommandLayer, InvalidClientError> {
        Ok(CommandLayer::new(Arc::new(self.core()?)))
    }

    fn core(self) -> Result<ClientCore, InvalidClientError> {
        if let Some((option, reason)) = self.parts.options.fault() {
            return Err(InvalidClientError::new(option, reason.into()));
        }
        let parsed = self.origins.iter().map(|text| parse_origin(text)).collect::<Option<HashSet<_>>>();
        let origins = parsed.ok_or_else(|| {
            InvalidClientError::new("origins", "each must look like `https://pay.example`".into())
        })?;
        Ok(ClientCore::new(origins, self.parts))
    }
}

impl fmt::Debug for CommandClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandClientBuilder").field("origins", &self.origins).finish_non_exhaustive()
    }
}

/// Setting of a client that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct InvalidClientError {
    setting: &'static str,
    reason: String,
}

impl InvalidClientError {
    fn new(setting: &'static str, reason: String) -> InvalidClientError {
        InvalidClientError { setting, reason }
    }

    /// Returns the name of the setting.
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}
