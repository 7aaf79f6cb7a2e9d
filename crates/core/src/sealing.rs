//! The associated data of everything that a vault seals: its kind and its owner.
//!
//! Invariant: no two items have the same associated data, so that sealed bytes open only in their own place:
//! for their record, command, attempt and kind.

use bytes::BufMut;

use crate::event::Event;
use crate::fingerprint::Fingerprint;
use crate::ids::OperationId;
use crate::reconcile::Statement;
use crate::record::{Claim, Record};
use crate::scope::{Principal, RecordId};
use crate::state::{Epoch, SettledBy, State};

/// Kind of a sealed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SealedKind {
    /// The response of a settled command.
    Response,
    /// The request of a command that waits for a worker.
    Request,
    /// The response that evidence brings, before it settles its command.
    Evidence,
    /// The output of a phase.
    Phase,
    /// The payload of a message.
    Message,
}

impl SealedKind {
    /// Every kind.
    pub const ALL: [SealedKind; 5] = [
        SealedKind::Response,
        SealedKind::Request,
        SealedKind::Evidence,
        SealedKind::Phase,
        SealedKind::Message,
    ];

    /// Returns the kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            SealedKind::Response => "response",
            SealedKind::Request => "request",
            SealedKind::Evidence => "evidence",
            SealedKind::Phase => "phase",
            SealedKind::Message => "message",
        }
    }
}

/// Settler of a command, for the seal of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settler {
    /// The executor of this epoch.
    Executor(Epoch),
    /// Evidence about the command, from outside of its executor.
    Verdict,
    /// No settler: the command is open, and has no response.
    Nobody,
}

impl Settler {
    /// Returns the settler of a command that this event settles.
    pub fn of_event(event: &Event) -> Settler {
        match event {
            Event::Complete { fence } | Event::Fail { fence, .. } => Settler::Executor(fence.epoch),
            Event::Resolve { .. } => Settler::Verdict,
            Event::Claim(_)
            | Event::Look { .. }
            | Event::Start { .. }
            | Event::Renew { .. }
            | Event::Release { .. }
            | Event::Requeue { .. }
            | Event::Defer { .. }
            | Event::Abandon { .. }
            | Event::Advance
            | Event::Age
            | Event::ResolvePhase { .. }
            | Event::Postpone { .. }
            | Event::Free
            | Event::Doubt
            | Event::Purge => Settler::Nobody,
        }
    }

    /// Returns the settler of a command of this epoch in this state.
    pub fn of_state(state: &State, epoch: Epoch) -> Settler {
        match state {
            State::Succeeded { settled_by, .. } | State::FailedFinal { settled_by, .. } => {
                Settler::by(*settled_by, epoch)
            }
            State::Claimed { .. }
            | State::Processing { .. }
            | State::FailedRetryable { .. }
            | State::Unknown { .. }
            | State::Expired { .. } => Settler::Nobody,
        }
    }

    /// Returns the settler of a command of this epoch.
    pub fn by(settled_by: SettledBy, epoch: Epoch) -> Settler {
        match settled_by {
            SettledBy::Executor => Settler::Executor(epoch),
            SettledBy::Verdict => Settler::Verdict,
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        match self {
            Settler::Executor(epoch) => [b"executor ".as_slice(), &epoch.to_be_bytes()].concat(),
            Settler::Verdict => b"verdict".to_vec(),
            Settler::Nobody => b"nobody".to_vec(),
        }
    }
}

/// Associated data of a sealed item. Only the constructors build it, so that sealing and opening agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealing {
    associated: Vec<u8>,
}

/// Prefix that distinguishes this associated data from that of other programs, and from later forms of it.
const DOMAIN: &[u8] = b"semel sealed v1";

impl Sealing {
    /// Returns the data of a response with this status: that of one command, settled by one executor or by
    /// evidence.
    pub fn response(
        id: &RecordId,
        operation_id: OperationId,
        settler: Settler,
        status: u16,
        format: u8,
    ) -> Sealing {
        let parts =
            [id.as_bytes(), operation_id.as_bytes().as_slice(), &settler.to_bytes(), &status.to_be_bytes()];
        Sealing::new(SealedKind::Response, format, &parts)
    }

    /// Returns the data of this record's response with this status.
    pub fn result(record: &Record, status: u16, format: u8) -> Sealing {
        let settler = Settler::of_state(&record.head.state, record.head.epoch);
        Sealing::response(&record.id, record.operation_id, settler, status, format)
    }

