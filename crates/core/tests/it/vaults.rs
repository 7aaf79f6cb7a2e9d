//! What is sealed on its way into a store, what opens again, and for whom only.
//!
//! The vault here hides nothing. It writes down what it was given, so that a test can see for what something was sealed,
//! and it opens only what was sealed for the same: what every real one does by its associated data.

use bytes::{BufMut, Bytes, BytesMut};
use semel_core::{
    Change, Claim, Fence, Found, OperationId, Principal, RecordId, Sealed, Sealing, Statement, StoredResult,
    Vault, VaultError,
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

const ID: RecordId = RecordId::from_bytes([1; 32]);
const OTHER: RecordId = RecordId::from_bytes([2; 32]);

fn vault() -> &'static dyn Vault {
    &Open
}

fn sealed() -> StoredResult {
    vault().seal_result(&ID, &result(201)).expect("it is sealed")
}

fn does_not_open<T>() -> Result<T, VaultError> {
    Err(VaultError::DoesNotOpen("k2".into()))
}

#[test]
fn a_sealed_result_shows_its_status_and_nothing_else() {
    let sealed = sealed();
    assert_eq!(sealed.response.encryption_key_id.as_deref(), Some("k2"));
    assert_eq!((sealed.status, sealed.resource.clone()), (201, None));
    assert_eq!(vault().seal_result(&ID, &sealed), Ok(sealed.clone()), "what is sealed stays as it is");
}

#[test]
fn a_result_opens_for_its_own_record_and_stays_as_it_is_for_another() {
    let mut opened = sealed();
    assert_eq!(vault().open_result(&ID, &mut opened), Ok(()));
    assert_eq!(opened, result(201));
    assert_eq!(vault().open_result(&ID, &mut opened), Ok(()), "what is open stays as it is");
    assert_eq!(opened, result(201));

    let mut moved = sealed();
    assert_eq!(vault().open_result(&OTHER, &mut moved), does_not_open());
    assert_eq!(moved, sealed());
    let mut of_old = sealed();
    of_old.response.encryption_key_id = Some("k1".into());
    assert_eq!(vault().open_result(&ID, &mut of_old), Err(VaultError::UnknownKey("k1".into())));
}

#[test]
fn a_record_opens_with_its_result() {
    let mut without = record();
    assert_eq!(vault().open_record(&mut without), Ok(()));
    assert_eq!(without, record());
    let mut with = record();
    with.result = Some(vault().seal_result(&with.id, &result(201)).expect("it is sealed"));
    assert_eq!(vault().open_record(&mut with), Ok(()));
    assert_eq!(with.result, Some(result(201)));
    with.result = Some(sealed());
    assert_eq!(vault().open_record(&mut with), does_not_open());
}

#[test]
fn a_change_goes_to_its_store_with_its_result_sealed() {
    let fence = Fence { epoch: 1, token: claim().attempt.token };
    let change = vault().seal_change(&ID, &Change::complete(fence, result(201))).expect("it is sealed");
    assert_eq!(change.result(), Some(&sealed()));
    let change = vault().seal_change(&ID, &Change::renew(fence)).expect("there is nothing to seal");
    assert_eq!((change.event(), change.result()), (Change::renew(fence).event(), None));
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
    let (principal, prefix) = (&claim.scope.principal, claim.scope.key.hash_prefix());
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
fn a_statement_is_sealed_where_it_brings_a_response() {
    let says = |found, event_id: &str| {
        let command = OperationId::from_bytes([7; 16]);
        Statement::new("bank".into(), event_id.into(), command, found, "seen".into())
            .expect("it is a verdict")
    };
    for found in [Found::Executed(result(201)), Found::Failed(result(402))] {
        let statement = says(found.clone(), "e1");
        let sealed = vault().seal_statement(&statement).expect("it is sealed");
        let key = sealed.result().and_then(|result| result.response.encryption_key_id.as_deref());
        assert_eq!((key, sealed.verdict()), (Some("k2"), statement.verdict()));
        assert_eq!(vault().open_statement(&sealed), Ok(statement));
        let told_elsewhere = says(found, "e2").with_result(sealed.result().expect("it has one").clone());
        assert_eq!(vault().open_statement(&told_elsewhere), does_not_open());
    }
    let without = says(Found::NotExecuted(semel_core::transition::Proof::ProviderTombstone), "e1");
    assert_eq!(vault().seal_statement(&without), Ok(without.clone()));
    assert_eq!(vault().open_statement(&without), Ok(without.clone()));
    assert_eq!(without.with_result(result(201)), without, "what brings none is given none");
}
