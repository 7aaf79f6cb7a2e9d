//! Tests of the comparison as a whole: from bytes to a report.

use std::time::Duration;

use proptest::prelude::*;
use semel_core::Timestamp;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn ages() -> Ages {
    Ages { now: NOW, grace: Duration::from_secs(900), max_age: None }
}

fn columns() -> LedgerColumns {
    let compare = ["amount", "currency", "status"].map(str::to_owned).into();
    LedgerColumns { reference: "id".to_owned(), compare, ..LedgerColumns::default() }
}

fn read_as(format: Format, columns: &LedgerColumns, text: &str) -> Result<Ledger, String> {
    let mut reading = LedgerReader::new(format, columns, ages()).map_err(|error| error.to_string())?;
    // In pieces, as a network delivers them.
    text.as_bytes().chunks(7).try_for_each(|piece| reading.feed(piece)).map_err(|error| error.to_string())?;
    reading.finish().map_err(|error| error.to_string())
}

fn csv(text: &str) -> Ledger {
    read_as(Format::Csv, &columns(), text).expect("it can be read")
}

fn references(report: &LedgerReport, kind: FindingKind) -> Vec<&str> {
    let findings = report.findings(kind);
    assert_eq!(findings.total, findings.first.len() as u64, "all are listed");
    findings.first.iter().map(|finding| finding.reference.as_str()).collect()
}

const OURS: &str = "id,amount,currency,status\n\
    a,1200.00,EUR,captured\n\
    b,5,EUR,captured\n\
    c,7,EUR,captured\n\
    d,9.10,EUR,captured\n\
    d,9.10,EUR,captured\n";

#[test]
fn each_kind_of_disagreement_is_found_and_named() {
    let theirs = "status,id,currency,amount\n\
        captured,a,EUR,1200\n\
        captured,c,EUR,8\n\
        captured,d,EUR,9.1\n\
        captured,e,EUR,1\n\
        captured,f,EUR,2\n\
        captured,f,EUR,2\n";
    let report = compare(&csv(OURS), &csv(theirs));
    assert!(!report.agrees());
    assert_eq!((report.ours.entries, report.theirs.entries, report.agreeing), (5, 6, 1));
    assert_eq!(references(&report, FindingKind::MissingTheirs), ["b"]);
    assert_eq!(references(&report, FindingKind::MissingOurs), ["e", "f"]);
    assert_eq!(references(&report, FindingKind::DoubleOurs), ["d"]);
    assert_eq!(references(&report, FindingKind::DoubleTheirs), ["f"]);
    assert_eq!(references(&report, FindingKind::Different), ["c"]);
    let different = &report.findings(FindingKind::Different).first[0];
    let difference = LedgerDifference { value: 0, ours: "7".to_owned(), theirs: "8".to_owned() };
    assert_eq!(different.differences, [difference]);
    assert_eq!((&different.our_lines[..], &different.their_lines[..]), (&[4][..], &[3][..]));
    assert_eq!(report.findings(FindingKind::DoubleOurs).first[0].our_lines, [5, 6]);
}

#[test]
fn three_formats_of_one_ledger_give_the_same_report() {
    let ndjson = "{\"id\":\"a\",\"amount\":1200,\"currency\":\"EUR\",\"status\":\"captured\"}\n\
        {\"id\":\"b\",\"amount\":\"5.0\",\"currency\":\"EUR\",\"status\":\"captured\"}\n\
        {\"id\":\"c\",\"amount\":7e0,\"currency\":\"EUR\",\"status\":\"captured\"}\n\
        {\"id\":\"d\",\"amount\":9.1,\"currency\":\"EUR\",\"status\":\"captured\"}\n";
    let list = format!("\u{feff}[{}]", ndjson.trim_end().replace('\n', ","));
    let once = OURS.rsplit_once("d,").map(|(before, _)| before).expect("it ends so");
    for (format, text) in [(Format::Ndjson, ndjson), (Format::Json, &list)] {
        let theirs = read_as(format, &columns(), text).expect("it can be read");
        let report = compare(&csv(once), &theirs);
        assert!(report.agrees(), "{report:?}");
        assert_eq!(report.agreeing, 4);
    }
    assert!(
        compare(&csv(&format!("\u{feff}{once}")), &csv(once)).agrees(),
        "a mark at the beginning says nothing"
    );
}

