//! Faulty implementations that the simulation must find: a simulation that cannot fail proves nothing.

/// Deliberate fault in the implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The store acknowledges writes that it loses.
    LostWrite,
    /// The store accepts an outcome without a fence.
    NoFence,
    /// The store looks for a record first and inserts it later.
    RacyClaim,
    /// The store forgets settled records before their time.
    EarlyReap,
    /// The store's driver reports "unavailable" for a statement that may have been written.
    SilentCommit,
    /// A command that is not safe to repeat is rerun after lease expiry.
    Rerun,
    /// The lookup reports a final "not executed" as soon as the provider shows nothing.
    HastyVerdict,
    /// A call whose answer is late is retried at a provider that does not deduplicate.
    SecondCall,
    /// A claim says that it keeps its request, and brings none.
    MissingRequest,
}

impl Broken {
    /// Every fault.
    pub const ALL: [Broken; 9] = [
        Broken::LostWrite,
        Broken::NoFence,
        Broken::RacyClaim,
        Broken::EarlyReap,
        Broken::SilentCommit,
        Broken::Rerun,
        Broken::HastyVerdict,
        Broken::SecondCall,
        Broken::MissingRequest,
    ];

    /// Returns the name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Broken::LostWrite => "lost-write",
            Broken::NoFence => "no-fence",
            Broken::RacyClaim => "racy-claim",
            Broken::EarlyReap => "early-reap",
            Broken::SilentCommit => "silent-commit",
            Broken::Rerun => "rerun",
            Broken::HastyVerdict => "hasty-verdict",
            Broken::SecondCall => "second-call",
            Broken::MissingRequest => "missing-request",
        }
    }

    /// Returns the fault of this name.
    pub fn parse(name: &str) -> Option<Broken> {
        Broken::ALL.into_iter().find(|broken| broken.as_str() == name)
    }
}
