//! `semel keys create|list|revoke`: who may call, where `identity.source` is `api-key`; and, in `encryption.rs`, the keys
//! that what is stored is encrypted under.

mod encryption;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command};
use semel_core::{Principal, Timestamp};
use semel_stores::api_keys::ApiKey;

use super::{Done, access_of, runtime, say};
use crate::config::StoreLocation;
use crate::keys::Keys;

pub(super) fn command() -> Command {
    let (store, json) = (super::store_flag, super::json_flag);
    let name = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("NAME").required(true).help(help)
    };
    Command::new("keys")
        .about("API keys, which callers send, and encryption keys, which protect what is stored")
        .long_about(
            "Two sorts of keys. API keys say who calls, where `identity.source` is `api-key`: `create`, `list` and `revoke` \
             are about them. Encryption keys protect what is stored, where `[encryption]` is configured: `encryption` and \
             `rotate` are about those.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("create")
                .about("API keys: make one, and print it: nobody can see it again")
                .long_about(
                    "Makes a key for a caller and prints it, once: the store keeps only a digest. The caller sends it \
                     as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. Keys count where `identity.source` is \
                     `api-key`; a running gateway knows a new one within 2 s. To rotate, make a second key for the \
                     same caller, then revoke the first: retries under either are the same command.",
                )
                .after_help(
                    "Example:\n  \
                     semel keys create --tenant acme --caller shop\n\n\
                     Exit codes: 0 made, 2 wrong use, or the store cannot be used.",
                )
                .arg(name("tenant", "The tenant that the caller belongs to"))
                .arg(name("caller", "Who calls with it; several keys may have the same caller"))
                .args([store(), json()]),
        )
        .subcommand(
            Command::new("list")
                .about("API keys: list all, without the keys")
                .long_about(
                    "Lists every key that was made: its id, whose it is, since when, and whether it is revoked. The \
                     keys themselves cannot be shown, since nobody has them.",
                )
                .after_help(
                    "Example:\n  semel keys list\n\nExit codes: 0 listed, 2 wrong use, or the store cannot be used.",
                )
                .args([store(), json()]),
        )
        .subcommand(
            Command::new("revoke")
                .about("API keys: revoke one; a running gateway notices within 2 s")
                .long_about(
                    "Revokes a key for good. A running gateway notices within 2 s; from then on, whoever sends the key \
                     gets 401. Records of its caller stay as they are.",
                )
                .after_help(
                    "Example:\n  \
                     semel keys revoke key_3d735fd4ca06\n\n\
                     Exit codes: 0 revoked, 1 there is no such key or it was revoked before, 2 wrong use, or the store \
                     cannot be used.",
                )
                .arg(Arg::new("id").value_name("KEY_ID").required(true).help("The id that `list` shows"))
                .args([store(), json()]),
        )
        .subcommands(encryption::commands())
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let (name, matches) = matches.subcommand().context("a subcommand is required")?;
    match name {
        "encryption" => return encryption::list(matches),
        "rotate" => return encryption::rotate(matches),
        _ => {}
    }
    let loaded = super::load(matches)?;
    let location = &loaded.config.store;
    if let StoreLocation::Sqlite(path) = location
        && name != "create"
        && !path.exists()
    {
        bail!("there is no store at {}, and so there are no keys", path.display());
    }
    let json = matches.get_flag("json");
    runtime()?.block_on(async {
        if let StoreLocation::Postgres(url) = location
            && name != "create"
            && !semel_stores::postgres::has_tables(&url.address()?).await?
        {
            bail!("there is no store at {location}, and so there are no keys");
        }
        let keys = Keys::open(location, access_of(name)).await?;
        match name {
            "create" => create(&keys, location, matches, json).await,
            "list" => list(&keys, json).await,
            _ => revoke(&keys, matches, json).await,
        }
    })
}

async fn create(
    keys: &Keys,
    location: &StoreLocation,
    matches: &ArgMatches,
    json: bool,
) -> anyhow::Result<Done> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let principal = Principal::new(text("tenant"), text("caller"))?;
    let (made, key) = keys.create(&principal).await?;
    if json {
        let mut shown = document(&made);
        shown["key"] = key.into();
        say(format!("{shown}"));
    } else {
        say(&key);
        let (tenant, caller) = (principal.tenant(), principal.caller());
        eprintln!("This is key {} of {tenant}/{caller}, in {location}. It is shown once.", made.id);
    }
    Ok(Done::Yes)
}

async fn list(keys: &Keys, json: bool) -> anyhow::Result<Done> {
    let keys = keys.list().await?;
    if json {
        say(format!("{}", serde_json::Value::Array(keys.iter().map(document).collect())));
        return Ok(Done::Yes);
    }
    super::show(format!("{:18} {:20} {:20} {:24} REVOKED", "ID", "TENANT", "CALLER", "CREATED"));
    for key in keys {
        let revoked = key.revoked_at.map_or_else(|| "-".to_owned(), Timestamp::to_rfc3339);
        let (tenant, caller) = (key.principal.tenant(), key.principal.caller());
        super::show(format!(
            "{:18} {tenant:20} {caller:20} {:24} {revoked}",
            key.id,
            key.created_at.to_rfc3339()
        ));
    }
    Ok(Done::Yes)
}

async fn revoke(keys: &Keys, matches: &ArgMatches, json: bool) -> anyhow::Result<Done> {
    let id = matches.get_one::<String>("id").map_or("", String::as_str);
    let revoked = keys.revoke(id).await?;
    match (json, revoked) {
        (true, _) => say(format!("{}", serde_json::json!({ "id": id, "revoked": revoked }))),
        (false, true) => say(format!("{id} is revoked")),
        (false, false) => eprintln!("there is no key {id} that could be revoked"),
    }
    Ok(if revoked { Done::Yes } else { Done::No })
}

fn document(key: &ApiKey) -> serde_json::Value {
    serde_json::json!({
        "id": key.id,
        "tenant": key.principal.tenant(),
        "caller": key.principal.caller(),
        "createdAt": key.created_at.to_rfc3339(),
        "revokedAt": key.revoked_at.map(Timestamp::to_rfc3339),
    })
}
