//! Reseals all stored items under the current key, in batches, beside live traffic.
//!
//! It makes passes over all items until one finds nothing left to reseal, so that items written meanwhile are
//! included. It keeps no state between runs; a stopped rotation is started again.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::reseal::{Resealed, ResealedBatch, SealedPlace, StoredValue, UnreadableValue};
use semel_core::vault::SealedKind;
use semel_core::{Reseal, StoreError, Vault, VaultError};

/// Maximum number of passes: another process may still write under another key.
const MAX_PASSES: u32 = 8;

/// Maximum number of unreadable items that are named.
const MAX_NAMED: usize = 100;

/// One rotation.
pub struct Rotation {
    store: Arc<dyn Reseal>,
    vault: Arc<dyn Vault>,
    batch: usize,
    pass: RotationPass,
    rotated: Rotated,
}

/// One pass over all items.
struct RotationPass {
    number: u32,
    /// True if the pass has found an item to reseal.
    found: bool,
    /// Index of the current kind; `after` is the position in it.
    kind: usize,
    after: Option<SealedPlace>,
}

/// Progress of a rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Number of resealed items.
    pub resealed: u64,
    /// Number of items whose key is missing, by key id; as of the last pass.
    pub missing: BTreeMap<String, u64>,
    /// Number of items that do not open although their key is available, by key id; as of the last pass.
    pub unopened: BTreeMap<String, u64>,
    /// Number of plaintext items that are left unchanged, since plaintext is refused; as of the last pass.
    pub refused: u64,
    /// Number of unreadable items that are left unchanged; as of the last pass.
    pub unreadable: u64,
    /// The first hundred unreadable items.
    pub unreadable_named: Vec<UnreadableValue>,
    /// Number of items that could not be written because another transaction holds them; as of the last pass.
    pub held: u64,
    /// True if other processes kept writing under other keys, or plaintext, until the last pass.
    pub overtaken: bool,
}

impl Rotated {
    /// Returns true if everything is under the current key.
    pub fn is_complete(&self) -> bool {
        let Rotated { missing, unopened, refused, unreadable, held, overtaken, .. } = self;
        let none = *refused == 0 && *unreadable == 0 && *held == 0;
        missing.is_empty() && unopened.is_empty() && none && !overtaken
    }
}

/// Result of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// This number of items was resealed. There may be more.
    Resealed(usize),
    /// No item is left to reseal.
    Done,
}

impl Rotation {
    /// Returns a rotation to the current key of this vault, with batches of this size.
    pub fn new(store: Arc<dyn Reseal>, vault: Arc<dyn Vault>, batch: usize) -> Rotation {
        let pass = RotationPass { number: 1, found: false, kind: 0, after: None };
        Rotation { store, vault, batch: batch.max(1), pass, rotated: Rotated::default() }
    }

    /// Returns the progress.
    pub fn so_far(&self) -> &Rotated {
        &self.rotated
    }

    /// Processes one batch. After an error it may be called again.
    pub async fn step(&mut self) -> Result<RotationStep, StoreError> {
        let Some(kind) = SealedKind::ALL.get(self.pass.kind).copied() else { return Ok(self.next_pass()) };
        let current = self.vault.current().to_owned();
        let page = self.store.kept_otherwise(kind, &current, self.pass.after.as_ref(), self.batch).await?;
        let (mut resealed, mut closed) = (Vec::with_capacity(page.kept.len()), Vec::new());
        for before in page.kept {
            match self.again(&before) {
                Ok(after) => resealed.push(Resealed { before, after }),
                Err(VaultError::CannotSeal) => {
                    return Err(StoreError::Unavailable(VaultError::CannotSeal.to_string()));
                }
                Err(why) => closed.push(why),
            }
        }
        let ResealedBatch { written, held } = match resealed.is_empty() {
            true => ResealedBatch::default(),
            false => self.store.reseal(&resealed).await?,
        };
        // From here on, this batch is done: nothing of it counts twice. A pass that finds only items held by
        // others is the last one: a caller that wants those runs the rotation again.
        self.pass.found |= resealed.len() > held;
        self.rotated.resealed += written as u64;
        self.rotated.held += held as u64;
        for why in closed {
            match why {
                VaultError::UnknownKey(key) => *self.rotated.missing.entry(key).or_default() += 1,
                VaultError::DoesNotOpen(key) => *self.rotated.unopened.entry(key).or_default() += 1,
                VaultError::NotSealed => self.rotated.refused += 1,
                VaultError::CannotSeal => {}
            }
        }
        self.rotated.unreadable += page.unreadable.len() as u64;
        let room = MAX_NAMED.saturating_sub(self.rotated.unreadable_named.len());
        self.rotated.unreadable_named.extend(page.unreadable.into_iter().take(room));
        match page.last {
            Some(last) => self.pass.after = Some(last),
            None => (self.pass.kind, self.pass.after) = (self.pass.kind + 1, None),
        }
        Ok(RotationStep::Resealed(written))
    }

    /// Seals an item under the current key. Refused plaintext is not sealed: that would make it genuine.
    fn again(&self, kept: &StoredValue) -> Result<semel_core::Sealed, VaultError> {
        let clear = self.vault.open_kept(&kept.about, kept.key_id.as_deref(), &kept.bytes)?;
        self.vault.seal(&kept.about, &clear)
    }

    fn next_pass(&mut self) -> RotationStep {
        if !self.pass.found {
            return RotationStep::Done;
        }
        if self.pass.number == MAX_PASSES {
            self.rotated.overtaken = true;
            return RotationStep::Done;
        }
        self.pass = RotationPass { number: self.pass.number + 1, found: false, kind: 0, after: None };
        let Rotated { resealed, overtaken, .. } = self.rotated;
        self.rotated = Rotated { resealed, overtaken, ..Rotated::default() };
        RotationStep::Resealed(0)
    }
}
