//! Console in a real browser: the pages, an unknown outcome from its beginning to its end, several people at once, wrong input,
//! hostile content. The scripts in `tests/browser/console` take the steps.

mod crowd;
mod stage;

use std::time::Duration;

use serde_json::json;

use self::stage::{ConsoleStage, LEDGER, NO_LEDGER};

/// Timeouts of a script, and of one with very many records.
const LIMIT: Duration = Duration::from_secs(150);
const LONG_LIMIT: Duration = Duration::from_secs(900);

/// Number of records behind the pages, and that of the nightly form.
const RECORDS: u32 = 10_000;
const MANY_RECORDS: u32 = 1_000_000;

/// Short times, so that a quarantine ends within a test.
const SHORT: &[&str] = &[
    "--timeout",
    "400ms",
    "--lease",
    "600ms",
    "--late-answer",
    "off",
    "--quarantine-margin",
    "0s",
    "--wait",
    "0s",
];

#[tokio::test]
async fn every_page_of_the_console_is_usable_empty_loading_failing_and_full() {
    let (empty, full) = (ConsoleStage::open(LEDGER, &[]), ConsoleStage::open(LEDGER, &[]));
    full.fill(RECORDS).await;
    println!(
        "{}",
        full.run("pages", "pages", &json!({ "empty": empty.facts(), "records": RECORDS }), LIMIT).await
    );
}

#[tokio::test]
#[ignore = "a million records: `cargo xtask nightly` runs it"]
async fn the_console_is_usable_with_a_million_records() {
    let full = ConsoleStage::open(LEDGER, &[]);
    full.fill(MANY_RECORDS).await;
    println!("{}", full.run("many", "many", &json!({ "records": MANY_RECORDS }), LONG_LIMIT).await);
}

#[tokio::test]
async fn an_unknown_outcome_appears_is_settled_and_replayed_in_a_browser() {
    let stage = ConsoleStage::open(NO_LEDGER, &[]);
    println!("{}", stage.run("story", "story", &json!({}), LIMIT).await);
}

#[tokio::test]
async fn several_people_and_wrong_input_lose_nothing_in_the_console() {
    let stage = ConsoleStage::open(NO_LEDGER, SHORT);
    // The same store behind a gateway with other tokens, as after a restart with new ones.
    let anew = stage.again();
    println!("{}", stage.run("people", "people", &json!({ "anew": anew.facts() }), LIMIT).await);
}

#[tokio::test]
async fn hostile_content_runs_nothing_and_breaks_no_page_of_the_console() {
    let stage = ConsoleStage::open(NO_LEDGER, SHORT);
    stage.disfigure().await;
    println!("{}", stage.run("hostile", "hostile", &json!({}), LIMIT).await);
}
