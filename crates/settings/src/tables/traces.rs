//! `[traces]`: the collector of traces, and the share that is recorded.

use crate::engine::findings::Findings;
use crate::engine::kind::{Maybe, ValueKind, ValueRefusal};
use crate::engine::setting::{Setting, setting};
use crate::parts::service::{self, ServiceAddress, ServiceTls};
use crate::parts::text::{FilePath, Text, VariableName};

/// Collector of traces, and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Address of the collector, with the path for traces.
    pub endpoint: ServiceAddress,
    /// Name of the service in its traces.
    pub service_name: String,
    /// Share of traces that are recorded, of those that begin here or come from untrusted peers, in millionths.
    pub sample_millionths: u32,
    /// Variable with the value of the header `Authorization`.
    pub authorization_env: Option<VariableName>,
    /// TLS with the collector.
    pub tls: ServiceTls,
}

/// The `[traces]` table, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct TraceTable {
    pub(crate) endpoint: Option<ServiceAddress>,
    pub(crate) service_name: String,
    pub(crate) sample_millionths: u32,
    pub(crate) authorization_env: Option<VariableName>,
    pub(crate) tls: ServiceTls,
}

impl Default for TraceTable {
    fn default() -> TraceTable {
        TraceTable {
            endpoint: None,
            service_name: "semel".to_owned(),
            sample_millionths: ALL,
            authorization_env: None,
            tls: ServiceTls::default(),
        }
    }
}

/// `[traces]`.
pub(crate) const TRACES: &[Setting<TraceTable>] = &[
    setting!(
        "endpoint",
        Maybe<ServiceAddress>,
        endpoint,
        "Address of the collector of traces, which takes OTLP over HTTP; without it, nothing is traced",
        "\"http://127.0.0.1:4318/v1/traces\""
    ),
    setting!("service_name", Text, service_name, "Name of this service in its traces"),
    setting!(
        "sample",
        SampleShare,
        sample_millionths,
        "Share of traces that are recorded, of those that begin here or come from peers that are not trusted proxies"
    ),
    setting!(
        "authorization_env",
        Maybe<VariableName>,
        authorization_env,
        "Environment variable with the value of the Authorization header",
        "\"COLLECTOR_AUTHORIZATION\""
    ),
    setting!(
        "ca",
        Maybe<FilePath>,
        tls.ca,
        "With an https:// address: file with the certificate authorities to trust, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        tls.certificate,
        "With an https:// address: file with the gateway's client certificate",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        tls.key,
        "With an https:// address: file with the private key of the client certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// Checks the table, and returns the settings if they are consistent. Without `endpoint`, nothing is traced.
pub(crate) fn check(findings: &mut Findings, table: &TraceTable) -> Option<TraceSettings> {
    service::check(findings, ("traces", ""), &table.tls, table.endpoint.as_ref());
    if !findings.is_set("traces.endpoint") {
        // Settings at their default may be in the file without effect.
        let default = TraceTable::default();
        let changed = |setting: &&Setting<TraceTable>| (setting.show)(table) != (setting.show)(&default);
        let alone = TRACES.iter().find(changed)?;
        let message = "missing: the address of the collector, such as \"http://127.0.0.1:4318/v1/traces\"";
        let origin = findings.origin(&format!("traces.{}", alone.name));
        findings.error(origin, "traces.endpoint", message);
        return None;
    }
    let TraceTable { endpoint, service_name, sample_millionths, authorization_env, tls } = table.clone();
    Some(TraceSettings { endpoint: endpoint?, service_name, sample_millionths, authorization_env, tls })
}

/// Warns of an address that is probably incomplete, of a credential that crosses a network in the clear, and of a private key
/// that others can read.
pub(crate) fn warn(findings: &mut Findings, settings: &TraceSettings) {
    service::private_key(findings, "traces.key", &settings.tls);
    if settings.authorization_env.is_some() && settings.endpoint.is_exposed() {
        service::exposed(findings, "traces.endpoint", "the credential in `authorization_env` crosses");
    }
    if settings.endpoint.uri().path() == "/" {
        let message = "has no path, and most collectors take traces at /v1/traces only";
        findings.warn("traces.endpoint", message);
    }
}

/// The whole, in millionths.
const ALL: u32 = 1_000_000;

/// A share from 0 to 1, in millionths.
pub(crate) struct SampleShare;

impl ValueKind for SampleShare {
    type Value = u32;
    const BARE_INTEGER: bool = true;
    const BARE_FRACTION: bool = true;

    fn expected() -> String {
        "a share from 0 to 1, such as 0.1".to_owned()
    }

    fn parse(text: &str) -> Result<u32, ValueRefusal> {
        let share: f64 = text.parse().map_err(|_| ValueRefusal::Unexpected)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(ValueRefusal::Unexpected);
        }
        let millionths = (share * f64::from(ALL)).round();
        if share != millionths / f64::from(ALL) {
            return Err(ValueRefusal::Because("it has more than six digits after the point".to_owned()));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole, and at most ALL"
        )]
        Ok(millionths as u32)
    }

    fn show(value: &u32) -> Option<String> {
        Some((f64::from(*value) / f64::from(ALL)).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_and_shown_as_people_write_it() {
        for (text, millionths, shown) in [
            ("0", 0, "0"),
            ("0.0", 0, "0"),
            ("1", ALL, "1"),
            ("1.0", ALL, "1"),
            ("0.1", 100_000, "0.1"),
            ("1e-3", 1_000, "0.001"),
            ("0.000001", 1, "0.000001"),
            ("0.333333", 333_333, "0.333333"),
        ] {
            assert_eq!(SampleShare::parse(text).ok(), Some(millionths), "{text}");
            assert_eq!(SampleShare::show(&millionths).as_deref(), Some(shown));
        }
        for millionths in 0..=ALL {
            let shown = SampleShare::show(&millionths).expect("every share is shown");
            assert_eq!(SampleShare::parse(&shown).ok(), Some(millionths), "{shown}");
        }
    }

    #[test]
    fn another_number_is_no_share() {
        for text in
            ["", "-0.1", "1.1", "1.000001", "0.0000001", "0.1234567", "nan", "inf", "10%", "half", "0,5"]
        {
            assert!(SampleShare::parse(text).is_err(), "{text}");
        }
    }
}
