//! The gateway on PostgreSQL: a record that somebody locks, and a role that may no longer complete commands.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};

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

/// A gateway whose role owns nothing, and what its owner lets it do.
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
