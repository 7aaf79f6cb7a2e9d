//! Holds: the commands and endpoints that add, lift and list them, and their notes.

use std::process::Output;

use serde_json::{Value, json};

use super::admin::refusal;
use super::lab::{Gateway, Reply, Site, Upstream, pay, problem};

const RULE: &str =
    "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\naliases = [\"pay\"]\n";

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Returns the holds in the store.
fn held(site: &Site) -> Vec<String> {
    site.column("SELECT kind || '|' || name || '|' || why FROM semel_holds ORDER BY kind, name")
}

/// Returns the notes in the store, the oldest first.
fn noted(site: &Site) -> Vec<String> {
    site.column("SELECT action || '|' || why FROM semel_audit ORDER BY id")
}

async fn act(gateway: &Gateway, path: &str, body: Value) -> Reply {
    gateway.ask("POST", path).body(body.to_string()).to(gateway.admin).await
}

#[tokio::test]
async fn targets_are_held_and_lifted_and_each_change_is_noted() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let gateway = site.start_with(upstream.address, RULE, &[]);
        let add = ["hold", "add", "--operation", "payments.create", "--reason", "ticket 7"];
        let added = run(&site, &add);
        assert_eq!(added.status.code(), Some(0), "{added:?}");
        for told in
            ["operation payments.create is held", "503", "retries of known commands", "within 2 seconds"]
        {
            assert!(said(&added).replace('\n', " ").contains(told), "{told}: {added:?}");
        }
        let again = run(&site, &add);
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        assert!(said(&again).contains("is held already"), "{again:?}");

        let tenant = json!({ "kind": "tenant", "name": "acme", "reason": "ticket 8" });
        let done = act(&gateway, "/admin/v1/holds", tenant.clone()).await.json();
        assert_eq!(
            (&done["kind"], &done["name"], &done["held"]),
            (&json!("tenant"), &json!("acme"), &json!(true))
        );
        assert!(
            done["effect"].as_str().is_some_and(|effect| effect.contains("503 IDEMPOTENCY_HELD")),
            "{done}"
        );
        gateway.logs("\"kind\":\"tenant\",\"name\":\"acme\"").await;
        let again = act(&gateway, "/admin/v1/holds", tenant).await;
        assert_eq!(refusal(&again), problem(409, "ACTION_REFUSED"));
        let sink =
            run(&site, &["hold", "add", "--sink", "payment.created", "--reason", "ticket 9", "--json"]);
        assert_eq!(json_of(&sink)["held"], true);
        assert!(run(&site, &["hold", "add", "--reconciler", "--reason", "ticket 10"]).status.success());

        let printed = json_of(&run(&site, &["hold", "list", "--json"]));
        let listed = gateway.admin("/admin/v1/holds").await.json();
        assert_eq!(listed["holds"], printed, "both list the same");
        let targets: Vec<(&str, Option<&str>)> = printed
            .as_array()
            .into_iter()
            .flatten()
            .map(|hold| (hold["kind"].as_str().unwrap_or_default(), hold["name"].as_str()))
            .collect();
        let expected = [
            ("operation", Some("payments.create")),
            ("reconciler", None),
            ("sink", Some("payment.created")),
            ("tenant", Some("acme")),
        ];
        assert_eq!(targets, expected);
        assert_eq!(
            (&printed[3]["who"], &printed[3]["why"]),
            (&json!("local"), &json!("ticket 8")),
            "{printed}"
        );
        let list = run(&site, &["hold", "list"]);
        assert!(
            said(&list).contains("operation payments.create") && said(&list).contains("4 holds"),
            "{list:?}"
        );

        let lift = json!({ "kind": "operation", "name": "payments.create", "reason": "it is back" });
        let lifted = act(&gateway, "/admin/v1/holds/lift", lift.clone()).await;
        assert_eq!((lifted.status.as_u16(), &lifted.json()["held"]), (200, &json!(false)));
        let twice = act(&gateway, "/admin/v1/holds/lift", lift).await;
        assert_eq!(refusal(&twice), problem(409, "ACTION_REFUSED"));
        let mistyped = run(&site, &["hold", "lift", "--tenant", "acne", "--reason", "r"]);
        assert_eq!(mistyped.status.code(), Some(1), "{mistyped:?}");
        assert!(said(&mistyped).contains("tenant acne is not held; tenant acme is"), "{mistyped:?}");
        for target in [&["--tenant", "acme"][..], &["--sink", "payment.created"], &["--reconciler"]] {
            let lift = run(&site, &[&["hold", "lift", "--reason", "over"], target].concat());
            assert_eq!(lift.status.code(), Some(0), "{lift:?}");
        }
        assert_eq!(held(&site), [""; 0]);
        let expected = [
            "hold operation payments.create|ticket 7",
            "hold tenant acme|ticket 8",
            "hold sink payment.created|ticket 9",
            "hold reconciler|ticket 10",
            "lift operation payments.create|it is back",
            "lift tenant acme|over",
            "lift sink payment.created|over",
            "lift reconciler|over",
        ];
        let mut notes = noted(&site);
        if site.is_postgres() {
            notes = site.column("SELECT action || '|' || why FROM semel_audit ORDER BY at, id");
        }
        assert_eq!(notes, expected, "one note for each change, and none for a refusal");
    }
}

