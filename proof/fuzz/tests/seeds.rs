//! Runs the checks of all fuzz targets over the committed inputs: seeds, and past crashes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use semel_fuzz::TARGETS;
use semel_fuzz::http2::Reader;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target)
}

/// Returns the files of a folder, in order; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    files
}

/// Runs a check over its files, and panics with those that violate it.
fn run(name: &str) {
    let (_, check) = TARGETS.iter().find(|(target, _)| *target == name).expect("there is such a target");
    let seeds = files(&folder("seeds", name));
    assert!(seeds.len() >= 10, "{name} has too few seeds");
    let failed: Vec<String> = seeds
        .iter()
        .chain(&files(&folder("crashes", name)))
        .filter(|file| {
            let input = std::fs::read(file).expect("it can be read");
            catch_unwind(AssertUnwindSafe(|| check(&input))).is_err()
        })
        .map(|file| file.display().to_string())
        .collect();
    assert!(failed.is_empty(), "{name} does not hold for {}", failed.join(", "));
}

#[test]
fn key_check_holds_for_committed_inputs() {
    run("key");
}

#[test]
fn fingerprint_check_holds_for_committed_inputs() {
    run("fingerprint");
}

#[test]
fn response_check_holds_for_committed_inputs() {
    run("response");
}

#[test]
fn config_check_holds_for_committed_inputs() {
    run("config");
}

#[test]
fn front_check_holds_for_committed_inputs() {
    run("front");
}

#[test]
fn http2_check_holds_for_committed_inputs() {
    run("http2");
}

/// Runs every code at every point of a message and after its end, on either side, with and without an announced length,
/// at once and frame by frame.
#[test]
fn resets_with_every_code_at_every_point() {
    const SEPARATOR: u8 = 255;
    let (piece, end) = (3 << 3, 2 << 3 | 3);
    let points: [&[u8]; 4] = [&[], &[piece], &[piece, piece], &[piece, end]];
    let resets = (0..14_u8).map(|code| code << 3 | 5);
    // GOAWAY with NO_ERROR and with INTERNAL_ERROR, before this stream and after it; and the end of the connection.
    let others = [6, 2 << 3 | 6, 128 | 6, 128 | 2 << 3 | 6, 7];
    for cut in resets.chain(others) {
        for point in points {
            let steps = [point, &[cut]].concat();
            // Commands and requests that are passed through, announced or not, at once or frame by frame.
            for first in [0, 5, 16, 21, 32, 53] {
                let request = [&[first], &steps[..]].concat();
                let response = [&[first, end, SEPARATOR], &steps[..]].concat();
                semel_fuzz::http2::check(&request);
                semel_fuzz::http2::check(&response);
            }
        }
    }
}

/// Returns the violation that this input shows with this reader, if any.
fn violated_by(reader: Reader, input: &[u8]) -> Option<String> {
    let check = || semel_fuzz::http2::check_with(reader, input);
    let panicked = catch_unwind(AssertUnwindSafe(check)).err()?;
    Some(panicked.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// A reader that trusts hyper takes a message reset with NO_ERROR for complete. The check must notice, on either side;
/// and it must find nothing where the code is an error, which hyper reports.
#[test]
fn reader_that_takes_truncated_messages_for_complete_is_found() {
    const SEPARATOR: u8 = 255;
    let (piece, end) = (3 << 3, 2 << 3 | 3);
    let points: [&[u8]; 3] = [&[], &[piece], &[piece, piece]];
    for point in points {
        for first in [0, 5, 16, 32] {
            for code in [0, 1, 8_u8] {
                let steps = [point, &[code << 3 | 5]].concat();
                let request = [&[first], &steps[..]].concat();
                let response = [&[first, end, SEPARATOR], &steps[..]].concat();
                let of_request = violated_by(Reader::NaiveOfRequests, &request);
                let of_response = violated_by(Reader::NaiveOfResponses, &response);
                if code == 0 {
                    let is = |found: &Option<String>, what: &str| {
                        found.as_ref().is_some_and(|found| found.contains(what))
                    };
                    assert!(is(&of_request, "half a request was passed on"), "{request:?}: {of_request:?}");
                    assert!(is(&of_response, "half a response"), "{response:?}: {of_response:?}");
                } else {
                    assert_eq!((of_request, of_response), (None, None), "{code} at {point:?}");
                }
            }
        }
    }
}

#[test]
fn webhook_check_holds_for_committed_inputs() {
    run("webhook");
}

/// Each folder belongs to a target: a misspelled one would never run.
#[test]
fn every_input_folder_belongs_to_a_target() {
    for kind in ["seeds", "crashes"] {
        for folder in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)) {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            assert!(
                TARGETS.iter().any(|(target, _)| *target == name),
                "{} is run by nobody",
                folder.display()
            );
        }
    }
}
