//! Encryption at rest: `aes.rs` seals and opens, `store.rs`, `evidence.rs` and `outbox.rs` do so around any store, `rotation.rs` brings what is kept
//! under the current key. What is sealed, and what is not, is in `docs/src/how-to/encryption.md`.

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
