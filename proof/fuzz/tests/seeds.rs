//! The checks of all fuzz targets over what is committed: seeds, and what was once found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use semel_fuzz::TARGETS;
use semel_fuzz::http2::Reader;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target)
}

/// The files of a folder, in order; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    files
}

/// Says which files a check does not hold for.
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
fn keys() {
    run("key");
}

#[test]
fn fingerprints() {
    run("fingerprint");
}

#[test]
fn stored_responses_and_requests() {
    run("response");
}

#[test]
fn configurations() {
    run("config");
}

#[test]
fn connections_to_a_gateway() {
    run("front");
}

#[test]
fn messages_over_http2() {
    run("http2");
}

/// Every code at every point of a message, on either side, with and without an announced length, at once and frame by frame;
/// and the same after the end of the message.
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
            // Commands and what is passed on, announced or not, at once or frame by frame.
            for first in [0, 5, 16, 21, 32, 53] {
                let request = [&[first], &steps[..]].concat();
                let response = [&[first, end, SEPARATOR], &steps[..]].concat();
                semel_fuzz::http2::check(&request);
                semel_fuzz::http2::check(&response);
            }
        }
    }
}

/// What was violated when this input met this reader, if anything was.
fn violated_by(reader: Reader, input: &[u8]) -> Option<String> {
    let check = || semel_fuzz::http2::check_with(reader, input);
    let panicked = catch_unwind(AssertUnwindSafe(check)).err()?;
    Some(panicked.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// A reader that believes hyper takes what was reset with NO_ERROR for a whole message. The check must notice, on either
/// side; and it must find nothing where the code says that something went wrong, which hyper reports.
#[test]
fn a_reader_that_takes_half_messages_for_whole_ones_is_found() {
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
fn events_of_providers() {
    run("webhook");
}

/// Each folder belongs to a target: a misspelled one would never run.
#[test]
fn every_folder_is_run() {
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
