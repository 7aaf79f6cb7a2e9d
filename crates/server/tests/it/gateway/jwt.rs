//! Callers with signed tokens, and tokens that are refused.
//!
//! A gateway fetches its keys before it is ready, and a test blocks on that: a key server needs another
//! thread.

use std::process::Output;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::KeyPair;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::authority::{Authority, Shown};
use super::issuer::{KeyServer, Signer, by, claims, encode, now, set, settings};
use super::lab::{Gateway, Site, Upstream, problem};

/// Writes the keys into the gateway's folder.
fn write_keys(site: &Site, keys: &[Value]) {
    std::fs::write(site.folder.path().join("keys.json"), set(keys)).expect("there is room");
}

/// Returns the message of a gateway that cannot start.
fn fails_to_start(site: &Site, file: &str) -> String {
    fails_to_start_in(site, file, &[])
}

fn fails_to_start_in(site: &Site, file: &str, variables: &[(&str, &str)]) -> String {
    std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let mut command = site.semel();
    let output = command.args(arguments).envs(variables.iter().copied()).output();
    let Output { status, stderr, .. } = output.expect("the program runs");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2), "{stderr}");
    stderr
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_algorithm_lets_its_callers_in() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let signers = [Signer::rsa(), Signer::ec(), Signer::ed(), Signer::secret()];
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk(signer.algorithm())).collect();
    write_keys(&site, &keys);
    let all = "algorithms = [\"RS256\", \"ES256\", \"EdDSA\", \"HS256\"]";
    let gateway = site.start_with(upstream.address, &settings("keys.json", all), &[]);
    for signer in &signers {
        let (name, token) = (signer.algorithm(), signer.good(signer.algorithm(), "acme", signer.algorithm()));
        let reply = gateway.send(by(&token)).await;
        assert_eq!(reply.status, 201, "{name}: {reply:?}");
        let seen = (reply.header("seen-semel-tenant"), reply.header("seen-semel-caller"));
        assert_eq!(seen, (Some("acme"), Some(name)));
        assert_eq!(
            reply.header("seen-authorization"),
            Some(&*format!("Bearer {token}")),
            "the token is passed on"
        );
        let mut nameless = signer.head("");
        nameless.as_object_mut().expect("it is one").remove("kid");
        let nameless = signer.token(&nameless, &claims("acme", name));
        assert!(
            gateway.send(by(&nameless)).await.replayed(),
            "{name}: the only key of its algorithm needs no name"
        );
    }
    assert_eq!(upstream.seen(), 4);
}

#[tokio::test]
async fn a_new_token_of_a_caller_gets_its_replays_and_other_callers_do_not() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    write_keys(&site, &[signer.jwk("a")]);
    let gateway = site.start_with(upstream.address, &settings("keys.json", ""), &[]);
    let first = gateway.send(by(&signer.good("a", "acme", "alice"))).await;
    assert_eq!(first.status, 201);
    let again = gateway.send(by(&signer.good("a", "acme", "alice"))).await;
    assert!(again.replayed(), "another token, the same caller");
    assert_eq!(again.body, first.body);
    for (tenant, caller) in [("globex", "alice"), ("acme", "bob")] {
        let other = gateway.send(by(&signer.good("a", tenant, caller))).await;
        assert_eq!((other.status.as_u16(), other.replayed()), (201, false), "{tenant}/{caller}");
        assert_ne!(other.body, first.body);
        let id = first.operation_id().expect("it is named");
        let page = by(&signer.good("a", tenant, caller)).method("GET").body("");
        let page = page.target(format!("/.well-known/semel/operations/{id}")).without("idempotency-key");
        assert_eq!(gateway.send(page).await.problem(), problem(404, "OPERATION_NOT_FOUND"));
    }
    assert_eq!(upstream.seen(), 3);
}

#[tokio::test]
async fn tenant_and_caller_claims_can_be_configured() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    write_keys(&site, &[signer.jwk("a")]);
    let more = "tenant_claim = \"/organization/id\"\ncaller_claim = \"https://issuer.example/caller\"";
    let gateway = site.start_with(upstream.address, &settings("keys.json", more), &[]);
    let mut wanted = claims("", "nobody");
    wanted["organization"] = json!({ "id": "acme" });
    wanted["https://issuer.example/caller"] = json!("alice");
    wanted["aud"] = json!(["elsewhere", "payments"]);
    let reply = gateway.send(by(&signer.token(&signer.head("a"), &wanted))).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let seen = (reply.header("seen-semel-tenant"), reply.header("seen-semel-caller"));
    assert_eq!(seen, (Some("acme"), Some("alice")));
    let without = gateway.send(by(&signer.good("a", "acme", "alice"))).await;
    assert_eq!(without.status, 401, "the usual claims do not count then");
}

