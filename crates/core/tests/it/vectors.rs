//! Conformance: public test vectors that this project did not write, read from `SEMEL_VECTORS`.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use semel_core::fingerprint::{CanonicalBody, Fingerprint, FingerprintInput};
use semel_core::json::{Numbers, canonicalize};
use semel_core::key::{KeyError, KeyRules, KeySyntax};
use serde_json::Value;

/// Documents that must parse, yet have no canonical form: readers differ on repeated members.
const AMBIGUOUS: [&str; 2] = ["y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"];

/// Returns the directory of the vectors, if this run has one. A named but missing directory is an error,
/// never a skip.
#[expect(clippy::print_stdout, reason = "a run without the vectors must say so")]
fn vectors() -> Option<PathBuf> {
    let Some(directory) = env::var_os("SEMEL_VECTORS").map(PathBuf::from) else {
        println!("SEMEL_VECTORS is not set: the conformance vectors did not run");
        return None;
    };
    assert!(directory.is_dir(), "SEMEL_VECTORS is not a directory: {}", directory.display());
    Some(directory)
}

/// Returns the files of a directory, ordered by name.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a readable file"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn strict_keys_are_exactly_the_string_items() {
    let Some(vectors) = vectors() else { return };
    let rules = KeyRules { syntax: KeySyntax::Strict, min_length: 0, max_length: usize::MAX };
    let (mut items, mut keys) = (0, 0);
    for (file, text) in files(&vectors.join("sfv")).iter().filter(|(name, _)| name.ends_with(".json")) {
        let cases: Vec<Value> = serde_json::from_slice(text).expect("a list of cases");
        for case in cases.iter().filter(|case| case["header_type"] == "item") {
            items += 1;
            let lines: Vec<&str> =
                case["raw"].as_array().expect("lines").iter().filter_map(Value::as_str).collect();
            let key = rules.parse(lines.iter().map(|line| line.as_bytes()));
            let name = format!("{file}: {}", case["name"]);
            match case["expected"][0].as_str() {
                _ if lines.len() > 1 => assert_eq!(key, Err(KeyError::Repeated), "{name}"),
                Some("") => assert_eq!(key, Err(KeyError::Empty), "{name}"),
                Some(expected) if case["must_fail"] != true => {
                    let key = key.unwrap_or_else(|error| panic!("{name}: {error}")).expect("a key");
                    assert_eq!(key.as_str(), expected, "{name}");
                    keys += 1;
                }
                Some(_) | None => assert!(key.is_err(), "{name}"),
            }
        }
    }
    println!("sfv: {items} items, {keys} of them keys");
    assert_eq!((items, keys), (83, 4));
}

