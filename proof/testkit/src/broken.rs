//! Broken stores, each with one flaw that is found in the wild. The conformance suite must reject every one
//! of them: a suite that cannot fail proves nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderValue;
use semel_core::policy::OnLeaseExpired;
use semel_core::store_fence::decide;
use semel_core::transition::Proof;
use semel_core::{
    AgedRecord, AttemptToken, Census, Change, Claim, ClaimFence, Clock, Decision, Event, Fence, Filter, Head,
    History, Hold, HoldChange, HoldTarget, Holds, Item, Note, NoteTaken, OperationId, OperationName,
    Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry, Scope, Snapshot, State,
    StateName, StepKind, Store, StoreAnswer, StoreError, StoreFence, StoredRequest, StoredResult, Tier,
    Timestamp, Upkeep, Waiting, WaitingFilter, WaitingPage, WaitingPlace, Write, transition,
};

use crate::clock::ManualClock;
use crate::conformance::{Capabilities, Subject};
use crate::sample;

/// A flaw of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Checks that the key is free, and takes it in a second step.
    ChecksThenInserts,
    /// Accepts the word of any caller that knows the record.
    DoesNotFence,
    /// Compares the epoch and forgets the token.
    FencesByEpochOnly,
    /// Frees the key on any request, whatever the state.
    ReleasesUnconditionally,
    /// Deletes old records, even those that still run or are unknown.
    ReapsRunningRecords,
    /// Deletes settled records before their expiry.
    ReapsEarly,
    /// Reaps all due records, and ignores the limit.
    ReapsWithoutLimit,
    /// Takes an expired lease for a licence to run again.
    StealsEndedLeases,
    /// Answers "in progress" to a different request with the same key.
    SaysInProgressBeforeMismatch,
    /// Clears the token on completion, so that a repeated completion is not recognised.
    ForgetsTheToken,
    /// Lets a renewal revive a command whose lease has expired.
    RevivesByRenewal,
    /// Leaves the caller out of the key.
    IgnoresTheCaller,
    /// Joins repeated header lines with commas.
    FoldsHeaders,
    /// Keeps bodies as text.
    KeepsText,
    /// Lets a later completion overwrite the stored one.
    OverwritesCompletions,
    /// Frees the key as soon as the provider does not know the command.
    FreesDuringQuarantine,
    /// Refuses the late completion of the executor that still holds the epoch.
    RefusesLateCompletions,
    /// Keeps the epoch when a command is acquired again.
    KeepsTheEpoch,
    /// Takes a repeated claim for a competitor.
    DoesNotRecogniseItsOwnClaim,
    /// Deletes a purged record at once, while caches still replay it.
    PurgesAtOnce,
    /// Keeps only the last step of a record's history.
    ForgetsHowItCameThere,
    /// Keeps the first request of a command, even after later claims.
    KeepsTheFirstRequest,
    /// Erases the request of a command that became unknown.
    ErasesRequestsOfUnknowns,
    /// Keeps the request of a command that is settled.
    KeepsRequestsForGood,
    /// Lists every command with a stored request for workers.
    HandsOutWhateverHasARequest,
    /// Lists commands for workers before they are ready.
    HandsOutTooEarly,
    /// Remembers only the possible effect of a command's last attempt.
    ForgetsEarlierAttempts,
    /// Lists the commands that have waited longest, whatever their tenant.
    LetsOneTenantFillThePage,
    /// Lists the front of the queue, whatever the position of the page.
    ListsFromTheFront,
    /// Marks every page as the last one.
    EndsWithTheFirstPage,
    /// Leaves out the rest of a tenant's commands if a page ends among them.
    GoesOnWithTheNextTenant,
    /// Records the items of a bulk request, and does not mark that a part of it may be done.
    ForgetsThatAPartMayBeDone,
    /// Counts the age of a state from the last write.
    RestartsAges,
    /// Drops the trace of the request that claimed a command.
    ForgetsTheTrace,
    /// Does not tell a claim that it met an expired lease or record.
    DoesNotTellWhatLapsed,
    /// Sweeps records without telling their new state.
    DoesNotTellWhatBecameOfAged,
    /// Lists the records of every caller, whichever was asked for.
    ListsRecordsOfEveryCaller,
    /// Marks every page of a list of records as the last one.
    EndsListsWithTheFirstPage,
    /// Runs missing keys although it may have forgotten their commands.
    IgnoresItsFence,
    /// Fences missing keys, and forgets the commands that counted as not executed.
    FencesMissingKeysOnly,
    /// Believes the executor of an attempt about attempts that it may have forgotten.
    BelievesAReleaseInDoubt,
}

