//! `[traces]`: off unless there is a collector.

use super::wrong::wrong;
use super::*;

fn warnings(text: &str) -> Vec<String> {
    loaded(&file(text)).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn requests_are_traced_if_a_collector_is_named() {
    assert_eq!(Config::default().traces, None);
    assert_eq!(config("[traces]\nsample = 1.0\nservice_name = \"semel\"").traces, None);

    let traces = config("[traces]\nendpoint = \"http://127.0.0.1:4318/v1/traces\"").traces;
    let traces = traces.expect("there is a collector");
    assert_eq!(traces.endpoint.to_string(), "http://127.0.0.1:4318/v1/traces");
    assert_eq!((traces.service_name.as_str(), traces.sample_millionths), ("semel", 1_000_000));
    assert_eq!((traces.authorization_env, traces.tls), (None, ServiceTls::default()));
}

#[test]
fn every_setting_about_traces_is_shown_with_its_place() {
    let text = r#"
[traces]
endpoint = "https://collector.example/v1/traces"
service_name = "payments-gateway"
sample = 0.05
authorization_env = "COLLECTOR"
ca = "ca.crt"
"#;
    let Loaded { config, rows, warnings, .. } = loaded(&file(text));
    assert!(warnings.is_empty(), "{warnings:?}");
    let traces = config.traces.expect("there is a collector");
    assert_eq!((traces.service_name.as_str(), traces.sample_millionths), ("payments-gateway", 50_000));
    assert_eq!(traces.authorization_env.as_ref().map(VariableName::as_str), Some("COLLECTOR"));
    assert_eq!(traces.tls.ca, Some("ca.crt".into()));
    let shown: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let shown: Vec<&str> =
        shown.iter().map(String::as_str).filter(|row| row.starts_with("traces.")).collect();
    assert_eq!(
        shown,
        [
            "traces.endpoint = \"https://collector.example/v1/traces\"  # semel.toml:3",
            "traces.service_name = \"payments-gateway\"  # semel.toml:4",
            "traces.sample = 0.05  # semel.toml:5",
            "traces.authorization_env = \"COLLECTOR\"  # semel.toml:6",
            "traces.ca = \"ca.crt\"  # semel.toml:7",
        ]
    );
    let sample = rows.iter().find(|row| row.name == "traces.sample").expect("it is shown");
    assert_eq!(sample.json(), 0.05);
}

#[test]
fn values_about_traces() {
    wrong(
        r#"
[traces]
endpoint = "127.0.0.1:4318"
service_name = ""
sample = 1.5
authorization_env = "Bearer a"
"#,
        r#"
semel.toml:2:12: error: `traces.endpoint`: expected an address such as "https://authz.internal/check", found "127.0.0.1:4318"
 2 | endpoint = "127.0.0.1:4318"
   |            ^^^^^^^^^^^^^^^^
semel.toml:3:16: error: `traces.service_name`: expected a text that is not empty, found ""
 3 | service_name = ""
   |                ^^
semel.toml:4:10: error: `traces.sample`: expected a share from 0 to 1, such as 0.1, found 1.5
 4 | sample = 1.5
   |          ^^^
semel.toml:5:21: error: `traces.authorization_env`: expected the name of an environment variable, such as "PROVIDER_TOKEN", found "Bearer a": write the name of the variable, never the secret itself
 5 | authorization_env = "Bearer a"
   |                     ^^^^^^^^^^
"#,
    );
    wrong(
        r#"
[traces]
endpoint = "http://127.0.0.1:4318/v1/traces"
sample = 0.1234567
ca = "ca.crt"
headers = "a=b"
"#,
        r#"
semel.toml:3:10: error: `traces.sample`: expected a share from 0 to 1, such as 0.1, found 0.1234567: it has more than six digits after the point
 3 | sample = 0.1234567
   |          ^^^^^^^^^
semel.toml:4:6: error: `traces.ca`: has no effect unless the address begins with https://: write https://
 4 | ca = "ca.crt"
   |      ^^^^^^^^
semel.toml:5:1: error: `traces.headers`: unknown setting; `semel config init` prints all there are
 5 | headers = "a=b"
   | ^^^^^^^
"#,
    );
}

#[test]
fn settings_about_traces_need_a_collector() {
    wrong(
        r#"
[traces]
service_name = "semel"
sample = 0.5
"#,
        r#"
semel.toml:3:10: error: `traces.endpoint`: missing: the address of the collector, such as "http://127.0.0.1:4318/v1/traces"
 3 | sample = 0.5
   |          ^^^
"#,
    );
    wrong(
        r#"
[traces]
ca = "ca.crt"
"#,
        r#"
semel.toml:2:6: error: `traces.endpoint`: missing: the address of the collector, such as "http://127.0.0.1:4318/v1/traces"
 2 | ca = "ca.crt"
   |      ^^^^^^^^
"#,
    );
}

#[test]
fn an_incomplete_or_exposed_collector_is_warned_of() {
    let shown =
        |endpoint: &str, more: &str| warnings(&format!("[traces]\nendpoint = \"{endpoint}\"\n{more}"));
    let secret = "authorization_env = \"A\"";
    for good in ["https://a.example/v1/traces", "http://127.0.0.1:4318/v1/traces"] {
        assert_eq!(shown(good, secret), [""; 0], "{good}");
    }
    assert_eq!(shown("http://a.example/v1/traces", ""), [""; 0], "there is no secret");
    let exposed = shown("http://a.example/v1/traces", secret).join("\n");
    assert!(
        exposed.starts_with(
            "semel.toml:2:12: warning: `traces.endpoint`: the credential in `authorization_env` crosses the network"
        ),
        "{exposed}"
    );
    for incomplete in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
        let warned = shown(incomplete, "").join("\n");
        assert!(
            warned.contains("has no path, and most collectors take traces at /v1/traces only"),
            "{warned}"
        );
    }
}
