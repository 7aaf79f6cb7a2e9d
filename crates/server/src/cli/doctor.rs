//! `semel doctor`: checks everything that a gateway depends on, without changes.
//!
//! The store's own `doctor` module checks the store. `machine` checks the disk and the open files, `network`
//! the upstream and the gateway itself, `rules` the rules without a match, `traces` the collector, and `report` prints.

mod machine;
mod network;
mod report;
mod rules;
mod traces;

use std::path::Path;
use std::time::Duration;

use semel_core::{Clock, Plaintext, SystemClock, Tier};
use semel_gateway::identity::{introspection, jwt};
use semel_operations::certificates::GatewayCertificate;
use semel_operations::encryption::{CountsByKey, counted};
use semel_settings::{
    CertificateTenant as Tenant, Config, Encryption, Loaded, PrincipalSource, SecretSource, StoreLocation,
};
use semel_stores::doctor::{Check, Examination, UpkeepIntervals, in_words};
use semel_stores::postgres::{self, PostgresOptions};
use semel_stores::sqlite::{self, SqliteOptions};

pub(super) use network::from_here;
use report::DoctorLine;

use super::serve::promise;
use super::{CommandResult, OutputFlags, SettingFlags, say, show};

/// The command line of `semel doctor`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Check configuration, store, machine, upstream and identity, with advice on every problem",
    long_about = "Checks the configuration, the store, the machine, the upstream and the identity of \
        callers. Each line is `ok`, `warn`, `fail` or `skip`, of what it could not check; advice stands below the last \
        three.\n\n\
        The command changes nothing: no file is made, no schema migrated, no command sent. It may run \
        beside a gateway, on the same file, at any time. The upstream gets one connection for each of its \
        addresses and one HEAD request for `/`, the collector of `[traces]` an export without spans.\n\n\
        Give it the flags that you give to `semel serve`, and run it as the same user on the same machine: \
        then it checks the same settings, files and limits.",
    after_help = "Examples:\n  \
        semel doctor\n  \
        semel doctor --config /etc/semel.toml --json\n\n\
        Exit codes: 0 no check failed, 1 a check failed, 2 wrong use, or the configuration cannot be used."
)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &DoctorArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let loaded = super::load(config, args.settings.flags())?;
    let checks = super::runtime()?.block_on(examine(&loaded));
    match args.output.json {
        true => say(report::to_json(&checks)),
        false => show(report::to_text(&checks)),
    }
    Ok(if report::failed(&checks) { CommandResult::No } else { CommandResult::Yes })
}

/// Returns the report for a support bundle.
pub(super) async fn report(loaded: &Loaded) -> serde_json::Value {
    report::to_json(&examine(loaded).await)
}

async fn examine(loaded: &Loaded) -> Vec<DoctorLine> {
    let config = &loaded.config;
    let mut checks = configuration(loaded);
    let Examination { checks: of_store, tier, api_keys, key_uses } = store(config).await;
    checks.extend(of_store);
    checks.extend(tier.map(promised));
    checks.extend(tier.into_iter().flat_map(|tier| needed(config, tier)));
    checks.extend(network::upstream(config).await);
    if let Err(error) = semel_operations::reconcile::look(config) {
        let advice = "the gateway does not start without it";
        checks.push(Check::fail("reconciler", format!("{error:#}"), advice));
    }
    let mut lines: Vec<DoctorLine> = checks.into_iter().map(DoctorLine::from).collect();
    let encryption_keys = config.encryption.iter().flat_map(|encryption| &encryption.keys);
    let key_programs = programs("encryption", "keys", encryption_keys.map(|key| &key.source));
    let token_programs = programs("admin", "tokens", config.admin_tokens.iter().map(|token| &token.source));
    let keys = encryption(config.encryption.as_ref(), key_uses.as_deref().map(counted));
    lines.extend(keys.into_iter().map(DoctorLine::from));
    lines.extend(key_programs);
    lines.extend(certificates(config).into_iter().map(DoctorLine::from));
    lines.push(identity(config, api_keys).await.into());
    lines.push(admin(config).into());
    lines.extend(token_programs);
    lines.push(network::gateway(config).await);
    lines.extend(rules::examine(config).await);
    lines.extend(traces::examine(config).await.map(DoctorLine::from));
    lines.push(machine::open_files(config.server.max_connections).into());
    lines
}

