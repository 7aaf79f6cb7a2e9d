//! Encryption at rest: `aes.rs` seals and opens; `store.rs`, `evidence.rs` and `outbox.rs` do so around any
//! store; `rotation.rs` reseals stored items under the current key. `docs/src/how-to/encryption.md` lists the
//! sealed and unsealed data.

#[cfg(feature = "encryption")]
mod aes;
mod backend;
mod evidence;
mod outbox;
mod rotation;
mod store;

#[cfg(feature = "encryption")]
pub use aes::{AesVault, InvalidKeys};
pub use rotation::{Rotated, Rotation, RotationStep};
pub use store::SealedStore;
