//! Evidence about commands in state `Unknown`: the results of look-ups, the next step after one
//! ([`after_look`], the only place that decides it), the comparison of evidence with records ([`bearing`]),
//! and the contract of the store of evidence. [`transition`](crate::transition::transition()) decides, by
//! [`Event::Resolve`](crate::Event::Resolve), if evidence settles a command.

use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::change::{Change, Note, NoteTaken};
use crate::ids::OperationId;
use crate::outbox::backoff;
use crate::record::{Record, StoredResult};
use crate::state::{Epoch, Head, State, StateName};
use crate::store_error::StoreError;
use crate::time::Timestamp;
use crate::transition::{About, Proof, ReferenceWrite, Verdict};

/// Result of a look-up of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUpAnswer {
    /// The command was executed; retries get this result. A status of 400 or more is no success, and counts
    /// as no answer.
    Executed(StoredResult),
    /// The command failed for good; retries get this result. A status below 400 is no failure, and counts as
    /// no answer.
    Failed(StoredResult),
    /// The command was not executed.
    NotExecuted(Proof),
    /// The command is still in progress.
    Pending,
    /// The look-up brought no evidence.
    NoAnswer {
        /// Description of what happened.
        why: String,
        /// Backoff that the provider asks for.
        retry_after: Option<Duration>,
    },
}

impl LookUpAnswer {
    /// Returns a result without evidence, for this reason.
    pub fn no_answer(why: impl Into<String>) -> LookUpAnswer {
        LookUpAnswer::NoAnswer { why: why.into(), retry_after: None }
    }

    /// Returns the verdict, if there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            LookUpAnswer::Executed(result) if result.status < 400 => Some(Verdict::Succeeded),
            LookUpAnswer::Failed(result) if result.status >= 400 => Some(Verdict::FailedFinal),
            LookUpAnswer::NotExecuted(proof) => Some(Verdict::NotExecuted(*proof)),
            LookUpAnswer::Executed(_)
            | LookUpAnswer::Failed(_)
            | LookUpAnswer::Pending
            | LookUpAnswer::NoAnswer { .. } => None,
        }
    }

    /// Returns the change that settles the command, if there is a verdict.
    pub fn change(&self) -> Option<Change> {
        self.verdict()?;
        match self {
            LookUpAnswer::Executed(result) | LookUpAnswer::Failed(result) => {
                Some(Change::resolve_executed(result.clone()))
            }
            LookUpAnswer::NotExecuted(proof) => Some(Change::resolve_not_executed(*proof)),
            LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. } => None,
        }
    }
}

impl Verdict {
    /// Returns the result's name in metrics, logs and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Verdict::Succeeded => "executed",
            Verdict::FailedFinal => "failed",
            Verdict::NotExecuted(_) => "not_executed",
        }
    }
}

/// Limits and waits of look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileTerms {
    /// Wait after the first look-up. It doubles with every further one.
    pub first_delay: Duration,
    /// Longest wait, whatever the provider asks for.
    pub max_delay: Duration,
    /// Number of look-ups after which a command is left to an operator.
    pub max_attempts: u32,
}

impl Default for ReconcileTerms {
    /// Returns twenty look-ups in about half a day.
    fn default() -> ReconcileTerms {
        ReconcileTerms {
            first_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(3600),
            max_attempts: 20,
        }
    }
}

impl ReconcileTerms {
    /// Returns the wait after the `attempts`-th look-up. `chance`, drawn anew for every look-up, moves the
    /// wait between half and all of it.
    pub fn wait(&self, attempts: u32, chance: u32) -> Duration {
        backoff(self.first_delay, self.max_delay, attempts, chance)
    }
}

/// The options of a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcilerOptions {
    /// Interval between searches for due commands.
    pub interval: Duration,
    /// Number of commands read at a time.
    pub batch: usize,
    /// Number of concurrent look-ups.
    pub concurrency: usize,
    /// Timeout of one look-up. The next look-up comes after at least twice this time.
    pub timeout: Duration,
    /// Limits and waits of look-ups.
    pub terms: ReconcileTerms,
    /// Retention of received evidence, so that a repeated event is recognised.
    pub retention: Duration,
    /// Interval at which dead letters are counted and old evidence is deleted.
    pub upkeep: Duration,
}

