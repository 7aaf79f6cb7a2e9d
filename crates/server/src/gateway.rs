//! Assembled gateway: store, layer, proxy, listeners and background work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use http::uri::Authority;
use metrics_exporter_prometheus::PrometheusHandle;
use semel_core::{Backend, Store, Tier, Vault};
use semel_gateway::authorize::Authorizer;
use semel_gateway::entry::EntryRules;
use semel_gateway::entry::cors::Cors;
use semel_gateway::entry::pass::Passes;
use semel_gateway::forwarding::Forwarding;
use semel_gateway::hosts::ServiceHosts;
use semel_gateway::proxy::Proxy;
use semel_gateway::tls::live::{self, Live, Reload};
use semel_gateway::tls::server::Acceptor;
use semel_gateway::upstream::Upstream;
use semel_gateway::{former_names, forward, identity, listener, tls};
use semel_http::{
    HoldBoard, IdempotencyLayer, Maintenance, Operation, Shutdown, StoreWitness, WorkerOptions,
};
use semel_operations::admin::history::MetricsHistory;
use semel_operations::admin::tls_listener::TlsListener;
use semel_operations::admin::{self, Admin, AdminGate, MetricsPage};
use semel_operations::busy_layer::BusyLayer;
use semel_operations::ledger::LedgerBoard;
use semel_operations::{encryption, ledger, reconcile};
use semel_settings::{
    Config, EffectiveSetting, Exemption, MaintenanceSettings, OperationConfig, PassConfig, path_exceptions,
};
use semel_stores::{Access, Breaker};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tower::Layer;

use crate::{telemetry, traces};

/// Running gateway.
pub struct Gateway {
    /// Address for clients.
    pub address: SocketAddr,
    /// Address for operators and monitoring.
    pub admin_address: SocketAddr,
    /// Guarantee of its store.
    pub tier: Tier,
    layer: IdempotencyLayer,
    closing: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    background: Vec<JoinHandle<()>>,
    /// Task that sends spans, and the signal to send the last ones.
    spans: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    files: Arc<[Arc<dyn Reload>]>,
    drain: std::time::Duration,
}

