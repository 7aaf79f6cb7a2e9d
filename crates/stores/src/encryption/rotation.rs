//! Brings everything that is kept under the current key, a batch at a time, beside live traffic.
//!
//! It goes over all that there is, and then again, until it finds nothing that it could still seal: what was written
//! behind its back meanwhile counts, too. It keeps nothing between runs; one that was stopped is simply begun again.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::reseal::{Resealed, ResealedBatch, SealedPlace, StoredValue, UnreadableValue};
use semel_core::vault::SealedKind;
use semel_core::{Reseal, StoreError, Vault, VaultError};

/// How often it goes over everything at the most: somebody may still write under another key.
const MAX_PASSES: u32 = 8;

/// How many of what cannot be read are named.
const MAX_NAMED: usize = 100;

/// One rotation.
pub struct Rotation {
    store: Arc<dyn Reseal>,
    vault: Arc<dyn Vault>,
    batch: usize,
    pass: RotationPass,
    rotated: Rotated,
}

/// One way over everything.
struct RotationPass {
    number: u32,
    /// Whether it has found anything that could be sealed.
    found: bool,
    /// The kind that it is at, of all, and where.
    kind: usize,
    after: Option<SealedPlace>,
}

/// What a rotation has come to so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// How many responses and requests were sealed anew.
    pub resealed: u64,
    /// How many cannot be opened because their key is not at hand, by the id of that key; as of the last pass.
    pub missing: BTreeMap<String, u64>,
    /// How many do not open although their key is at hand, by its id; as of the last pass.
    pub unopened: BTreeMap<String, u64>,
    /// How many are in the clear although plaintext is refused, and are left as they are; as of the last pass.
    pub refused: u64,
    /// How many cannot be read at all, and are left as they are; as of the last pass.
    pub unreadable: u64,
    /// Which they are, the first hundred of them.
    pub unreadable_named: Vec<UnreadableValue>,
    /// How many could not be written because another transaction holds them; as of the last pass.
    pub held: u64,
    /// Others went on writing under other keys, or in the clear, for as long as it was tried.
    pub overtaken: bool,
}

impl Rotated {
    /// Whether everything is under the current key.
    pub fn is_complete(&self) -> bool {
        let Rotated { missing, unopened, refused, unreadable, held, overtaken, .. } = self;
        let none = *refused == 0 && *unreadable == 0 && *held == 0;
        missing.is_empty() && unopened.is_empty() && none && !overtaken
    }
}

/// What one batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// So many were sealed anew. There may be more.
    Resealed(usize),
    /// Nothing is left that could be.
    Done,
}

impl Rotation {
    /// Under the current key of this vault, with so many things read and written at a time.
    pub fn new(store: Arc<dyn Reseal>, vault: Arc<dyn Vault>, batch: usize) -> Rotation {
        let pass = RotationPass { number: 1, found: false, kind: 0, after: None };
        Rotation { store, vault, batch: batch.max(1), pass, rotated: Rotated::default() }
    }

    /// What it has come to so far.
    pub fn so_far(&self) -> &Rotated {
        &self.rotated
    }

    /// One batch. After an error it may be called again.
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
        // From here on, this batch is done: nothing of it counts twice. A pass that meets only what others hold is the last:
        // whoever waits for them runs it again.
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

    /// Seals it under the current key. Plaintext where none is expected is not sealed: that would make it genuine.
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