impl Default for ReconcilerOptions {
    fn default() -> ReconcilerOptions {
        ReconcilerOptions {
            interval: Duration::from_secs(10),
            batch: 100,
            concurrency: 8,
            timeout: Duration::from_secs(5),
            terms: ReconcileTerms::default(),
            retention: Duration::from_secs(30 * 24 * 3600),
            upkeep: Duration::from_secs(30),
        }
    }
}

/// The next step after a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedNext {
    /// Settle the command with this verdict, if its state allows it.
    Settle(Verdict),
    /// Look again after this wait, counted from the store's time.
    Again {
        /// The wait.
        after: Duration,
    },
    /// Give up: the command waits for an operator.
    GiveUp,
}

/// Decides the next step after the `attempts`-th look-up of a command. A command that is still in progress at
/// the provider after the last look-up is left to an operator, like one without an answer: an unknown outcome
/// must not go unnoticed.
pub fn after_look(attempts: u32, found: &LookUpAnswer, terms: &ReconcileTerms, chance: u32) -> LookedNext {
    if let Some(verdict) = found.verdict() {
        return LookedNext::Settle(verdict);
    }
    let asked = match found {
        LookUpAnswer::NoAnswer { retry_after, .. } => retry_after.unwrap_or(Duration::ZERO),
        LookUpAnswer::Executed(_)
        | LookUpAnswer::Failed(_)
        | LookUpAnswer::NotExecuted(_)
        | LookUpAnswer::Pending => Duration::ZERO,
    };
    if attempts >= terms.max_attempts {
        return LookedNext::GiveUp;
    }
    LookedNext::Again { after: terms.wait(attempts, chance).max(asked.min(terms.max_delay)) }
}

/// Returns true for a dead letter: look-ups have ended, and the command waits for an operator or for received
/// evidence.
pub const fn is_dead_letter(state: &State) -> bool {
    match state {
        State::Unknown { reconcile_after, .. } => reconcile_after.as_millis() >= Timestamp::MAX.as_millis(),
        State::Claimed { .. }
        | State::Processing { .. }
        | State::Succeeded { .. }
        | State::FailedFinal { .. }
        | State::FailedRetryable { .. }
        | State::Expired { .. } => false,
    }
}

/// Meaning of evidence for a command that it does not settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// The evidence may be needed later.
    Waits,
    /// The record agrees, or says nothing any more.
    Confirms,
    /// The record disagrees: one of the two is wrong, and the command may have been executed more than once.
    Contradicts,
}

impl Bearing {
    /// Returns the write to the business reference of the command for evidence of this verdict. An effect
    /// exists even if the record denies it, so no other command may get the reference.
    pub fn reference(self, verdict: Verdict) -> ReferenceWrite {
        match (self, verdict) {
            (Bearing::Contradicts, Verdict::Succeeded) => ReferenceWrite::TakeBack,
            (Bearing::Waits | Bearing::Confirms | Bearing::Contradicts, _) => ReferenceWrite::Keep,
        }
    }
}

/// Compares evidence with a record: the one that refused it, or the one that it has just settled.
/// `deduplicates` is true if the provider executes the command once, however often it is called.
///
/// A stable failure and "not executed" do not contradict each other: neither had an effect.
pub fn bearing(record: &Record, verdict: Verdict, about: About, deduplicates: bool) -> Bearing {
    bearing_on(&record.head, record.history.settled_as(), verdict, about, deduplicates)
}