impl Flaw {
    /// Every flaw, each with a case that must notice it.
    pub const ALL: [(Flaw, &'static str); 41] = [
        (Flaw::ChecksThenInserts, "one_of_64_racing_claims_wins"),
        (Flaw::DoesNotFence, "a_wrong_epoch_or_token_changes_nothing"),
        (Flaw::FencesByEpochOnly, "a_wrong_epoch_or_token_changes_nothing"),
        (Flaw::ReleasesUnconditionally, "a_settled_record_never_changes"),
        (Flaw::ReapsRunningRecords, "only_settled_records_are_reaped"),
        (Flaw::ReapsEarly, "reaping_goes_in_batches_beside_live_traffic"),
        (Flaw::ReapsWithoutLimit, "reaping_goes_in_batches_beside_live_traffic"),
        (Flaw::StealsEndedLeases, "an_ended_lease_is_unknown_not_free"),
        (Flaw::SaysInProgressBeforeMismatch, "another_request_is_a_mismatch_before_anything_else"),
        (Flaw::ForgetsTheToken, "a_completion_sent_again_is_recognised_as_the_same"),
        (Flaw::RevivesByRenewal, "a_renewal_never_leaves_unknown"),
        (Flaw::IgnoresTheCaller, "scopes_do_not_see_each_other"),
        (Flaw::FoldsHeaders, "repeated_headers_come_back_line_for_line"),
        (Flaw::KeepsText, "large_and_binary_bodies_come_back_byte_for_byte"),
        (Flaw::OverwritesCompletions, "a_settled_record_never_changes"),
        (Flaw::FreesDuringQuarantine, "not_executed_is_refused_while_a_call_may_be_in_flight"),
        (Flaw::RefusesLateCompletions, "the_current_executor_may_settle_an_unknown_late"),
        (Flaw::KeepsTheEpoch, "a_released_key_is_acquired_by_exactly_one"),
        (Flaw::DoesNotRecogniseItsOwnClaim, "a_claim_sent_again_is_recognised_as_the_same"),
        (Flaw::PurgesAtOnce, "a_purge_leaves_a_tombstone_until_caches_have_noticed"),
        (Flaw::ForgetsHowItCameThere, "a_record_remembers_how_it_came_there"),
        (Flaw::KeepsTheFirstRequest, "a_new_attempt_brings_its_own_request"),
        (Flaw::ErasesRequestsOfUnknowns, "the_request_of_an_executor_that_died_is_kept"),
        (Flaw::KeepsRequestsForGood, "a_request_is_kept_until_the_outcome_is_known"),
        (Flaw::HandsOutWhateverHasARequest, "a_request_is_kept_until_the_outcome_is_known"),
        (Flaw::HandsOutTooEarly, "a_requeued_command_waits_until_it_is_ready"),
        (Flaw::ForgetsEarlierAttempts, "possible_effect_of_an_earlier_attempt_is_remembered_until_known"),
        (Flaw::LetsOneTenantFillThePage, "one_tenants_backlog_leaves_room_for_others"),
        (Flaw::ListsFromTheFront, "waiting_commands_are_listed_page_by_page"),
        (Flaw::EndsWithTheFirstPage, "waiting_commands_are_listed_page_by_page"),
        (Flaw::GoesOnWithTheNextTenant, "waiting_commands_are_listed_page_by_page"),
        (Flaw::ForgetsThatAPartMayBeDone, "the_items_of_a_bulk_request_are_shown_as_long_as_it_is"),
        (Flaw::RestartsAges, "the_age_of_a_state_counts_from_its_beginning"),
        (Flaw::ForgetsTheTrace, "a_record_keeps_the_trace_of_its_first_attempt"),
        (Flaw::DoesNotTellWhatLapsed, "a_claim_tells_what_had_lapsed_before_it"),
        (Flaw::DoesNotTellWhatBecameOfAged, "a_sweep_tells_what_became_of_each_record"),
        (Flaw::ListsRecordsOfEveryCaller, "records_are_listed_by_what_describes_them"),
        (Flaw::EndsListsWithTheFirstPage, "records_are_listed_by_what_describes_them"),
        (Flaw::IgnoresItsFence, "under_a_fence_only_what_the_store_knows_is_answered"),
        (Flaw::FencesMissingKeysOnly, "under_a_fence_only_a_verdict_frees_what_counted_as_not_executed"),
        (
            Flaw::BelievesAReleaseInDoubt,
            "under_a_fence_missing_keys_are_looked_up_first_where_an_operator_says_so",
        ),
    ];
}

/// A store in memory with one flaw, or, for comparison, with none.
pub struct BrokenStore {
    flaw: Option<Flaw>,
    clock: ManualClock,
    records: Mutex<HashMap<RecordId, Record>>,
    requests: Mutex<HashMap<RecordId, StoredRequest>>,
    items: Mutex<HashMap<OperationId, Vec<Item>>>,
    holds: Mutex<BTreeMap<HoldTarget, Timestamp>>,
}

/// A broken store as a subject of the suite.
pub struct BrokenSubject(Arc<BrokenStore>);

impl BrokenSubject {
    /// Returns a store with this flaw.
    pub fn new(flaw: Option<Flaw>) -> BrokenSubject {
        BrokenSubject(Arc::new(BrokenStore {
            flaw,
            clock: ManualClock::new(),
            records: Mutex::default(),
            requests: Mutex::default(),
            items: Mutex::default(),
            holds: Mutex::default(),
        }))
    }
}

#[async_trait]
impl Subject for BrokenSubject {
    fn store(&self) -> Arc<dyn Records> {
        self.0.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.0.clone()
    }

    fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: false, loses_answers: false, references: false }
    }
}

impl BrokenStore {
    fn records(&self) -> MutexGuard<'_, HashMap<RecordId, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<HoldTarget, Timestamp>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fence(&self) -> Option<StoreFence> {
        StoreFence::of(self.holds().iter().map(|(target, since)| (target, *since)))
    }

    /// Returns the effect of the fence on a claim, with the flaw.
    fn fence_on(&self, claim: &Claim) -> ClaimFence {
        let fence = self.fence();
        let before = self.records().get(&claim.scope.record_id()).cloned();
        match fence {
            Some(_) if self.has(Flaw::FencesMissingKeysOnly) && before.is_some() => ClaimFence::Open,
            Some(fence) if !self.has(Flaw::IgnoresItsFence) => {
                fence.on(claim, before.as_ref(), self.clock.now())
            }
            Some(_) | None => ClaimFence::Open,
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Decides and writes as a store should, with the flaw on the way in and on the way out.
    fn change(
        &self,
        id: RecordId,
        event: Event,
        claim: Option<&Claim>,
        change: Option<&Change>,
    ) -> StoreAnswer {
        let mut records = self.records();
        let now = self.clock.now();
        let before = records.get(&id).cloned();
        let result = change.and_then(Change::result);
        let (record, decision) = self.decide(before.as_ref(), event, claim, result, now);
        let seen = change.and_then(Change::observation);
        let record = record.map(|record| {
            let is_kept = before.as_ref().is_some_and(|before| before.head == record.head);
            let write = if is_kept { Write::Keep } else { Write::Update(record.head) };
            record.observing(write, seen)
        });
        let record = record.map(|record| match self.flaw {
            Some(Flaw::RestartsAges) => Record { state_since: now, ..record },
            Some(Flaw::ForgetsTheTrace) => Record { trace: None, ..record },
            _ => record,
        });
        match &record {
            Some(record) if self.has(Flaw::ForgetsHowItCameThere) => {
                records.insert(id, Record { history: History::default(), ..record.clone() })
            }
            Some(record) => records.insert(id, record.clone()),
            None => records.remove(&id),
        };
        let lapse = transition(before.as_ref().map(|record| &record.head), &event, now).lapse;
        let lapse = lapse.filter(|_| !self.has(Flaw::DoesNotTellWhatLapsed));
        StoreAnswer { decision, record, now, holder: None, lapse }
    }

    fn decide(
        &self,
        before: Option<&Record>,
        event: Event,
        claim: Option<&Claim>,
        result: Option<&StoredResult>,
        now: Timestamp,
    ) -> (Option<Record>, Decision) {
        let event = before.map_or(event, |record| self.misread(&record.head, event));
        let head = before.map(|record| self.misremember(record.head, &event, now));
        if let (Some(head), Some(answer)) =
            (&head, head.as_ref().and_then(|head| self.misjudge(head, &event)))
        {
            let write = answer.0.map_or(Write::Keep, |state| Write::Update(Head { state, ..*head }));
            return (Record::after(before, write, claim, result, now), answer.1);
        }
        let fence = self.fence().filter(|_| !self.has(Flaw::IgnoresItsFence));
        let remembered = before.zip(head).map(|(record, head)| Record { head, ..record.clone() });
        let step = decide(fence.as_ref(), remembered.as_ref(), &event, now);
        let write = match step.write {
            Write::Update(_) if self.has(Flaw::PurgesAtOnce) && event == Event::Purge => Write::Delete,
            Write::Update(after) => Write::Update(self.miswrite(before, after)),
            Write::Keep | Write::Create(_) | Write::Delete => step.write,
        };
        let result = result.map(|result| self.misstore(result));
        (Record::after(before, write, claim, result.as_ref(), now), step.decision)
    }

    /// Applies flaws in reading the event.
    fn misread(&self, head: &Head, event: Event) -> Event {
        let fence_of = |fence: Fence| match self.flaw {
            Some(Flaw::DoesNotFence) => head.fence(),
            Some(Flaw::FencesByEpochOnly) => Fence { token: head.token, ..fence },
            _ => fence,
        };
        match event {
            Event::Renew { fence } => Event::Renew { fence: fence_of(fence) },
            Event::Complete { fence } => Event::Complete { fence: fence_of(fence) },
            Event::Fail { fence, reason } => Event::Fail { fence: fence_of(fence), reason },
            Event::Release { fence, reason } => Event::Release { fence: fence_of(fence), reason },
            Event::Abandon { fence, reason } => Event::Abandon { fence: fence_of(fence), reason },
            Event::Resolve {
                verdict: semel_core::transition::Verdict::NotExecuted(Proof::Quarantine),
                ..
            } if self.has(Flaw::FreesDuringQuarantine) => {
                Event::resolve(semel_core::transition::Verdict::NotExecuted(Proof::ProviderTombstone))
            }
            other => other,
        }
    }

    /// Applies flaws in reading the record.
    fn misremember(&self, mut head: Head, event: &Event, now: Timestamp) -> Head {
        match self.flaw {
            Some(Flaw::StealsEndedLeases) => head.terms.on_lease_expired = OnLeaseExpired::Rerun,
            Some(Flaw::RevivesByRenewal) if matches!(event, Event::Renew { .. }) => {
                if matches!(head.state, State::Unknown { .. } | State::Processing { .. }) {
                    head.state =
                        State::Processing { lease_until: now.plus(head.terms.lease), start_by: None };
                }
            }
            Some(Flaw::OverwritesCompletions)
                if matches!(event, Event::Complete { .. }) && head.state.is_terminal() =>
            {
                head.state = State::Processing { lease_until: now.plus(head.terms.lease), start_by: None };
            }
            _ => {}
        }
        head
    }

    /// Applies flaws in deciding: returns the new state, if any, and the answer.
    fn misjudge(&self, head: &Head, event: &Event) -> Option<(Option<State>, Decision)> {
        let running = matches!(head.state, State::Processing { .. });
        match (self.flaw?, event) {
            (Flaw::SaysInProgressBeforeMismatch, Event::Claim(_)) if running => Some((None, Decision::Wait)),
            (Flaw::DoesNotRecogniseItsOwnClaim, Event::Claim(_)) if running => {
                let mismatch =
                    matches!(event, Event::Claim(attempt) if attempt.fingerprint != head.fingerprint);
                (!mismatch).then_some((None, Decision::Wait))
            }
            (Flaw::ReleasesUnconditionally, Event::Release { .. }) => {
                let expires_at = Timestamp::MAX;
                Some((Some(State::FailedRetryable { expires_at }), Decision::Applied))
            }
            (Flaw::BelievesAReleaseInDoubt, Event::Release { fence, .. })
                if head.is_in_doubt() && *fence == head.fence() =>
            {
                Some((Some(State::FailedRetryable { expires_at: Timestamp::MAX }), Decision::Applied))
            }
            (Flaw::RefusesLateCompletions, Event::Complete { .. })
                if head.state.name() == StateName::Unknown =>
            {
                Some((None, Decision::Fenced))
            }
            _ => None,
        }
    }

    /// Applies flaws in writing the head.
    fn miswrite(&self, before: Option<&Record>, after: Head) -> Head {
        match self.flaw {
            Some(Flaw::ForgetsTheToken) if after.state.is_terminal() => {
                Head { token: AttemptToken::from_bytes([0; 16]), ..after }
            }
            Some(Flaw::KeepsTheEpoch) => {
                Head { epoch: before.map_or(after.epoch, |before| before.head.epoch), ..after }
            }
            Some(Flaw::ForgetsEarlierAttempts) => Head { earlier_may_have_run: false, ..after },
            _ => after,
        }
    }

    /// Applies flaws in storing the response.
    fn misstore(&self, result: &StoredResult) -> StoredResult {
        let Ok(mut response) = result.response.decode() else { return result.clone() };
        match self.flaw {
            Some(Flaw::FoldsHeaders) => {
                let links: Vec<_> =
                    response.headers.get_all("link").iter().map(|value| value.as_bytes()).collect();
                let folded = HeaderValue::from_bytes(&links.join(&b", "[..])).expect("it is a header value");
                response.headers.insert("link", folded);
            }
            Some(Flaw::KeepsText) => {
                response.body =
                    response.body.map(|body| Bytes::from(String::from_utf8_lossy(&body).into_owned()));
            }
            _ => return result.clone(),
        }
        StoredResult { response: response.encode(), ..result.clone() }
    }

    /// Applies flaws in reading the filter of a page.
    fn misfilter(&self, filter: &WaitingFilter) -> WaitingFilter {
        match self.flaw {
            Some(Flaw::LetsOneTenantFillThePage) => WaitingFilter { share: usize::MAX, ..filter.clone() },
            Some(Flaw::ListsFromTheFront) => WaitingFilter { after: None, ..filter.clone() },
            _ => filter.clone(),
        }
    }

    /// Applies flaws in ending a page.
    fn mispage(&self, page: WaitingPage) -> WaitingPage {
        match self.flaw {
            Some(Flaw::EndsWithTheFirstPage) => WaitingPage { next: None, ..page },
            Some(Flaw::GoesOnWithTheNextTenant) => {
                let next = page.next.map(|place| WaitingPlace::end_of(&place.tenant));
                WaitingPage { next, ..page }
            }
            _ => page,
        }
    }

    fn age(&self, limit: usize, due: impl Fn(&State, Timestamp) -> bool, forget: bool) -> Vec<AgedRecord> {
        let now = self.clock.now();
        let limit = if self.has(Flaw::ReapsWithoutLimit) { usize::MAX } else { limit };
        let due = |record: &&Record| due(&record.head.state, now);
        let due: Vec<Record> = self.records().values().filter(due).take(limit).cloned().collect();
        let aged = |before: Record| match forget {
            true => self.records().remove(&before.id).map(|_| AgedRecord::new(&before, None)),
            false => {
                let aged = self.change(before.id, Event::Age, None, None);
                let after = aged.record.as_ref().filter(|_| !self.has(Flaw::DoesNotTellWhatBecameOfAged));
                (aged.decision == Decision::Applied).then(|| AgedRecord::new(&before, after))
            }
        };
        due.into_iter().filter_map(aged).collect()
    }
}

#[async_trait]
impl Store for BrokenStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let mut claim = claim.clone();
        if self.has(Flaw::IgnoresTheCaller) {
            let everybody = sample::scope("any").principal().clone();
            claim.scope = Scope::new(everybody, claim.scope.operation().clone(), claim.scope.key().clone());
        }
        let id = claim.scope.record_id();
        claim.attempt.fence = self.fence_on(&claim);
        let event = Event::Claim(claim.attempt);
        if self.has(Flaw::ChecksThenInserts) {
            let before = self.records().get(&id).cloned();
            let now = self.clock.now();
            let (record, decision) = self.decide(before.as_ref(), event, Some(&claim), None, now);
            // Long enough for others to check, also on a crowded machine.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
            if let Some(record) = &record {
                self.records().insert(id, record.clone());
            }
            return Ok(StoreAnswer { decision, record, now, holder: None, lapse: None });
        }
        let answer = self.change(id, event, Some(&claim), None);
        let own = answer.record.as_ref().is_some_and(|record| record.head.token == claim.attempt.token);
        if let (true, Some(request)) = (own, claim.request) {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            match self.has(Flaw::KeepsTheFirstRequest) {
                true => requests.entry(id).or_insert(request),
                false => requests.entry(id).insert_entry(request).into_mut(),
            };
        }
        Ok(answer)
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        Ok(self.change(*id, *change.event(), None, Some(change)))
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        Ok(Snapshot { record: self.records().get(id).cloned(), now: self.clock.now() })
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let found = self.find(operation_id).await?;
        Ok(Snapshot { record: found.record.filter(|record| record.principal == *principal), ..found })
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let now = self.clock.now();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = |record: &&Record| match record.head.state {
            State::Claimed { ready_at, start_by } => {
                (ready_at <= now || self.has(Flaw::HandsOutTooEarly)) && start_by > now
            }
            _ => self.has(Flaw::HandsOutWhateverHasARequest) && record.head.keeps_request(),
        };
        let wanted = |record: &&Record| {
            let phased = record.head.terms.on_lease_expired == OnLeaseExpired::Resume;
            let named = |names: &Vec<String>| names.iter().any(|name| name == record.operation.as_str());
            phased == filter.phased && filter.operations.as_ref().is_none_or(named)
        };
        let fenced = self.fence().is_some();
        let ready = |record: &&Record| ready(record) && !fenced;
        let records: Vec<Record> = self.records().values().filter(ready).filter(wanted).cloned().collect();
        let with = |record: Record| Some(Waiting { request: requests.get(&record.id)?.clone(), record });
        let all = records.into_iter().filter_map(with).collect();
        Ok(self.mispage(WaitingPage::select(all, &self.misfilter(filter), now)))
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let find = |record: &&Record| record.operation_id == operation_id;
        let whole = self.records().values().find(find).map(|record| record.id);
        if let Some(id) = whole.filter(|_| !self.has(Flaw::ForgetsThatAPartMayBeDone)) {
            self.change(id, Event::Advance, None, None);
        }
        self.items
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(operation_id)
            .or_insert(items.to_vec());
        Ok(())
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let items = items.get(&operation_id).cloned().unwrap_or_default();
        let records = self.records();
        let shown = |(position, item): (usize, Item)| {
            let what = StepKind::item(records.get(&item.record));
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            Progress { position, name: item.name, what, began_at: self.clock.now(), done_at: None }
        };
        let there = records.values().any(|record| record.operation_id == operation_id);
        Ok(items.into_iter().enumerate().filter(|_| there).map(shown).collect())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    fn tier(&self) -> Tier {
        Tier::Three
    }
}