#[tokio::test]
async fn the_audit_log_lists_notes_about_no_command() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let gateway = site.start_with(upstream.address, RULE, &[]);
        let reply = gateway.send(pay("{}")).await;
        let id = reply.operation_id().expect("it is named").to_owned();
        assert!(run(&site, &["hold", "add", "--reconciler", "--reason", "ticket 7"]).status.success());
        assert!(run(&site, &["records", "purge", &id, "--reason", "ticket 8"]).status.success());
        let listed = gateway.admin("/admin/v1/audit").await.json();
        let printed = json_of(&run(&site, &["notes", "--json"]));
        assert_eq!(listed["notes"], printed, "both list the same");
        let lines: Vec<(&str, Option<&str>)> = printed
            .as_array()
            .into_iter()
            .flatten()
            .map(|note| (note["action"].as_str().unwrap_or_default(), note["operationId"].as_str()))
            .collect();
        assert_eq!(lines, [("purge", Some(&*id)), ("hold reconciler", None)], "the newest first");
        let told = said(&run(&site, &["notes"]));
        assert!(
            told.contains("hold reconciler") && told.contains(" -  ") && !told.contains("null"),
            "{told}"
        );
        let first = json_of(&run(&site, &["notes", "--json", "--limit", "1"]));
        assert_eq!(first.as_array().map(Vec::len), Some(1), "{first}");
        let before = first[0]["id"].as_str().expect("it has an id");
        let rest = json_of(&run(&site, &["notes", "--json", "--before", before]));
        assert_eq!(rest[0]["action"], "hold reconciler", "{rest}");
        assert_eq!(run(&site, &["notes", "--before", "x"]).status.code(), Some(2));
    }
}

#[tokio::test]
async fn a_hold_that_would_stop_nothing_is_refused() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let gateway = site.start_with(upstream.address, RULE, &[]);
        gateway.send(pay("{}").target("/refunds/7")).await;
        for (operation, why) in [
            ("payment.create", "did you mean \"payments.create\"?"),
            ("POST /refund/{id}", "did you mean \"POST /refunds/{id}\"?"),
            ("everything", "known are POST /refunds/{id}, payments.create"),
            ("pay", "is a former name of payments.create"),
        ] {
            let refused = run(&site, &["hold", "add", "--operation", operation, "--reason", "ticket 7"]);
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
            assert!(said(&refused).contains(why), "{operation}: {refused:?}");
            let hold = json!({ "kind": "operation", "name": operation, "reason": "ticket 7" });
            let refused = act(&gateway, "/admin/v1/holds", hold).await;
            assert_eq!(refusal(&refused), problem(409, "ACTION_REFUSED"), "{operation}");
            let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains(why), "{operation}: {detail}");
        }
        for (body, hint) in [
            (json!({ "reason": "r" }), "`kind` is missing"),
            (json!({ "kind": "caller", "name": "x", "reason": "r" }), "operation, tenant, sink, reconciler"),
            (json!({ "kind": "tenant", "reason": "r" }), "the name of the tenant is missing"),
            (json!({ "kind": "tenant", "name": "", "reason": "r" }), "the name of the tenant is missing"),
            (json!({ "kind": "tenant", "name": "a\nb", "reason": "r" }), "control character"),
            (json!({ "kind": "reconciler", "name": "x", "reason": "r" }), "has no name"),
            (json!({ "kind": "tenant", "name": "acme" }), "`reason` is missing"),
            (json!({ "kind": "tenant", "name": "acme", "reason": "r", "who": "x" }), "no member `who`"),
        ] {
            let refused = act(&gateway, "/admin/v1/holds", body.clone()).await;
            assert_eq!(refusal(&refused), problem(400, "MALFORMED_REQUEST"), "{body}");
            let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains(hint), "{body}: {detail}");
        }
        for arguments in [
            &["hold", "add", "--reason", "r"][..],
            &["hold", "add", "--tenant", "acme"],
            &["hold", "add", "--tenant", "acme", "--reason", " "],
            &["hold", "add", "--tenant", "acme", "--reconciler", "--reason", "r"],
            &["hold", "add", "--tenant", "", "--reason", "r"],
        ] {
            assert_eq!(run(&site, arguments).status.code(), Some(2), "{arguments:?}");
        }
        assert_eq!((held(&site), noted(&site)), (Vec::new(), Vec::new()), "nothing was changed");
        let stored =
            run(&site, &["hold", "add", "--operation", "POST /refunds/{id}", "--reason", "ticket 7"]);
        assert_eq!(stored.status.code(), Some(0), "records have this name: {stored:?}");
    }
}