    /// Returns the data of a claim's request. Before the claim is decided, neither its record nor its
    /// operation id is certain: a live record under a former name of the operation keeps both. The sender of
    /// the request checks that its key is that of the record.
    pub fn claim(claim: &Claim, format: u8) -> Sealing {
        let (scope, fingerprint) = (&claim.scope, &claim.attempt.fingerprint);
        Sealing::request_of(scope.principal(), &scope.key().hash_prefix(), fingerprint, format)
    }

    /// Returns the data of this record's stored request: equal to that of the claim that brought it.
    pub fn request(record: &Record, format: u8) -> Sealing {
        let Record { principal, key_hash_prefix, head, .. } = record;
        Sealing::request_of(principal, key_hash_prefix, &head.fingerprint, format)
    }

    /// Returns the data of the stored request of a record with these parts.
    pub fn request_of(
        principal: &Principal,
        key_hash_prefix: &str,
        fingerprint: &Fingerprint,
        format: u8,
    ) -> Sealing {
        let version = [fingerprint.version().number()];
        let who = [principal.tenant().as_bytes(), principal.caller().as_bytes(), key_hash_prefix.as_bytes()];
        Sealing::new(SealedKind::Request, format, &[who[0], who[1], who[2], &version, fingerprint.digest()])
    }

    /// Returns the data of a statement's response with this status.
    pub fn statement(statement: &Statement, status: u16, format: u8) -> Sealing {
        let Statement { source, event_id, operation_id, .. } = statement;
        Sealing::evidence(source, event_id, *operation_id, status, format)
    }

    /// Returns the data of a response in evidence with this source, event id, command and status.
    pub fn evidence(source: &str, event_id: &str, command: OperationId, status: u16, format: u8) -> Sealing {
        let parts = [source.as_bytes(), event_id.as_bytes(), command.as_bytes(), &status.to_be_bytes()];
        Sealing::new(SealedKind::Evidence, format, &parts)
    }

    /// Returns the data of the output of a phase of this command.
    pub fn phase(command: OperationId, name: &str) -> Sealing {
        Sealing::new(SealedKind::Phase, 1, &[command.as_bytes(), name.as_bytes()])
    }

    /// Returns the data of the payload of the message with this event id, which begins with the id of its
    /// command.
    pub fn message(event_id: &str) -> Sealing {
        Sealing::new(SealedKind::Message, 1, &[event_id.as_bytes()])
    }

    fn new(kind: SealedKind, format: u8, parts: &[&[u8]]) -> Sealing {
        let mut associated = Vec::with_capacity(160);
        for part in [DOMAIN, kind.as_str().as_bytes(), &[format]].iter().chain(parts) {
            associated.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            associated.put_slice(part);
        }
        Sealing { associated }
    }

    /// Returns the associated data: every part with its length in front, so that no two meanings share bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.associated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_sealed_has_associated_data_of_its_own() {
        let id = |byte| RecordId::from_bytes([byte; 32]);
        let command = |byte| OperationId::from_bytes([byte; 16]);
        let by = Settler::Executor;
        let all = [
            Sealing::response(&id(1), command(1), by(1), 201, 1),
            Sealing::response(&id(2), command(1), by(1), 201, 1),
            Sealing::response(&id(1), command(2), by(1), 201, 1),
            Sealing::response(&id(1), command(1), by(2), 201, 1),
            Sealing::response(&id(1), command(1), Settler::Verdict, 201, 1),
            Sealing::response(&id(1), command(1), Settler::Nobody, 201, 1),
            Sealing::response(&id(1), command(1), by(1), 402, 1),
            Sealing::response(&id(1), command(1), by(1), 201, 2),
            Sealing::evidence("ab", "c", command(1), 201, 1),
            Sealing::evidence("a", "bc", command(1), 201, 1),
            Sealing::evidence("a", "bc", command(2), 201, 1),
            Sealing::evidence("a", "bc", command(2), 402, 1),
            Sealing::new(SealedKind::Request, 1, &[id(1).as_bytes()]),
            Sealing::phase(command(1), "charge"),
            Sealing::phase(command(2), "charge"),
            Sealing::phase(command(1), "ship"),
            Sealing::message("a:b"),
            Sealing::message("a:c"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.as_bytes() != one.as_bytes()), "{one:?}");
        }
    }
}
