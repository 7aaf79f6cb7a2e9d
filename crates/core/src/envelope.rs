//! Sealed bytes with the id of their key, in one column: outputs of phases and payloads of messages.
//!
//! Invariant: an envelope is never taken for clear bytes. Bytes that still are an envelope were not opened,
//! and no caller uses their content.

use bytes::{BufMut, Bytes, BytesMut};

use crate::ids::OperationId;
use crate::outbox::Message;
use crate::progress::{Mark, Progress, StepKind};
use crate::vault::{Sealed, Sealing, Vault, VaultError};

/// First bytes of every envelope. The key id, a NUL and the sealed bytes follow.
pub const ENVELOPE: &[u8] = b"\0semel-sealed\0";

/// Returns true if these bytes are an envelope.
pub fn is_envelope(bytes: &[u8]) -> bool {
    bytes.starts_with(ENVELOPE)
}

/// Returns the first bytes of every envelope under this key.
pub fn envelope_under(key_id: &str) -> Vec<u8> {
    [ENVELOPE, key_id.as_bytes(), b"\0"].concat()
}

/// Returns an envelope that no key opens: it replaces refused bytes.
fn closed() -> Bytes {
    Bytes::from_static(ENVELOPE)
}

impl Sealed {
    /// Returns the key id and the sealed bytes as one envelope.
    pub fn into_envelope(self) -> Bytes {
        let mut bytes = BytesMut::from(&envelope_under(&self.key_id)[..]);
        bytes.put_slice(&self.bytes);
        bytes.freeze()
    }

    /// Returns the content of an envelope; `None` if these bytes are no readable envelope.
    pub fn from_envelope(bytes: &Bytes) -> Option<Sealed> {
        let rest = bytes.strip_prefix(ENVELOPE)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let key_id = str::from_utf8(&rest[..end]).ok()?.to_owned();
        Some(Sealed { key_id, bytes: bytes.slice(ENVELOPE.len() + end + 1..) })
    }
}

impl dyn Vault {
    /// Opens an envelope in place. If it does not open, it stays an envelope; refused plaintext becomes one.
    fn open_envelope(&self, about: &Sealing, kept: &mut Bytes) -> Result<(), VaultError> {
        let opened = match Sealed::from_envelope(kept) {
            Some(sealed) => self.open(about, &sealed.key_id, &sealed.bytes),
            None if is_envelope(kept) => Err(VaultError::DoesNotOpen(String::new())),
            None => self.open_kept(about, None, kept),
        };
        match opened {
            Ok(clear) => *kept = clear,
            Err(VaultError::NotSealed) => {
                *kept = closed();
                return Err(VaultError::NotSealed);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }

    /// Seals the output of a phase of this command.
    pub fn seal_output(
        &self,
        command: OperationId,
        phase: &str,
        output: &Bytes,
    ) -> Result<Bytes, VaultError> {
        Ok(self.seal(&Sealing::phase(command, phase), output)?.into_envelope())
    }

    /// Returns the mark of a phase of this command with its output sealed.
    pub fn seal_mark(&self, command: OperationId, mark: &Mark) -> Result<Mark, VaultError> {
        let seal = |name: &str, output: &Bytes| self.seal_output(command, name, output);
        Ok(match mark {
            Mark::Local { position, name, output } => {
                Mark::Local { position: *position, name: name.clone(), output: seal(name, output)? }
            }
            Mark::Answered { name, output } => {
                Mark::Answered { name: name.clone(), output: seal(name, output)? }
            }
            Mark::Begun { .. } | Mark::TakenBack { .. } => mark.clone(),
        })
    }

    /// Opens the output of a step of this command, if it has one.
    pub fn open_progress(&self, command: OperationId, step: &mut Progress) -> Result<(), VaultError> {
        let about = Sealing::phase(command, &step.name);
        match &mut step.what {
            StepKind::Local { output } | StepKind::External { output: Some(output), .. } => {
                self.open_envelope(&about, output)
            }
            StepKind::External { output: None, .. } | StepKind::Item { .. } => Ok(()),
        }
    }

    /// Returns the sealed payload of a message.
    pub fn seal_payload(&self, event_id: &str, payload: &[u8]) -> Result<Bytes, VaultError> {
        Ok(self.seal(&Sealing::message(event_id), payload)?.into_envelope())
    }

    /// Opens the payload of a message.
    pub fn open_message(&self, message: &mut Message) -> Result<(), VaultError> {
        self.open_envelope(&Sealing::message(&message.event_id), &mut message.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_names_its_key_and_returns_the_sealed_bytes() {
        let sealed = Sealed { key_id: "2026-11".to_owned(), bytes: Bytes::from_static(b"\0any\0bytes") };
        let bytes = sealed.clone().into_envelope();
        assert!(is_envelope(&bytes) && bytes.starts_with(&envelope_under("2026-11")));
        assert_eq!(Sealed::from_envelope(&bytes), Some(sealed));
        assert!(
            !bytes.starts_with(&envelope_under("2026-1")) && !bytes.starts_with(&envelope_under("2026-112"))
        );
    }

    #[test]
    fn broken_envelopes_are_still_envelopes_and_clear_bytes_are_not() {
        for clear in [&b""[..], b"{}", b"\0semel", b"semel-sealed\0k\0"] {
            assert!(!is_envelope(clear) && Sealed::from_envelope(&Bytes::copy_from_slice(clear)).is_none());
        }
        let broken = Bytes::from_static(b"\0semel-sealed\0no end");
        assert!(is_envelope(&broken) && Sealed::from_envelope(&broken).is_none());
        assert!(is_envelope(&closed()) && Sealed::from_envelope(&closed()).is_none());
    }
}
