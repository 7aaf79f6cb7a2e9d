//! Wrong protocols, each close to the real one and built in practice. The model must refute every one of them: a
//! model that cannot tell them from the real protocol proves nothing.
//!
//! Variants that decide differently wrap `semel_core::store_fence::decide` here; variants that act differently are queried
//! where [`model`](crate::model) acts.

mod restored;

use semel_core::policy::OnLeaseExpired;
use semel_core::transition::{Proof, ReferenceWrite, Refusal, Transition, Verdict};
use semel_core::{Attempt, Decision, Event, Head, Reason, State, Timestamp, Write};

use crate::configuration::Configuration;
use crate::promises::Promise;
use crate::shipped;

pub use restored::ALL as RESTORED;

/// Wrong protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// An expired lease frees the key.
    SweepFrees,
    /// A duplicate takes over an expired lease.
    StealsEndedLease,
    /// "No record" at the provider frees the key at once.
    NoRecordFrees,
    /// A lookup that began before the end of the quarantine counts after it.
    OldLookCounts,
    /// The quarantine ends with the lease.
    QuarantineIsLease,
    /// The store takes an executor's outcome without a fence.
    NoFence,
    /// The store takes an executor's outcome by its epoch alone.
    EpochOnly,
    /// The reaper deletes commands in progress.
    ReapsProcessing,
    /// The reaper deletes commands with an unknown outcome.
    ReapsUnknown,
    /// A claim does not compare payloads.
    ProgressBeforeMismatch,
    /// Memory answers with records that are not settled.
    MemoryOfUnsettled,
    /// Memory is never compared with the store.
    MemoryOutlivesPurge,
    /// A waiter executes after its timeout.
    WaiterExecutes,
    /// An executor does not check its lease before the call.
    NoLeaseCheck,
    /// An unconfirmed claim is released, also if another attempt holds it.
    ReleaseWithoutToken,
    /// A claim whose answer was lost is retried under another token.
    FreshToken,
    /// The client gets its answer before the response is stored.
    TellsBeforeStoring,
    /// A zombie gives its client its own result.
    OwnResultWhenFenced,
    /// The business reference is looked up before the claim, not with it.
    ReferenceOutsideClaim,
    /// A handler error counts as not executed.
    ErrorMeansNotExecuted,
    /// A phase that was begun is called again, though the provider does not deduplicate.
    RepeatsBegunPhase,
    /// A worker starts a command that it saw waiting, also if another worker has started it meanwhile.
    StartWithoutFence,
    /// An executor sleeps for longer than the margin between the lease check and the call.
    SleepyExecutor,
    /// The store's clock leaps while a quarantine runs.
    LeapInQuarantine,
    /// An operator may free a key that a provider with deduplication reported as not executed so far.
    FreedTwice,
    /// An unconfirmed claim of an asynchronous command is answered with "nothing ran".
    UnconfirmedButRun,
    /// The next attempt forgets that an earlier one may have run.
    ForgetsEarlierAttempts,
    /// Evidence of the effect is refused once the key is free.
    LateEvidenceRefused,
    /// Evidence does not name its attempt.
    NamelessEvidence,
    /// A restored store is not fenced.
    RestoredWithoutFence,
    /// The fence lets claims through on commands that count as not executed.
    FailuresUnfenced,
    /// The fence lets claims through on commands with a business reference, once evidence has freed them.
    ReferenceUnfenced,
    /// An attempt's own word that nothing ran ends a doubt.
    DoubtReleased,
    /// A look-up of a command in doubt counts at once.
    DoubtLookedUpEarly,
    /// A look-up of a command in doubt asks about the operation id of its record.
    LookedUpById,
    /// The word of a provider that deduplicates on the operation id counts at once for a command in doubt.
    DoubtDeduplicated,
    /// The quarantine of an outcome that was unknown before the restore stays as it was.
    OldQuarantine,
    /// A lease that ends under the fence frees its command, and claims on it pass the fence.
    LapsesUnfenced,
    /// A sweep makes no doubt of what was open before the fence.
    SweepsUnfenced,
    /// Commands that were open before the fence are in doubt from its lift on, not from the first statement under it.
    DoubtedAtLift,
    /// The lift leaves what was open before the fence as it is, if no statement has reached it.
    LiftedWithoutDoubt,
}

