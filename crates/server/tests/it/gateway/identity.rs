//! Identity of callers: no caller gets another's response.

use std::time::Duration;

use super::lab::{Send, Site, Upstream, pay, problem};

fn create_key(site: &Site, tenant: &str, caller: &str) -> (String, String) {
    let output = site
        .semel()
        .args(["keys", "create", "--tenant", tenant, "--caller", caller, "--json"])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let text = |name: &str| document[name].as_str().expect("it is text").to_owned();
    (text("id"), text("key"))
}

fn by(key: &str) -> Send {
    pay("{}").with("authorization", format!("Bearer {key}"))
}

#[tokio::test]
async fn an_anonymous_operation_passes_callers_without_credentials_on_and_without_a_name() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (_, alice) = create_key(&site, "acme", "alice");
    let file = "[identity]\nsource = \"api-key\"\n[[operation]]\nname = \"sign-up\"\nmatch = \"POST /sign-ups\"\n\
                anonymous = true\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    let sign_up = || pay("{}").target("/sign-ups");
    let unknown = || sign_up().without("idempotency-key").with("semel-caller", "forged");
    for number in 1..=2 {
        let reply = gateway.send(unknown()).await;
        assert_eq!((reply.status.as_u16(), upstream.seen()), (201, number));
        for name in ["seen-semel-tenant", "seen-semel-caller", "seen-semel-operation-id"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
    assert_eq!(gateway.send(sign_up()).await.problem(), problem(401, "UNAUTHENTICATED"), "no shared bucket");
    let wrong = unknown().with("authorization", "Bearer semel_0000");
    assert_eq!(gateway.send(wrong).await.problem(), problem(401, "UNAUTHENTICATED"));
    let elsewhere = unknown().target("/payments");
    assert_eq!(gateway.send(elsewhere).await.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(upstream.seen(), 2);
    let known = gateway.send(by(&alice).target("/sign-ups")).await;
    assert_eq!(known.header("seen-semel-caller"), Some("alice"));
    assert!(gateway.send(by(&alice).target("/sign-ups")).await.replayed());
    assert!(site.states() == ["succeeded"], "unknown callers have no record");
}

/// A proxy header that names no caller is still a credential.
#[tokio::test]
async fn incomplete_identity_headers_get_401_on_an_anonymous_operation() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\
                [[operation]]\nname = \"sign-up\"\nmatch = \"POST /sign-ups\"\nanonymous = true\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    let sign_up = || pay("{}").target("/sign-ups").without("idempotency-key");
    assert_eq!(gateway.send(sign_up()).await.status, 201);
    for lines in [
        &[("x-tenant", "acme")][..],
        &[("x-caller", "alice")],
        &[("x-tenant", "acme"), ("x-caller", "alice"), ("x-caller", "alice")],
        &[("x-tenant", "acme"), ("x-caller", "")],
        &[("x_caller", "alice")],
    ] {
        let request = lines.iter().fold(sign_up(), |request, (name, value)| request.with(name, *value));
        assert_eq!(gateway.send(request).await.problem(), problem(401, "UNAUTHENTICATED"), "{lines:?}");
    }
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn api_keys_let_their_callers_in_until_they_are_revoked() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (first_id, alice) = create_key(&site, "acme", "alice");
    let (_, alice_rotated) = create_key(&site, "acme", "alice");
    let (_, bob) = create_key(&site, "acme", "bob");
    let (_, stranger) = create_key(&site, "globex", "alice");
    let gateway = site.start_with(upstream.address, "[identity]\nsource = \"api-key\"\n", &[]);

    assert_eq!(gateway.send(pay("{}")).await.problem(), problem(401, "UNAUTHENTICATED"));
    let wrong = gateway.send(by("semel_0000")).await;
    assert_eq!(wrong.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(wrong.header("www-authenticate"), Some("Bearer"));
    assert_eq!(
        gateway.send(by(&alice).with("x-api-key", &bob)).await.problem().0,
        401,
        "one caller at a time"
    );
    let with_token = pay("[]").with("authorization", "Bearer of the upstream").with("x-api-key", &bob);
    let reply = gateway.send(with_token.set("idempotency-key", "with-a-token-for-the-upstream")).await;
    assert_eq!(reply.header("seen-authorization"), Some("Bearer of the upstream"), "its own token passes");
    assert_eq!(reply.header("seen-x-api-key"), None, "ours does not");
    assert_eq!(upstream.seen(), 1);

    let first = gateway.send(by(&alice)).await;
    assert_eq!((first.status.as_u16(), first.header("seen-semel-caller")), (201, Some("alice")));
    let rotated = gateway.send(by(&alice_rotated)).await;
    assert!(rotated.replayed(), "another credential of the same caller is the same command");
    let header = gateway.send(pay("{}").with("x-api-key", &alice)).await;
    assert!(header.replayed());
    for other in [&bob, &stranger] {
        let reply = gateway.send(by(other)).await;
        assert!(!reply.replayed() && reply.body != first.body, "of another caller it is another command");
    }
    assert_eq!(upstream.seen(), 4);

    let revoke = |id: &str| {
        let output = site.semel().args(["keys", "revoke", id]).output().expect("the program runs");
        output.status.code()
    };
    assert_eq!((revoke(&first_id), revoke(&first_id), revoke("nobody")), (Some(0), Some(1), Some(1)));
    while gateway.send(by(&alice)).await.status != 401 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(gateway.send(by(&alice_rotated)).await.replayed(), "the other key still works");
}

#[tokio::test]
async fn headers_are_trusted_from_named_proxies_only() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = |proxy: &str| {
        format!(
            "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"{proxy}\"]\n\
             tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n"
        )
    };
    let as_alice = || pay("{}").with("x-tenant", "acme").with("x-caller", "alice");
    let gateway = site.start_with(upstream.address, &file("127.0.0.1"), &[]);
    assert_eq!(gateway.send(as_alice()).await.status, 201);
    assert!(gateway.send(as_alice()).await.replayed());
    assert_eq!(gateway.send(pay("{}").with("x-tenant", "acme")).await.problem().0, 401);
    let twice = as_alice().with("x-caller", "bob");
    assert_eq!(gateway.send(twice).await.problem().0, 401, "two callers are none");
    assert!(!gateway.send(as_alice().set("x-caller", "bob")).await.replayed());
    assert_eq!(upstream.seen(), 2);

    let elsewhere = site.start_with(upstream.address, &file("192.0.2.1"), &[]);
    assert_eq!(elsewhere.send(as_alice()).await.problem(), problem(403, "FORBIDDEN"));
    assert_eq!(upstream.seen(), 2);
}
