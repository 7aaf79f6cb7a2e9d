//! The client: named origins, settings, a transport, and what clones share. It prepares commands, and ends calls.
//!
//! A key is durable in the journal before anything is sent with it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span, field};

use crate::budget::RetryBudget;
use crate::call::{CallContext, CallEnd, call};
use crate::cancellation::Cancellation;
use crate::command::{ClientCommand, PreparedCommand};
use crate::decide::CallRules;
use crate::error::CallError;
use crate::journal::{IntentJournal, JournalEntry, JournalError};
use crate::key::CommandKey;
use crate::options::{CLOCK_TOLERANCE, milliseconds};
use crate::outcome::CommandOutcome;
use crate::parts::ClientParts;
use crate::transport::Transport;

/// Client that sends commands so that each happens at most once, to the origins that it names.
///
/// To any other origin it adds no key, and makes one attempt. Clones share the retry budget, the journal and the
/// connections. It runs on tokio.
#[derive(Clone)]
pub struct CommandClient {
    core: Arc<ClientCore>,
    transport: Arc<dyn Transport>,
}

/// Settings and shared state of a client and its clones.
pub(crate) struct ClientCore {
    origins: HashSet<String>,
    parts: ClientParts,
    budget: RetryBudget,
}

/// Call that is ready to be made.
struct PreparedCall {
    command: PreparedCommand,
    key: Option<CommandKey>,
    intent: Option<String>,
    is_resumed: bool,
    cancellation: Cancellation,
}

impl CommandClient {
    pub(crate) fn new_over(core: Arc<ClientCore>, transport: Arc<dyn Transport>) -> CommandClient {
        CommandClient { core, transport }
    }

    /// Sends a command until its outcome is known, or the call has to stop.
    ///
    /// If the future is dropped, nothing more is sent; a command with an intent stays in the journal.
    ///
    /// # Errors
    /// The command is known not to have run, or its outcome is known and cannot be shown.
    pub async fn send(&self, command: ClientCommand) -> Result<CommandOutcome, CallError> {
        let (key, intent, cancellation) =
            (command.key.clone(), command.intent.clone(), command.cancellation.clone());
        let command = command.prepared(self.core.parts.options.request_bound).await?;
        let (key, intent) = self.core.begin(&command, key, intent).await?;
        self.make(PreparedCall { command, key, intent, is_resumed: false, cancellation }).await
    }

    /// Goes on with a command of the journal, with its key. The request must be the one that it was begun with; header
    /// fields other than `Content-Type` may differ. The command's own `key` and `intent` are not used.
    ///
    /// # Errors
    /// As [`send`](CommandClient::send), and if the entry is missing, too old, another caller's, or of another request.
    pub async fn resume(&self, intent: &str, command: ClientCommand) -> Result<CommandOutcome, CallError> {
        let cancellation = command.cancellation.clone();
        let command = command.prepared(self.core.parts.options.request_bound).await?;
        let key = Some(self.core.entry_to_resume(intent, &command).await?.key);
        let intent = Some(intent.to_owned());
        self.make(PreparedCall { command, key, intent, is_resumed: true, cancellation }).await
    }

    /// Returns the commands of the journal whose outcome is not known, in the order of their begin.
    ///
    /// # Errors
    /// If there is no journal, or it cannot be read.
    pub async fn pending(&self) -> Result<Vec<JournalEntry>, CallError> {
        self.core.with_journal(|journal| journal.pending()).await
    }

    /// Removes the journal entry of an intent, after a person has found out what became of its command.
    ///
    /// # Errors
    /// If there is no journal, or it cannot be read or written.
    pub async fn forget(&self, intent: &str) -> Result<(), CallError> {
        let intent = intent.to_owned();
        let forgotten = self.core.with_journal(move |journal| {
            let entry = journal.pending()?.into_iter().find(|entry| entry.intent == intent);
            entry.map_or(Ok(()), |entry| journal.clear(&intent, &entry.key))
        });
        forgotten.await
    }

    /// Returns the tokens that are left in the retry budget.
    pub fn tokens(&self) -> u32 {
        self.core.budget.tokens()
    }

    /// Makes a call, and clears the journal entry of a command that is settled.
    async fn make(&self, prepared: PreparedCall) -> Result<CommandOutcome, CallError> {
        let PreparedCall { command, key, intent, is_resumed, cancellation } = prepared;
        let core = &self.core;
        let options = &core.parts.options;
        let context = CallContext {
            rules: CallRules::new(options, core.parts.profile, key.is_some(), command.url.clone()),
            attempt_timeout: options.attempt_timeout.max(Duration::from_millis(1)),
            response_bound: options.response_bound,
            budget: &core.budget,
            budget_return: options.budget_return,
            clock: &*core.parts.clock,
            random: &*core.parts.random,
            transport: &self.transport,
            hook: &core.parts.hook,
            cancellation,
        };
        let span = tracing::info_span!(
            "semel.command",
            method = %command.method,
            origin = command.origin,
            outcome = field::Empty,
            attempts = field::Empty,
        );
        let end = call(&context, &command, key.clone(), is_resumed).instrument(span.clone()).await;
        if let Some((intent, key)) = intent.zip(key).filter(|_| end.settles()) {
            core.clear_settled(intent, key).await;
        }
        told(&span, end)
    }
}

