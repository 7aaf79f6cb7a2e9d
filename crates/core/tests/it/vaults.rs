//! Sealing on the way into a store, and opening on the way out, for the right owner only.
//!
//! The vault here hides nothing. It records its associated data, so that a test can see it, and opens bytes
//! only with the same data, as every real vault does.

use bytes::{BufMut, Bytes, BytesMut};
use semel_core::envelope::{ENVELOPE, is_envelope};
use semel_core::progress::{Progress, StepKind};
use semel_core::reseal::{SealedPlace, StoredValue};
use semel_core::state::SettledBy;
use semel_core::vault::{MAX_KEY_ID_CHARS, Plaintext, is_key_id};
use semel_core::{
    Change, Claim, Fence, LookUpAnswer, Message, MessageState, OperationId, Principal, Record, RecordId,
    Sealed, Sealing, State, Statement, StoredResult, Timestamp, Vault, VaultError,
};

use crate::records::{claim, record, request, result};

struct Open;

impl Vault for Open {
    fn current(&self) -> &str {
        "k2"
    }

    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError> {
        let mut bytes = BytesMut::new();
        bytes.put_slice(about.as_bytes());
        bytes.put_slice(clear);
        Ok(Sealed { key_id: self.current().to_owned(), bytes: bytes.freeze() })
    }

    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError> {
        if key_id != self.current() {
            return Err(VaultError::UnknownKey(key_id.to_owned()));
        }
        let clear = sealed.strip_prefix(about.as_bytes());
        clear.map(Bytes::copy_from_slice).ok_or_else(|| VaultError::DoesNotOpen(key_id.to_owned()))
    }
}

/// A vault that refuses plaintext.
struct Strict;

impl Vault for Strict {
    fn current(&self) -> &str {
        Open.current()
    }

    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError> {
        Open.seal(about, clear)
    }

    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError> {
        Open.open(about, key_id, sealed)
    }

    fn plaintext(&self) -> Plaintext {
        Plaintext::Refuse
    }
}

fn vault() -> &'static dyn Vault {
    &Open
}

/// Returns the record of a command that its executor has settled with this result.
fn settled(result: StoredResult) -> Record {
    let mut record = record();
    record.head.state = State::Succeeded { expires_at: record.created_at, settled_by: SettledBy::Executor };
    record.result = Some(result);
    record
}

/// Returns the result as the record's own executor stores it.
fn sealed() -> StoredResult {
    let record = settled(result(201));
    let change = vault().seal_change(&record, &Change::complete(record.head.fence(), result(201)));
    change.expect("it is sealed").result().expect("it has one").clone()
}

fn does_not_open<T>() -> Result<T, VaultError> {
    Err(VaultError::DoesNotOpen("k2".into()))
}

#[test]
fn a_sealed_result_keeps_its_status_readable_and_hides_its_resource() {
    let sealed = sealed();
    assert_eq!(sealed.response.encryption_key_id.as_deref(), Some("k2"));
    assert_eq!((sealed.status, sealed.resource.clone()), (201, None));
    let record = settled(sealed.clone());
    let again = vault().seal_change(&record, &Change::complete(record.head.fence(), sealed.clone()));
    assert_eq!(again.expect("it is sealed").result(), Some(&sealed), "what is sealed stays as it is");
}

#[test]
fn a_sealed_result_does_not_open_for_another_record_or_attempt() {
    let mut opened = settled(sealed());
    assert_eq!(vault().open_record(&mut opened), Ok(()));
    assert_eq!(opened.result, Some(result(201)));
    assert_eq!(vault().open_record(&mut opened), Ok(()), "what is open stays as it is");
    assert_eq!(opened.result, Some(result(201)));

    let moves: [fn(&mut Record); 6] = [
        |record| record.id = RecordId::from_bytes([2; 32]),
        |record| record.operation_id = OperationId::from_bytes([9; 16]),
        |record| record.head.epoch += 1,
        |record| {
            let settled_by = SettledBy::Verdict;
            record.head.state = State::Succeeded { expires_at: record.created_at, settled_by };
        },
        |record| record.head.state = State::Expired { forget_at: record.created_at },
        |record| record.result.as_mut().expect("it has one").status = 402,
    ];
    for (index, change) in moves.iter().enumerate() {
        let mut moved = settled(sealed());
        moved.result.as_mut().expect("it has one").resource = Some("/forged".to_owned());
        change(&mut moved);
        assert_eq!(vault().open_record(&mut moved), does_not_open(), "{index}");
        let result = moved.result.expect("it is still there");
        assert!(result.response.decode().is_err() && result.resource.is_none(), "{index}");
    }
    let mut of_old = settled(sealed());
    of_old.result.as_mut().expect("it has one").response.encryption_key_id = Some("k1".into());
    assert_eq!(vault().open_record(&mut of_old), Err(VaultError::UnknownKey("k1".into())));
    let mut without = record();
    assert_eq!(vault().open_record(&mut without), Ok(()));
    assert_eq!(without, record());
}

