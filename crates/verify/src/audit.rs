//! Audits an OpenAPI document: lists the endpoints that change state, and their declarations about retries.
//!
//! `reader` reads the text into a `document`, `operations` lists its operations, `reference` follows references, `judge`
//! decides what counts (with `key` for the names of keys, and `lifetime` for prose), `choice` leaves endpoints out, and
//! `report` shows the rest, in `groups` if there are many. Size, depth and work are bounded: a document may come from anywhere.

mod choice;
mod document;
mod error;
mod groups;
mod judge;
mod key;
mod lifetime;
mod operations;
mod reader;
mod reference;
mod report;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;

pub use choice::LeftOut;
pub use error::AuditError;
use judge::AuditedEndpoint;
pub use report::AuditReport;

/// The largest document. The largest public ones have about 12 MiB.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// The endpoints to audit, and the names of keys.
#[derive(Default)]
pub struct AuditOptions<'a> {
    /// The endpoints that need no key.
    pub left_out: Vec<LeftOut<'a>>,
    /// Additional names of a key.
    pub key_names: Vec<&'a str>,
    /// True to audit methods that are idempotent by definition, such as PUT and DELETE.
    pub all_methods: bool,
}

/// Reads the text of a document; `-` is the standard input.
///
/// # Errors
/// If the file cannot be read, is too large, or is not UTF-8.
pub fn read_text(file: &str) -> Result<String, AuditError> {
    if file.starts_with("http://") || file.starts_with("https://") {
        return Err(AuditError::Address);
    }
    let named = || file.to_owned();
    let source: Box<dyn Read> = if file == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).map_err(|source| AuditError::Open { file: named(), source })?)
    };
    let mut bytes = Vec::new();
    source
        .take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| AuditError::Read { file: named(), source })?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(AuditError::TooLarge { file: named(), limit_mib: MAX_DOCUMENT_BYTES >> 20 });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        AuditError::NotUtf8 { file: named(), line }
    })
}

/// Audits the document in this text.
///
/// # Errors
/// If the document is broken, is not OpenAPI, exceeds a bound, or lacks an endpoint that the options leave out.
pub fn audit(text: &str, options: &AuditOptions<'_>) -> Result<AuditReport, AuditError> {
    let document = reader::read(text)?;
    let paths = operations::list(document.root())?;
    let mut endpoints: Vec<AuditedEndpoint> = Vec::new();
    for operation in &paths.operations {
        endpoints.extend(judge::judge(operation, options.all_methods, &options.key_names)?);
    }
    endpoints.extend(paths.unseen.iter().map(judge::judge_unseen));
    options.left_out.iter().try_for_each(|choice| choice.check(&endpoints))?;
    let is_left_out = |endpoint: &AuditedEndpoint| options.left_out.iter().any(|choice| choice.is(endpoint));
    let (left_out, endpoints): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(is_left_out);
    let ignored = left_out.iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect();
    Ok(AuditReport { version: paths.version.to_owned(), endpoints, ignored })
}
