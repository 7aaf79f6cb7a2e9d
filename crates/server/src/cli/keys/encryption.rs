//! `semel keys encryption` and `semel keys rotate`: the keys that stored values are encrypted under. They are
//! no API keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use semel_core::reseal::{KeyUse, UnreadableValue};
use semel_core::vault::SealedKind;
use semel_core::{Plaintext, Reseal, StoreError, Vault};
use semel_operations::encryption;
use semel_settings::{Config, parse_duration};
use semel_stores::Access;
use semel_stores::encryption::{Rotated, Rotation, RotationStep};
use serde_json::{Value, json};

use crate::cli::{
    CommandResult, OutputFlags, StoreFlag, blocking, load, open_keyless, printable, runtime, say,
};

/// Number of retries while the store is away, and the pause before each.
const MAX_FAILURES: u32 = 20;
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The command line of `semel keys encryption`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Encryption: list the keys that stored data is encrypted under",
    long_about = "Counts the stored responses, kept requests, evidence, outputs of phases and messages \
        under each encryption key, and shows whether the key is configured. These are the keys of \
        `[encryption]`, which are never kept in the store; API keys, which callers send, are listed by \
        `semel keys list`. It reads the whole table, and needs no key.",
    after_help = "Example:\n  \
        semel keys encryption\n\n\
        Exit codes: 0 every key is configured, 1 data is under a key that is not, 2 wrong use, or the store \
        cannot be used."
)]
pub(super) struct EncryptionArgs {
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel keys rotate`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Encryption: encrypt all stored data under the current encryption key",
    long_about = "Encrypts anew every stored response, kept request, evidence, output of a phase and \
        message that is not under the key of `encryption.current`, unencrypted ones included. It changes \
        nothing else, and no API key: those are rotated with `create` and `revoke`.\n\n\
        Gateways may run meanwhile, if all of them have both keys in their configuration and the new one is \
        the current one. It works in small batches, reports its progress, and can be stopped and started \
        again at any time. Once it has ended with 0, no record needs the old key any more.",
    after_help = "Examples:\n  \
        semel keys rotate\n  \
        semel keys rotate --batch 20 --pause 200ms\n\n\
        Exit codes: 0 everything is under the current key; 1 some data is not, for the printed reason; 2 \
        wrong use, no `[encryption]`, or the store cannot be used."
)]
pub(super) struct RotateArgs {
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        help = "Items of a batch, which is held in memory and written in one transaction"
    )]
    batch: u32,
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10ms",
        help = "Pause after each batch, which leaves the store to other requests"
    )]
    pause: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs `semel keys encryption`.
pub(super) fn list(args: &EncryptionArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let config = load(config, args.store.flags())?.config;
    let reseal = open(&config, Access::Read)?;
    let uses = by_key(&blocking(reseal.key_uses())?);
    let state = |key: &Option<String>| {
        let configured = config.encryption.as_ref();
        match key {
            None => "clear",
            Some(key) if configured.is_some_and(|configured| configured.current == *key) => "current",
            Some(key)
                if configured.is_some_and(|configured| configured.keys.iter().any(|own| own.id == *key)) =>
            {
                "configured"
            }
            Some(_) => "missing",
        }
    };
    if args.output.json {
        let shown = |(key, counts): (&Option<String>, &Counts)| {
            let [responses, requests, evidence, phases, messages] = counts;
            json!({
                "keyId": key, "state": state(key), "responses": responses, "requests": requests, "evidence": evidence,
                "phases": phases, "messages": messages,
            })
        };
        say(Value::Array(uses.iter().map(shown).collect()));
    } else {
        let [responses, requests, evidence, phases, messages] =
            ["RESPONSES", "REQUESTS", "EVIDENCE", "PHASES", "MESSAGES"];
        say(format!(
            "{:24}  {responses:>12}  {requests:>12}  {evidence:>12}  {phases:>12}  {messages:>12}  STATE",
            "KEY"
        ));
        for (key, [responses, requests, evidence, phases, messages]) in &uses {
            let told = match state(key) {
                "clear" => "not encrypted",
                "missing" => "not configured: data under it cannot be read",
                other => other,
            };
            let key = key.as_deref().unwrap_or("-");
            say(printable(&format!(
                "{key:24}  {responses:>12}  {requests:>12}  {evidence:>12}  {phases:>12}  {messages:>12}  {told}"
            )));
        }
    }
    let missing = uses.keys().any(|key| state(key) == "missing");
    Ok(if missing { CommandResult::No } else { CommandResult::Yes })
}

/// Number of values of each kind, in the order of [`SealedKind::ALL`].
type Counts = [u64; SealedKind::ALL.len()];

/// Returns the number of values under each key.
fn by_key(uses: &[KeyUse]) -> BTreeMap<Option<String>, Counts> {
    let mut all: BTreeMap<Option<String>, Counts> = BTreeMap::new();
    for KeyUse { kind, key_id, count } in uses {
        let column = SealedKind::ALL.iter().position(|known| known == kind).unwrap_or(0);
        all.entry(key_id.clone()).or_default()[column] += count;
    }
    all
}

/// Runs `semel keys rotate`.
pub(super) fn rotate(args: &RotateArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let config = load(config, args.store.flags())?.config;
    let Some(encryption) = &config.encryption else {
        bail!(
            "no `[encryption]` is configured, so there is no key to encrypt under; name the gateway's configuration with \
             `--config`. For API keys, see `semel keys create` and `semel keys revoke`"
        );
    };
    let pause = args.pause.as_str();
    let pause = parse_duration(pause)
        .with_context(|| format!("{pause:?} is not a duration such as \"10ms\", \"1s\" or \"0s\""))?;
    let batch = args.batch as usize;
    let reseal = open(&config, Access::Write)?;
    let vault: Arc<dyn Vault> = runtime()?.block_on(encryption::vault(encryption))?;
    let others = |uses: Vec<KeyUse>| {
        let others = uses.iter().filter(|used| used.key_id.as_deref() != Some(vault.current()));
        others.map(|used| used.count).sum::<u64>()
    };
    let total = others(blocking(reseal.key_uses())?);
    let rotation = Rotation::new(reseal.clone(), vault.clone(), batch);
    let rotated = runtime()?.block_on(run(rotation, total, pause))?;
    let left = others(blocking(reseal.key_uses())?);
    match args.output.json {
        true => say(json!({
            "current": vault.current(),
            "resealed": rotated.resealed,
            "left": left,
            "missingKeys": rotated.missing,
            "doNotOpen": rotated.unopened,
            "refusedPlaintext": rotated.refused,
            "unreadable": rotated.unreadable,
            "held": rotated.held,
            "unreadableRows": rotated.unreadable_named.iter().map(shown).collect::<Vec<_>>(),
        })),
        false => tell(&rotated, left, vault.as_ref()),
    }
    Ok(if rotated.is_complete() && left == 0 { CommandResult::Yes } else { CommandResult::No })
}

fn shown(row: &UnreadableValue) -> Value {
    json!({ "kind": row.kind.as_str(), "name": row.name, "why": row.why })
}

fn open(config: &Config, access: Access) -> anyhow::Result<Arc<dyn Reseal>> {
    Ok(open_keyless(&config.store, access)?)
}

/// Rotates to the end, and prints the progress.
async fn run(mut rotation: Rotation, total: u64, pause: Duration) -> Result<Rotated, StoreError> {
    let begun = Instant::now();
    let (mut told, mut failures) = (begun, 0);
    loop {
        match rotation.step().await {
            Ok(RotationStep::Done) => return Ok(rotation.so_far().clone()),
            Ok(RotationStep::Resealed(_)) => failures = 0,
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_)))
                if failures < MAX_FAILURES =>
            {
                failures += 1;
                eprintln!("{error}; trying again");
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
            Err(error) => return Err(error),
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            let done = rotation.so_far().resealed;
            let rate = done as f64 / begun.elapsed().as_secs_f64();
            eprintln!("{done} done, {rate:.0}/s, about {} left", total.saturating_sub(done));
        }
        tokio::time::sleep(pause).await;
    }
}

fn tell(rotated: &Rotated, left: u64, vault: &dyn Vault) {
    let current = vault.current();
    for (key, count) in &rotated.missing {
        eprintln!(
            "{count} of the stored items cannot be decrypted: they are under the key {key:?}, which is not configured. \
             Add it as a `[[encryption.key]]`, and run this again"
        );
    }
    for (key, count) in &rotated.unopened {
        eprintln!(
            "{count} of the stored items cannot be decrypted with the configured key {key:?}: it is another key of that \
             id, or they were changed in the store"
        );
    }
    if rotated.refused > 0 {
        eprintln!(
            "{} of the stored items are not encrypted, although `encryption.plaintext` is \"refuse\": Semel did not \
             write them, and encryption would make them look genuine. Find out who did; if they are yours, set it to \
             \"accept\" for one more rotation",
            rotated.refused
        );
    }
    for UnreadableValue { kind, name, why } in &rotated.unreadable_named {
        eprintln!("{}", printable(&format!("the {} of {name} cannot be read: {why}", kind.as_str())));
    }
    if rotated.unreadable > 0 {
        eprintln!(
            "{} of the stored items cannot be read, and stay unchanged: their rows were damaged in the store, or a newer \
             version wrote them. Run this again with that version, or repair the rows",
            rotated.unreadable
        );
    }
    if rotated.held > 0 {
        eprintln!(
            "{} of the stored items could not be written: another transaction holds them. Find it in `pg_stat_activity`, \
             and run this again",
            rotated.held
        );
    }
    if rotated.overtaken || (left > 0 && rotated.is_complete()) {
        eprintln!(
            "other processes still write under another key, or unencrypted: give every gateway `current = \
             {current:?}`, and run this again"
        );
    }
    say(format!("{} encrypted anew under {current}; {left} left", rotated.resealed));
    if rotated.is_complete() && left == 0 && vault.plaintext() == Plaintext::Accept {
        say("no unencrypted data is left: set `encryption.plaintext` to \"refuse\" and restart the gateways");
    }
}