impl Gateway {
    /// Opens the store, binds the listeners, and serves. `settings` are those that operators see as in force.
    pub async fn start(
        config: &Config,
        settings: Vec<EffectiveSetting>,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Gateway> {
        let bind = async |setting: &str, address: SocketAddr| {
            TcpListener::bind(address).await.map_err(|error| cannot_listen(setting, address, &error))
        };
        if let Some(watch) = &config.ledger {
            ledger::check(watch).context("`[ledger]`")?;
        }
        let tls = tls::for_clients(config).map(Live::new).transpose()?;
        let admin_tls = tls::for_admins(config).map(Live::new).transpose()?;
        let upstream_tls = tls::for_upstream(config).map(Live::new).transpose()?;
        let clients = bind("listen", config.listen).await?;
        let admins = bind("admin_listen", config.admin_listen).await?;
        let gate = AdminGate::new(config).await?;
        let backend = open(config, Access::Write).await?;
        if config.limits.is_capped() {
            backend.prepare().await.context("`[limits]`: the stored records cannot be counted")?;
        }
        let config = &Config { operations: former_names::adopt(config, &*backend).await, ..config.clone() };
        let tier = backend.tier();
        let store = Arc::new(Breaker::new(backend.clone()));
        let authority = config.upstream.authority().context("the upstream has no authority")?.clone();
        let policies = config.operations.iter().map(|operation| &operation.policy).chain([&config.defaults]);
        let shortest_call = policies.map(|policy| policy.timeout).min().unwrap_or_default();
        let hosts = Arc::new(ServiceHosts::new(config.hosts.clone()));
        let upstream = Upstream::new(
            authority.clone(),
            upstream_tls.clone(),
            config.upstream_protocol,
            config.upstream_reuse,
            shortest_call,
        );
        let forwarding = Arc::new(Forwarding::new(config.forwarded, config.trusted_proxies(), hosts.clone()));
        let proxy =
            Proxy::new(upstream.clone(), config.defaults.timeout, forwarding.clone(), config.server.tunnels);
        let tracing = match &config.traces {
            Some(settings) => Some(traces::tracing(settings).await?),
            None => None,
        };
        let tracer = tracing.as_ref().map(|tracing| tracing.tracer.clone());
        let sampler = tracing.as_ref().map(|tracing| tracing.sampler);
        let holds = HoldBoard::new(backend.clone());
        let remembered = config.witness();
        let witness = StoreWitness::start(backend.clone(), holds.clone(), remembered.as_deref()).await;
        let witness = witness.context("`witness`")?;
        holds.ready().await;
        let layer = layer(config, store.clone(), backend.clone(), proxy.clone(), authority).await?;
        let layer = layer.holds(holds.clone());
        let layer = match &tracer {
            Some(tracer) => layer.tracer(tracer.clone()),
            None => layer,
        };
        let layer = layer.build()?;
        let service = layer.layer(proxy.clone());

        let mut webhooks = None;
        let mut reconciling = None;
        if reconcile::is_wanted(config) {
            let held = holds.clone();
            let reconciler = reconcile::reconciler(config, store.clone(), backend.clone())?
                .hold_while(move || held.holds_reconciler());
            let reconciler = Arc::new(match &tracer {
                Some(tracer) => reconciler.tracer(tracer.clone()),
                None => reconciler,
            });
            webhooks = reconcile::webhooks(config, &reconciler)?;
            reconciling = Some(reconciler);
        }

        let (address, admin_address) = (clients.local_addr()?, admins.local_addr()?);
        let labels: Vec<String> = layer.operation_names().map(str::to_owned).collect();
        telemetry::begin(&labels, &config.store);
        semel_flow::reconcile::begin_metrics();
        semel_flow::outbox::begin_metrics();

        let (stop, stopped) = watch::channel(false);
        let closing = Arc::new(AtomicBool::new(false));
        let outbox = backend.clone().outbox();
        let (page, history) = (metrics_page(metrics.clone()), MetricsHistory::new());
        let board = config.ledger.is_some().then(LedgerBoard::new);
        let admin = Admin {
            store: store.clone(),
            outbox: outbox.clone(),
            audit: backend.clone(),
            holds: backend,
            busy: Arc::new(BusyLayer(layer.busy())),
            reconciler: reconciling.clone(),
            closing: closing.clone(),
            metrics: page.clone(),
            log: telemetry::log_level(),
            gate,
            config: config.clone(),
            settings,
            history: history.clone(),
            ledger: board.clone(),
        };
        let named = config.operations.iter().map(|operation| operation.name.to_string()).collect();
        let MaintenanceSettings { sweep_interval, reap_interval, reap_batch } = config.maintenance;
        let maintenance = Maintenance { sweep_interval, reap_interval, reap_batch, named };
        let ledger = config.ledger.clone().zip(board);
        let ledger = ledger.map(|(watch, board)| tokio::spawn(ledger::watch(watch, store.clone(), board)));
        let mut background = vec![
            tokio::spawn(layer.maintain(maintenance, store, outbox)),
            tokio::spawn(holds.run()),
            tokio::spawn(witness.run()),
            tokio::spawn(layer.worker(proxy, WorkerOptions::default()).run()),
            tokio::spawn(upkeep(metrics)),
            tokio::spawn(history.run(page)),
            tokio::spawn(upstream.close_idle()),
        ];
        let accept = |live, listener| Acceptor::new(live, listener, config.server.head_timeout);
        let admin_acceptor = admin_tls.clone().map(|live| accept(live, "admin"));
        background.push(tokio::spawn(async move {
            match admin_acceptor {
                None => admin::serve(admins, admin).await,
                Some(acceptor) => admin::serve(TlsListener::new(admins, acceptor), admin).await,
            }
        }));
        let files: Arc<[Arc<dyn Reload>]> = [tls.clone(), admin_tls]
            .into_iter()
            .flatten()
            .map(|live| live as Arc<dyn Reload>)
            .chain(upstream_tls.map(|live| live as Arc<dyn Reload>))
            .collect();
        if !files.is_empty() {
            background.push(tokio::spawn(live::watch(files.clone())));
        }
        background.extend(ledger);
        let spans = tracing.map(|tracing| {
            let (flush, flushed) = oneshot::channel::<()>();
            (flush, tokio::spawn(tracing.sender.run(async { drop(flushed.await) })))
        });
        if let Some(reconciler) = reconciling {
            background.push(tokio::spawn(async move { reconciler.run(std::future::pending()).await }));
        }
        let tls = tls.map(|live| accept(live, "clients"));
        let passes = config.pass.iter().map(|rule| (&rule.route.method, &*rule.route.path, &*rule.allow));
        let passes = Passes::new(passes).context("`[[pass]]`")?;
        let (upgrade, body_timeout) = (config.upgrade.clone(), config.server.body_timeout);
        let rules = Arc::new(EntryRules {
            hosts,
            cors: Cors::new(config.cors.clone()),
            forwarding,
            passes,
            upgrade,
            body_timeout,
            sampler,
        });
        let serving = listener::serve(clients, tls, service, webhooks, rules, config.server.clone(), stopped);
        let serving = tokio::spawn(serving);
        let drain = config.drain;
        Ok(Gateway {
            address,
            admin_address,
            tier,
            layer,
            closing,
            stop,
            serving,
            background,
            spans,
            files,
            drain,
        })
    }

    /// Reloads the TLS files, and logs the result for each settings table.
    pub async fn reload(&self) {
        let looked = live::look_at(&self.files).await;
        if looked.is_empty() {
            tracing::info!(
                signal = "SIGHUP",
                "no files of TLS to read again; settings are read at the start only"
            );
        }
        for (table, looked) in looked {
            tracing::info!(signal = "SIGHUP", table, result = looked.as_str(), "read the files of TLS again");
        }
    }

    /// Shuts down gracefully: claims no more commands, and waits for running ones until `drain` is over or
    /// `give_up` is ready. Commands that are left become `Unknown`.
    pub async fn shut_down(self, give_up: impl Future<Output = ()>) -> Shutdown {
        self.closing.store(true, Ordering::SeqCst);
        let limit = async {
            tokio::select! {
                () = tokio::time::sleep(self.drain) => {}
                () = give_up => {}
            }
        };
        let ended = self.layer.shutdown_until(limit).await;
        self.stop.send_replace(true);
        let _ = self.serving.await;
        for task in self.background {
            task.abort();
        }
        if let Some((flush, sending)) = self.spans {
            drop(flush);
            let _ = sending.await;
        }
        ended
    }
}

fn cannot_listen(setting: &str, address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind;
    let flag = setting.replace('_', "-");
    let (ip, port) = (address.ip(), address.port());
    let advice = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program has it, perhaps a Semel that still runs. Stop it, or choose another port with \
             `--{flag} {ip}:PORT`; 0 takes any that is free"
        ),
        ErrorKind::AddrNotAvailable => {
            format!(
                "this machine has no address {ip}: set `{setting}` to one that it has, or to 127.0.0.1:{port}"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("this user may not use port {port}: set `{setting}` to a port from 1024 on")
        }
        _ => format!("{error}; set `{setting}` to another address"),
    };
    anyhow::anyhow!("cannot listen on {address}, which `{setting}` names: {advice}")
}