#[test]
fn rfc_8785_documents_come_out_as_published() {
    let Some(vectors) = vectors() else { return };
    let jcs = vectors.join("jcs");
    let inputs = files(&jcs.join("input"));
    for (name, input) in &inputs {
        let canonical =
            canonicalize(input, Numbers::Rfc8785, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let output = fs::read(jcs.join("output").join(name)).expect("its output");
        assert_eq!(canonical.escape_ascii().to_string(), output.escape_ascii().to_string(), "{name}");

        let hex = fs::read_to_string(jcs.join("outhex").join(name).with_extension("txt")).expect("its bytes");
        let bytes = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a hex byte"));
        assert!(bytes.eq(canonical.iter().copied()), "{name}");
    }
    println!("jcs: {} documents", inputs.len());
    assert_eq!(inputs.len(), 6);
}

#[test]
fn doubles_are_spelled_as_ecmascript_spells_them() {
    let Some(vectors) = vectors() else { return };
    let lines = fs::read_to_string(vectors.join("jcs/es6-numbers.txt")).expect("the numbers");
    let mut numbers = 0;
    for line in lines.lines() {
        let (bits, expected) = line.split_once(',').expect("bits and a text");
        let double = f64::from_bits(u64::from_str_radix(bits, 16).expect("sixteen hex digits"));
        for text in [format!("{double:e}"), format!("{double:.17e}")] {
            let canonical = canonicalize(text.as_bytes(), Numbers::Rfc8785, &[]);
            assert_eq!(canonical.as_deref(), Ok(expected.as_bytes()), "{text}");
        }
        let exact = canonicalize(expected.as_bytes(), Numbers::Exact, &[]);
        assert_eq!(exact.as_deref(), Ok(expected.as_bytes()), "the canonical spelling is exact");
        numbers += 1;
    }
    println!("jcs: {numbers} numbers");
    assert_eq!(numbers, 5000);
}

#[test]
fn json_test_suite_documents_are_canonical_only_if_valid_json() {
    let Some(vectors) = vectors() else { return };
    let documents = files(&vectors.join("jsontestsuite/test_parsing"));
    let mut canonical = 0;
    for (name, document) in &documents {
        let is_canonical = matches!(input(document).canonical_body(), CanonicalBody::Json(_));
        canonical += usize::from(is_canonical);
        match name.split_once('_').map(|(verdict, _)| verdict) {
            Some("y") => assert_eq!(is_canonical, !AMBIGUOUS.contains(&name.as_str()), "{name}"),
            Some("n") => assert!(!is_canonical, "{name}"),
            Some("i") => {}
            Some(_) | None => panic!("{name}: neither accepted, refused nor indifferent"),
        }
    }
    println!("JSONTestSuite: {} documents, {canonical} of them canonical", documents.len());
    assert_eq!(documents.len(), 318);
}

#[test]
fn documents_with_different_values_never_share_a_fingerprint() {
    let Some(vectors) = vectors() else { return };
    let documents = files(&vectors.join("jsontestsuite/test_parsing"));
    let mut seen: HashMap<Fingerprint, (&str, Meaning)> = HashMap::new();
    let mut shared = 0;
    for (name, document) in &documents {
        let meaning = Meaning::of(document);
        if let Some((other, same)) = seen.get(&input(document).fingerprint()) {
            assert_eq!(&meaning, same, "{name} and {other}");
            shared += 1;
        } else {
            seen.insert(input(document).fingerprint(), (name, meaning));
        }
    }
    println!("JSONTestSuite: {} fingerprints of {} documents, {shared} shared", seen.len(), documents.len());
    assert_eq!(seen.len() + shared, 318);
}

fn input(body: &[u8]) -> FingerprintInput<'_> {
    FingerprintInput {
        method: "POST",
        path: "/",
        query: None,
        content_type: Some(b"application/json"),
        content_encoding: None,
        body,
        exclude: &[],
    }
}

/// Meaning of a document, independent of our own parser: the tree of `serde_json`, which rounds numbers and
/// drops repeated members, and the data that this loses.
#[derive(Debug, PartialEq)]
enum Meaning {
    Tree { tree: Value, numbers: Vec<String> },
    Bytes(Vec<u8>),
}

impl Meaning {
    fn of(document: &[u8]) -> Self {
        let Ok(mut tree) = serde_json::from_slice(document) else { return Self::Bytes(document.to_vec()) };
        let members = round(&mut tree);
        let structure = without_strings(document);
        if structure.matches(':').count() > members {
            return Self::Bytes(document.to_vec());
        }
        let mut numbers: Vec<_> = structure
            .split(|c: char| "[]{}:, \t\r\n".contains(c))
            .filter(|token| token.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
            .map(exact_value)
            .collect();
        numbers.sort();
        Self::Tree { tree, numbers }
    }
}

/// Makes every number a double, so that `1` equals `1.0`. Returns the number of members of all objects.
fn round(value: &mut Value) -> usize {
    match value {
        Value::Number(number) => {
            *value = number.as_f64().expect("a double").into();
            0
        }
        Value::Array(elements) => elements.iter_mut().map(round).sum(),
        Value::Object(members) => members.len() + members.values_mut().map(round).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}

/// Returns a valid document with its strings emptied.
fn without_strings(document: &[u8]) -> String {
    let text = str::from_utf8(document).expect("serde_json reads UTF-8 only");
    let unescaped = text.replace(r"\\", "").replace("\\\"", "");
    unescaped.split('"').step_by(2).collect()
}

/// Returns one text per decimal value: the digits as an integer without trailing zeros, and its power of ten.
fn exact_value(number: &str) -> String {
    let lower = number.to_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let sign = if digits.starts_with('-') { "-" } else { "" };
    let significant = digits.trim_start_matches(['-', '0']);
    let integer = significant.trim_end_matches('0');
    if integer.is_empty() {
        return "0".to_owned();
    }
    let exponent: i128 = exponent.parse().expect("serde_json refuses exponents that large");
    let power = exponent - fraction.len() as i128 + (significant.len() - integer.len()) as i128;
    format!("{sign}{integer}e{power}")
}