/// Names the secrets that are not looked at, since they come from programs.
fn programs<'a>(
    name: &'static str,
    what: &str,
    sources: impl Iterator<Item = &'a SecretSource>,
) -> Option<DoctorLine> {
    let sources: Vec<&SecretSource> = sources.collect();
    let count = sources.iter().filter(|source| matches!(source, SecretSource::Command(_))).count();
    let why = format!("{count} of {} {what} from programs, which this command does not run", sources.len());
    let advice = "run each `command` as the gateway's user: a gateway does not start without what it prints";
    (count > 0).then(|| DoctorLine::not_checked(name, why, advice))
}

/// Settings with a check of their own, which says more than the warning does.
const CHECKED_ELSEWHERE: [&str; 3] = ["store", "admin_listen", "identity.trusted_proxies"];

fn configuration(loaded: &Loaded) -> Vec<Check> {
    let name = "configuration";
    let file = loaded.file.as_deref().unwrap_or("no file; defaults, variables and flags only");
    let mut checks = vec![Check::ok(name, file)];
    for warning in &loaded.warnings {
        let setting = warning.setting.as_deref();
        if setting.is_some_and(|setting| CHECKED_ELSEWHERE.contains(&setting)) {
            continue;
        }
        let setting = setting.map_or_else(String::new, |setting| format!("`{setting}`, "));
        let found = format!("{setting}{}: {}", warning.origin, warning.message);
        checks.push(Check::warn(name, found, "change it, or keep it knowing what it costs"));
    }
    checks
}

/// Checks the store. Another store adds its own line here.
async fn store(config: &Config) -> Examination {
    let upkeep = UpkeepIntervals {
        sweep_interval: config.maintenance.sweep_interval,
        reap_interval: config.maintenance.reap_interval,
    };
    match &config.store {
        StoreLocation::Memory => {
            let found = "in the gateway's memory: lost when the gateway ends, and a retry after that runs \
                         again";
            let advice = "set `store` to sqlite:PATH or postgres://… for anything but trying out";
            let checks = vec![Check::warn("store", found, advice)];
            Examination { checks, tier: Some(Tier::Three), ..Examination::default() }
        }
        StoreLocation::Sqlite(path) => {
            let mut examination = sqlite::doctor::examine(path, &SqliteOptions::default(), &upkeep);
            examination.checks.extend(machine::disk(path));
            examination
        }
        StoreLocation::Postgres(url) => match url.address() {
            Ok(address) => postgres::doctor::examine(&address, &PostgresOptions::default(), &upkeep).await,
            Err(error) => {
                let checks = vec![Check::fail("store", error.to_string(), "correct `store`")];
                Examination { checks, ..Examination::default() }
            }
        },
    }
}

/// Checks the keys that can be read without running a program, and the keys of stored values.
fn encryption(encryption: Option<&Encryption>, counted: Option<CountsByKey>) -> Vec<Check> {
    let name = "encryption";
    let mut checks: Vec<Check> = encryption.map(keys).into_iter().collect();
    let Some(counted) = counted else { return checks };
    let advice = "configure the key as an `[[encryption.key]]` again; `semel keys encryption` lists the \
                  keys of stored data";
    let doubts = semel_operations::encryption::doubts(encryption, &counted);
    checks.extend(doubts.into_iter().map(|doubt| Check::fail(name, doubt, advice)));
    let Some(encryption) = encryption.filter(|encryption| encryption.plaintext == Plaintext::Accept) else {
        return checks;
    };
    let in_the_clear = counted.get(&None).copied().unwrap_or(0);
    checks.push(if in_the_clear > 0 {
        let advice = "run `semel keys rotate`, and set `encryption.plaintext` to \"refuse\" after that";
        let found = format!("{in_the_clear} of the stored items are not encrypted, and are accepted");
        Check::warn(name, found, advice)
    } else {
        let found = format!(
            "all stored data is encrypted, but plaintext is accepted: anybody who can write to the store \
             can put it in place of data under {}",
            encryption.current
        );
        Check::warn(name, found, "set `encryption.plaintext` to \"refuse\"")
    });
    checks
}