/// Opens the configured store with its keys.
pub async fn open(config: &Config, access: Access) -> anyhow::Result<Arc<dyn Backend>> {
    // The keys come first: opening a store may migrate it to a newer schema.
    let vault: Option<Arc<dyn Vault>> = match &config.encryption {
        Some(encryption) => Some(encryption::vault(encryption).await?),
        None => None,
    };
    Ok(semel_stores::open_with(&config.store, access, vault).await?)
}

/// Returns the builder of the layer, with everything that the settings say.
async fn layer(
    config: &Config,
    store: Arc<dyn Store>,
    backend: Arc<dyn Backend>,
    proxy: Proxy,
    upstream: Authority,
) -> anyhow::Result<semel_http::Builder> {
    let builder = identity::identify(config, IdempotencyLayer::builder(store))
        .await?
        .before_keeping(forward::remove_own_credentials)
        .usage(backend.clone())
        .limits(config.limits.clone())
        .evidence(backend)
        .body_bytes(body_room(config))
        .answer_bytes(answer_room(config))
        .results_from(proxy)
        .origin(upstream)
        .defaults(config.defaults.clone());
    let builder = match Authorizer::new(config).context("`authorize_url`")? {
        Some(authorizer) => builder
            .authorize(move |principal, operation, parts| authorizer.authorize(principal, operation, parts)),
        None => builder,
    };
    let builder = config.operations.iter().map(operation).fold(builder, semel_http::Builder::operation);
    Ok(config.pass.iter().fold(builder, |builder, PassConfig { route, allow }| {
        match allow.contains(&Exemption::Grpc) {
            true => builder.pass_grpc(route.to_string()),
            false => builder.pass(route.to_string(), path_exceptions(allow)),
        }
    }))
}

/// Returns the memory for command bodies: enough for the largest, whose caller gets two thirds.
fn body_room(config: &Config) -> usize {
    let policies = config.operations.iter().map(|operation| &operation.policy).chain([&config.defaults]);
    let largest = policies.map(|policy| policy.max_request).max().unwrap_or_default();
    largest.saturating_mul(2).max(512 << 20)
}

/// Returns the memory for answers that are read to be stored: enough for several of the largest.
fn answer_room(config: &Config) -> usize {
    let policies = config.operations.iter().map(|operation| &operation.policy).chain([&config.defaults]);
    let largest = policies.map(|policy| policy.max_stored_response).max().unwrap_or_default();
    largest.saturating_mul(8).max(512 << 20)
}

fn operation(config: &OperationConfig) -> Operation {
    let policy = config.policy.clone();
    let operation = Operation::new(config.name.to_string(), config.route.to_string())
        .with(move |defaults| *defaults = policy.clone());
    let operation =
        config.exclude.iter().fold(operation, |operation, pointer| operation.exclude(pointer.to_string()));
    let operation = match &config.business_reference {
        Some(pointer) => operation.business_reference(pointer.to_string()),
        None => operation,
    };
    let operation = if config.anonymous { operation.anonymous() } else { operation };
    let operation = config.allow.iter().fold(operation, |operation, exception| operation.allow(*exception));
    config.aliases.iter().fold(operation, |operation, alias| operation.alias(alias.to_string()))
}

/// Returns the page `/metrics`: every metric, those without a series only with their help.
fn metrics_page(metrics: PrometheusHandle) -> MetricsPage {
    Arc::new(move || {
        let mut page = metrics.render();
        page.push_str(&telemetry::without_series(&page));
        page
    })
}

/// Folds the samples of histograms regularly, also without scrapes.
async fn upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        metrics.run_upkeep();
    }
}