impl ClientCore {
    /// Makes the shared state, with a full retry budget.
    pub(crate) fn new(origins: HashSet<String>, parts: ClientParts) -> ClientCore {
        let budget = RetryBudget::new(parts.options.budget_tokens);
        ClientCore { origins, parts, budget }
    }

    fn is_named(&self, command: &PreparedCommand) -> bool {
        self.origins.contains(&command.origin) && !command.is_safe()
    }

    /// Checks a new command, draws its key, and writes its journal entry.
    async fn begin(
        &self,
        command: &PreparedCommand,
        key: Option<CommandKey>,
        intent: Option<String>,
    ) -> Result<(Option<CommandKey>, Option<String>), CallError> {
        if !self.is_named(command) {
            let is_plain = key.is_none() && intent.is_none();
            return if is_plain { Ok((None, None)) } else { Err(CallError::UnnamedOrigin) };
        }
        command.check_fields()?;
        let wall = self.parts.clock.wall();
        let key = key.unwrap_or_else(|| CommandKey::drawn(wall, self.parts.random.key_bits()));
        self.check_key(&key)?;
        if let Some(intent) = intent.clone() {
            let entry = JournalEntry {
                intent,
                key: key.clone(),
                digest: command.digest(),
                origin: command.origin.clone(),
                caller: self.parts.caller.clone(),
                at: wall,
            };
            self.with_journal(move |journal| journal.begin(&entry)).await?;
        }
        Ok((Some(key), intent))
    }

    /// Returns the entry of an intent if this caller may send it now, with this request.
    async fn entry_to_resume(
        &self,
        intent: &str,
        command: &PreparedCommand,
    ) -> Result<JournalEntry, CallError> {
        if !self.is_named(command) {
            return Err(CallError::UnnamedOrigin);
        }
        command.check_fields()?;
        let pending = self.with_journal(|journal| journal.pending()).await?;
        let entry = pending.into_iter().find(|entry| entry.intent == intent).ok_or(CallError::NoSuchEntry)?;
        if entry.caller != self.parts.caller {
            return Err(CallError::OtherCaller);
        }
        let now = self.parts.clock.wall();
        let is_old = now.saturating_sub(entry.at) >= milliseconds(self.parts.options.max_age);
        let is_future = entry.at.saturating_sub(now) > milliseconds(CLOCK_TOLERANCE);
        if is_old || is_future {
            return Err(CallError::EntryExpired);
        }
        if entry.digest != command.digest() {
            return Err(CallError::RequestChanged);
        }
        self.check_key(&entry.key)?;
        Ok(entry)
    }

    fn check_key(&self, key: &CommandKey) -> Result<(), CallError> {
        key.fault(self.parts.profile).map_or(Ok(()), |fault| Err(CallError::BadKey(fault)))
    }

    /// Clears an entry. A failure loses nothing: the entry stays, and a resumed command is answered again.
    async fn clear_settled(&self, intent: String, key: CommandKey) {
        if let Err(error) = self.with_journal(move |journal| journal.clear(&intent, &key)).await {
            tracing::warn!(%error, "the journal entry of a settled command could not be cleared");
        }
    }

    /// Calls the journal on a thread that may block.
    async fn with_journal<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn IntentJournal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, CallError> {
        let Some(journal) = self.parts.journal.clone() else {
            return Err(CallError::JournalUnavailable("this client has no journal".into()));
        };
        match tokio::task::spawn_blocking(move || work(&*journal)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(JournalError::IntentPending)) => Err(CallError::IntentPending),
            Ok(Err(JournalError::Unavailable(cause))) => Err(CallError::JournalUnavailable(cause)),
            Err(_) => Err(CallError::JournalUnavailable("the journal panicked".into())),
        }
    }
}

/// Notes the end of a call in its span.
fn told(span: &Span, end: CallEnd) -> Result<CommandOutcome, CallError> {
    span.record("attempts", end.attempts());
    let outcome = end.outcome();
    span.record("outcome", outcome.as_ref().map_or_else(CallError::kind, CommandOutcome::kind));
    outcome
}

impl fmt::Debug for CommandClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = self.core.parts.profile;
        let origins = &self.core.origins;
        f.debug_struct("CommandClient")
            .field("origins", origins)
            .field("profile", &profile)
            .finish_non_exhaustive()
    }
}
