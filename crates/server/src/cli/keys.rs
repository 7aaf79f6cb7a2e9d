//! `semel keys create|list|revoke`: API keys of callers, for `identity.source = "api-key"`. `encryption.rs`
//! has the encryption keys.

mod encryption;

use std::path::Path;

use anyhow::bail;
use semel_core::{Principal, Timestamp};
use semel_gateway::identity::keys::StoredApiKeys;
use semel_settings::StoreLocation;
use semel_stores::Access;
use semel_stores::api_keys::ApiKey;

use super::{CommandResult, OutputFlags, StoreFlag, load, printable, runtime, say};
use encryption::{EncryptionArgs, RotateArgs};

/// The command line of `semel keys`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Manage API keys, which callers send, and encryption keys, which protect stored data",
    long_about = "Manages two sorts of keys. API keys identify callers if `identity.source` is `api-key`: \
        see `create`, `list` and `revoke`. Encryption keys protect stored data if `[encryption]` is \
        configured: see `encryption` and `rotate`."
)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeysCommand {
    Create(CreateArgs),
    List(ListKeysArgs),
    Revoke(RevokeArgs),
    Encryption(EncryptionArgs),
    Rotate(RotateArgs),
}

/// The command line of `semel keys create`.
#[derive(Debug, clap::Args)]
#[command(
    about = "API keys: create one, and print it once",
    long_about = "Creates a key for a caller and prints it once: the store keeps only a digest. The caller \
        sends it as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. Keys are accepted if `identity.source` \
        is `api-key`; a running gateway accepts a new one within 2 s. To rotate, create a second key for \
        the same caller, then revoke the first: retries under either are the same command.",
    after_help = "Example:\n  \
        semel keys create --tenant acme --caller shop\n\n\
        Exit codes: 0 created, 2 wrong use, or the store cannot be used."
)]
struct CreateArgs {
    #[arg(long, value_name = "NAME", help = "The tenant that the caller belongs to")]
    tenant: String,
    #[arg(
        long,
        value_name = "NAME",
        help = "The caller that the key identifies; several keys may have the same caller"
    )]
    caller: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel keys list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "API keys: list all, without the keys",
    long_about = "Lists every key: its id, tenant, caller, creation time and revocation. The keys \
        themselves cannot be shown: the store has only their digests.",
    after_help = "Example:\n  semel keys list\n\nExit codes: 0 listed, 2 wrong use, or the store cannot be used."
)]
struct ListKeysArgs {
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel keys revoke`.
#[derive(Debug, clap::Args)]
#[command(
    about = "API keys: revoke one; a running gateway notices within 2 s",
    long_about = "Revokes a key for good. A running gateway notices within 2 s; from then on, requests with \
        the key get 401. Records of its caller stay as they are.",
    after_help = "Example:\n  \
        semel keys revoke key_3d735fd4ca06\n\n\
        Exit codes: 0 revoked, 1 there is no such key or it was revoked before, 2 wrong use, or the store \
        cannot be used."
)]
struct RevokeArgs {
    #[arg(value_name = "KEY_ID", help = "The id that `list` shows")]
    id: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &KeysArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    match &args.command {
        KeysCommand::Create(args) => create(args, config),
        KeysCommand::List(args) => runtime()?.block_on(list(args, config)),
        KeysCommand::Revoke(args) => runtime()?.block_on(revoke(args, config)),
        KeysCommand::Encryption(args) => encryption::list(args, config),
        KeysCommand::Rotate(args) => encryption::rotate(args, config),
    }
}

/// Opens the keys of a store that must exist.
async fn open(store: &StoreFlag, config: Option<&Path>, access: Access) -> anyhow::Result<StoredApiKeys> {
    let location = load(config, store.flags())?.config.store;
    match &location {
        StoreLocation::Sqlite(path) if !path.exists() => {
            bail!("there is no store at {}, and so there are no keys", path.display());
        }
        StoreLocation::Postgres(url) if !semel_stores::postgres::has_tables(&url.address()?).await? => {
            bail!("there is no store at {location}, and so there are no keys");
        }
        StoreLocation::Memory | StoreLocation::Sqlite(_) | StoreLocation::Postgres(_) => {}
    }
    StoredApiKeys::open(&location, access).await
}

fn create(args: &CreateArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let location = load(config, args.store.flags())?.config.store;
    let (principal, made, key) = runtime()?.block_on(async {
        let keys = StoredApiKeys::open(&location, Access::Write).await?;
        let principal = Principal::new(&args.tenant, &args.caller)?;
        let (made, key) = keys.create(&principal).await?;
        anyhow::Ok((principal, made, key))
    })?;
    if args.output.json {
        let mut shown = document(&made);
        shown["key"] = key.into();
        say(format!("{shown}"));
    } else {
        say(&key);
        let (tenant, caller) = (principal.tenant(), principal.caller());
        let told = format!("This is key {} of {tenant}/{caller}, in {location}. It is shown once.", made.id);
        eprintln!("{}", printable(&told));
    }
    Ok(CommandResult::Yes)
}

async fn list(args: &ListKeysArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let keys = open(&args.store, config, Access::Read).await?.list().await?;
    if args.output.json {
        say(format!("{}", serde_json::Value::Array(keys.iter().map(document).collect())));
        return Ok(CommandResult::Yes);
    }
    super::show(format!("{:18} {:20} {:20} {:24} REVOKED", "ID", "TENANT", "CALLER", "CREATED"));
    for key in keys {
        let revoked = key.revoked_at.map_or_else(|| "-".to_owned(), Timestamp::to_rfc3339);
        let (tenant, caller) = (key.principal.tenant(), key.principal.caller());
        super::show(printable(&format!(
            "{:18} {tenant:20} {caller:20} {:24} {revoked}",
            key.id,
            key.created_at.to_rfc3339()
        )));
    }
    Ok(CommandResult::Yes)
}

async fn revoke(args: &RevokeArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let id = args.id.as_str();
    let revoked = open(&args.store, config, Access::Write).await?.revoke(id).await?;
    match (args.output.json, revoked) {
        (true, _) => say(format!("{}", serde_json::json!({ "id": id, "revoked": revoked }))),
        (false, true) => say(printable(&format!("{id} is revoked"))),
        (false, false) => {
            eprintln!("{}", printable(&format!("there is no key {id} that could be revoked")));
        }
    }
    Ok(if revoked { CommandResult::Yes } else { CommandResult::No })
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
