//! Gateway on PostgreSQL: a record that another transaction locks, and a role that may no longer complete
//! commands.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use tokio_postgres::{Client, NoTls};

use semel_testkit::postgres::Cluster;

use super::authority::Authority;
use super::lab::{Gateway, Site, Upstream, pay, problem};

async fn client(site: &Site) -> Client {
    let url = site.postgres().url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

fn keyed(key: &str) -> super::lab::Send {
    pay("{}").set("idempotency-key", format!("\"{key}-0000000000000000\""))
}

#[tokio::test]
async fn a_locked_record_costs_one_command_its_answer_and_no_other() {
    let (site, upstream) = (Site::on_postgres(), Upstream::start().await);
    let gateway = site.start(upstream.address, &[]);
    let running = tokio::spawn(keyed("locked").set("x-do", "gate").to(gateway.address));
    upstream.begun().await;
    let locker = client(&site).await;
    locker.batch_execute("BEGIN; SELECT FROM semel_records FOR UPDATE").await.expect("nobody holds it");
    upstream.open_gate();
    // Its completion waits; those of the others, and their claims, do not.
    for number in 0..20 {
        assert_eq!(gateway.send(keyed(&format!("free-{number}"))).await.status, 201);
        assert_eq!(gateway.admin("/readyz").await.status, 200);
    }
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    assert_eq!(running.await.expect("it is answered").status, 201);
    assert!(gateway.send(keyed("locked").set("x-do", "gate")).await.replayed());
    assert_eq!(upstream.effects(), 21);
}

/// Starts a gateway whose role owns nothing; also returns the role.
async fn gateway_as_guest(site: &Site, upstream: &Arc<Upstream>) -> (Gateway, String) {
    let database = site.postgres();
    let migrated = site.semel().arg("migrate").output().expect("the program runs");
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    let role = format!("guest_{}", database.name().replace('-', "_"));
    for statement in [
        format!("CREATE ROLE {role} LOGIN PASSWORD 'guest'"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"),
    ] {
        database.sql(&statement).expect("its owner may");
    }
    let url = database.url();
    let at = url.find('@').expect("it names a role");
    let url = format!("postgres://{role}:guest{}", &url[at..]);
    (site.start_in(upstream.address, "", &[], &[("SEMEL_STORE", &url)]), role)
}

#[tokio::test]
async fn commands_are_refused_while_none_can_be_completed() {
    let (site, upstream) = (Site::on_postgres(), Upstream::start().await);
    let (gateway, role) = gateway_as_guest(&site, &upstream).await;
    assert_eq!(gateway.send(keyed("before")).await.status, 201);
    let database = site.postgres();
    database.sql(&format!("REVOKE UPDATE ON semel_records FROM {role}")).expect("its owner may");
    let before = upstream.seen();
    for number in 0..60 {
        let reply = gateway.send(keyed(&format!("lost-{number}"))).await;
        assert_ne!(reply.status, 201, "it cannot be stored");
    }
    let ran = upstream.seen() - before;
    assert!(ran <= 8, "{ran} of 60 commands ran into an unknown outcome");
    assert_eq!(gateway.send(keyed("refused")).await.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(gateway.admin("/readyz").await.status, 503);
    database.sql(&format!("GRANT UPDATE ON semel_records TO {role}")).expect("its owner may");
    let recovered = loop {
        let reply = gateway.send(keyed("after")).await;
        if reply.status != 503 {
            break reply;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(recovered.status, 201);
    drop(gateway);
    database.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).expect("its owner may");
}

/// Debian's default PostgreSQL: TLS with a self-signed certificate, and a password outside the file.
#[tokio::test]
async fn a_database_with_a_self_signed_certificate_needs_no_more_than_its_address() {
    let (cluster, authority) = (Cluster::start().expect("a server starts"), Authority::new());
    let itself = authority.certificate();
    cluster.use_certificate(&itself, &authority.path("ca.key")).expect("the server starts again");
    let database = cluster.create_database().expect("there is room");
    let (url, password) = without_password(&database.url());
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let variables = [("SEMEL_STORE", url.as_str()), ("PGPASSWORD", password.as_str())];
    let gateway = site.start_in(upstream.address, "", &[], &variables);
    assert_eq!(gateway.send(keyed("encrypted")).await.status, 201);
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'semel' AND NOT ssl";
    assert_eq!(database.sql(plain).expect("it can be read"), "0", "every connection is encrypted");

    let doctor = |parameters: &str, password: &str| {
        let mut command = site.semel();
        command.args(["doctor", "--json"]).env("SEMEL_STORE", format!("{url}?{parameters}"));
        if !password.is_empty() {
            command.env("PGPASSWORD", password);
        }
        let output = command.env("HOME", site.folder.path()).output().expect("the program runs");
        let checks: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let store =
            checks.as_array().and_then(|all| all.iter().find(|check| check["check"] == "store")).cloned();
        let store = store.expect("the store is looked at");
        (store["result"].clone(), format!("{} {}", store["found"], store["advice"]))
    };
    let (result, said) = doctor("sslmode=verify-full", &password);
    assert_eq!(result, "fail", "{said}");
    assert!(said.contains("sslrootcert") && said.contains("sslmode=require"), "{said}");
    assert!(!said.contains("user") && !said.contains("password"), "{said}");
    let named = format!("sslmode=verify-ca&sslrootcert={}", itself.display());
    assert_eq!(doctor(&named, &password).0, "ok");
    let (result, said) = doctor("", "");
    assert_eq!(result, "fail", "{said}");
    assert!(said.contains("password missing"), "{said}");
    let file = site.folder.path().join(".pgpass");
    std::fs::write(&file, format!("*:*:*:*:{password}\n")).expect("there is room");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    assert_eq!(doctor("", "").0, "ok", "the file in the home folder");
}

/// Returns the address without its password, and the password.
fn without_password(url: &str) -> (String, String) {
    let (before, host) = url.split_once('@').expect("it names a role");
    let (user, password) = before.rsplit_once(':').expect("it has a password");
    (format!("{user}@{host}"), password.to_owned())
}

/// A new primary reads before its standbys are there, and its commits wait for them.
#[tokio::test]
async fn a_database_that_reads_and_does_not_commit_is_not_ready() {
    let cluster = Cluster::start().expect("a server starts");
    let database = cluster.create_database().expect("there is room");
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_in(upstream.address, "", &[], &[("SEMEL_STORE", &database.url())]);
    assert_eq!(gateway.send(keyed("before")).await.status, 201);
    assert_eq!(gateway.admin("/readyz").await.status, 200);
    let set = |statement: &str| {
        cluster.server().sql("postgres", statement).expect("it can be set");
        cluster.server().sql("postgres", "SELECT pg_reload_conf()").expect("it is heard");
    };
    set("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    while gateway.admin("/readyz").await.status != 503 {}
    assert_eq!(gateway.admin("/admin/v1/status").await.status, 200, "it reads");
    set("ALTER SYSTEM RESET synchronous_standby_names");
    while gateway.admin("/readyz").await.status != 200 {}
    assert_eq!(gateway.send(keyed("after")).await.status, 201);
}
