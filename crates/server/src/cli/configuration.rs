//! `semel config check|show|init`.

use clap::{ArgMatches, Command};
use http::HeaderName;
use semel_core::keep::{KEPT_FIELDS, is_kept_field};
use semel_core::policy::Mode;
use semel_core::{Census, Clock, Policy, SystemClock};
use semel_stores::access::Access;

use super::{Done, runtime, say};
use crate::config::{self, Config, Identity, StoreLocation};
use crate::encryption::{Counted, counted};
use crate::gateway::{older_schema, open_plain};
use crate::jwt::{self, KeySource};
use crate::tls::Shown;

pub(super) fn command() -> Command {
    Command::new("config")
        .about("Check, show or begin a configuration")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("check")
                .about("Say whether the configuration can be used, and what is doubtful about it")
                .long_about(
                    "Reads the configuration as `semel serve` would, and says what is wrong with it, each error with \
                     its place and what would be right, or what is doubtful about it. If there is a store already, it \
                     is asked for records that no operation names any more, and for encryption keys that it needs. Use \
                     it before you restart a gateway, and in the CI of whoever owns the file.",
                )
                .after_help(
                    "Examples:\n  \
                     semel config check\n  \
                     semel config check --config /etc/semel.toml\n\n\
                     Exit codes: 0 it can be used, warnings or not; 1 it cannot; 2 wrong use, or the store cannot be \
                     asked.",
                )
                .args(super::setting_flags()),
        )
        .subcommand(
            Command::new("show")
                .about("Print every setting in force, and where it comes from")
                .long_about(
                    "Prints every setting in force, and where it comes from: a flag, a SEMEL_… variable, a line of the \
                     file, or the default. Use it when a gateway does not do what the file seems to say. Passwords are \
                     hidden.",
                )
                .after_help(
                    "Examples:\n  \
                     semel config show\n  \
                     SEMEL_TTL=7d semel config show --json\n\n\
                     Exit codes: 0 shown, 2 wrong use, or the configuration cannot be used.",
                )
                .args(super::setting_flags())
                .arg(super::json_flag()),
        )
        .subcommand(
            Command::new("init")
                .about("Print a commented configuration with every default")
                .long_about(
                    "Prints a configuration that says what every setting means, with its default. As it is, it \
                     changes nothing: take out the `#` of what you want otherwise. Nothing is written to a file.",
                )
                .after_help("Example:\n  semel config init > semel.toml\n\nExit codes: 0 printed, 2 wrong use."),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    match matches.subcommand() {
        Some(("check", matches)) => check(matches),
        Some(("show", matches)) => show(matches),
        _ => {
            say(config::init().trim_end());
            Ok(Done::Yes)
        }
    }
}

fn check(matches: &ArgMatches) -> anyhow::Result<Done> {
    let loaded = match super::load(matches) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return Ok(Done::No);
        }
    };
    if let Some(folder) = missing_folder(&loaded.config.store) {
        eprintln!("store = \"{}\": there is no folder {folder}; make it first", loaded.config.store);
        return Ok(Done::No);
    }
    if loaded.config.identity == Identity::ApiKey && loaded.config.store == StoreLocation::Memory {
        eprintln!(
            "identity.source = \"api-key\" needs a store that keeps keys: use sqlite:PATH or postgres://…"
        );
        return Ok(Done::No);
    }
    // What is at an address may come later; `semel doctor` asks there.
    if let Identity::Jwt(settings) = &loaded.config.identity
        && matches!(settings.keys, KeySource::File(_))
        && let Err(error) = runtime()?.block_on(jwt::count_keys(settings))
    {
        eprintln!("{error:#}");
        return Ok(Done::No);
    }
    if let Err(error) = crate::reconcile::look(&loaded.config) {
        eprintln!("{error:#}");
        return Ok(Done::No);
    }
    if let Some(Err(error)) = loaded.config.encryption.as_ref().map(crate::encryption::look) {
        eprintln!("{error:#}");
        return Ok(Done::No);
    }
    if let Err(error) = crate::admin::access::look(&loaded.config) {
        eprintln!("{error:#}");
        return Ok(Done::No);
    }
    let shown = match crate::tls::look(&loaded.config) {
        Ok(shown) => shown,
        Err(error) => {
            eprintln!("{error:#}");
            return Ok(Done::No);
        }
    };
    for warning in &loaded.warnings {
        say(format!("{warning}"));
    }
    for Shown { setting, ends } in shown {
        if let Some(ends) = ends.filter(|ends| *ends < SystemClock.now()) {
            say(format!(
                "warning: `{setting}`: the certificate is over since {ends}: nobody who checks it will go on"
            ));
        }
    }
    let (orphans, counted) = stored(&loaded.config)?;
    for doubt in crate::encryption::doubts(loaded.config.encryption.as_ref(), &counted) {
        say(format!("warning: {doubt}"));
    }
    for name in orphans {
        say(format!(
            "warning: the store holds records of the operation {name:?}, which no rule names any more: \
             their keys look new; give it as an alias of the operation that it became"
        ));
    }
    for kept in kept_fields(&loaded.config) {
        say(kept);
    }
    say("the configuration can be used");
    Ok(Done::Yes)
}