fn keys(encryption: &Encryption) -> Check {
    let name = "encryption";
    match semel_operations::encryption::look(encryption) {
        Ok(()) => {
            Check::ok(name, format!("under key {}, one of {}", encryption.current, encryption.keys.len()))
        }
        Err(error) => Check::fail(
            name,
            format!("{error:#}"),
            "restore the key: without it, the gateway does not start, and responses under it cannot be \
             replayed",
        ),
    }
}

/// Checks the certificates of this gateway and their files.
fn certificates(config: &Config) -> Vec<Check> {
    let shown = match semel_operations::certificates::look(config) {
        Ok(shown) => shown,
        Err(error) => {
            let advice = "a gateway does not start with them: correct the file, or the setting that names it";
            return vec![Check::fail("tls", format!("{error:#}"), advice)];
        }
    };
    let now = SystemClock.now();
    let check = |GatewayCertificate { setting, ends }| match ends {
        None => Check::ok("tls", format!("`{setting}` can be used")),
        Some(ends) if ends < now => Check::fail(
            "tls",
            format!("`{setting}` expired at {ends}: peers that check it refuse the connection"),
            "replace the certificate and its key; a running gateway notices",
        ),
        Some(ends) if ends.since(now) < SOON => Check::warn(
            "tls",
            format!("`{setting}` expires in {}, at {ends}", in_words(ends.since(now))),
            "replace the certificate and its key; a running gateway notices",
        ),
        Some(ends) => Check::ok("tls", format!("`{setting}` is valid until {ends}")),
    };
    shown.into_iter().map(check).collect()
}

fn promised(tier: Tier) -> Check {
    match tier {
        Tier::One => Check::ok("tier", promise(tier)),
        Tier::Two => Check::warn("tier", promise(tier), "follow the advice of `durability`"),
        Tier::Three => Check::warn("tier", promise(tier), "use a store that keeps its records"),
    }
}

/// Names the settings that need a store of a better tier: the gateway does not start with them.
fn needed(config: &Config, promised: Tier) -> Vec<Check> {
    let operations = config.operations.iter();
    let operations = operations.map(|operation| (operation.name.to_string(), operation.policy.needs_tier));
    let policies = operations.chain([("defaults".to_owned(), config.defaults.needs_tier)]);
    let short = policies.filter_map(|(name, needed)| Some((name, promised.check(needed).err()?)));
    let advice = "the gateway does not start: use a store of that tier, or set another `needs_tier`";
    short.map(|(name, error)| Check::fail("needs_tier", format!("{name}: {error}"), advice)).collect()
}

