//! The protocol of Semel, pure: no I/O, no runtime, no clock of its own.
//!
//! Read [`state`] for the data, [`event`] and [`mod@transition`] for its changes, and [`store`] for its
//! storage. Everything else serves those: a [`key`] and a [`scope`] name a record, a [`fingerprint`]
//! identifies the requested command, a [`policy`] holds the operation's settings, a [`problem`] is an error
//! response.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod audit;
pub mod change;
pub mod command;
pub mod credential;
pub mod envelope;
pub mod event;
pub mod fields;
pub mod fingerprint;
pub mod formats;
pub mod history;
pub mod hold;
pub mod identity;
pub mod ids;
pub mod json;
pub mod jump;
pub mod keep;
pub mod key;
pub mod ledger;
pub mod local;
pub mod location;
pub mod method;
pub mod operation;
pub mod outbox;
pub mod outcome;
pub mod path;
pub mod pointer;
pub mod policy;
pub mod problem;
pub mod progress;
pub mod quota;
pub mod reading;
pub mod reconcile;
pub mod record;
pub mod redact;
pub mod reference;
pub mod request;
pub mod reseal;
pub mod response;
pub mod retry;
pub mod route;
pub mod scope;
pub mod sealing;
pub mod state;
pub mod store;
pub mod store_error;
pub mod store_fence;
pub mod terms;
pub mod text;
pub mod tier;
pub mod time;
pub mod trace;
pub mod transition;
pub mod vault;
pub mod waiting;
pub mod witness;

pub use audit::{AuditEntry, AuditId, AuditLog};
pub use change::{Change, Note, NoteTaken};
pub use command::Command;
pub use fingerprint::{Fingerprint, FingerprintInput};
pub use formats::Formats;
pub use history::{History, Step};
pub use hold::{Hold, HoldChange, HoldTarget, Holds};
pub use identity::StoreId;
pub use ids::{AttemptToken, Ids, OperationId, RandomIds};
pub use key::{IdempotencyKey, KeyError, KeyRules, KeySyntax};
pub use local::Transacted;
pub use location::StoreLocation;
pub use operation::OperationName;
pub use outbox::{Message, MessageState, Outbox};
pub use outcome::{Outcome, Settlement, is_server_error};
pub use pointer::JsonPointer;
pub use policy::Policy;
pub use problem::Problem;
pub use progress::{InvalidOutput, Item, Mark, OpenCall, Progress, StepKind};
pub use reconcile::{Evidence, LookUpAnswer, Statement};
pub use record::{Claim, Holder, Record, StoredResult};
pub use request::{Request, StoredRequest};
pub use reseal::Reseal;
pub use response::{Response, StoredResponse};
pub use retry::RetryAdvice;
pub use scope::{Principal, RecordId, Scope};
pub use state::{Epoch, Fence, Head, Reason, State, StateName};
pub use store::{
    AgedRecord, Backend, Census, CensusGroup, Filter, RecordPage, Records, ReferenceEntry, Snapshot, Store,
    StoreAnswer, UnreadableRecord, Upkeep,
};
pub use store_error::StoreError;
pub use store_fence::StoreFence;
pub use terms::Terms;
pub use tier::{Tier, TierTooLow};
pub use time::{BootTime, Clock, SteadyClock, SystemClock, Timestamp};
pub use trace::{Span, SpanRole, SpanValue, TraceContext, Tracer};
pub use transition::{
    About, Attempt, ClaimFence, Decision, Event, Lapse, Reference, Start, Transition, Write, transition,
};
pub use vault::{Plaintext, Sealed, Sealing, Vault, VaultError};
pub use waiting::{Waiting, WaitingFilter, WaitingPage, WaitingPlace, WaitingSearch};
pub use witness::{Beat, StorePoint, Witness, WitnessId, Witnessed};
