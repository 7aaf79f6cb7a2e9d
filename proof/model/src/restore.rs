//! Restores: a backup of the store, its restoration, and the fence of the restored store. `semel_core::StoreFence` itself decides
//! the effect of the fence on a claim.

use std::sync::LazyLock;

use semel_core::transition::Verdict;
use semel_core::{
    Claim, ClaimFence, Event, Head, HoldTarget, IdempotencyKey, KeyRules, OperationId, OperationName,
    Principal, Reason, Record, Scope, State, StoreFence, Timestamp, Write,
};

use crate::configuration::NOW;
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::variants::Variant;
use crate::world::{Finding, Holder, KEYS, Row, World, aged};

/// Backup and fence of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// Remaining number of restores.
    pub restores: u8,
    /// The backup, if one was taken.
    pub backup: Option<Box<Backup>>,
    /// Fence of the store.
    pub fence: Fencing,
}

/// Copy of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backup {
    /// See [`World::rows`].
    pub rows: [Option<Row>; KEYS],
    /// See [`World::reference`].
    pub reference: Option<Holder>,
}

/// Fence of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fencing {
    /// The store was never restored.
    Never,
    /// The store was restored, and its fence is in force.
    InForce,
    /// The store was restored, and missing keys count as new.
    Lifted,
}

/// Time of an entry in a record, compared with the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Before the fence.
    Before,
    /// Since the fence; also in a store without a fence.
    Since,
}

impl Era {
    fn moment(self) -> Timestamp {
        match self {
            Era::Before => Timestamp::from_millis(NOW.as_millis() - 1),
            Era::Since => NOW,
        }
    }
}

/// A claim, of which a fence reads only the names.
static CLAIM: LazyLock<Option<Claim>> = LazyLock::new(claim);

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

impl Past {
    /// Returns the past of a store without a backup.
    pub fn none(restores: u8) -> Past {
        Past { restores, backup: None, fence: Fencing::Never }
    }

    /// Returns true if the store was restored.
    pub fn is_restored(&self) -> bool {
        self.fence != Fencing::Never
    }

    /// Returns true if the store is fenced.
    pub fn is_fenced(&self) -> bool {
        self.fence == Fencing::InForce
    }

    /// Advances the clock of the backup by a tick.
    pub(crate) fn age(&mut self) {
        let rows = self.backup.iter_mut().flat_map(|backup| &mut backup.rows).flatten();
        rows.for_each(|row| row.state = aged(row.state));
    }
}

impl Row {
    /// Returns the record as it is after a restore.
    fn restored(self) -> Row {
        Row { created: Era::Before, entered: Era::Before, ..self }
    }

    /// Returns the record as a fence reads it.
    fn record(&self, head: Head, claim: &Claim) -> Option<Record> {
        let record = Record::after(None, Write::Create(head), Some(claim), None, self.created.moment())?;
        Some(Record { state_since: self.entered.moment(), ..record })
    }
}

impl Protocol {
    pub(crate) fn back_up(world: &mut World) {
        let (rows, reference) = (world.rows, world.reference);
        world.past.backup = Some(Box::new(Backup { rows, reference }));
    }

    /// Makes the store what it was at its backup, and fences it at once. Everybody else goes on.
    pub(crate) fn restore(&self, world: &mut World) {
        let Some(backup) = world.past.backup.take() else { return };
        world.past.restores -= 1;
        let what = |row: &Row| (row.op, row.fence(), row.state.name());
        for (at, (was, is)) in world.rows.iter().zip(&backup.rows).enumerate() {
            world.books.lost[at] = was.is_some() && was.as_ref().map(what) != is.as_ref().map(what);
            world.books.reworded[at] = !is.is_some_and(|row| row.state.is_terminal());
        }
        world.rows = backup.rows.map(|row| row.map(Row::restored));
        world.reference = backup.reference;
        if self.is(Variant::RestoredWithoutFence) {
            world.past.fence = Fencing::Lifted;
            return;
        }
        world.past.fence = Fencing::InForce;
        if !self.is(Variant::DoubtedAtLift) && !self.is(Variant::LiftedWithoutDoubt) {
            self.doubt(world);
        }
    }

    pub(crate) fn lift(&self, world: &mut World) {
        if self.is(Variant::DoubtedAtLift) {
            self.doubt(world);
        }
        world.past.fence = Fencing::Lifted;
    }

