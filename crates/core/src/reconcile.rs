//! Evidence about commands whose outcome is unknown: what a look-up finds, what is done after it ([`after_look`], the one
//! place that decides it), what evidence means for a command that it cannot settle ([`bearing`]), and the contract of
//! whoever keeps evidence that came by itself.
//!
//! Whether evidence settles a command is not decided here: [`transition`](crate::transition::transition()) does, by
//! [`Event::Resolve`](crate::Event::Resolve).

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

/// What a look-up says about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUpAnswer {
    /// It took place, and this is what retries get. A status of 400 or more is no success, and counts as no answer.
    Executed(StoredResult),
    /// It was answered with a stable failure, and this is what retries get. A status below 400 is no failure, and counts
    /// as no answer.
    Failed(StoredResult),
    /// It did not take place.
    NotExecuted(Proof),
    /// Whoever carries it out is still at it.
    Pending,
    /// Nothing was learnt.
    NoAnswer {
        /// What happened.
        why: String,
        /// How long whoever was asked wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl LookUpAnswer {
    /// Nothing was learnt, for this reason.
    pub fn no_answer(why: impl Into<String>) -> LookUpAnswer {
        LookUpAnswer::NoAnswer { why: why.into(), retry_after: None }
    }

    /// The verdict, if it is one.
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

    /// What settles the command, if it is a verdict.
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
    /// Its name in metrics, logs and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Verdict::Succeeded => "executed",
            Verdict::FailedFinal => "failed",
            Verdict::NotExecuted(_) => "not_executed",
        }
    }
}

/// How often evidence is sought, and how long it takes until the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileTerms {
    /// The wait after the first look. It doubles with every further one.
    pub first_delay: Duration,
    /// No wait is longer, whatever whoever was asked wants.
    pub max_delay: Duration,
    /// A command that was put off so often is left to an operator.
    pub max_attempts: u32,
}

impl Default for ReconcileTerms {
    /// Twenty looks in about half a day.
    fn default() -> ReconcileTerms {
        ReconcileTerms {
            first_delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(3600),
            max_attempts: 20,
        }
    }
}

impl ReconcileTerms {
    /// How long after its `attempts`-th look a command is looked for again. `chance`, drawn anew for every look, moves
    /// the wait between its half and its whole.
    pub fn wait(&self, attempts: u32, chance: u32) -> Duration {
        backoff(self.first_delay, self.max_delay, attempts, chance)
    }
}

/// The options of a reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcilerOptions {
    /// The interval at which it looks for commands that are due.
    pub interval: Duration,
    /// The number of commands that it reads at a time.
    pub batch: usize,
    /// The number of look-ups that are made at the same time.
    pub concurrency: usize,
    /// The longest that one look-up may take. The next one comes after twice this time at the earliest.
    pub timeout: Duration,
    /// The number of looks for a command, and the waits between them.
    pub terms: ReconcileTerms,
    /// The time that evidence that came by itself is kept, so that it is recognised when it comes again.
    pub retention: Duration,
    /// The interval at which dead letters are counted, and old evidence is deleted.
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

/// What is done after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedNext {
    /// The command is settled with this verdict, if its state allows it.
    Settle(Verdict),
    /// It is looked for again, so long after the store's present.
    Again {
        /// How long.
        after: Duration,
    },
    /// It is not looked for again by itself: it waits for an operator.
    GiveUp,
}

/// What is done after the `attempts`-th look for a command. A provider that is still at it after the last look is left to
/// an operator like one that never answers: an unknown that nobody notices is worse than one that somebody looks at.
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

/// Whether nobody looks for this command any more by itself: it was given up, and waits for an operator, or for evidence
/// that comes by itself.
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

/// What evidence means for a command, beside what it settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// It may be needed later.
    Waits,
    /// The record says the same, or nothing any more.
    Confirms,
    /// The record says otherwise: somebody was wrong, and the command may have taken place more than once.
    Contradicts,
}