#[tokio::test]
async fn a_tenant_that_is_not_known_is_held_with_a_warning() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let file = format!("[[limit]]\ntenant = \"globex\"\nnew_keys = \"10/s\"\n{RULE}");
        let gateway = site.start_with(upstream.address, &file, &[]);
        gateway.send(pay("{}")).await;
        let warning =
            "no record of tenant acne is in the store, and no setting names this tenant. It is held.";
        let added = run(&site, &["hold", "add", "--tenant", "acne", "--reason", "ticket 7"]);
        assert_eq!(added.status.code(), Some(0), "it is held all the same: {added:?}");
        assert!(said(&added).replace('\n', " ").contains(&format!("warning: {warning}")), "{added:?}");
        assert!(run(&site, &["hold", "lift", "--tenant", "acne", "--reason", "typo"]).status.success());
        let hold = |name: &str| json!({ "kind": "tenant", "name": name, "reason": "ticket 7" });
        let done = act(&gateway, "/admin/v1/holds", hold("acne")).await.json();
        assert_eq!(done["held"], true, "{done}");
        assert!(done["warning"].as_str().is_some_and(|told| told.starts_with(warning)), "{done}");
        let lifted = act(&gateway, "/admin/v1/holds/lift", hold("acne")).await.json();
        assert_eq!(lifted.get("warning"), None, "{lifted}");
        let printed = run(&site, &["hold", "add", "--tenant", "acne", "--reason", "ticket 7", "--json"]);
        assert_eq!(json_of(&printed)["warning"], done["warning"], "{printed:?}");
        // The first has a record, the second a quota of its own.
        for known in ["local", "globex"] {
            let added = act(&gateway, "/admin/v1/holds", hold(known)).await.json();
            assert_eq!((&added["held"], added.get("warning")), (&json!(true), None), "{added}");
        }
        assert_eq!(held(&site), ["tenant|acne|ticket 7", "tenant|globex|ticket 7", "tenant|local|ticket 7"]);
    }
}

#[tokio::test]
async fn no_more_holds_than_the_bound_are_in_force() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    site.column(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
         INSERT INTO semel_holds (kind, name, since, who, why)
         SELECT 'tenant', 't' || n, 1, 'w', 'y' FROM numbers RETURNING name",
    );
    let refused = run(&site, &["hold", "add", "--reconciler", "--reason", "ticket 7"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("1000 holds are in force"), "{refused:?}");
    let over = json!({ "kind": "reconciler", "reason": "ticket 7" });
    assert_eq!(refusal(&act(&gateway, "/admin/v1/holds", over).await), problem(409, "ACTION_REFUSED"));
    assert_eq!(noted(&site), [""; 0]);
}

#[tokio::test]
async fn a_viewer_sees_holds_and_cannot_change_them() {
    const VIEWER: (&str, &str) = ("VIEWER_TOKEN", "viewer-0123456789abcdef0123456789abcdef");
    let (mut site, upstream) = (Site::new(), Upstream::start().await);
    site.variables = vec![VIEWER];
    let file = format!("[[admin.token]]\nname = \"vera\"\nrole = \"viewer\"\nenv = \"VIEWER_TOKEN\"\n{RULE}");
    let gateway = site.start_with(upstream.address, &file, &[]);
    assert!(run(&site, &["hold", "add", "--tenant", "acme", "--reason", "ticket 7"]).status.success());
    let before = (held(&site), noted(&site));
    let ask =
        |method, path: &str| gateway.ask(method, path).with("authorization", format!("Bearer {}", VIEWER.1));
    let listed = ask("GET", "/admin/v1/holds").to(gateway.admin).await.json();
    assert_eq!(listed["holds"][0]["name"], "acme", "{listed}");
    for (path, name) in [("/admin/v1/holds", "other"), ("/admin/v1/holds/lift", "acme")] {
        let body = json!({ "kind": "tenant", "name": name, "reason": "ticket 8" });
        let reply = ask("POST", path).body(body.to_string()).to(gateway.admin).await;
        assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "{path}");
    }
    let find =
        ask("POST", "/admin/v1/records/find").body(r#"{"tenant":"a","operation":"b","reference":"c"}"#);
    assert_eq!(
        refusal(&find.to(gateway.admin).await),
        problem(404, "OPERATION_NOT_FOUND"),
        "a viewer may look"
    );
    assert_eq!((held(&site), noted(&site)), before, "nothing was changed");
}