    /// Makes the outcome of every open command unknown.
    fn doubt(&self, world: &mut World) {
        for key in 0..KEYS as u8 {
            let _ = self.change(world, key, &Event::Doubt, None);
            let unknown = world.row(key).copied().filter(|_| !self.is(Variant::OldQuarantine));
            let doubted = unknown.and_then(|row| Some(row.updated(&doubted(&row.head(&self.terms))?, None)));
            world.rows[usize::from(key)] = doubted.or(world.rows[usize::from(key)]);
        }
    }

    /// Returns the effect of the store's fence on a claim whose live record is this.
    pub(crate) fn fence_on(&self, world: &World, live: Option<&Row>) -> ClaimFence {
        let (true, Some(claim)) = (world.past.is_fenced(), CLAIM.as_ref()) else { return ClaimFence::Open };
        let is_failure = live.is_some_and(|row| matches!(row.state, State::FailedRetryable { .. }));
        if self.is(Variant::FailuresUnfenced) && is_failure {
            return ClaimFence::Open;
        }
        // Evidence about this command says nothing about a lost one with the same reference.
        let may_begin = is_failure || live.is_none();
        if self.configuration.reference && may_begin && !self.is(Variant::ReferenceUnfenced) {
            return ClaimFence::Closed;
        }
        let look_up = HoldTarget::LookUpFirst(claim.scope.operation().as_str().to_owned());
        let choice = self.configuration.looks_up_first.then_some((&look_up, NOW));
        let fence = StoreFence::of([(&HoldTarget::Store, NOW)].into_iter().chain(choice));
        let record = live.and_then(|row| row.record(row.head(&self.terms), claim));
        fence.map_or(ClaimFence::Open, |fence| fence.on(claim, record.as_ref(), NOW))
    }

    /// Returns true if the reconciler looks commands up.
    pub(crate) fn has_look_ups(&self, world: &World) -> bool {
        !world.past.is_fenced() || self.configuration.looks_up_first
    }

    /// Returns the result of a look-up of the command of this key. After a restore the provider is asked about the key: a lost
    /// attempt may have had another operation id.
    pub(crate) fn find(&self, world: &World, key: u8, row: &Row) -> Finding {
        if !world.past.is_restored() || self.is(Variant::LookedUpById) {
            return world.find(row.op);
        }
        let is_of_key = |op: &&u8| {
            let request = usize::from(**op % crate::invariants::FRESH).checked_sub(1);
            let request = request.and_then(|index| self.configuration.requests.get(index));
            request.is_some_and(|request| request.key == key)
        };
        match world.effects_of(key, row.life).next() {
            Some(effect) => Finding::Charged(effect.by),
            None if world.declined.iter().any(|op| is_of_key(&op)) => Finding::Declined,
            None => Finding::NoRecord,
        }
    }
}

/// Checks that nothing begins of which a restored store has lost something.
pub(crate) fn watch(world: &mut World, key: u8, before: Option<Row>, after: Row, event: &Event) {
    let lost = &mut world.books.lost[usize::from(key)];
    *lost &= !matches!(event, Event::Resolve { verdict: Verdict::NotExecuted(_), .. });
    // Once the fence is lifted, a claim of what is missing counts as new; but nothing that waits starts by itself.
    let is_barred = match event {
        Event::Claim(_) => world.past.is_fenced(),
        Event::Start { .. } => true,
        Event::Look { .. }
        | Event::Renew { .. }
        | Event::Complete { .. }
        | Event::Fail { .. }
        | Event::Release { .. }
        | Event::Requeue { .. }
        | Event::Defer { .. }
        | Event::Abandon { .. }
        | Event::Advance
        | Event::Age
        | Event::Resolve { .. }
        | Event::ResolvePhase { .. }
        | Event::Postpone { .. }
        | Event::Doubt
        | Event::Free
        | Event::Purge => false,
    };
    let is_new = before.is_none_or(|before| before.fence() != after.fence());
    let begins = is_new && matches!(after.state, State::Claimed { .. } | State::Processing { .. });
    if *lost && is_barred && begins {
        world.broke(Promise::LostIsNotRun);
    }
}

/// Returns the head of an outcome that was unknown before the restore: calls of lost attempts have a quarantine of their own.
fn doubted(head: &Head) -> Option<Head> {
    let is_open = matches!(head.state, State::Unknown { .. }) && !head.is_left_to_a_message();
    let quarantine_until = NOW.plus(head.terms.quarantine);
    let state = State::Unknown { since: NOW, reconcile_after: NOW, attempts: 0, quarantine_until };
    is_open.then_some(Head { earlier_may_have_run: true, ..head.moved(state, Reason::StoreRestored) })
}
