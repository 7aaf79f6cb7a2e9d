//! Lab: a gateway before the upstream, in this process and on one thread.

use std::net::SocketAddr;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusBuilder;
use semel_core::Principal;
use semel_gateway::service::ADDRESS_CHECKS;
use semel_server::gateway::Gateway;
use semel_settings::{Sources, load};
use semel_stores::sqlite::ApiKeys;
use tempfile::TempDir;

use crate::book::Book;
use crate::broken::{self, Defect, Place};
use crate::case::Client;
use crate::draft::Credentials;
use crate::upstream::{self, World};
use crate::upstream_http2;

/// Rules by which PUT and DELETE are commands, and a GET may have a body. A duplicate waits for the first request as
/// long as that may take: on a slow machine it is not told that the first one is still in progress.
const RULES: &str = "\
[defaults]
wait = \"25s\"

[identity]
source = \"api-key\"

[[operation]]
name = \"payments.create\"
match = \"POST /payments\"

[[operation]]
name = \"payments.replace\"
match = \"PUT /payments/{id}\"

[[operation]]
name = \"orders.remove\"
match = \"DELETE /orders/{id}\"

[[pass]]
match = \"GET /search/{*rest}\"
allow = [\"body\"]
";

/// Timeout with relays, which wait for complete requests, also where a client waits for the response first.
const PATIENCE_OF_RELAYS: &str = "[server]\nbody_timeout = \"1s\"\n";

/// Protocol of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    H2c,
}

impl Protocol {
    /// Returns the protocol of a scene: the same whichever scenes are run with it.
    pub(crate) fn of(scene: u64) -> Protocol {
        if scene % 4 == 3 { Protocol::H2c } else { Protocol::Http1 }
    }

    fn as_str(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::H2c => "h2c",
        }
    }
}

/// A running gateway.
pub(crate) struct Lab {
    pub(crate) world: Arc<World>,
    pub(crate) credentials: Credentials,
    /// Address for clients: the gateway, or a broken relay before it.
    pub(crate) front: SocketAddr,
    gateway: Gateway,
    _folder: TempDir,
}

impl Lab {
    /// Starts a lab, with a broken relay before or behind the gateway if a defect is given.
    pub(crate) async fn start(protocol: Protocol, defect: Option<Defect>) -> Lab {
        let folder =
            tempfile::Builder::new().prefix("semel-hostile-").tempdir().expect("a folder can be made");
        let store = folder.path().join("semel.db");
        let credentials = {
            let keys = ApiKeys::open(&store).expect("a store can be made");
            let key = |client: &Client| {
                let (tenant, caller) = client.names()?;
                let principal = Principal::new(tenant, caller).expect("the names are valid");
                Some(keys.create(&principal).expect("a key can be made").1)
            };
            Credentials(Client::ALL.iter().filter_map(key).collect())
        };
        let world = World::new(Book::new(credentials.clone()));
        let upstream = match protocol {
            Protocol::Http1 => upstream::start(world.clone()).await,
            Protocol::H2c => upstream_http2::start(world.clone()).await,
        };
        let behind = match defect {
            Some(defect) if defect.place() == Place::Behind => broken::behind(defect, upstream).await,
            _ => upstream,
        };
        let patience = if defect.is_some() { PATIENCE_OF_RELAYS } else { "" };
        let file = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nstore = \"sqlite:{}\"\n\
             upstream = \"http://{behind}\"\nupstream_protocol = \"{}\"\ndrain = \"5s\"\n{patience}{RULES}",
            store.display(),
            protocol.as_str()
        );
        let loaded = load(&Sources::new().file("semel.toml", file), ADDRESS_CHECKS)
            .expect("the configuration can be used");
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let gateway = Gateway::start(&loaded.config, Vec::new(), metrics).await.expect("a gateway starts");
        let front = match defect {
            Some(defect) if defect.place() == Place::Before => {
                broken::before(defect, gateway.address, upstream).await
            }
            _ => gateway.address,
        };
        Lab { world, credentials, front, gateway, _folder: folder }
    }

    /// Ends the gateway. Everything it had to send was sent when this returns.
    pub(crate) async fn stop(self) -> Arc<World> {
        self.gateway.shut_down(std::future::pending()).await;
        self.world
    }
}
