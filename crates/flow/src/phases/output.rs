//! Outputs of phases: any value that serde can write as JSON and read again.

use bytes::Bytes;
use semel_core::progress::MAX_OUTPUT;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the stored form. Refuses a value that cannot be read back now, and not when a run is resumed.
pub(crate) fn encode<T: Serialize + DeserializeOwned>(value: &T) -> Result<Bytes, String> {
    let bytes = serde_json::to_vec(value).map_err(|error| format!("its output is no JSON: {error}"))?;
    if bytes.len() > MAX_OUTPUT {
        return Err(format!("its output has {} bytes; at most {MAX_OUTPUT} are kept", bytes.len()));
    }
    decode::<T>(&bytes)?;
    Ok(bytes.into())
}

/// Parses the stored form.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("its output cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_reads_back_or_is_refused() {
        let kept = encode(&("ride".to_owned(), 7_u64)).expect("it is JSON");
        assert_eq!(decode::<(String, u64)>(&kept), Ok(("ride".to_owned(), 7)));
        assert!(decode::<u64>(&kept).is_err());
        assert!(encode(&f64::NAN).is_err(), "it would be read as nothing");
        assert!(encode(&"x".repeat(MAX_OUTPUT)).is_err(), "it is too large");
        assert!(encode(&"x".repeat(MAX_OUTPUT - 2)).is_ok());
    }
}