/// Compares evidence with a head, and with the state in which an expired record was settled, if that is
/// known.
pub fn bearing_on(
    head: &Head,
    settled_as: Option<StateName>,
    verdict: Verdict,
    about: About,
    deduplicates: bool,
) -> Bearing {
    let had_effect = verdict == Verdict::Succeeded;
    let said = match head.state {
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => return Bearing::Waits,
        State::Succeeded { .. } => true,
        State::FailedFinal { .. } | State::FailedRetryable { .. } => false,
        State::Expired { .. } => match settled_as {
            Some(state) => state == StateName::Succeeded,
            None => return Bearing::Confirms,
        },
    };
    let is_earlier = about.is_before(head.epoch);
    match (had_effect, said) {
        // Each attempt before the last counted as not executed, unless the record says that it may have run.
        (true, true) if is_earlier && !deduplicates && !head.earlier_may_have_run => Bearing::Contradicts,
        // The earlier attempt did not execute, which is why there was another one.
        (false, true) if is_earlier => Bearing::Confirms,
        (true, true) | (false, false) => Bearing::Confirms,
        (true, false) | (false, true) => Bearing::Contradicts,
    }
}

/// Action of a note about evidence that contradicts the record of a command.
pub const CONTRADICTION: &str = "contradiction";

/// Compares the word of the executor of attempt `epoch` with the record that fenced it; `None` if the record
/// is gone.
pub fn bearing_of_fenced(record: Option<&Record>, verdict: Verdict, epoch: Epoch) -> Bearing {
    let had_effect = verdict == Verdict::Succeeded;
    let about = About::UpTo(epoch);
    let Some(record) = record else {
        return if had_effect { Bearing::Contradicts } else { Bearing::Confirms };
    };
    match bearing(record, verdict, about, false) {
        // A later attempt runs, or ran: this one counted as not executed.
        Bearing::Waits
            if had_effect && about.is_before(record.head.epoch) && !record.head.earlier_may_have_run =>
        {
            Bearing::Contradicts
        }
        // The evidence shows no effect, or one that the record allowed for.
        Bearing::Waits => Bearing::Confirms,
        settled @ (Bearing::Confirms | Bearing::Contradicts) => settled,
    }
}

/// Compares evidence with the notes about a command whose record is gone. Without a verdict among them, the
/// evidence may be about any command.
pub fn bearing_on_notes(notes: &[NoteTaken], verdict: Verdict) -> Bearing {
    let had_effect = verdict == Verdict::Succeeded;
    match notes.iter().rev().find_map(|taken| taken.note.says_executed()) {
        None => Bearing::Waits,
        Some(said) if said == had_effect => Bearing::Confirms,
        Some(_) => Bearing::Contradicts,
    }
}

/// Evidence that a provider sent unasked, such as by a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Source of the statement.
    pub source: String,
    /// Id of the event at the source, for deduplication.
    pub event_id: String,
    /// Command that the statement is about.
    pub operation_id: OperationId,
    /// Description of the evidence, for people.
    pub seen: String,
    /// Attempt that the statement names, if it names one.
    pub attempt: Option<Epoch>,
    /// Time of receipt, by the store's clock; `None` before the statement is stored.
    pub received_at: Option<Timestamp>,
    /// Digest of the content, which distinguishes a repeated event from another one with its id.
    pub content: [u8; 32],
    found: LookUpAnswer,
    verdict: Verdict,
}

impl Statement {
    /// Returns a statement of `source` under this event id; `None` if it has no verdict, or one that cannot
    /// be stored for later: "not executed" with a quarantine as its only proof was true at its time, and a
    /// call may have landed since.
    pub fn new(
        source: String,
        event_id: String,
        operation_id: OperationId,
        found: LookUpAnswer,
        seen: String,
    ) -> Option<Statement> {
        let verdict =
            found.verdict().filter(|verdict| *verdict != Verdict::NotExecuted(Proof::Quarantine))?;
        let (attempt, received_at, content) = (None, None, [0; 32]);
        let said =
            Statement { source, event_id, operation_id, seen, attempt, received_at, content, found, verdict };
        Some(said.digested(true))
    }

    /// Sets the time of receipt, by the store's clock.
    pub fn heard_at(self, now: Timestamp) -> Statement {
        Statement { received_at: Some(now), ..self }
    }

    /// Sets the attempt that the statement names.
    pub fn of_attempt(self, attempt: Option<Epoch>) -> Statement {
        Statement { attempt, ..self }.digested(true)
    }

    /// Returns the statement with a digest of its content without its response, which may differ each time.
    pub fn without_its_response(self) -> Statement {
        self.digested(false)
    }