#[test]
fn ledger_amounts_compare_by_exact_value_and_references_by_text() {
    let ledger = |reference: &str, amount: &str| {
        csv(&format!("id,amount,currency,status\n{reference},{amount},EUR,captured\n"))
    };
    for (ours, theirs, agrees) in [
        ("9007199254740993", "9007199254740993.000", true),
        ("9007199254740993", "9007199254740992", false),
        ("0.1", "0.10000000000000000001", false),
        ("-0", "0.00", true),
        ("12,00", "12.00", false),
        ("007", "7", false),
    ] {
        let quoted = |amount: &str| format!("\"{amount}\"");
        let report = compare(&ledger("a", &quoted(ours)), &ledger("a", &quoted(theirs)));
        assert_eq!(report.agrees(), agrees, "{ours} {theirs}");
    }
    assert_eq!(references(&compare(&ledger("1.0", "1"), &ledger("1", "1")), FindingKind::MissingOurs), ["1"]);
}

#[test]
fn filters_exclude_entries_and_count_them() {
    let condition = |name: &str, value: &str| Condition { name: name.to_owned(), value: value.to_owned() };
    let filter =
        vec![condition("status", "captured"), condition("status", "settled"), condition("live", "1")];
    let columns =
        LedgerColumns { filter, ..LedgerColumns { reference: "id".to_owned(), ..LedgerColumns::default() } };
    let text = "id,status,live\na,captured,1\nb,settled,1.0\nc,declined,1\nd,captured,0\n";
    let ledger = read_as(Format::Csv, &columns, text).expect("it can be read");
    assert_eq!((ledger.len(), ledger.left_out), (2, 2));
}

#[test]
fn too_young_and_too_old_entries_are_not_missing() {
    let columns =
        LedgerColumns { reference: "id".to_owned(), time: Some("at".to_owned()), ..LedgerColumns::default() };
    let read = |text: &str| {
        let ages = Ages { max_age: Some(Duration::from_secs(86_400)), ..ages() };
        let mut reading = LedgerReader::new(Format::Csv, &columns, ages).expect("it can begin");
        reading.feed(text.as_bytes()).expect("it can be read");
        reading.finish().expect("it can be read")
    };
    let seconds = NOW.as_millis() / 1000;
    let theirs = format!(
        "id,at\nyoung,{}\ndue,{}\nold,{}\nfuture,2999-01-01T00:00:00Z\nmixed,{0}\nmixed,{1}\n",
        seconds - 10,
        seconds - 1000,
        seconds - 100_000
    );
    let report = compare(&read("id,at\n"), &read(&theirs));
    assert_eq!((report.too_young, report.too_old), (2, 1));
    assert_eq!(references(&report, FindingKind::MissingOurs), ["due", "mixed"]);
    let report = compare(&read(&theirs), &read("id,at\n"));
    assert_eq!(references(&report, FindingKind::MissingTheirs), ["due", "mixed"]);
}

#[test]
fn a_suffix_is_no_part_of_the_reference() {
    let columns = LedgerColumns {
        reference: "key".to_owned(),
        strip_suffix: Some(":".to_owned()),
        ..LedgerColumns::default()
    };
    let theirs = read_as(Format::Csv, &columns, "key\na:charge\nb\nc:x:y\n").expect("it can be read");
    let mut ours = Ledger::new(0);
    for reference in ["a", "b", "c"] {
        ours.add(0, Age::Due, reference, &[]).expect("it is an entry");
    }
    assert!(compare(&ours, &theirs).agrees());
}