#[test]
fn a_change_goes_to_its_store_with_its_result_sealed() {
    let fence = Fence { epoch: 1, token: claim().attempt.token };
    let record = record();
    let change = vault().seal_change(&record, &Change::complete(fence, result(201))).expect("it is sealed");
    assert_eq!(change.result(), Some(&sealed()));
    let change = vault().seal_change(&record, &Change::renew(fence)).expect("there is nothing to seal");
    assert_eq!((change.event(), change.result()), (Change::renew(fence).event(), None));
}

#[test]
fn plaintext_is_refused_where_it_is_not_expected() {
    let strict: &dyn Vault = &Strict;
    let mut forged = settled(result(201));
    assert_eq!(strict.open_record(&mut forged), Err(VaultError::NotSealed));
    let shown = forged.result.expect("it is still there");
    assert!(shown.response.decode().is_err() && shown.resource.is_none());
    let mut kept = request();
    assert_eq!(strict.open_request(&record(), &mut kept), Err(VaultError::NotSealed));
    assert!(kept.decode().is_err());
    let command = OperationId::from_bytes([7; 16]);
    let said = Statement::new(
        "bank".into(),
        "e1".into(),
        command,
        LookUpAnswer::Executed(result(201)),
        "seen".into(),
    );
    assert_eq!(strict.open_statement(&said.expect("it is a verdict")), Err(VaultError::NotSealed));

    let mut own = settled(sealed());
    assert_eq!(strict.open_record(&mut own), Ok(()), "what is sealed opens as before");
}

#[test]
fn a_claim_goes_to_its_store_with_its_request_sealed_and_the_record_opens_it() {
    let clear = Claim { request: Some(request()), ..claim() };
    let sealed = vault().seal_claim(&clear).expect("it is sealed");
    let kept = sealed.request.clone().expect("it has one");
    assert_eq!(kept.encryption_key_id.as_deref(), Some("k2"));
    assert_eq!((kept.format, kept.bytes == request().bytes), (request().format, false));
    assert_eq!(vault().seal_claim(&sealed), Ok(sealed.clone()), "what is sealed stays as it is");
    assert_eq!(vault().seal_claim(&claim()), Ok(claim()), "without a request there is nothing to seal");

    let mut opened = kept.clone();
    assert_eq!(vault().open_request(&record(), &mut opened), Ok(()));
    assert_eq!(opened, request());
    assert_eq!(vault().open_request(&record(), &mut opened), Ok(()), "what is open stays as it is");

    let mut elsewhere = record();
    elsewhere.principal = Principal::new("acme", "bob").expect("these are names");
    let mut moved = kept.clone();
    assert_eq!(vault().open_request(&elsewhere, &mut moved), does_not_open());
    assert_eq!(moved, kept);
}

#[test]
fn a_request_is_sealed_for_its_tenant_caller_key_and_fingerprint() {
    let claim = claim();
    let (principal, prefix) = (claim.scope.principal(), claim.scope.key().hash_prefix());
    let usual = Sealing::request_of(principal, &prefix, &claim.attempt.fingerprint, 1);
    assert_eq!(Sealing::claim(&claim, 1), usual);
    assert_eq!(Sealing::request(&record(), 1), usual);
    let tenant = Principal::new("other", "alice").expect("these are names");
    let caller = Principal::new("acme", "bob").expect("these are names");
    let others = [
        Sealing::request_of(&tenant, &prefix, &claim.attempt.fingerprint, 1),
        Sealing::request_of(&caller, &prefix, &claim.attempt.fingerprint, 1),
        Sealing::request_of(principal, "00000000", &claim.attempt.fingerprint, 1),
        Sealing::request_of(principal, &prefix, &claim.attempt.fingerprint, 2),
    ];
    for other in others {
        assert_ne!(other, usual);
    }
}

#[test]
fn statements_with_a_response_are_sealed_for_their_own_event_id() {
    let says = |found, event_id: &str| {
        let command = OperationId::from_bytes([7; 16]);
        Statement::new("bank".into(), event_id.into(), command, found, "seen".into())
            .expect("it is a verdict")
    };
    for found in [LookUpAnswer::Executed(result(201)), LookUpAnswer::Failed(result(402))] {
        let statement = says(found.clone(), "e1");
        let sealed = vault().seal_statement(&statement).expect("it is sealed");
        let key = sealed.result().and_then(|result| result.response.encryption_key_id.as_deref());
        assert_eq!((key, sealed.verdict()), (Some("k2"), statement.verdict()));
        assert_eq!(vault().open_statement(&sealed), Ok(statement));
        let told_elsewhere = says(found, "e2").with_result(sealed.result().expect("it has one").clone());
        assert_eq!(vault().open_statement(&told_elsewhere), does_not_open());
    }
    let without = says(LookUpAnswer::NotExecuted(semel_core::transition::Proof::ProviderTombstone), "e1");
    assert_eq!(vault().seal_statement(&without), Ok(without.clone()));
    assert_eq!(vault().open_statement(&without), Ok(without.clone()));
    assert_eq!(without.with_result(result(201)), without, "what brings none is given none");
}