    fn digested(self, with_response: bool) -> Statement {
        let mut digest = Sha256::new();
        digest.update(self.operation_id.as_bytes());
        digest.update(self.attempt.unwrap_or_default().to_be_bytes());
        digest.update(match self.verdict {
            Verdict::Succeeded => [1],
            Verdict::FailedFinal => [2],
            Verdict::NotExecuted(Proof::ProviderDeduplicates) => [3],
            Verdict::NotExecuted(Proof::ProviderTombstone) => [4],
            Verdict::NotExecuted(Proof::Quarantine) => [5],
        });
        if let Some(result) = self.result().filter(|_| with_response) {
            digest.update(result.status.to_be_bytes());
            digest.update(&result.response.bytes);
        }
        Statement { content: digest.finalize().into(), ..self }
    }

    /// Returns true if the content differs from that of a stored statement with the same id.
    pub fn differs_from(&self, kept: &[u8]) -> bool {
        self.content != kept
    }

    /// Returns the attempt that the statement is about: the one that it names, or one that had begun at its
    /// receipt.
    pub fn about(&self, record: &Record) -> About {
        let epoch = record.head.epoch;
        match (self.attempt, self.received_at.zip(record.history.began(epoch))) {
            (Some(named), _) => About::UpTo(named),
            // There is no attempt before the first, whatever the clocks say.
            (None, Some((heard, began))) if heard < began && epoch > 1 => About::UpTo(epoch - 1),
            (None, Some(_) | None) => About::Command,
        }
    }

    /// Returns the result that the statement reports.
    pub fn found(&self) -> &LookUpAnswer {
        &self.found
    }

    /// Returns the statement's verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the result for retries, if the statement has one.
    pub fn result(&self) -> Option<&StoredResult> {
        match &self.found {
            LookUpAnswer::Executed(result) | LookUpAnswer::Failed(result) => Some(result),
            LookUpAnswer::NotExecuted(_) | LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. } => None,
        }
    }

    /// Returns a copy with its result, if any, in another form: sealed, for a store.
    pub fn with_result(&self, result: StoredResult) -> Statement {
        let found = match &self.found {
            LookUpAnswer::Executed(_) => LookUpAnswer::Executed(result),
            LookUpAnswer::Failed(_) => LookUpAnswer::Failed(result),
            other
            @ (LookUpAnswer::NotExecuted(_) | LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. }) => {
                other.clone()
            }
        };
        Statement { found, ..self.clone() }
    }
}

/// Novelty of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The statement is new, and stored from now on.
    New,
    /// The statement was stored before.
    Before,
    /// Another statement with this source and id was stored before, and stays unchanged.
    Other,
}

/// Outcome of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementOutcome {
    /// The statement settled its command.
    Used,
    /// The command was already settled, and the record agrees.
    Confirmed,
    /// The command was already settled, and the record disagrees.
    Contradicted,
    /// The source is not responsible for the command.
    OutOfBounds,
}

impl StatementOutcome {
    /// Returns the outcome's name in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            StatementOutcome::Used => "used",
            StatementOutcome::Confirmed => "confirmed",
            StatementOutcome::Contradicted => "contradicted",
            StatementOutcome::OutOfBounds => "out_of_bounds",
        }
    }
}

/// A page of open statements about a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenStatements {
    /// Readable statements, in the order of receipt.
    pub statements: Vec<Statement>,
    /// Number of unreadable statements on the page.
    pub unreadable: usize,
    /// Last statement of this page, if there may be more after it.
    pub last: Option<LastHeard>,
}

/// Last statement of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeard {
    /// Time of receipt.
    pub received_at: Timestamp,
    /// Source of the statement.
    pub source: String,
    /// Id of the event.
    pub event_id: String,
}

impl LastHeard {
    /// Returns the sort key of statements.
    pub fn place(&self) -> (Timestamp, &str, &str) {
        (self.received_at, &self.source, &self.event_id)
    }
}