/// Checks the identity settings, as far as the configuration and the store allow.
async fn identity(config: &Config, api_keys: Option<u64>) -> Check {
    let name = "identity";
    let create = "make one with `semel keys create --tenant NAME --caller NAME`";
    match (&config.identity, api_keys) {
        (PrincipalSource::None, _) if config.listen.ip().is_loopback() => {
            Check::ok(name, "none: all callers count as the same one, and all are on this machine")
        }
        (PrincipalSource::None, _) => Check::fail(
            name,
            "none: all callers count as the same one, and other machines can connect",
            "choose an `identity.source`, or listen on loopback",
        ),
        (PrincipalSource::ApiKey, _) if config.store == StoreLocation::Memory => Check::fail(
            name,
            "api-key, and a store in memory keeps no keys",
            "set `store` to sqlite:PATH or postgres://…",
        ),
        (PrincipalSource::ApiKey, None) => Check::warn(
            name,
            "api-key, and the keys cannot be read",
            "follow the advice of `store` and `schema` first, then run this again",
        ),
        (PrincipalSource::ApiKey, Some(0)) => {
            Check::fail(name, "api-key, and there are no keys: no caller can be identified", create)
        }
        (PrincipalSource::ApiKey, Some(1)) => Check::ok(name, "api-key, with one live key"),
        (PrincipalSource::ApiKey, Some(keys)) => Check::ok(name, format!("api-key, with {keys} live keys")),
        (PrincipalSource::Jwt(settings), _) => match jwt::count_keys(settings).await {
            Ok(keys) => {
                let keys = if keys == 1 { "one key".to_owned() } else { format!("{keys} keys") };
                Check::ok(name, format!("jwt of {}, with {keys} from {}", settings.issuer, settings.keys))
            }
            Err(error) => Check::fail(
                name,
                format!("jwt: {error:#}"),
                "a gateway does not start without them: correct `jwks`, or what it names",
            ),
        },
        (PrincipalSource::ClientCertificate(settings), _) => {
            let caller = settings.caller;
            Check::ok(
                name,
                match &settings.tenant {
                    Tenant::Fixed(tenant) => {
                        format!("client-certificate: {caller} names the caller, of {tenant}")
                    }
                    Tenant::Field(tenant) => {
                        format!("client-certificate: {tenant} names the tenant, and {caller} the caller")
                    }
                },
            )
        }
        (PrincipalSource::Introspection(settings), _) => match introspection::reach(settings).await {
            Ok(()) => Check::ok(
                name,
                format!("introspection by {}, which takes connections", settings.url.authority()),
            ),
            Err(error) => Check::fail(
                name,
                format!("introspection by {}: {error:#}", settings.url.authority()),
                "every command gets 503 until it answers: start the service, or correct `introspection_url`, or `ca` in \
                 `[identity]`",
            ),
        },
        (PrincipalSource::TrustedHeaders { proxies, tenant_header, caller_header }, _) => {
            let shown: Vec<String> = proxies.iter().take(MAX_SHOWN).map(ToString::to_string).collect();
            let more = proxies.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let who = format!("{tenant_header} and {caller_header}, from {}{more}", shown.join(", "));
            match proxies.iter().find(|range| range.is_everybody()) {
                None => Check::ok(name, format!("trusted-headers: {who}")),
                Some(range) => Check::warn(
                    name,
                    format!(
                        "trusted-headers: {who}; {range} includes every address, so any client can be any \
                         caller"
                    ),
                    "list only the addresses of your proxies in `identity.trusted_proxies`",
                ),
            }
        }
    }
}

/// Time before its expiry by which a certificate should be renewed.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Largest number of proxies that are named.
const MAX_SHOWN: usize = 10;

fn admin(config: &Config) -> Check {
    let (name, address) = ("admin", config.admin_listen);
    if let Err(error) = semel_operations::admin::access::look(config) {
        return Check::fail(name, format!("{error:#}"), "the gateway does not start without it");
    }
    let is_local = address.ip().is_loopback();
    let tokens = match config.admin_tokens.len() {
        0 => None,
        count => Some(format!("one of {count} tokens")),
    };
    let sso =
        config.admin_sso.as_ref().map(|sso| format!("a sign-in by one of {} proxies", sso.proxies.len()));
    let credentials: Vec<String> = tokens.into_iter().chain(sso).collect();
    let credentials = credentials.join(", or ");
    match (is_local, credentials.is_empty()) {
        (true, true) => Check::ok(name, format!("{address}, for everybody on this machine")),
        (true, false) => Check::ok(name, format!("{address}, for this machine only, with {credentials}")),
        (false, _) if config.admin_tls.is_some() => {
            Check::ok(name, format!("{address}, over TLS, with {credentials}"))
        }
        (false, _) => Check::warn(
            name,
            format!(
                "{address} is reachable from other machines with {credentials}, which arrives unencrypted"
            ),
            "set `admin_listen` to a loopback address, or set `[admin_tls]`",
        ),
    }
}