#[test]
fn the_id_of_a_key_is_short_and_plain() {
    for id in ["k", "2026-11.k_1", &"k".repeat(MAX_KEY_ID_CHARS)] {
        assert!(is_key_id(id), "{id}");
    }
    for id in ["", "a b", "a/b", "é", &"k".repeat(MAX_KEY_ID_CHARS + 1)] {
        assert!(!is_key_id(id), "{id}");
    }
}

const COMMAND: OperationId = OperationId::from_bytes([7; 16]);

fn step(output: Bytes) -> Progress {
    let what = StepKind::External { deduplicated: true, output: Some(output) };
    let began_at = Timestamp::from_millis(0);
    Progress { position: 0, name: "charge".into(), what, began_at, done_at: Some(began_at) }
}

fn message(payload: Bytes) -> Message {
    let created_at = Timestamp::from_millis(0);
    Message {
        event_id: "1:paid".into(),
        operation_id: COMMAND,
        position: 0,
        kind: "paid".into(),
        payload,
        payload_bytes: 0,
        state: MessageState::Pending,
        created_at,
        due_at: created_at,
        attempts: 0,
        epoch: 0,
        token: None,
        provider_reference: None,
        last_error: None,
        done_at: None,
    }
}

#[test]
fn sealed_outputs_and_payloads_open_only_for_their_own_phase_or_event() {
    let clear = Bytes::from_static(b"{\"id\":1}");
    let output = vault().seal_output(COMMAND, "charge", &clear).expect("it is sealed");
    let payload = vault().seal_payload("1:paid", &clear).expect("it is sealed");
    assert!(is_envelope(&output) && is_envelope(&payload));

    let mut own = step(output.clone());
    assert_eq!(vault().open_progress(COMMAND, &mut own), Ok(()));
    assert_eq!(own, step(clear.clone()));
    let mut moved = Progress { name: "refund".into(), ..step(output.clone()) };
    assert_eq!(vault().open_progress(COMMAND, &mut moved), does_not_open());
    assert_eq!(moved.what.output(), Some(&output), "what does not open stays sealed");

    let mut own = message(payload.clone());
    assert_eq!(vault().open_message(&mut own), Ok(()));
    assert_eq!(own.payload, clear);
    let mut moved = Message { event_id: "2:paid".into(), ..message(payload) };
    assert_eq!(vault().open_message(&mut moved), does_not_open());
}

#[test]
fn a_message_in_plaintext_opens_and_one_in_a_broken_envelope_is_refused() {
    let strict: &dyn Vault = &Strict;
    let clear = Bytes::from_static(b"{}");
    let mut plain = message(clear.clone());
    assert_eq!(vault().open_message(&mut plain), Ok(()));
    assert_eq!(plain.payload, clear);
    assert_eq!(strict.open_message(&mut plain), Err(VaultError::NotSealed));
    assert_eq!(plain.payload, ENVELOPE, "nothing of it is used");

    let mut broken = message(Bytes::from_static(b"\0semel-sealed\0no end"));
    assert_eq!(vault().open_message(&mut broken), Err(VaultError::DoesNotOpen(String::new())));
}

#[test]
fn value_for_resealing_is_read_as_it_is_stored() {
    let sealed = vault().seal_payload("1:paid", b"{}").expect("it is sealed");
    for (bytes, key) in [(sealed, Some("k2")), (Bytes::from_static(b"{}"), None)] {
        let place = SealedPlace::Message("1:paid".into());
        let kept = StoredValue::enveloped(place, Sealing::message("1:paid"), bytes.clone());
        assert_eq!((kept.key_id.as_deref(), kept.to_envelope()), (key, bytes));
    }
}

#[test]
fn the_associated_data_of_sealed_values_has_a_fixed_layout() {
    let id = OperationId::from_bytes([7; 16]);
    let record = RecordId::from_bytes([1; 32]);
    let parts = |kind: &str, format: u8, rest: &[&[u8]]| {
        let mut bytes = Vec::new();
        for part in [b"semel sealed v1".as_slice(), kind.as_bytes(), &[format]].iter().chain(rest) {
            bytes.put_u32(u32::try_from(part.len()).expect("it is short"));
            bytes.put_slice(part);
        }
        bytes
    };
    let response = Sealing::response(&record, id, semel_core::vault::Settler::Verdict, 201, 3);
    let status = 201_u16.to_be_bytes();
    assert_eq!(response.as_bytes(), parts("response", 3, &[&[1; 32], &[7; 16], b"verdict", &status]));
    assert_eq!(
        Sealing::evidence("bank", "e1", id, 201, 3).as_bytes(),
        parts("evidence", 3, &[b"bank", b"e1", &[7; 16], &status])
    );
    assert_eq!(Sealing::phase(id, "charge").as_bytes(), parts("phase", 1, &[&[7; 16], b"charge"]));
    assert_eq!(Sealing::message("1:paid").as_bytes(), parts("message", 1, &[b"1:paid"]));
    let claim = claim();
    let prefix = claim.scope.key().hash_prefix();
    let digest = claim.attempt.fingerprint.digest();
    assert_eq!(
        Sealing::claim(&claim, 2).as_bytes(),
        parts("request", 2, &[b"acme", b"alice", prefix.as_bytes(), &[1], digest])
    );
}
