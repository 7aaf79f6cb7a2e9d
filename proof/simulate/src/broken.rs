//! Wrong ways to do it, each of which must be found: a simulation that cannot fail proves nothing.

/// Something that is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The store answers for writes that it loses.
    LostWrite,
    /// The store takes anybody's word for the executor's.
    NoFence,
    /// The store looks for a record first, and makes it later.
    RacyClaim,
    /// The store forgets settled records before their time.
    EarlyReap,
    /// The store's driver says "unavailable" of what it may have written.
    SilentCommit,
    /// A command that is not safe to repeat is run again when its lease has ended.
    Rerun,
    /// The look-up says "not executed" for good as soon as the provider shows nothing.
    HastyVerdict,
    /// A call whose answer is late is sent again to a provider that does not deduplicate.
    SecondCall,
    /// A claim says that its request is kept, and brings none.
    MissingRequest,
}

impl Broken {
    /// All of them.
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

    /// Its name on the command line.
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

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Broken> {
        Broken::ALL.into_iter().find(|broken| broken.as_str() == name)
    }
}