impl Bearing {
    /// What becomes of the business reference of a command that evidence of this verdict bears on. An effect that a record
    /// denies is there all the same: nobody else is to make it again.
    pub fn reference(self, verdict: Verdict) -> ReferenceWrite {
        match (self, verdict) {
            (Bearing::Contradicts, Verdict::Succeeded) => ReferenceWrite::TakeBack,
            (Bearing::Waits | Bearing::Confirms | Bearing::Contradicts, _) => ReferenceWrite::Keep,
        }
    }
}

/// Compares evidence with a record: with the one that refused it, or with the one that it has just settled. `deduplicates` says
/// that whoever carries the command out does so once, however often it is asked.
///
/// A stable failure and "not executed" do not contradict each other: neither had an effect.
pub fn bearing(record: &Record, verdict: Verdict, about: About, deduplicates: bool) -> Bearing {
    bearing_on(&record.head, record.history.settled_as(), verdict, about, deduplicates)
}

/// Compares evidence with a head, and with the state that an expired record was settled in, if that is known.
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
        // Each attempt before the last was taken for not executed, unless the record says that it may have run.
        (true, true) if is_earlier && !deduplicates && !head.earlier_may_have_run => Bearing::Contradicts,
        // Which is why there was another attempt.
        (false, true) if is_earlier => Bearing::Confirms,
        (true, true) | (false, false) => Bearing::Confirms,
        (true, false) | (false, true) => Bearing::Contradicts,
    }
}

/// The action that a note names if evidence contradicts what is known of a command.
pub const CONTRADICTION: &str = "contradiction";

/// Compares the word of the executor of attempt `epoch` with the record that fenced it; `None` if there is no record any more.
pub fn bearing_of_fenced(record: Option<&Record>, verdict: Verdict, epoch: Epoch) -> Bearing {
    let had_effect = verdict == Verdict::Succeeded;
    let about = About::UpTo(epoch);
    let Some(record) = record else {
        return if had_effect { Bearing::Contradicts } else { Bearing::Confirms };
    };
    match bearing(record, verdict, about, false) {
        // A later attempt runs, or ran: this one was taken for not executed.
        Bearing::Waits
            if had_effect && about.is_before(record.head.epoch) && !record.head.earlier_may_have_run =>
        {
            Bearing::Contradicts
        }
        // No effect, or one that was reckoned with.
        Bearing::Waits => Bearing::Confirms,
        settled @ (Bearing::Confirms | Bearing::Contradicts) => settled,
    }
}

/// Compares evidence with the notes about a command whose record is gone. Without a verdict among them, it may have been about
/// any command.
pub fn bearing_on_notes(notes: &[NoteTaken], verdict: Verdict) -> Bearing {
    let had_effect = verdict == Verdict::Succeeded;
    match notes.iter().rev().find_map(|taken| taken.note.says_executed()) {
        None => Bearing::Waits,
        Some(said) if said == had_effect => Bearing::Confirms,
        Some(_) => Bearing::Contradicts,
    }
}

/// Evidence that came by itself, such as by a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Who says so.
    pub source: String,
    /// By which name, so that it is heard once.
    pub event_id: String,
    /// The command it is about.
    pub operation_id: OperationId,
    /// What was seen, for people.
    pub seen: String,
    /// The attempt that it names, if it names one.
    pub attempt: Option<Epoch>,
    /// When it was heard, by the store's clock; `None` before it is kept.
    pub received_at: Option<Timestamp>,
    /// Digest of what it says, which tells an event that comes again from another one of its name.
    pub content: [u8; 32],
    found: LookUpAnswer,
    verdict: Verdict,
}

impl Statement {
    /// What `source` says under this name; `None` if it is no verdict, or one that cannot be kept for later: "not executed"
    /// with no better proof than a quarantine says what was so when it was said, and a call may have landed since.
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

    /// The same, heard at this moment by the store's clock.
    pub fn heard_at(self, now: Timestamp) -> Statement {
        Statement { received_at: Some(now), ..self }
    }

    /// The same, about the attempt that it names.
    pub fn of_attempt(self, attempt: Option<Epoch>) -> Statement {
        Statement { attempt, ..self }.digested(true)
    }

    /// The same, recognised by what it says and not by the response that it brings, which may be another one each time.
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