/// Keeps statements until they are used or no longer needed, and for some time after that, so that repeated
/// events are recognised.
#[async_trait]
pub trait Evidence: Send + Sync + 'static {
    /// Stores a statement, unless one with the same source and id exists. A successful return means that it
    /// is durable.
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError>;

    /// Returns at most `limit` open statements about this command after `after`, readable or not, in the
    /// order of receipt.
    async fn open_statements(
        &self,
        operation_id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError>;

    /// Returns at most `limit` commands with open statements after `after`, ordered by id.
    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError>;

    /// Closes the statement with this source and id. Returns `false` if it was already closed, or is not
    /// stored.
    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError>;

    /// Closes a statement that contradicts the record of its command. The same write stores the note in the
    /// audit log and, if `reference` says so and no other command holds it, takes the command's business
    /// reference back. Returns `false` if the statement was already closed, or is not stored.
    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError>;

    /// Deletes at most `limit` statements that were received longer ago than `retention`, except open ones
    /// whose command may still need them: it waits, runs or is unknown. Returns their number.
    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError>;
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::response::Response;

    const TERMS: ReconcileTerms = ReconcileTerms {
        first_delay: Duration::from_secs(10),
        max_delay: Duration::from_secs(30),
        max_attempts: 4,
    };

    fn result(status: u16) -> StoredResult {
        let code = StatusCode::from_u16(status).expect("tests use real statuses");
        let response = Response::retain(code, &HeaderMap::new(), Bytes::new(), &HeaderMap::new());
        StoredResult { response: response.encode(), status, resource: None }
    }

    fn no_answer(retry_after: Option<u64>) -> LookUpAnswer {
        LookUpAnswer::NoAnswer { why: "no".to_owned(), retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn each_look_up_answer_has_its_next_step() {
        let again = |after: u64| LookedNext::Again { after: Duration::from_secs(after) };
        let settle = LookedNext::Settle;
        let tombstone = Proof::ProviderTombstone;
        let table = [
            ("it took place", 1, LookUpAnswer::Executed(result(201)), u32::MAX, settle(Verdict::Succeeded)),
            ("it did at last", 9, LookUpAnswer::Executed(result(201)), 0, settle(Verdict::Succeeded)),
            ("it failed", 1, LookUpAnswer::Failed(result(402)), 0, settle(Verdict::FailedFinal)),
            (
                "it did not",
                1,
                LookUpAnswer::NotExecuted(tombstone),
                0,
                settle(Verdict::NotExecuted(tombstone)),
            ),
            ("a success that is none", 1, LookUpAnswer::Executed(result(402)), u32::MAX, again(10)),
            ("a failure that is none", 1, LookUpAnswer::Failed(result(201)), u32::MAX, again(10)),
            ("the last success", 1, LookUpAnswer::Executed(result(399)), 0, settle(Verdict::Succeeded)),
            ("the first status that is none", 1, LookUpAnswer::Executed(result(400)), u32::MAX, again(10)),
            ("the last that is no failure", 1, LookUpAnswer::Failed(result(399)), u32::MAX, again(10)),
            ("the first failure", 1, LookUpAnswer::Failed(result(400)), 0, settle(Verdict::FailedFinal)),
            ("first wait, at most", 1, no_answer(None), u32::MAX, again(10)),
            ("first wait, at least", 1, no_answer(None), 0, again(5)),
            ("second wait", 2, LookUpAnswer::Pending, u32::MAX, again(20)),
            ("third wait, bounded", 3, no_answer(None), u32::MAX, again(30)),
            ("the provider asks for more", 1, no_answer(Some(25)), 0, again(25)),
            ("the provider asks for less", 2, no_answer(Some(1)), u32::MAX, again(20)),
            ("the provider asks for too much", 1, no_answer(Some(86_400)), 0, again(30)),
            ("no look is left", 4, no_answer(None), 0, LookedNext::GiveUp),
            ("still at it, and no look is left", 4, LookUpAnswer::Pending, 0, LookedNext::GiveUp),
            ("fewer are allowed than were made", 9, no_answer(Some(1)), 0, LookedNext::GiveUp),
        ];
        for (what, attempts, found, chance, next) in table {
            assert_eq!(after_look(attempts, &found, &TERMS, chance), next, "{what}");
        }
    }

    #[test]
    fn look_up_answers_other_than_verdicts_make_no_change() {
        let verdicts = [
            LookUpAnswer::Executed(result(201)),
            LookUpAnswer::Failed(result(402)),
            LookUpAnswer::NotExecuted(Proof::Quarantine),
        ];
        for found in verdicts {
            let change = found.change().expect("it is a verdict");
            let verdict = found.verdict().expect("it is a verdict");
            assert_eq!(*change.event(), crate::Event::resolve(verdict));
        }
        let others = [
            LookUpAnswer::Pending,
            no_answer(None),
            LookUpAnswer::Executed(result(402)),
            LookUpAnswer::Failed(result(201)),
        ];
        for found in others {
            assert!(found.change().is_none(), "{found:?}");
        }
    }

    #[test]
    fn statements_accept_permanent_verdicts_only() {
        let id = OperationId::from_bytes([7; 16]);
        let says = |found| Statement::new("provider".into(), "e1".into(), id, found, "seen".into());
        let executed = says(LookUpAnswer::Executed(result(201))).expect("it took place for good");
        assert_eq!(
            (executed.verdict(), executed.found()),
            (Verdict::Succeeded, &LookUpAnswer::Executed(result(201)))
        );
        for proof in [Proof::ProviderTombstone, Proof::ProviderDeduplicates] {
            assert!(says(LookUpAnswer::NotExecuted(proof)).is_some());
        }
        for found in [
            LookUpAnswer::NotExecuted(Proof::Quarantine),
            LookUpAnswer::Pending,
            LookUpAnswer::Failed(result(201)),
        ] {
            assert_eq!(says(found.clone()), None, "{found:?}");
        }
    }

    #[test]
    fn only_an_unknown_record_without_a_next_look_up_is_a_dead_letter() {
        let now = Timestamp::from_millis(0);
        let unknown = |reconcile_after| State::Unknown {
            since: now,
            reconcile_after,
            attempts: 1,
            quarantine_until: Timestamp::MAX,
        };
        assert!(is_dead_letter(&unknown(Timestamp::MAX)));
        assert!(!is_dead_letter(&unknown(now)));
        assert!(!is_dead_letter(&State::FailedRetryable { expires_at: Timestamp::MAX }));
    }

    #[test]
    fn verdicts_and_statement_outcomes_have_fixed_names() {
        let not_executed = Verdict::NotExecuted(Proof::Quarantine);
        let verdicts = [Verdict::Succeeded, Verdict::FailedFinal, not_executed];
        assert_eq!(verdicts.map(|verdict| verdict.as_str()), ["executed", "failed", "not_executed"]);
        let outcomes = [
            StatementOutcome::Used,
            StatementOutcome::Confirmed,
            StatementOutcome::Contradicted,
            StatementOutcome::OutOfBounds,
        ];
        let names = ["used", "confirmed", "contradicted", "out_of_bounds"];
        assert_eq!(outcomes.map(StatementOutcome::as_str), names);
    }

    #[test]
    fn a_repeated_statement_differs_only_if_its_content_differs() {
        let id = OperationId::from_bytes([7; 16]);
        let says = |found| {
            let said = Statement::new("provider".into(), "e1".into(), id, found, "seen".into());
            said.expect("it is a verdict")
        };
        let executed = says(LookUpAnswer::Executed(result(201)));
        let again = Statement { seen: "seen again".into(), ..executed.clone() };
        assert!(!again.heard_at(Timestamp::from_millis(5)).differs_from(&executed.content));
        let others = [
            says(LookUpAnswer::Executed(result(200))),
            says(LookUpAnswer::NotExecuted(Proof::ProviderTombstone)),
            executed.clone().of_attempt(Some(2)),
            executed.clone().without_its_response(),
        ];
        for other in others {
            assert!(other.differs_from(&executed.content), "{other:?}");
        }
        let bare = says(LookUpAnswer::Executed(result(200))).without_its_response();
        assert!(!bare.differs_from(&executed.clone().without_its_response().content));
        assert_eq!(executed.clone().of_attempt(Some(2)).attempt, Some(2));
        let now = Timestamp::from_millis(5);
        assert_eq!(executed.heard_at(now).received_at, Some(now));
    }
}