/// Sends a token that must be refused, and finds the reason in the log only.
async fn refused(gateway: &Gateway, what: &str, token: &str, check: &str) {
    let before = gateway.log().matches(&format!("\"check\":\"{check}\"")).count();
    let reply = gateway.send(by(token)).await;
    assert_eq!(reply.problem(), problem(401, "UNAUTHENTICATED"), "{what}");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer error=\"invalid_token\""), "{what}");
    let detail = reply.json()["detail"].as_str().expect("it has one").to_owned();
    assert_eq!(
        detail, "The request does not say, or cannot prove, who is asking.",
        "{what}: the same for all"
    );
    let logged = || gateway.log().matches(&format!("\"check\":\"{check}\"")).count() > before;
    tokio::time::timeout(Duration::from_secs(20), until(async || logged()))
        .await
        .unwrap_or_else(|_| panic!("{what}: {check} is not in {}", gateway.log()));
    if token.len() > 20 {
        assert!(!gateway.log().contains(token), "{what}: no token is logged");
    }
}

#[tokio::test]
async fn invalid_tokens_are_refused() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (rsa, other_rsa, ec, stranger) = (Signer::rsa(), Signer::rsa(), Signer::ec(), Signer::rsa());
    write_keys(&site, &[rsa.jwk("a"), other_rsa.jwk("b"), ec.jwk("e")]);
    let more = "algorithms = [\"RS256\", \"ES256\"]\nleeway = \"60s\"";
    let gateway = site.start_with(upstream.address, &settings("keys.json", more), &[]);

    let good = || claims("acme", "alice");
    let with_claim = |name: &str, value: Value| {
        let mut changed = good();
        changed[name] = value;
        rsa.token(&rsa.head("a"), &changed)
    };
    let without_claim = |name: &str| {
        let mut changed = good();
        changed.as_object_mut().expect("it is one").remove(name);
        rsa.token(&rsa.head("a"), &changed)
    };
    let with_head = |name: &str, value: Value| {
        let mut head = rsa.head("a");
        head[name] = value;
        rsa.token(&head, &good())
    };
    let good_token = rsa.good("a", "acme", "alice");
    let [head, body, signature] = good_token.split('.').collect::<Vec<_>>()[..] else {
        panic!("it has three")
    };
    let unsigned = encode(r#"{"alg":"none","kid":"a"}"#);
    let forged = encode(claims("acme", "mallory").to_string());
    let nameless = rsa.token(&json!({ "alg": "RS256" }), &good());

    let cases: Vec<(&str, String, &str)> = vec![
        ("none, without a signature", format!("{unsigned}.{body}."), "alg"),
        ("none, with a signature", format!("{unsigned}.{body}.{signature}"), "alg"),
        ("none in capitals", with_head("alg", json!("NONE")), "alg"),
        ("an algorithm that nobody knows", with_head("alg", json!("RS257")), "alg"),
        ("an algorithm of the same key that is not allowed", with_head("alg", json!("PS256")), "alg"),
        ("EdDSA, which is not allowed here", Signer::ed().good("a", "acme", "alice"), "alg"),
        ("HS256, which is not allowed here", Signer::secret().good("a", "acme", "alice"), "alg"),
        ("no algorithm", rsa.token(&json!({ "kid": "a" }), &good()), "alg"),
        (
            "the algorithm of another key",
            ec.token(&json!({ "alg": "ES256", "kid": "a" }), &good()),
            "kid_unknown",
        ),
        ("a key that nobody knows", rsa.good("c", "acme", "alice"), "kid_unknown"),
        ("no name where there are two keys", nameless, "kid_missing"),
        ("a name that is no text", with_head("kid", json!(["a"])), "form"),
        ("the name of another key", rsa.good("b", "acme", "alice"), "signature"),
        ("a stranger's key", stranger.good("a", "acme", "alice"), "signature"),
        ("other claims under a good signature", format!("{head}.{forged}.{signature}"), "signature"),
        ("no signature", format!("{head}.{body}."), "signature"),
        ("half a signature", format!("{head}.{body}.{}", &signature[..signature.len() / 2]), "signature"),
        ("extensions that must be understood", with_head("crit", json!(["exp"])), "crit"),
        ("no extensions that must be understood", with_head("crit", json!([])), "crit"),
        ("another issuer", with_claim("iss", json!("https://issuer.example/")), "iss"),
        ("an issuer that is no text", with_claim("iss", json!(["https://issuer.example"])), "iss"),
        ("no issuer", without_claim("iss"), "iss"),
        ("another audience", with_claim("aud", json!("payment")), "aud"),
        ("other audiences", with_claim("aud", json!(["a", "b"])), "aud"),
        ("no audience", without_claim("aud"), "aud"),
        ("expired", with_claim("exp", json!(now() - 3600)), "exp"),
        ("no end", without_claim("exp"), "times"),
        ("an end that is no number", with_claim("exp", json!((now() + 300).to_string())), "times"),
        ("an end that is nothing", with_claim("exp", json!(null)), "times"),
        ("not yet valid", with_claim("nbf", json!(now() + 3600)), "nbf_or_iat"),
        ("a beginning that is no number", with_claim("nbf", json!("now")), "times"),
        ("made in the future", with_claim("iat", json!(now() + 3600)), "nbf_or_iat"),
        ("no tenant", without_claim("tenant"), "tenant_claim"),
        ("a tenant that is no text", with_claim("tenant", json!(7)), "tenant_claim"),
        ("an empty tenant", with_claim("tenant", json!("")), "tenant_claim"),
        ("a tenant of two lines", with_claim("tenant", json!("a\nb")), "tenant_claim"),
        ("no caller", without_claim("sub"), "caller_claim"),
        ("a caller that is no text", with_claim("sub", json!({ "id": "alice" })), "caller_claim"),
        ("a caller that is too long", with_claim("sub", json!("a".repeat(256))), "caller_claim"),
        ("too long", with_claim("padding", json!("x".repeat(8 * 1024))), "max_token"),
        ("nothing", String::new(), "form"),
        ("no token", "opaque".to_owned(), "form"),
        ("two parts", format!("{head}.{body}"), "form"),
        ("four parts", format!("{good_token}.{signature}"), "form"),
        ("an encrypted token", format!("{head}.{body}.{signature}.{signature}.{signature}"), "form"),
        ("padding", format!("{head}=.{body}.{signature}"), "form"),
        ("a head that is no object", format!("{}.{body}.{signature}", encode("[]")), "form"),
        ("a head that is no JSON", format!("{}.{body}.{signature}", encode("{")), "form"),
        ("claims that are no object", rsa.token(&rsa.head("a"), &json!(["acme"])), "form"),
    ];
    for (what, token, check) in &cases {
        refused(&gateway, what, token, check).await;
    }

    let twice = by(&good_token).with("authorization", format!("Bearer {good_token}"));
    let twice = gateway.send(twice).await;
    assert_eq!(twice.problem(), problem(401, "UNAUTHENTICATED"), "two are none");
    assert_eq!(twice.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    for absent in [by("").without("authorization"), by("").set("authorization", "Basic YTpi")] {
        let reply = gateway.send(absent).await;
        assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, Some("Bearer")));
    }
    assert_eq!(upstream.seen(), 0, "none of them reached the upstream");

    // Within the leeway, at the very edge of the refusals above, a token is still valid.
    for token in [
        good_token.clone(),
        with_claim("exp", json!(now() - 1)),
        with_claim("exp", json!(now() as f64 + 0.5)),
        with_claim("nbf", json!(now() + 10)),
        with_claim("iat", json!(now() + 10)),
        without_claim("nbf"),
        without_claim("iat"),
    ] {
        assert_eq!(gateway.send(by(&token)).await.status, 201);
    }
    assert_eq!(upstream.seen(), 1, "and all of them are the same caller");
    let metrics = gateway.admin("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("identity_tokens_refused_total{check=\"crit\"} 2"), "{metrics}");
}

