//! The fence of a restored store, as the core has it, with what it reads: a claim, and a record for a row.

use std::cell::RefCell;
use std::sync::LazyLock;

use semel_core::{
    Claim, Head, HoldTarget, IdempotencyKey, KeyRules, OperationId, OperationName, Principal, Record, Scope,
    StoreFence, Write,
};

use crate::configuration::{Configuration, NOW};
use crate::world::Row;

/// A claim, of which a fence reads only the names.
pub(crate) static CLAIM: LazyLock<Option<Claim>> = LazyLock::new(claim);

/// Claim with a business reference, of which a fence reads only the names.
pub(crate) static REFERRING_CLAIM: LazyLock<Option<Claim>> =
    LazyLock::new(|| Some(Claim { business_reference: Some("order".to_owned()), ..claim()? }));

thread_local! {
    /// A record, to which a row lends its head and times: records are too large to be made for each statement.
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

fn claim() -> Option<Claim> {
    let scope = Scope::new(Principal::new("t", "c").ok()?, OperationName::new("o").ok()?, key()?);
    let command = semel_core::Command {
        scope,
        fingerprint: crate::world::fingerprint(1),
        business_reference: None,
        former: Vec::new().into(),
        policy: semel_core::Policy::default().into(),
        trace: None,
    };
    Some(command.claim(OperationId::from_bytes([0; 16]), crate::world::token(1)))
}

fn key() -> Option<IdempotencyKey> {
    KeyRules::default().parse([b"key-without-a-time".as_slice()]).ok().flatten()
}

impl Row {
    /// Shows this row, with this head, as the record that a store and its fence read.
    pub(crate) fn as_record<T>(&self, head: Head, read: impl FnOnce(Option<&Record>) -> T) -> T {
        RECORD.with_borrow_mut(|record| {
            if record.is_none() {
                let claim = CLAIM.as_ref();
                *record = Record::after(None, Write::Create(head), claim, None, NOW);
            }
            if let Some(record) = record {
                record.head = head;
                (record.created_at, record.state_since) = (self.created.moment(), self.entered.moment());
            }
            read(record.as_ref())
        })
    }
}

/// Returns the fence of a restored store.
pub(crate) fn fence(configuration: &Configuration) -> Option<StoreFence> {
    let name = CLAIM.as_ref()?.scope.operation().as_str().to_owned();
    let look_up = HoldTarget::LookUpFirst(name);
    let choice = configuration.looks_up_first.then_some((&look_up, NOW));
    StoreFence::of([(&HoldTarget::Store, NOW)].into_iter().chain(choice))
}