    /// Returns true for a statement that says something else than one of the same name that was kept before.
    pub fn differs_from(&self, kept: &[u8]) -> bool {
        self.content != kept
    }

    /// The attempt of its command that it is about: the one that it names, or one that was begun when it was heard.
    pub fn about(&self, record: &Record) -> About {
        let epoch = record.head.epoch;
        match (self.attempt, self.received_at.zip(record.history.began(epoch))) {
            (Some(named), _) => About::UpTo(named),
            // There is no attempt before the first, whatever the clocks say.
            (None, Some((heard, began))) if heard < began && epoch > 1 => About::UpTo(epoch - 1),
            (None, Some(_) | None) => About::Command,
        }
    }

    /// What it says.
    pub fn found(&self) -> &LookUpAnswer {
        &self.found
    }

    /// Its verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What retries get, if it says so.
    pub fn result(&self) -> Option<&StoredResult> {
        match &self.found {
            LookUpAnswer::Executed(result) | LookUpAnswer::Failed(result) => Some(result),
            LookUpAnswer::NotExecuted(_) | LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. } => None,
        }
    }

    /// The same, with another form of its result, if it has one: sealed, for a store.
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

/// Whether a statement was heard before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is kept from now on.
    New,
    /// It was kept before.
    Before,
    /// Another one of this source and name was kept before, and stays as it was.
    Other,
}

/// What became of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementOutcome {
    /// It settled its command.
    Used,
    /// Its command was settled, and the record says the same.
    Confirmed,
    /// Its command was settled, and the record says otherwise.
    Contradicted,
    /// Its source has nothing to do with its command.
    OutOfBounds,
}

impl StatementOutcome {
    /// Its name in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            StatementOutcome::Used => "used",
            StatementOutcome::Confirmed => "confirmed",
            StatementOutcome::Contradicted => "contradicted",
            StatementOutcome::OutOfBounds => "out_of_bounds",
        }
    }
}

/// A page of what is said about a command and is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenStatements {
    /// Those that can be read, the first heard first.
    pub statements: Vec<Statement>,
    /// How many there are beside them that cannot, whatever they say.
    pub unreadable: usize,
    /// The last of this page, if there may be more after it.
    pub last: Option<LastHeard>,
}

/// The last statement of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeard {
    /// When it was heard.
    pub received_at: Timestamp,
    /// Who said it.
    pub source: String,
    /// By which name.
    pub event_id: String,
}

impl LastHeard {
    /// What statements are ordered by.
    pub fn place(&self) -> (Timestamp, &str, &str) {
        (self.received_at, &self.source, &self.event_id)
    }
}

/// Keeps evidence that came by itself, until it was used or turned out not to be needed, and a while longer, so that it
/// is recognised when it comes again.
#[async_trait]
pub trait Evidence: Send + Sync + 'static {
    /// Keeps a statement, unless one of the same source and name was kept before. An answer means that it is durable.
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError>;

    /// At most `limit` statements about this command that are not done, readable or not, the first heard first, from the
    /// one after `after` on.
    async fn open_statements(
        &self,
        operation_id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError>;

    /// At most `limit` commands about which there are statements that are not done, in the order of their ids, from the
    /// one after `after` on.
    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError>;

    /// The statement of this source and name is done. `false` if it was before, or is not kept.
    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError>;

    /// The statement of this source and name is done, and contradicts what is known of its command: the note is kept in the
    /// audit log, and the command's business reference is taken back if `reference` says so and nobody else holds it, in the
    /// same write. `false` if it was done before, or is not kept.
    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError>;

    /// Deletes at most `limit` statements that were heard longer ago than `retention`, but for those that are not done and
    /// whose command may still need them: it waits, runs or is unknown. Says how many.
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
    fn what_is_done_after_a_look() {
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
    fn a_verdict_has_its_change_and_nothing_else_has() {
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
    fn a_statement_is_a_verdict_that_stays_true() {
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
    fn only_an_unknown_that_nobody_looks_for_is_a_dead_letter() {
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
    fn verdicts_and_what_becomes_of_statements_have_their_names() {
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
    fn a_statement_of_the_same_name_is_recognised_by_what_it_says() {
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