#[async_trait]
impl Upkeep for BrokenStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        Ok(self.age(limit, |state, now| state.due_to_sweep().is_some_and(|due| due <= now), false))
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        let due = |state: &State, now| match self.flaw {
            Some(Flaw::ReapsEarly) => state.is_terminal(),
            Some(Flaw::ReapsRunningRecords) => {
                let due = state.expires_at().or(state.due_to_sweep());
                due.is_none_or(|due| due <= now)
            }
            _ => state.expires_at().is_some_and(|due| due <= now),
        };
        let forget = self.has(Flaw::ReapsEarly) || self.has(Flaw::ReapsRunningRecords);
        Ok(self.age(limit, due, forget))
    }

    async fn census(&self) -> Result<Census, StoreError> {
        Ok(Census::of(self.records().values()))
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        if self.fence().is_some_and(|fence| !fence.looks_up()) {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let due = |record: &Record| match record.head.state {
            State::Unknown { reconcile_after, .. } if reconcile_after <= now => Some(reconcile_after),
            _ => None,
        };
        let mut records: Vec<Record> =
            self.records().values().filter(|record| due(record).is_some()).cloned().collect();
        records.sort_by_key(|record| (due(record), record.operation_id));
        records.truncate(limit);
        Ok(records)
    }
}

