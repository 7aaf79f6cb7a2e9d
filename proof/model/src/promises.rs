//! Promises of the protocol, by name. `invariants.rs` defines each one for a world.

/// A promise of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Promise {
    /// A key has at most one effect before its record has expired.
    OneEffect,
    /// A success has exactly one effect and names it; a stable failure has none.
    SuccessNamesEffect,
    /// All final answers are equal, and no request gets one from before the key's present life.
    EqualAnswers,
    /// Another payload has no effect, gets no stored answer, and learns nothing of the command.
    OtherPayload,
    /// An unknown outcome ends by true evidence that nothing can overtake, or by its executor's word.
    EvidenceEndsUnknown,
    /// A settled record changes only by expiry or a purge.
    SettledStays,
    /// Epochs rise, and only the current executor's word counts.
    HoldersWord,
    /// Every effect follows a stored claim.
    ClaimBeforeEffect,
    /// A request that was told "nothing ran" has no effect, then or later.
    NothingRan,
    /// After one final answer, no later request runs, or finds the command in progress, unknown or vacant, until the
    /// record is forgotten.
    FinalStays,
    /// The sweeper ends every command in progress, also after its executor died or fell silent.
    NothingStaysInHand,
    /// No record is forgotten before it is settled, or before its time.
    NothingForgottenEarly,
    /// A business reference has at most one effect, whatever keys it comes under.
    OneEffectPerReference,
    /// No request waits for a claim of its own.
    NobodyWaitsForHimself,
    /// A command with evidence of its effect is not run again.
    HeardIsNotRun,
    /// Evidence of an attempt that was declared not executed and then run again is a contradiction.
    SecondEffectIsLoud,
    /// Under the fence of a restored store, a command of which the store lost something begins only after evidence.
    LostIsNotRun,
}

impl Promise {
    /// Every promise.
    pub const ALL: [Promise; 17] = [
        Promise::OneEffect,
        Promise::SuccessNamesEffect,
        Promise::EqualAnswers,
        Promise::OtherPayload,
        Promise::EvidenceEndsUnknown,
        Promise::SettledStays,
        Promise::HoldersWord,
        Promise::ClaimBeforeEffect,
        Promise::NothingRan,
        Promise::FinalStays,
        Promise::NothingStaysInHand,
        Promise::NothingForgottenEarly,
        Promise::OneEffectPerReference,
        Promise::NobodyWaitsForHimself,
        Promise::HeardIsNotRun,
        Promise::SecondEffectIsLoud,
        Promise::LostIsNotRun,
    ];

    /// Returns the promise in words.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::OneEffect => "at most one effect",
            Promise::SuccessNamesEffect => "a success has exactly one effect, and names it",
            Promise::EqualAnswers => "all final answers are equal",
            Promise::OtherPayload => "another payload gets nothing",
            Promise::EvidenceEndsUnknown => "only evidence ends an unknown outcome",
            Promise::SettledStays => "a settled record does not change",
            Promise::HoldersWord => "epochs rise, and only the holder's word counts",
            Promise::ClaimBeforeEffect => "no effect without a claim before it",
            Promise::NothingRan => "who was told that nothing ran has no effect",
            Promise::FinalStays => "final stays final",
            Promise::NothingStaysInHand => "nothing stays in hand",
            Promise::NothingForgottenEarly => "nothing is forgotten early",
            Promise::OneEffectPerReference => "at most one effect for a business reference",
            Promise::NobodyWaitsForHimself => "nobody waits for a claim of his own",
            Promise::HeardIsNotRun => "what was heard to have taken place is not run again",
            Promise::SecondEffectIsLoud => "evidence of a second effect is loud",
            Promise::LostIsNotRun => "what a restore lost does not begin under the fence",
        }
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}