/// Says which fields of a request are kept for a worker, where commands are carried out by one.
fn kept_fields(config: &Config) -> Vec<String> {
    let defaults = ("commands without a rule of their own".to_owned(), &config.defaults);
    let named = config
        .operations
        .iter()
        .map(|operation| (format!("{:?}", operation.name.as_str()), &operation.policy));
    let is_async = |(_, policy): &(String, &Policy)| policy.mode == Mode::Async;
    let told = |(of, policy): (String, &Policy)| {
        let except = &policy.store_headers_except;
        let own =
            policy.store_request_headers.iter().filter(|name| !is_kept_field(name) && !except.contains(name));
        let kept = match policy.store_credentials {
            true => "every field, credentials included".to_owned(),
            false => {
                KEPT_FIELDS.into_iter().chain(own.map(HeaderName::as_str)).collect::<Vec<_>>().join(", ")
            }
        };
        let except: Vec<&str> = except.iter().map(HeaderName::as_str).collect();
        let except =
            if except.is_empty() { String::new() } else { format!("; except {}", except.join(", ")) };
        format!("{of}: kept of a request until a worker has carried it out: {kept}{except}")
    };
    std::iter::once(defaults).chain(named).filter(is_async).map(told).collect()
}

/// The folder that a SQLite file is to be in, if there is none: the gateway makes files, and no folders.
fn missing_folder(store: &StoreLocation) -> Option<String> {
    let StoreLocation::Sqlite(path) = store else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    (!folder.is_dir()).then(|| folder.display().to_string())
}

/// What is in the store that the configuration does not provide for: operations that no rule has, and what is under which
/// encryption key.
fn stored(config: &Config) -> anyhow::Result<(Vec<String>, Counted)> {
    match &config.store {
        StoreLocation::Memory => return Ok(Default::default()),
        StoreLocation::Sqlite(path) if !path.exists() => return Ok(Default::default()),
        StoreLocation::Sqlite(_) | StoreLocation::Postgres(_) => {}
    }
    let looked = runtime()?.block_on(async {
        let plain = open_plain(&config.store, Access::Read).await?;
        anyhow::Ok((plain.store.census().await?, plain.reseal.key_uses().await?))
    });
    match looked {
        Ok((census, uses)) => Ok((orphans(config, census), counted(&uses))),
        Err(error) => match older_schema(&error) {
            Some(0) => Ok(Default::default()),
            // The gateway brings it forward when it starts; a look does not.
            Some(_) => {
                say(format!("warning: the records were not looked at: {error}"));
                Ok(Default::default())
            }
            None => Err(error),
        },
    }
}

/// Names of operations that have live records, and that no rule has: they were renamed or removed.
fn orphans(config: &Config, census: Vec<Census>) -> Vec<String> {
    let known = |name: &str| {
        // Commands without a rule are named after their method and path: those names never go away.
        let unmatched =
            name.split_once(" /").is_some_and(|(method, _)| method.chars().all(char::is_uppercase));
        let named = |operation: &config::OperationConfig| {
            operation.name.as_str() == name || operation.aliases.iter().any(|alias| alias.as_str() == name)
        };
        config.operations.iter().any(named)
            || (unmatched && !config.operations.iter().any(|operation| operation.route.to_string() == name))
    };
    let mut orphans: Vec<String> =
        census.into_iter().map(|group| group.operation).filter(|name| !known(name)).collect();
    orphans.sort();
    orphans.dedup();
    orphans
}

fn show(matches: &ArgMatches) -> anyhow::Result<Done> {
    let loaded = super::load(matches)?;
    if matches.get_flag("json") {
        let rows = loaded
            .rows
            .iter()
            .map(|row| serde_json::json!({ "name": row.name, "value": row.value, "source": row.source }));
        say(format!("{}", serde_json::Value::Array(rows.collect())));
        return Ok(Done::Yes);
    }
    let width = |of: fn(&config::Row) -> &str| loaded.rows.iter().map(|row| of(row).chars().count()).max();
    let names = width(|row| &row.name).unwrap_or(0);
    let values = width(|row| &row.value).unwrap_or(0);
    for row in &loaded.rows {
        say(format!("{:names$}  {:values$}  {}", row.name, row.value, row.source));
    }
    Ok(Done::Yes)
}