#[test]
fn unreadable_input_is_reported_with_its_line() {
    let timed = LedgerColumns {
        time: Some("at".to_owned()),
        ..LedgerColumns { reference: "id".to_owned(), ..LedgerColumns::default() }
    };
    let plain = LedgerColumns { time: None, ..timed.clone() };
    let deep = LedgerColumns { reference: "/a/b".to_owned(), ..plain.clone() };
    let wrong = LedgerColumns { reference: "/a~".to_owned(), ..plain.clone() };
    let time = "expected one of RFC 3339, such as 2026-11-15T12:33:01Z, or seconds since 1970";
    for (format, columns, text, why) in [
        (Format::Csv, &plain, "", "there is no header: the first line of CSV names the columns".to_owned()),
        (
            Format::Csv,
            &plain,
            "ID,x\n",
            "line 1: there is no column \"id\"; there are \"ID\", \"x\"".to_owned(),
        ),
        (
            Format::Csv,
            &plain,
            "id,id\n",
            "line 1: two columns are called \"id\": which one counts?".to_owned(),
        ),
        (Format::Csv, &plain, "id,x\na,b\nc\n", "line 3: the header has 2 fields, and this has 1".to_owned()),
        (Format::Csv, &plain, "id,x\n,b\n", "line 2: the reference is empty".to_owned()),
        (Format::Csv, &timed, "id,at\na,soon\n", format!("line 2: \"soon\" is no time: {time}")),
        (Format::Csv, &timed, "id,at\na,+5\n", format!("line 2: \"+5\" is no time: {time}")),
        (
            Format::Csv,
            &timed,
            "id,at\na,1800000000000\n",
            format!("line 2: \"1800000000000\" is no time: {time}, and these are milliseconds, it seems"),
        ),
        (
            Format::Csv,
            &plain,
            "\u{feff}\u{feff}id\n",
            "line 1: there is no column \"id\"; there are \"\\u{feff}id\"".to_owned(),
        ),
        (
            Format::Ndjson,
            &plain,
            "{\"id\":1}\n[1]\n",
            "line 2: expected an object, which begins with `{`".to_owned(),
        ),
        (
            Format::Ndjson,
            &plain,
            "{\"id\":1}\n{\"id\":\n",
            "line 2: not JSON: unexpected input at byte 6".to_owned(),
        ),
        (
            Format::Ndjson,
            &plain,
            "{\"id\":1,\"id\":2}",
            "line 1: an object has two members of the same name".to_owned(),
        ),
        (
            Format::Ndjson,
            &plain,
            "{\"id\":{}}",
            "line 1: \"id\" is no text and no number, but has members".to_owned(),
        ),
        (Format::Ndjson, &plain, "{\"x\":1}", "line 1: the reference is empty".to_owned()),
        (Format::Json, &deep, "[{\"a\":{\"b\":1}},\n{\"a\":2}]", "line 2: the reference is empty".to_owned()),
        (Format::Json, &wrong, "[]", "\"/a~\": in a JSON Pointer, `~` is followed by `0` or `1`".to_owned()),
    ] {
        assert_eq!(read_as(format, columns, text).expect_err("it cannot be read"), why);
    }
    assert_eq!(
        read_as(Format::Ndjson, &columns(), "{\"id\":\"a\",\"amount\":1,\"currency\":null}")
            .expect_err("a typo"),
        "no entry has a member \"status\": is it called so?"
    );
}

#[test]
fn lists_are_bounded_and_totals_are_not() {
    let mut theirs = Ledger::new(0);
    for index in 0..250 {
        theirs.add(index + 1, Age::Due, &format!("{index:03}"), &[]).expect("it is an entry");
    }
    let report = compare(&Ledger::new(0), &theirs);
    let findings = report.findings(FindingKind::MissingOurs);
    assert_eq!((findings.total, findings.first.len()), (250, MAX_LISTED));
    // Thousands of entries with one reference are compared quickly, too.
    let (mut ours, mut theirs) = (Ledger::new(1), Ledger::new(1));
    for index in 0..50_000 {
        ours.add(index + 1, Age::Due, "EUR", &[&format!("{index}")]).expect("it is an entry");
        theirs.add(index + 1, Age::Due, "EUR", &[&format!("-{index}")]).expect("it is an entry");
    }
    let report = compare(&ours, &theirs);
    assert_eq!(FindingKind::ALL.map(|kind| report.findings(kind).total), [0, 0, 1, 1, 1]);
}

/// Change to an entry of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    OursDeleted,
    TheirsDeleted,
    OursDoubled,
    TheirsDoubled,
    Changed,
    TheirsDoubledOtherwise,
}

fn planted() -> impl Strategy<Value = Planted> {
    prop_oneof![
        4 => Just(Planted::Nothing),
        1 => Just(Planted::OursDeleted),
        1 => Just(Planted::TheirsDeleted),
        1 => Just(Planted::OursDoubled),
        1 => Just(Planted::TheirsDoubled),
        1 => Just(Planted::Changed),
        1 => Just(Planted::TheirsDoubledOtherwise),
    ]
}

