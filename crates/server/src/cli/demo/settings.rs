//! Settings of the demo's gateway, from `demo.toml`.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::Context;
use semel_gateway::service::ADDRESS_CHECKS;
use semel_settings::{Loaded, ServiceHost, Sources};

/// Variable with the secret of the payment service's events, which `demo.toml` names.
pub(super) const SECRET_VARIABLE: &str = "DEMO_WEBHOOK_SECRET";

/// Addresses of the demo's gateway.
pub(super) struct DemoAddresses {
    /// Address for clients.
    pub(super) listen: SocketAddr,
    /// Address for operators.
    pub(super) admin_listen: SocketAddr,
    /// Address of the payment service.
    pub(super) upstream: SocketAddr,
}

/// Returns the settings of a gateway at these addresses, with its store in this folder.
pub(super) fn load(folder: &Path, addresses: &DemoAddresses) -> anyhow::Result<Loaded> {
    let DemoAddresses { listen, admin_listen, upstream } = addresses;
    let sources = Sources::new()
        .file("demo.toml", include_str!("demo.toml"))
        .flag("listen", listen.to_string())
        .flag("admin-listen", admin_listen.to_string())
        .flag("upstream", format!("http://{upstream}"))
        .flag("store", format!("sqlite:{}", folder.join("semel.db").display()));
    let mut loaded =
        semel_settings::load(&sources, ADDRESS_CHECKS).context("the demo's settings are wrong")?;
    loaded.config.hosts.extend(ServiceHost::parse(&host(*listen)));
    Ok(loaded)
}

/// Returns the address as the host of a URL.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Makes this process begin anew with a secret in its environment, where the gateway and the service look
/// for it. Returns only if it has one, or on an error.
///
/// A process cannot set its own variables safely, and a secret does not belong on a command line.
pub(super) fn with_secret() -> anyhow::Result<()> {
    if std::env::var_os(SECRET_VARIABLE).is_some() {
        return Ok(());
    }
    let secret: String = semel_core::ids::secret().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut words = std::env::args_os();
    let mut program = std::process::Command::new(std::env::current_exe()?);
    program.arg0(words.next().unwrap_or_else(|| "semel".into())).args(words).env(SECRET_VARIABLE, secret);
    let error: io::Error = program.exec();
    Err(error).context("the demo cannot be started anew with a secret of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_demo_are_valid_and_name_the_host_that_it_listens_at() {
        let addresses = DemoAddresses {
            listen: SocketAddr::from(([127, 0, 0, 9], 8080)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            upstream: SocketAddr::from(([127, 0, 0, 1], 8081)),
        };
        let loaded = load(Path::new("/tmp/demo"), &addresses).expect("the settings are valid");
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let config = loaded.config;
        assert_eq!((config.listen, config.admin_listen), (addresses.listen, addresses.admin_listen));
        for host in ["localhost:8080", "127.0.0.1:8080", "127.0.0.9:8080"] {
            assert!(config.hosts.iter().any(|name| name.is(host)), "{host}");
        }
        assert!(!config.hosts.iter().any(|name| name.is("evil.example:8080")));
        assert_eq!(config.webhooks[0].secret_env[0].as_str(), SECRET_VARIABLE);
    }
}
