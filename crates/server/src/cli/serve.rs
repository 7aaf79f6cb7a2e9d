//! `semel serve`: runs the gateway until a signal stops it.

use std::path::Path;

use semel_core::Tier;
use semel_settings::{Config, EffectiveSetting};

use super::signals::{SignalRequest, Signals};
use super::{CommandResult, SettingFlags, say};
use crate::gateway::Gateway;
use crate::telemetry;

/// The command line of `semel serve`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Stand in front of an HTTP service and make its commands safe to retry",
    long_about = "Stands in front of an HTTP service. Every POST and PATCH needs an Idempotency-Key; a \
        retry gets the first answer, and the service sees one request. Nothing is needed but this program \
        and its SQLite file; several gateways share a PostgreSQL.\n\n\
        It prints its addresses and the promise of its store, and logs to the standard error.\n\n\
        SIGTERM or Ctrl-C stops it: running commands get the time of `--drain` to finish. More signals \
        within 5 seconds change nothing; a later one ends the wait, and commands that still run become \
        unknown. SIGHUP never stops it: certificate files are read again, as they are when they change; \
        settings are not.\n\n\
        Settings come from flags, SEMEL_… variables, the configuration file and built-in defaults, in this \
        order; `semel config show` prints the source of each.",
    after_help = "Examples:\n  \
        semel serve --upstream http://127.0.0.1:3000\n  \
        semel serve --config /etc/semel.toml\n  \
        semel serve --upstream http://127.0.0.1:3000 --store postgres://semel@db.internal/semel\n\n\
        Exit codes: 0 stopped, and every command has its outcome; 1 stopped, and commands are left unknown; 2 wrong \
        use, or it cannot start."
)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    settings: SettingFlags,
}

pub(super) fn run(args: &ServeArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let loaded = super::load(config, args.settings.flags())?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    telemetry::log(loaded.config.log_format);
    // Every connection takes a file descriptor, and most systems start with a low limit.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(0);
    if files > 0 && files < 2 * loaded.config.server.max_connections as u64 {
        tracing::warn!(files, "the system allows fewer open files than `max_connections` may need");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(serve(&loaded.config, loaded.rows));
    // Running commands were handed over.
    runtime.shutdown_background();
    done
}

async fn serve(config: &Config, settings: Vec<EffectiveSetting>) -> anyhow::Result<CommandResult> {
    let mut signals = Signals::new()?;
    let gateway = tokio::select! {
        started = Gateway::start(config, settings, telemetry::metrics()?) => started?,
        signal = signals.stop() => {
            tracing::info!(signal, "stopped before it listened");
            return Ok(CommandResult::Yes);
        }
    };
    let scheme = |encrypted| if encrypted { "https" } else { "http" };
    say(format!("listening on {}://{}", scheme(config.tls.is_some()), gateway.address));
    let admin = format!("{}://{}", scheme(config.admin_tls.is_some()), gateway.admin_address);
    say(format!("admin on {admin}"));
    say(format!("console on {admin}/console/"));
    say(format!("upstream {}", config.upstream));
    say(format!("store {}: {}", config.store, promise(gateway.tier)));
    if let Some(encryption) = &config.encryption {
        say(format!("encryption under key {}, of {} at hand", encryption.current, encryption.keys.len()));
    }
    let signal = loop {
        match signals.next().await {
            SignalRequest::Reload => gateway.reload().await,
            SignalRequest::Stop(signal) => break signal,
        }
    };
    let drain = config.drain.as_secs_f64();
    tracing::info!(signal, drain, "stopping: waiting for running commands");
    let ended = gateway.shut_down(signals.give_up()).await;
    if ended.drained {
        tracing::info!("stopped: every command has its outcome");
        return Ok(CommandResult::Yes);
    }
    tracing::warn!(
        abandoned = ended.abandoned,
        "stopped before every command had its outcome: see `semel records list --state unknown`"
    );
    Ok(CommandResult::No)
}

/// Describes the guarantee of a tier.
pub(super) fn promise(tier: Tier) -> &'static str {
    match tier {
        Tier::One => "tier 1, at most one effect under every fault",
        Tier::Two => "tier 2, at most one effect unless the engine loses an acknowledged write",
        Tier::Three => "tier 3, records are lost when this process ends: for trying out only",
    }
}