/// Case: a variant, and the promise that it breaks.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The variant.
    pub variant: Variant,
    /// Name of the case.
    pub name: &'static str,
    /// Description of the fault.
    pub what: &'static str,
    /// The promise that it breaks.
    pub breaks: Promise,
    /// Configuration that refutes the variant.
    pub configuration: &'static Configuration,
}

/// Cases of variants that must be refuted, without those of a restored store.
pub const ALL: [Case; 29] = [
    case(Variant::SweepFrees, "sweep-frees", "the sweeper frees what has an ended lease", Promise::OneEffect),
    case(
        Variant::StealsEndedLease,
        "steals-ended-lease",
        "a duplicate takes over a lease that has ended",
        Promise::OneEffect,
    ),
    case(
        Variant::NoRecordFrees,
        "no-record-frees",
        "the provider's \"no record\" frees the key at once",
        Promise::OneEffect,
    ),
    case(
        Variant::OldLookCounts,
        "old-look-counts",
        "a look that began before the quarantine's end frees the key after it",
        Promise::OneEffect,
    )
    .on(&shipped::TWO_AND_A_LEAP),
    case(
        Variant::QuarantineIsLease,
        "quarantine-is-lease",
        "the quarantine does not wait for calls that are on their way",
        Promise::OneEffect,
    ),
    case(Variant::NoFence, "no-fence", "an executor's word counts without a fence", Promise::OneEffect)
        .on(&shipped::THREE_TO_ONE),
    case(
        Variant::EpochOnly,
        "epoch-only",
        "an executor's word counts by its epoch alone, without its token",
        Promise::OneEffect,
    )
    .on(&shipped::THREE_AND_AN_OPERATOR),
    case(
        Variant::ReapsProcessing,
        "reaps-processing",
        "the reaper takes what is still in hand",
        Promise::OneEffect,
    ),
    case(
        Variant::ReapsUnknown,
        "reaps-unknown",
        "the reaper takes what nobody knows about",
        Promise::OneEffect,
    ),
    case(
        Variant::ProgressBeforeMismatch,
        "progress-before-mismatch",
        "whether the payload is another one is not asked first",
        Promise::OtherPayload,
    )
    .on(&shipped::OTHER_PAYLOAD),
    case(
        Variant::MemoryOfUnsettled,
        "memory-of-unsettled",
        "memory answers with records that are not settled",
        Promise::FinalStays,
    )
    .on(&shipped::THREE),
    case(
        Variant::MemoryOutlivesPurge,
        "memory-outlives-purge",
        "memory is never compared with the store",
        Promise::EqualAnswers,
    )
    .on(&shipped::THREE_AND_AN_OPERATOR),
    case(
        Variant::WaiterExecutes,
        "waiter-executes",
        "a duplicate that has waited long enough executes",
        Promise::OneEffect,
    ),
    case(
        Variant::NoLeaseCheck,
        "no-lease-check",
        "an executor does not look at its lease before it sends",
        Promise::OneEffect,
    ),
    case(
        Variant::ReleaseWithoutToken,
        "release-without-token",
        "a claim that could not be confirmed is released, whoever holds it",
        Promise::OneEffect,
    )
    .on(&shipped::THREE_AND_A_LOSS),
    case(
        Variant::FreshToken,
        "fresh-token",
        "a claim whose answer was lost is sent again under another token",
        Promise::NobodyWaitsForHimself,
    )
    .on(&shipped::TWO_AND_A_LOSS),
    case(
        Variant::TellsBeforeStoring,
        "tells-before-storing",
        "the client is told before the response is stored",
        Promise::FinalStays,
    )
    .on(&shipped::TWO_AND_A_CRASH),
    case(
        Variant::OwnResultWhenFenced,
        "own-result-when-fenced",
        "an executor that was overruled tells its client its own result",
        Promise::EqualAnswers,
    ),
    case(
        Variant::ReferenceOutsideClaim,
        "reference-outside-claim",
        "the business reference is looked up before the claim, not with it",
        Promise::OneEffectPerReference,
    )
    .on(&shipped::REFERENCE),
    case(
        Variant::ErrorMeansNotExecuted,
        "error-means-not-executed",
        "a call without an answer counts as not executed",
        Promise::OneEffect,
    ),
    case(
        Variant::RepeatsBegunPhase,
        "repeats-begun-phase",
        "a phase that was begun is called again, though nobody deduplicates",
        Promise::OneEffect,
    )
    .on(&shipped::PHASES),
    case(
        Variant::StartWithoutFence,
        "start-without-fence",
        "a worker starts what it has seen waiting, whoever has started it meanwhile",
        Promise::OneEffect,
    )
    .on(&shipped::ONE_FOR_WORKERS),
    case(
        Variant::OldLookCounts,
        "sleepy-reconciler",
        "the word of a reconciler that slept through another attempt counts, whenever it looked",
        Promise::OneEffect,
    )
    .on(&shipped::SLEEPY_RECONCILER),
    case(
        Variant::FreedTwice,
        "freed-twice",
        "an operator frees a key at once after a provider that deduplicates has said \"no record\"",
        Promise::OneEffect,
    )
    .on(&shipped::DEDUPLICATES_AND_AN_OPERATOR),
    case(
        Variant::UnconfirmedButRun,
        "unconfirmed-but-run",
        "a claim for a worker arrives after its client was told that nothing ran, and is run",
        Promise::NothingRan,
    )
    .on(&shipped::ASYNC),
    case(
        Variant::ForgetsEarlierAttempts,
        "forgotten-after-verdict",
        "a retry that did not run gives the business reference back, while a call that the provider had not seen can land",
        Promise::OneEffectPerReference,
    )
    .on(&shipped::REFERENCE_AND_DEDUPLICATION),
    case(
        Variant::ForgetsEarlierAttempts,
        "forgotten-after-lease",
        "a retry that did not run gives the business reference back, while a call from before the lease ended can land",
        Promise::OneEffectPerReference,
    )
    .on(&shipped::REFERENCE_AND_RERUN),
    case(
        Variant::LateEvidenceRefused,
        "late-evidence-refused",
        "evidence of the effect that comes after \"not executed\" is refused, and the key runs again",
        Promise::HeardIsNotRun,
    )
    .on(&shipped::LATE_EVIDENCE),
    case(
        Variant::NamelessEvidence,
        "nameless-evidence",
        "evidence of an attempt before a rerun is taken for evidence of the last one",
        Promise::SecondEffectIsLoud,
    )
    .on(&shipped::LATE_EVIDENCE),
];

