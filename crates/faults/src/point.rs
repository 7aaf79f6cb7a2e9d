//! Where a process can be held, and what can be done to it from inside.

macro_rules! points {
    ($($(#[$about:meta])* $variant:ident = $name:literal,)*) => {
        /// A place in the code. Each is named after what has just happened, or is about to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Point {
            $($(#[$about])* $variant,)*
        }

        impl Point {
            /// Every place.
            pub const ALL: &[Point] = &[$(Point::$variant),*];

            /// Its name, which is also that of its file.
            pub fn name(self) -> &'static str {
                match self {
                    $(Point::$variant => $name,)*
                }
            }
        }
    };
}

points! {
    /// A request was read and is a command; nothing was looked up and nothing was claimed.
    RequestRead = "request-read",
    /// SQLite: a transaction with a claim is about to begin.
    ClaimSent = "claim-sent",
    /// SQLite: a transaction with a claim was committed, and nobody has been told.
    ClaimCommitted = "claim-committed",
    /// SQLite: a transaction in which a worker starts a command is about to begin.
    StartSent = "start-sent",
    /// SQLite: a transaction in which a worker started a command was committed, and nobody has been told.
    StartCommitted = "start-committed",
    /// A command was acquired, and its handler is about to be called.
    HandlerCalled = "handler-called",
    /// A handler has answered to the last byte; nothing was written about it.
    HandlerAnswered = "handler-answered",
    /// SQLite: a transaction with what came of a command is about to begin.
    SettlementSent = "settlement-sent",
    /// SQLite: a transaction with what came of a command was committed, and nobody has been told.
    SettlementCommitted = "settlement-committed",
    /// A settled record is about to go into memory.
    CacheFilled = "cache-filled",
    /// A command is settled, and its answer is about to go out.
    ResponseOut = "response-out",
    /// SQLite: a transaction with a renewed lease is about to begin.
    RenewalSent = "renewal-sent",
    /// SQLite: a transaction with a renewed lease was committed, and nobody has been told.
    RenewalCommitted = "renewal-committed",
    /// SQLite: a transaction of a service's own, with a command in it, is about to begin.
    WorkAhead = "work-ahead",
    /// The work of a command has added a message to the outbox; nothing is committed.
    MessagePushed = "message-pushed",
    /// The work of a command is done and its response written; nothing is committed.
    WorkDone = "work-done",
    /// The work of a command is committed, and nobody has been told.
    WorkCommitted = "work-committed",
    /// A message was taken from the outbox, and is about to be sent.
    MessageTaken = "message-taken",
    /// The receiver has accepted a message; nothing was written about it.
    MessageAccepted = "message-accepted",
    /// What the receiver calls a message was written; that it is delivered was not.
    ReferenceWritten = "reference-written",
    /// A worker has nothing more to do about a message, whether what it wrote counted or not.
    MessageLeft = "message-left",
    /// SQLite: a transaction with an event that came by itself is about to begin.
    EvidenceSent = "evidence-sent",
    /// SQLite: a transaction with such an event was committed, and nobody has been told.
    EvidenceCommitted = "evidence-committed",
    /// SQLite: a transaction with a verdict about an unknown command is about to begin.
    VerdictSent = "verdict-sent",
    /// SQLite: a transaction with a verdict was committed, and nobody has been told.
    VerdictCommitted = "verdict-committed",
    /// A command line that looks after a store has opened it, and done nothing yet.
    UpkeepBegun = "upkeep-begun",
    /// SQLite: a transaction that ends leases is about to begin.
    SweepSent = "sweep-sent",
    /// SQLite: a transaction that ended leases was committed, and nobody has been told.
    SweepCommitted = "sweep-committed",
    /// SQLite: a transaction that forgets records is about to begin.
    ReapSent = "reap-sent",
    /// SQLite: a transaction that forgot records was committed, and nobody has been told.
    ReapCommitted = "reap-committed",
    /// SQLite: what is due was read within a transaction, and nothing of it is written.
    DueRead = "due-read",
    /// SQLite: a transaction that seals anew is about to begin.
    ResealSent = "reseal-sent",
    /// SQLite: a transaction that sealed anew was committed, and nobody has been told.
    ResealCommitted = "reseal-committed",
    /// SQLite: a transaction that brings the tables forward is about to begin.
    MigrationSent = "migration-sent",
    /// SQLite: the tables were brought forward, and nothing is committed.
    MigrationWritten = "migration-written",
    /// SQLite: the tables were brought forward, and that is committed.
    MigrationCommitted = "migration-committed",
}

/// What a test may do inside of a process, because nothing outside can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lever {
    /// The store's present is so many milliseconds away from the database's.
    Clock(i64),
    /// The store's clock was set so many milliseconds forward since the process began.
    Jump(i64),
    /// The next write is made, and its answer lost.
    LoseAnswer,
    /// The database takes no writes, or does again.
    ReadOnly(bool),
    /// SQLite: the next COMMIT of a service's own transaction is made, and its answer lost.
    LoseCommit,
}

impl Lever {
    /// Its name, which is also that of its file.
    pub fn name(self) -> &'static str {
        match self {
            Lever::Clock(_) => "lever-clock",
            Lever::Jump(_) => "lever-jump",
            Lever::LoseAnswer => "lever-lose-answer",
            Lever::ReadOnly(_) => "lever-read-only",
            Lever::LoseCommit => "lever-lose-commit",
        }
    }

    /// What its file says.
    pub fn value(self) -> String {
        match self {
            Lever::Clock(millis) | Lever::Jump(millis) => millis.to_string(),
            Lever::LoseAnswer | Lever::LoseCommit => String::new(),
            Lever::ReadOnly(is_so) => is_so.to_string(),
        }
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn read(name: &str, value: &str) -> Option<Lever> {
        match name {
            "lever-clock" => value.parse().ok().map(Lever::Clock),
            "lever-jump" => value.parse().ok().map(Lever::Jump),
            "lever-lose-answer" => Some(Lever::LoseAnswer),
            "lever-read-only" => value.parse().ok().map(Lever::ReadOnly),
            "lever-lose-commit" => Some(Lever::LoseCommit),
            _ => None,
        }
    }
}
