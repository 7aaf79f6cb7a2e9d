//! TLS with services of the gateway: a service with an unproven name gets nothing, and nothing runs.

use serde_json::json;

use super::authority::{Authority, Shown, shown};
use super::authorize::Judge;
use super::issuer::{KeyServer, Signer, by, settings as jwt};
use super::lab::{Site, Upstream, pay, problem};
use super::reconciling::{Bank, SHORT, keyed, settings as bank_settings, settled, site};

/// Makes an authority with a certificate for `localhost`, and one for the gateway.
fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("service", "/CN=service", &Shown::server("DNS:localhost"));
    authority.issue("gateway", "/CN=gateway", &Shown::client());
    authority
}

/// Returns settings that trust this authority and present a certificate of it.
fn files(authority: &Authority, prefix: &str) -> String {
    format!(
        "{prefix}ca = {}\n{prefix}certificate = {}\n{prefix}key = {}\n",
        shown(&authority.certificate()),
        shown(&authority.path("gateway.crt")),
        shown(&authority.path("gateway.key"))
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_asked_over_tls() {
    let (site, bank, authority, stranger) = (site(), Bank::start().await, authority(), authority());
    let port = authority.encrypt_for("service", bank.address, Some(&authority)).await;
    let at = |files: &str| {
        bank_settings(&bank, files, "first_delay = \"20ms\"\nmax_delay = \"50ms\"").replace(
            &format!("http://{}/charges", bank.address),
            &format!("https://localhost:{port}/charges"),
        )
    };
    let mut gateway = site.start_with(bank.address, &at(&files(&stranger, "")), &SHORT);
    let lost = gateway.send(keyed("captured").doing("hang")).await;
    assert_eq!(lost.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let id = bank.arrived().await;
    gateway.logs("invalid peer certificate").await;
    assert!(bank.looks().is_empty(), "a stranger was told nothing");
    gateway.kill();

    let gateway = site.start_with(bank.address, &at(&files(&authority, "")), &SHORT);
    let retry = settled(&gateway, "captured").await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true), "{retry:?}");
    assert_eq!(retry.json(), json!({ "reference": id, "status": "captured" }));
    assert!(bank.looks().contains(&id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_for_tokens_are_fetched_over_tls() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    let issuer = KeyServer::start(&[signer.jwk("a")]).await;
    let authority = authority();
    let port = authority.encrypt_for("service", issuer.address, Some(&authority)).await;
    let url = format!("https://localhost:{port}/jwks.json");
    let gateway = site.start_with(upstream.address, &jwt(&url, &files(&authority, "")), &[]);
    assert_eq!(gateway.send(by(&signer.good("a", "acme", "alice"))).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_authorized_over_tls() {
    let (site, upstream, judge) = (Site::new(), Upstream::start().await, Judge::start().await);
    let (authority, stranger) = (authority(), authority());
    let port = authority.encrypt_for("service", judge.address, Some(&authority)).await;
    let at = |files: &str| {
        format!("[defaults]\nauthorize_url = \"https://localhost:{port}/check?from=semel\"\n{files}")
    };
    let unavailable = problem(503, "AUTHORIZATION_UNAVAILABLE");
    for untrusted in [at(""), at(&files(&stranger, "authorize_"))] {
        let gateway = site.start_with(upstream.address, &untrusted, &[]);
        assert_eq!(gateway.send(pay("{}")).await.problem(), unavailable);
        gateway.logs("invalid peer certificate").await;
    }
    assert!(judge.asked().is_empty() && upstream.seen() == 0, "nobody was told anything");
    let gateway = site.start_with(upstream.address, &at(&files(&authority, "authorize_")), &[]);
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    judge.say(403);
    assert_eq!(gateway.send(pay("{}")).await.problem(), problem(403, "FORBIDDEN"));
    assert_eq!(judge.asked().len(), 2);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_by_the_check_and_at_the_start() {
    let (site, authority) = (Site::new(), authority());
    let missing = shown(&authority.path("none.crt"));
    let look_up = "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\n[operation.reconcile]\nreference = \"/id\"\n\
                   url = \"https://localhost/{operation_id}\"\n";
    for file in [
        format!("[defaults]\nauthorize_url = \"https://localhost/\"\nauthorize_ca = {missing}\n"),
        format!("{look_up}ca = {missing}\n"),
        format!("[ledger]\ntheirs = \"https://localhost/x.csv\"\nreference = \"id\"\nca = {missing}\n"),
        format!(
            "[identity]\nsource = \"introspection\"\nintrospection_url = \"https://localhost/\"\nca = {missing}\n"
        ),
    ] {
        std::fs::write(site.folder.path().join("semel.toml"), &file).expect("there is room");
        for (command, code) in [(&["config", "check"][..], 1), (&["serve", "--listen", "127.0.0.1:0"], 2)] {
            let output = site.semel().args(command).args(["--admin-listen", "127.0.0.1:0"]).output();
            let output = output.expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{file}{said}");
            assert!(said.contains("none.crt: cannot open the file"), "{file}{said}");
        }
    }
}

#[tokio::test]
async fn credentials_in_the_clear_are_named_by_the_check_and_at_the_start() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let told = "`defaults.authorize_url`: the callers' credentials cross the network unencrypted";
    // An address for documentation, which no test connects to.
    let file = "[defaults]\nauthorize_url = \"http://192.0.2.1/check\"\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    gateway.logs(told).await;
    let check = site.semel().args(["config", "check"]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success() && said.contains(told), "{said}");
}