/// Cases that violate an assumption about the environment of the real protocol.
pub const ASSUMED: [Case; 2] = [
    case(
        Variant::SleepyExecutor,
        "sleepy-executor",
        "an executor sleeps for longer than the margin between looking at its lease and sending",
        Promise::OneEffect,
    ),
    case(
        Variant::LeapInQuarantine,
        "leap-in-quarantine",
        "the store's clock leaps forward while a quarantine runs",
        Promise::OneEffect,
    )
    .on(&shipped::TWO_AND_TWO_LEAPS),
];

const fn case(variant: Variant, name: &'static str, what: &'static str, breaks: Promise) -> Case {
    Case { variant, name, what, breaks, configuration: &shipped::TWO }
}

impl Case {
    const fn on(self, configuration: &'static Configuration) -> Case {
        Case { configuration, ..self }
    }
}

/// Returns every case that must be refuted.
pub fn all() -> impl Iterator<Item = &'static Case> {
    ALL.iter().chain(&RESTORED)
}

/// Returns the decision of the `real` protocol, as changed by the variant.
pub(crate) fn decide(
    variant: Option<Variant>,
    head: Option<&Head>,
    event: &Event,
    now: Timestamp,
    real: impl Fn(Option<&Head>, &Event) -> Transition,
) -> Transition {
    let (Some(variant), Some(head)) = (variant, head) else { return real(head, event) };
    match variant {
        Variant::SweepFrees => {
            let mut head = *head;
            head.terms.on_lease_expired = OnLeaseExpired::Rerun;
            real(Some(&head), event)
        }
        Variant::StealsEndedLease => match (event, head.state) {
            (Event::Claim(attempt), State::Processing { lease_until, .. }) if lease_until <= now => {
                let freed =
                    head.moved(State::FailedRetryable { expires_at: Timestamp::MAX }, Reason::Claimed);
                real(Some(&freed), &Event::Claim(*attempt))
            }
            _ => real(Some(head), event),
        },
        Variant::QuarantineIsLease => {
            let mut head = *head;
            head.terms.quarantine = head.terms.lease;
            real(Some(&head), event)
        }
        Variant::NoFence => real(Some(head), &fenced_as(event, |_| head.fence())),
        Variant::EpochOnly => real(
            Some(head),
            &fenced_as(event, |fence| semel_core::Fence { epoch: fence.epoch, token: head.token }),
        ),
        Variant::ReapsProcessing => match (event, head.state) {
            (Event::Age, State::Processing { lease_until, .. }) if lease_until <= now => {
                forgotten(real(Some(head), event))
            }
            _ => real(Some(head), event),
        },
        Variant::ReapsUnknown => match (event, head.state) {
            (Event::Age, State::Unknown { .. }) => forgotten(real(Some(head), event)),
            _ => real(Some(head), event),
        },
        Variant::ProgressBeforeMismatch => match *event {
            Event::Claim(attempt) => {
                real(Some(head), &Event::Claim(Attempt { fingerprint: head.fingerprint, ..attempt }))
            }
            _ => real(Some(head), event),
        },
        Variant::StartWithoutFence => match *event {
            Event::Start { token, .. } if matches!(head.state, State::Processing { .. }) => {
                let started = Head { token, ..*head };
                Transition {
                    write: Write::Update(started),
                    decision: Decision::Execute,
                    ..real(Some(head), event)
                }
            }
            _ => real(Some(head), event),
        },
        Variant::RestoredWithoutFence
        | Variant::FailuresUnfenced
        | Variant::ReferenceUnfenced
        | Variant::LookedUpById
        | Variant::LapsesUnfenced
        | Variant::SweepsUnfenced
        | Variant::DoubtedAtLift
        | Variant::LiftedWithoutDoubt
        | Variant::OldQuarantine
        | Variant::NoRecordFrees
        | Variant::OldLookCounts
        | Variant::MemoryOfUnsettled
        | Variant::MemoryOutlivesPurge
        | Variant::WaiterExecutes
        | Variant::NoLeaseCheck
        | Variant::ReleaseWithoutToken
        | Variant::FreshToken
        | Variant::TellsBeforeStoring
        | Variant::OwnResultWhenFenced
        | Variant::ReferenceOutsideClaim
        | Variant::ErrorMeansNotExecuted
        | Variant::RepeatsBegunPhase
        | Variant::SleepyExecutor
        | Variant::LeapInQuarantine
        | Variant::NamelessEvidence
        | Variant::UnconfirmedButRun => real(Some(head), event),
        Variant::LateEvidenceRefused => match (event, head.state) {
            (Event::Resolve { .. }, State::FailedRetryable { .. }) => Transition {
                write: Write::Keep,
                reference: ReferenceWrite::Keep,
                decision: Decision::Refused(Refusal::WrongState),
                ..real(Some(head), event)
            },
            _ => real(Some(head), event),
        },
        Variant::ForgetsEarlierAttempts => real(Some(&Head { earlier_may_have_run: false, ..*head }), event),
        Variant::DoubtReleased => {
            let says_nothing_ran = matches!(event, Event::Release { .. } | Event::Requeue { .. });
            let reason =
                if says_nothing_ran && head.is_in_doubt() { Reason::LeaseExpired } else { head.reason };
            real(Some(&Head { reason, ..*head }), event)
        }
        Variant::DoubtDeduplicated => {
            let deduplicates = Verdict::NotExecuted(Proof::ProviderDeduplicates);
            let is_so = matches!(event, Event::Resolve { verdict, .. } if *verdict == deduplicates)
                && head.is_in_doubt();
            let reason = if is_so { Reason::LeaseExpired } else { head.reason };
            real(Some(&Head { reason, ..*head }), event)
        }
        Variant::DoubtLookedUpEarly => {
            let mut head = *head;
            if let (true, State::Unknown { quarantine_until, .. }) = (head.is_in_doubt(), &mut head.state) {
                *quarantine_until = now;
            }
            real(Some(&head), event)
        }
        Variant::FreedTwice => {
            let mut head = *head;
            if matches!(event, Event::Free) && head.reason == Reason::VerdictDeduplicated {
                head.reason = Reason::VerdictNotExecuted;
            }
            real(Some(&head), event)
        }
    }
}

/// Returns the event under the fence that `make` makes of its own.
fn fenced_as(event: &Event, make: impl Fn(semel_core::Fence) -> semel_core::Fence) -> Event {
    match *event {
        Event::Complete { fence } => Event::Complete { fence: make(fence) },
        Event::Fail { fence, reason } => Event::Fail { fence: make(fence), reason },
        Event::Release { fence, reason } => Event::Release { fence: make(fence), reason },
        Event::Abandon { fence, reason } => Event::Abandon { fence: make(fence), reason },
        other => other,
    }
}

fn forgotten(step: Transition) -> Transition {
    Transition { write: Write::Delete, decision: Decision::Applied, ..step }
}
