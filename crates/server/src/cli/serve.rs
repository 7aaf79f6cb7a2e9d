//! `semel serve`: the gateway, until somebody stops it.

use clap::{ArgMatches, Command};
use semel_core::Tier;
use tokio::signal::unix::{SignalKind, signal};

use super::{Done, say};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::telemetry;

pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Stand in front of an HTTP service and make its commands safe to retry")
        .long_about(
            "Stands in front of an HTTP service. Every POST and PATCH needs an Idempotency-Key; a retry gets the \
             first answer, and the service sees one request. Nothing is needed but this program and its SQLite file; \
             several gateways share a PostgreSQL.\n\n\
             It prints where it listens and what its store promises, and logs to the standard error. SIGTERM or Ctrl-C \
             ends it in good order; what still runs gets the time of `--drain`. Files of certificates are read again \
             when they change, and on SIGHUP.\n\n\
             Settings come from flags, SEMEL_… variables, the configuration file and built-in defaults, in this \
             order; `semel config show` prints which.",
        )
        .after_help(
            "Examples:\n  \
             semel serve --upstream http://127.0.0.1:3000\n  \
             semel serve --config /etc/semel.toml\n  \
             semel serve --upstream http://127.0.0.1:3000 --store postgres://semel@db.internal/semel\n\n\
             Exit codes: 0 it was stopped, 2 wrong use, or it cannot start.",
        )
        .args(super::setting_flags())
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let loaded = super::load(matches)?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    telemetry::log(loaded.config.log_format);
    // Every connection takes a file descriptor, and most systems begin with few.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(0);
    if files > 0 && files < 2 * loaded.config.server.max_connections as u64 {
        tracing::warn!(files, "the system allows fewer open files than `max_connections` may need");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(&loaded.config))?;
    // What still runs has been handed over; nobody waits for it.
    runtime.shutdown_background();
    Ok(Done::Yes)
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let gateway = Gateway::start(config, telemetry::metrics()?).await?;
    let scheme = |encrypted| if encrypted { "https" } else { "http" };
    say(format!("listening on {}://{}", scheme(config.tls.is_some()), gateway.address));
    say(format!("admin on {}://{}", scheme(config.admin_tls.is_some()), gateway.admin_address));
    say(format!("upstream {}", config.upstream));
    say(format!("store {}: {}", config.store, promise(gateway.tier)));
    if let Some(encryption) = &config.encryption {
        say(format!("encryption under key {}, of {} at hand", encryption.current, encryption.keys.len()));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("stopping: waiting for what runs; a second signal ends at once");
    tokio::select! {
        ended = gateway.shut_down() => {
            tracing::info!(drained = ended.drained, abandoned = ended.abandoned, "stopped");
        }
        _ = terminate.recv() => eprintln!("ended at once; what ran is left to its lease"),
        _ = interrupt.recv() => eprintln!("ended at once; what ran is left to its lease"),
    }
    Ok(())
}

/// What a tier promises, in words.
pub(super) fn promise(tier: Tier) -> &'static str {
    match tier {
        Tier::One => "tier 1, at most one effect under every fault",
        Tier::Two => "tier 2, at most one effect unless the engine loses an acknowledged write",
        Tier::Three => "tier 3, forgets everything with this process: for trying out only",
    }
}
