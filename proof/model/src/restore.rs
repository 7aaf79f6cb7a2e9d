//! Restores: a backup of the store, its restoration, and the fence of the restored store. `semel_core::StoreFence` itself decides
//! the effect of the fence on a claim, and `semel_core::store_fence::decide` that on any statement.

use semel_core::transition::{Verdict, age};
use semel_core::{ClaimFence, Event, State, StoreFence};

use crate::configuration::NOW;
use crate::fence::{CLAIM, REFERRING_CLAIM};
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::variants::Variant;
use crate::world::{Backup, Era, FRESH, Fencing, Finding, KEYS, Row, World};

impl Row {
    /// Returns the record as it is after a restore.
    fn restored(self) -> Row {
        let mut state = self.state;
        if let State::Unknown { since, .. } = &mut state {
            *since = Era::Before.moment();
        }
        Row { state, created: Era::Before, entered: Era::Before, ..self }
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
    }

    /// Lifts the fence, after every command that was open before it was put in doubt.
    pub(crate) fn lift(&self, world: &mut World) {
        let is_old = |row: &Row| row.state.is_open() && row.entered == Era::Before;
        for key in (0..KEYS as u8).filter(|_| !self.is(Variant::LiftedWithoutDoubt)) {
            if world.row(key).is_some_and(is_old) {
                let _ = self.change(world, key, &Event::Doubt, None);
            }
        }
        world.past.fence = Fencing::Lifted;
    }

    /// Returns the fence under which the store decides about this event.
    pub(crate) fn fence_of(&self, world: &World, row: Option<&Row>, event: &Event) -> Option<&StoreFence> {
        let is_unknown = row.is_some_and(|row| matches!(row.state, State::Unknown { .. }));
        let is_due = |row: &Row| row.state.due_to_sweep().is_some_and(|due| due <= NOW);
        let is_ignored = self.is(Variant::DoubtedAtLift)
            || self.is(Variant::LapsesUnfenced) && row.is_some_and(is_due)
            || self.is(Variant::OldQuarantine) && is_unknown
            || self.is(Variant::SweepsUnfenced) && *event == Event::Age;
        self.fence.as_ref().filter(|_| world.past.is_fenced() && !is_ignored)
    }

    /// Returns the effect of the store's fence on a claim whose live record is this.
    pub(crate) fn fence_on(&self, world: &World, live: Option<&Row>) -> ClaimFence {
        let refers = self.configuration.reference && !self.is(Variant::ReferenceUnfenced);
        let claim = if refers { &REFERRING_CLAIM } else { &CLAIM };
        let fence = self.fence.as_ref().filter(|_| world.past.is_fenced());
        let Some((fence, claim)) = fence.zip(claim.as_ref()) else { return ClaimFence::Open };
        let is_free = |state| matches!(state, State::FailedRetryable { .. });
        let is_failure = live.is_some_and(|row| is_free(row.state));
        let has_lapsed = live
            .and_then(|row| Some((row, age(row.head(&self.terms), NOW)?)))
            .is_some_and(|(row, head)| is_free(head.state) && (!is_failure || row.entered == Era::Since));
        if self.is(Variant::FailuresUnfenced) && is_failure || self.is(Variant::LapsesUnfenced) && has_lapsed
        {
            return ClaimFence::Open;
        }
        match live {
            Some(row) => row.as_record(row.head(&self.terms), |record| fence.on(claim, record, NOW)),
            None => fence.on(claim, None, NOW),
        }
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
            let request = usize::from(**op % FRESH).checked_sub(1);
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

#[cfg(test)]
mod tests {
    use semel_core::store_fence::decide;
    use semel_core::{Attempt, Head, Reason, Record, Reference, Timestamp, Write};

    use crate::fence::fence;

    use super::*;
    use crate::configuration::after;
    use crate::shipped;
    use crate::world::{fingerprint, token};

    fn claimed() -> Head {
        let terms = shipped::RESTORED_ASYNC.terms();
        let start = shipped::RESTORED_ASYNC.start();
        let (reference, fence) = (Reference::None, ClaimFence::Open);
        let attempt =
            Attempt { fingerprint: fingerprint(1), token: token(1), terms, start, reference, fence };
        match decide(None, None, &Event::Claim(attempt), NOW).write {
            Write::Create(head) => head,
            other => panic!("{other:?}"),
        }
    }

    fn unknown(since: Era) -> State {
        let (since, later) = (since.moment(), NOW.plus(after(3)));
        State::Unknown { since, reconcile_after: later, attempts: 0, quarantine_until: later }
    }

    #[test]
    fn a_row_has_the_times_of_its_record() {
        let first = claimed();
        let started = State::Processing { lease_until: NOW.plus(after(1)), start_by: None };
        let free = State::FailedRetryable { expires_at: Timestamp::MAX };
        let states = [started, free, unknown(Era::Before), unknown(Era::Since)];
        let heads: Vec<Head> = states
            .iter()
            .flat_map(|state| [1, 2].map(|epoch| Head { epoch, ..first.moved(*state, Reason::Started) }))
            .collect();
        for before in &heads {
            let row = Row::created(&first, 0).updated(before, None).restored();
            let before = row.head(&first.terms);
            for after in &heads {
                let written = row.as_record(before, |record| {
                    Record::after(record, Write::Update(*after), None, None, NOW)
                });
                let written = written.expect("it is updated");
                let row = row.updated(after, None);
                let times = (row.created.moment(), row.entered.moment());
                assert_eq!(times, (written.created_at, written.state_since), "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn the_fence_of_the_core_decides_about_rows() {
        let fence = fence(&shipped::RESTORED_ASYNC);
        let terms = shipped::RESTORED_ASYNC.terms();
        let now = Row::created(&claimed(), 0);
        for (row, is_doubted) in [(now, false), (now.restored(), true)] {
            let look = Event::Look { fingerprint: fingerprint(1) };
            let write =
                row.as_record(row.head(&terms), |record| decide(fence.as_ref(), record, &look, NOW).write);
            match write {
                Write::Keep => assert!(!is_doubted),
                Write::Update(head) => assert!(is_doubted && head.is_in_doubt()),
                other => panic!("{other:?}"),
            }
        }
    }
}