/// Generates fields with every character that needs care.
fn field() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-zäß,\"\n\r 0-9.]{0,8}").expect("it is a pattern")
}

fn quoted(fields: &[&str]) -> String {
    let quoted = fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

fn object(names: [&str; 3], fields: [&str; 3]) -> String {
    let members =
        names.iter().zip(fields).map(|(name, value)| format!("\"{name}\": {}", serde_json::json!(value)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

proptest! {
    #[test]
    fn the_ledger_report_lists_exactly_the_planted_differences(
        entries in proptest::collection::vec((field(), 0..1_000_000_u64, planted()), 0..40),
        order in any::<u64>(),
        as_list in any::<bool>(),
    ) {
        let names = ["id", "amount", "note"];
        let columns = LedgerColumns {
            reference: "id".to_owned(),
            compare: vec!["amount".to_owned(), "note".to_owned()],
            ..LedgerColumns::default()
        };
        let mut expected: Vec<(FindingKind, String)> = Vec::new();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (index, (note, cents, planted)) in entries.iter().enumerate() {
            let reference = format!("{index:04}{note}");
            let amount = format!("{}.{:02}", cents / 100, cents % 100);
            // The same number in another notation.
            let other_amount = format!("{cents}e-2");
            let wrong_amount = format!("{}.{:02}1", cents / 100, cents % 100);
            let our_entry = quoted(&[&reference, &amount, note]);
            let their_entry = object(names, [&reference, &other_amount, note]);
            let changed = object(names, [&reference, &wrong_amount, note]);
            let found: &[FindingKind] = match planted {
                Planted::Nothing => &[],
                Planted::OursDeleted => &[FindingKind::MissingOurs],
                Planted::TheirsDeleted => &[FindingKind::MissingTheirs],
                Planted::OursDoubled => &[FindingKind::DoubleOurs],
                Planted::TheirsDoubled => &[FindingKind::DoubleTheirs],
                Planted::Changed => &[FindingKind::Different],
                Planted::TheirsDoubledOtherwise => &[FindingKind::DoubleTheirs, FindingKind::Different],
            };
            expected.extend(found.iter().map(|kind| (*kind, reference.clone())));
            if *planted != Planted::OursDeleted {
                ours.push(our_entry.clone());
            }
            match planted {
                Planted::TheirsDeleted => {}
                Planted::Changed => theirs.push(changed),
                Planted::TheirsDoubledOtherwise => theirs.extend([their_entry, changed]),
                Planted::TheirsDoubled => theirs.extend([their_entry.clone(), their_entry]),
                _ => theirs.push(their_entry),
            }
            if *planted == Planted::OursDoubled {
                ours.push(our_entry);
            }
        }
        shuffle(&mut ours, order);
        shuffle(&mut theirs, order.rotate_left(17));
        let ours = read_as(Format::Csv, &columns, &format!("{}{}", quoted(&names), ours.concat())).expect("it is CSV");
        let theirs = match as_list {
            true => read_as(Format::Json, &columns, &format!("[\n{}]", theirs.join(",\n"))),
            false => read_as(Format::Ndjson, &columns, &theirs.join("\n")),
        };
        let report = compare(&ours, &theirs.expect("it is JSON"));
        let mut found: Vec<(FindingKind, String)> = Vec::new();
        for kind in FindingKind::ALL {
            found.extend(references(&report, kind).into_iter().map(|reference| (kind, reference.to_owned())));
        }
        expected.sort();
        found.sort();
        let untouched = entries.iter().filter(|(_, _, planted)| *planted == Planted::Nothing).count();
        prop_assert_eq!(report.agreeing, untouched as u64);
        prop_assert_eq!(report.agrees(), expected.is_empty());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn reading_a_ledger_of_any_text_and_format_never_panics(text in "[\\[\\]{}\",:\\\\ \\r\\na-c0-9\\u{feff}]{0,60}") {
        for format in Format::ALL {
            let columns = LedgerColumns { reference: "a".to_owned(), time: Some("b".to_owned()), ..LedgerColumns::default() };
            let _ = read_as(format, &columns, &text);
        }
    }
}

/// Puts the lines into another order, determined by the seed.
fn shuffle(lines: &mut [String], mut seed: u64) {
    for index in (1..lines.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        lines.swap(index, (seed >> 33) as usize % (index + 1));
    }
}