#[async_trait]
impl Holds for BrokenStore {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        let hold = |(target, since): (&HoldTarget, &Timestamp)| Hold {
            target: target.clone(),
            since: *since,
            who: String::new(),
            why: String::new(),
        };
        Ok(BrokenStore::holds(self).iter().map(hold).collect())
    }

    async fn hold(&self, target: &HoldTarget, _: &Note) -> Result<HoldChange, StoreError> {
        let before = BrokenStore::holds(self).insert(target.clone(), self.clock.now());
        Ok(if before.is_none() { HoldChange::Done } else { HoldChange::AlreadySo })
    }

    async fn lift(&self, target: &HoldTarget, _: &Note) -> Result<HoldChange, StoreError> {
        let before = BrokenStore::holds(self).remove(target);
        Ok(if before.is_some() { HoldChange::Done } else { HoldChange::AlreadySo })
    }
}

#[async_trait]
impl Records for BrokenStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        let record = self.records().values().find(|record| record.operation_id == operation_id).cloned();
        Ok(Snapshot { record, now: self.clock.now() })
    }

    async fn notes(&self, _: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        Ok(Vec::new())
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        _: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let records = self.records();
        let Some(record) = records.values().find(|record| record.operation_id == operation_id) else {
            return Ok(None);
        };
        let kept = match (self.flaw, record.head.state) {
            (Some(Flaw::ErasesRequestsOfUnknowns), State::Unknown { .. }) => false,
            (Some(Flaw::KeepsRequestsForGood), _) => true,
            _ => record.head.keeps_request(),
        };
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(requests.get(&record.id).filter(|_| kept).cloned())
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let filter = match self.flaw {
            Some(Flaw::ListsRecordsOfEveryCaller) => Filter { caller: None, ..filter.clone() },
            _ => filter.clone(),
        };
        let mut records: Vec<Record> = self.records().values().cloned().collect();
        let is_after = |record: &Record| filter.after.is_none_or(|last| record.operation_id > last);
        records.retain(|record| filter.matches(record) && is_after(record));
        records.sort_by_key(|record| record.operation_id);
        let is_last = records.len() <= filter.limit || self.has(Flaw::EndsListsWithTheFirstPage);
        records.truncate(filter.limit);
        let next = records.last().map(|record| record.operation_id).filter(|_| !is_last);
        Ok(RecordPage { records, unreadable: Vec::new(), next })
    }

    async fn find_by_reference(
        &self,
        _: &str,
        _: &OperationName,
        _: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        Ok(Vec::new())
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        let names: BTreeSet<String> =
            self.records().values().map(|record| record.operation.to_string()).collect();
        Ok(names.into_iter().collect())
    }
}
