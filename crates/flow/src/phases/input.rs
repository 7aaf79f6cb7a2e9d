//! Data stored with a command for resuming it: its input, and the parts of its policy that a run uses.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use semel_core::policy::StoreResponse;
use semel_core::request::INPUT_FORMAT;
use semel_core::{Policy, StoredRequest};

/// Input of a run, with the terms of its claim, which also apply when it is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// Timeout of one phase.
    pub(super) timeout: Duration,
    /// Maximum size of a stored response body.
    pub(super) max_stored_response: usize,
    /// Parts of the response that are stored.
    pub(super) store_response: StoreResponse,
    /// Input from the service.
    pub(super) bytes: Bytes,
}

impl Input {
    pub(super) fn new(policy: &Policy, bytes: Bytes) -> Input {
        Input {
            timeout: policy.timeout,
            max_stored_response: policy.max_stored_response,
            store_response: policy.store_response,
            bytes,
        }
    }

    /// Returns the stored form.
    pub(super) fn encode(&self) -> StoredRequest {
        let mut kept = BytesMut::with_capacity(16 + self.bytes.len());
        kept.put_u64(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX));
        kept.put_u8(code(self.store_response));
        kept.put_uint((self.max_stored_response as u64).min(MAX_SIZE), SIZE_BYTES);
        kept.put_slice(&self.bytes);
        StoredRequest::input(kept.freeze())
    }

    /// Parses the stored form; `None` if it is another format.
    pub(super) fn decode(kept: &StoredRequest) -> Option<Input> {
        if kept.format != INPUT_FORMAT || kept.encryption_key_id.is_some() {
            return None;
        }
        let mut bytes = kept.bytes.clone();
        let timeout = Duration::from_millis(bytes.try_get_u64().ok()?);
        let store_response = from_code(bytes.try_get_u8().ok()?)?;
        let max_stored_response = usize::try_from(bytes.try_get_uint(SIZE_BYTES).ok()?).ok()?;
        Some(Input { timeout, max_stored_response, store_response, bytes })
    }
}

/// Number of bytes of a size. The byte before them tells which parts of the response are stored; zero means all.
const SIZE_BYTES: usize = 7;
const MAX_SIZE: u64 = (1 << (8 * SIZE_BYTES)) - 1;

fn code(stored: StoreResponse) -> u8 {
    match stored {
        StoreResponse::Full => 0,
        StoreResponse::Headers => 1,
        StoreResponse::Reference => 2,
    }
}

fn from_code(code: u8) -> Option<StoreResponse> {
    match code {
        0 => Some(StoreResponse::Full),
        1 => Some(StoreResponse::Headers),
        2 => Some(StoreResponse::Reference),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_input_decodes_to_itself() {
        for store_response in [StoreResponse::Full, StoreResponse::Headers, StoreResponse::Reference] {
            let policy = Policy { timeout: Duration::from_millis(1234), store_response, ..Policy::default() };
            for bytes in [Bytes::new(), Bytes::from_static(b"{\"ride\": 1}")] {
                let input = Input::new(&policy, bytes);
                assert_eq!(Input::decode(&input.encode()), Some(input));
            }
        }
    }

    #[test]
    fn input_with_an_eight_byte_size_stores_the_full_response() {
        let mut kept = BytesMut::new();
        kept.put_u64(1234);
        kept.put_u64(1 << 20);
        kept.put_slice(b"{}");
        let input = Input::decode(&StoredRequest::input(kept.freeze())).expect("it reads");
        assert_eq!((input.store_response, input.max_stored_response), (StoreResponse::Full, 1 << 20));
        assert_eq!(&input.bytes[..], b"{}");
    }

    #[test]
    fn other_formats_do_not_decode() {
        let kept = Input::new(&Policy::default(), Bytes::from_static(b"x")).encode();
        assert_eq!(Input::decode(&StoredRequest { format: 1, ..kept.clone() }), None);
        let encrypted = StoredRequest { encryption_key_id: Some("k".to_owned()), ..kept.clone() };
        assert_eq!(Input::decode(&encrypted), None);
        assert_eq!(Input::decode(&StoredRequest { bytes: kept.bytes.slice(..15), ..kept }), None);
    }
}