#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (rsa, secret) = (Signer::rsa(), Signer::secret());
    write_keys(&site, &[rsa.jwk("public"), secret.jwk("shared")]);
    let both = "algorithms = [\"RS256\", \"HS256\"]";
    let gateway = site.start_with(upstream.address, &settings("keys.json", both), &[]);
    let jwk = rsa.jwk("public");
    let modulus = jwk["n"].as_str().expect("it is text");
    let Signer::Rsa(pair) = &rsa else { panic!("it is one") };
    // Keys that an attacker may have: the public key as written, its modulus as bytes, and all of it in DER.
    for public in [
        modulus.as_bytes().to_vec(),
        URL_SAFE_NO_PAD.decode(modulus).expect("it is base64url"),
        pair.public_key().as_ref().to_vec(),
        jwk.to_string().into_bytes(),
        set(std::slice::from_ref(&jwk)).into_bytes(),
    ] {
        let attacker = Signer::Secret(public);
        refused(
            &gateway,
            "under the public key's name",
            &attacker.good("public", "acme", "alice"),
            "kid_unknown",
        )
        .await;
        refused(&gateway, "under the secret's name", &attacker.good("shared", "acme", "alice"), "signature")
            .await;
    }
    let claimed = secret.token(&json!({ "alg": "RS256", "kid": "shared" }), &claims("acme", "alice"));
    refused(&gateway, "a secret as a public key", &claimed, "kid_unknown").await;
    assert_eq!(upstream.seen(), 0);
    assert_eq!(gateway.send(by(&secret.good("shared", "acme", "alice"))).await.status, 201);

    // A secret in the set that is not allowed.
    let strict = site.start_with(upstream.address, &settings("keys.json", ""), &[]);
    refused(&strict, "HS256 that nobody named", &secret.good("shared", "acme", "alice"), "alg").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_signing_key_is_fetched_and_a_withdrawn_one_is_refused() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (old, new) = (Signer::ec(), Signer::ed());
    let issuer = KeyServer::start(&[old.jwk("old")]).await;
    let gateway = site.start_with(upstream.address, &settings(&issuer.url(), "jwks_refresh = \"1h\""), &[]);
    assert_eq!(issuer.fetches(), 1, "before the first request");
    let first = gateway.send(by(&old.good("old", "acme", "alice"))).await;
    assert_eq!(first.status, 201);

    issuer.say(200, set(&[new.jwk("new")]));
    assert_eq!(gateway.send(by(&old.good("old", "acme", "alice"))).await.status, 201, "nobody knows yet");
    until(async || gateway.send(by(&new.good("new", "acme", "alice"))).await.replayed()).await;
    assert!(
        gateway.counted("identity_keys_read_total{outcome=\"read\"} ").await.is_some_and(|read| read > 0)
    );
    refused(&gateway, "the old key is gone", &old.good("old", "acme", "alice"), "kid_unknown").await;
    assert_eq!(upstream.seen(), 1, "a caller with a token of another key is the same caller");
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let (old, new) = (Signer::ed(), Signer::ed());
    write_keys(&site, &[old.jwk("old")]);
    let gateway = site.start_with(upstream.address, &settings("keys.json", ""), &[]);
    assert_eq!(gateway.send(by(&old.good("old", "acme", "alice"))).await.status, 201);
    std::fs::write(site.folder.path().join("keys.json"), "{").expect("there is room");
    until(async || gateway.log().contains("the old ones stay")).await;
    assert!(
        gateway.send(by(&old.good("old", "acme", "alice"))).await.replayed(),
        "what cannot be read changes nothing"
    );
    write_keys(&site, &[new.jwk("new")]);
    until(async || gateway.send(by(&new.good("new", "acme", "alice"))).await.replayed()).await;
    refused(&gateway, "the old key is gone", &old.good("old", "acme", "alice"), "kid_unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_keys_does_not_start() {
    let (site, signer) = (Site::new(), Signer::ed());
    let issuer = KeyServer::start(&[signer.jwk("a")]).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let nobody_at = format!("http://{}/", nobody.local_addr().expect("it is bound"));
    drop(nobody);
    for (jwks, status, body, reason) in [
        (nobody_at, 200, String::new(), "cannot connect"),
        (
            issuer.url(),
            500,
            set(&[signer.jwk("a")]),
            "it answers 500 Internal Server Error, and 200 is expected",
        ),
        (issuer.url(), 302, String::new(), "it answers 302 Found, and 200 is expected"),
        (issuer.url(), 200, "<html>".to_owned(), "it is not JSON"),
        (issuer.url(), 200, set(&[]), "it holds no key that `algorithms` allows"),
        (issuer.url(), 200, set(&[Signer::secret().jwk("a")]), "`algorithms` does not have its own"),
        (issuer.url(), 200, set(&[signer.jwk("a")]) + &" ".repeat(300_000), "more than 262144 bytes"),
        ("missing.json".to_owned(), 200, String::new(), "cannot open the file"),
        ("/dev/zero".to_owned(), 200, String::new(), "it is no file"),
    ] {
        issuer.say(status, body);
        let told = fails_to_start(&site, &settings(&jwks, ""));
        assert!(told.contains("`jwks` in `[identity]`") && told.contains(&jwks), "{jwks}: {told}");
        assert!(told.contains(reason), "{reason}: {told}");
    }
    let check = site.semel().args(["config", "check"]).output().expect("the program runs");
    let told = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(1), "{told}");
    assert!(told.contains("no keys can be read from /dev/zero"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_away_later_changes_nothing() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    let issuer = KeyServer::start(&[signer.jwk("a")]).await;
    let often = "jwks_refresh = \"50ms\"";
    let gateway = site.start_with(upstream.address, &settings(&issuer.url(), often), &[]);
    assert_eq!(gateway.send(by(&signer.good("a", "acme", "alice"))).await.status, 201);
    for (status, body) in [(503, String::new()), (200, "{".to_owned()), (200, set(&[]))] {
        issuer.say(status, body);
        let fetched = issuer.fetches();
        until(async || issuer.fetches() >= fetched + 3).await;
        assert!(gateway.send(by(&signer.good("a", "acme", "alice"))).await.replayed(), "{status}");
    }
    gateway.logs("it answers 503 Service Unavailable, and 200 is expected").await;
    let other = Signer::ed();
    issuer.say(200, set(&[signer.jwk("a"), other.jwk("b")]));
    until(async || gateway.send(by(&other.good("b", "acme", "alice"))).await.replayed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_unknown_keys_is_no_flood_of_questions() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    let issuer = KeyServer::start(&[signer.jwk("a")]).await;
    let begun = Instant::now();
    let gateway = site.start_with(upstream.address, &settings(&issuer.url(), "jwks_refresh = \"1h\""), &[]);
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..300 {
        let token = signer.good(&format!("unknown-{number}"), "acme", "alice");
        flood.spawn(by(&token).to(gateway.address));
    }
    while let Some(reply) = flood.join_next().await {
        assert_eq!(reply.expect("it is answered").status, 401);
    }
    until(async || issuer.fetches() >= 2).await;
    // One fetch at the start, one at once, and one more in each ten seconds.
    let most = 2 + begun.elapsed().as_secs() as usize / 10;
    assert!(issuer.fetches() <= most, "{} fetches, and {most} are the most", issuer.fetches());
    assert_eq!(gateway.send(by(&signer.good("a", "acme", "alice"))).await.status, 201);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_address_must_prove_its_name() {
    let (site, upstream, signer) = (Site::new(), Upstream::start().await, Signer::ed());
    let issuer = KeyServer::start(&[signer.jwk("a")]).await;
    let (trusted, stranger) = (Authority::new(), Authority::new());
    for authority in [&trusted, &stranger] {
        authority.issue("issuer", "/CN=issuer", &Shown::server("DNS:localhost"));
    }
    let file = |port: u16, host: &str| settings(&format!("https://{host}:{port}/jwks.json"), "");
    let roots = trusted.path("ca.crt").display().to_string();
    let variables = [("SSL_CERT_FILE", roots.as_str())];

    let good = file(trusted.encrypt("issuer", issuer.address).await, "localhost");
    let gateway = site.start_in(upstream.address, &good, &[], &variables);
    assert_eq!(gateway.send(by(&signer.good("a", "acme", "alice"))).await.status, 201);

    let wrong_name = file(trusted.encrypt("issuer", issuer.address).await, "127.0.0.1");
    let wrong_authority = file(stranger.encrypt("issuer", issuer.address).await, "localhost");
    let asked = issuer.fetches();
    for wrong in [wrong_name, wrong_authority] {
        let told = fails_to_start_in(&site, &wrong, &variables);
        assert!(told.contains("cannot connect to ") && told.contains("invalid peer certificate"), "{told}");
    }
    assert_eq!(issuer.fetches(), asked, "not a word was said to them");
}
