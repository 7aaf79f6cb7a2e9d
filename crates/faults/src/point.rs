//! Points at which a process can be held, and levers that act inside of it.

macro_rules! points {
    ($($(#[$about:meta])* $variant:ident = $name:literal,)*) => {
        /// A point in the code, named after the step that has just happened or is about to happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Point {
            $($(#[$about])* $variant,)*
        }

        impl Point {
            /// All points.
            pub const ALL: &[Point] = &[$(Point::$variant),*];

            /// Returns the point's name, which is also its file name.
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
    /// SQLite: a transaction with a claim was committed; its caller does not know yet.
    ClaimCommitted = "claim-committed",
    /// SQLite: a transaction in which a worker starts a command is about to begin.
    StartSent = "start-sent",
    /// SQLite: a transaction in which a worker started a command was committed; the worker does not know yet.
    StartCommitted = "start-committed",
    /// A command was acquired, and its handler is about to be called.
    HandlerCalled = "handler-called",
    /// A handler has answered to the last byte; no outcome is written.
    HandlerAnswered = "handler-answered",
    /// SQLite: a transaction with the outcome of a command is about to begin.
    SettlementSent = "settlement-sent",
    /// SQLite: a transaction with the outcome of a command was committed; the executor does not know yet.
    SettlementCommitted = "settlement-committed",
    /// A settled record is about to enter the memory cache.
    CacheFilled = "cache-filled",
    /// A command is settled, and its response is about to be sent.
    ResponseOut = "response-out",
    /// SQLite: a transaction with a renewed lease is about to begin.
    RenewalSent = "renewal-sent",
    /// SQLite: a transaction with a renewed lease was committed; the executor does not know yet.
    RenewalCommitted = "renewal-committed",
    /// SQLite: a transaction of the service itself, with a command in it, is about to begin.
    WorkAhead = "work-ahead",
    /// The work of a command has added a message to the outbox; nothing is committed.
    MessagePushed = "message-pushed",
    /// The work of a command is done and its response written; nothing is committed.
    WorkDone = "work-done",
    /// The work of a command is committed; its caller does not know yet.
    WorkCommitted = "work-committed",
    /// A message was taken from the outbox, and is about to be sent.
    MessageTaken = "message-taken",
    /// The receiver has accepted a message; nothing is written about the delivery.
    MessageAccepted = "message-accepted",
    /// The receiver's reference for a message is written; its delivery is not.
    ReferenceWritten = "reference-written",
    /// A worker is done with a message; its write may have counted or not.
    MessageLeft = "message-left",
    /// SQLite: a transaction with an unsolicited event (evidence) is about to begin.
    EvidenceSent = "evidence-sent",
    /// SQLite: a transaction with an unsolicited event (evidence) was committed; its caller does not know yet.
    EvidenceCommitted = "evidence-committed",
    /// SQLite: a transaction with a verdict about an unknown command is about to begin.
    VerdictSent = "verdict-sent",
    /// SQLite: a transaction with a verdict about an unknown command was committed; its caller does not know yet.
    VerdictCommitted = "verdict-committed",
    /// A maintenance command of the command line has opened its store, and done nothing yet.
    UpkeepBegun = "upkeep-begun",
    /// SQLite: a transaction that sweeps expired leases is about to begin.
    SweepSent = "sweep-sent",
    /// SQLite: a transaction that swept expired leases was committed; its caller does not know yet.
    SweepCommitted = "sweep-committed",
    /// SQLite: a transaction that reaps expired records is about to begin.
    ReapSent = "reap-sent",
    /// SQLite: a transaction that reaped expired records was committed; its caller does not know yet.
    ReapCommitted = "reap-committed",
    /// SQLite: due records were read within a transaction; no change of them is written.
    DueRead = "due-read",
    /// SQLite: a transaction that reseals records under a new key is about to begin.
    ResealSent = "reseal-sent",
    /// SQLite: a transaction that resealed records under a new key was committed; its caller does not know yet.
    ResealCommitted = "reseal-committed",
    /// SQLite: a transaction that migrates the schema is about to begin.
    MigrationSent = "migration-sent",
    /// SQLite: the schema is migrated within a transaction; nothing is committed.
    MigrationWritten = "migration-written",
    /// SQLite: the schema is migrated, and the transaction is committed.
    MigrationCommitted = "migration-committed",
}

/// An action of a test inside of a process, for effects that cannot be had from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lever {
    /// Offset of the store's time from the database's, in milliseconds.
    Clock(i64),
    /// Forward jump of the store's clock since the process began, in milliseconds.
    Jump(i64),
    /// Executes the next write and loses its answer.
    LoseAnswer,
    /// Makes the database read-only if true, writable again if false.
    ReadOnly(bool),
    /// SQLite: executes the next COMMIT of a service's own transaction and loses its answer.
    LoseCommit,
}

impl Lever {
    /// Returns the lever's name, which is also its file name.
    pub fn name(self) -> &'static str {
        match self {
            Lever::Clock(_) => "lever-clock",
            Lever::Jump(_) => "lever-jump",
            Lever::LoseAnswer => "lever-lose-answer",
            Lever::ReadOnly(_) => "lever-read-only",
            Lever::LoseCommit => "lever-lose-commit",
        }
    }

    /// Returns the content of the lever's file.
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
