//! A store's file that disappears: the gateway refuses commands and is not ready, and neither a second
//! gateway on the path nor a restart has a second effect.

use std::fs;
use std::process::Stdio;

use super::lab::{KEY, Send, Site, Upstream, lab, pay};

const FILES: [&str; 3] = ["semel.db", "semel.db-wal", "semel.db-shm"];

/// Returns a command with this key.
fn order(key: &str) -> Send {
    pay("{}").without("idempotency-key").with("idempotency-key", format!("{KEY}-{key}"))
}

/// Returns true if the store is a file: these tests are about files only.
fn on_a_file(site: &Site) -> bool {
    !site.is_postgres()
}

/// Starts a gateway at this site that must not start, and returns its message.
fn refused(site: &Site, upstream: &Upstream) -> String {
    let output = site
        .semel()
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--upstream", &format!("http://{}", upstream.address)])
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_store_that_was_deleted_refuses_commands_and_has_no_second_effect() {
    let (site, upstream, mut gateway) = lab(&[]).await;
    if !on_a_file(&site) {
        return;
    }
    for number in 0..5 {
        assert_eq!(gateway.send(order(&number.to_string())).await.status, 201);
    }
    assert_eq!(gateway.admin("/readyz").await.status, 200);
    for name in FILES {
        fs::remove_file(site.folder.path().join(name)).expect("it is there");
    }
    for number in 5..10 {
        let reply = gateway.send(order(&number.to_string())).await;
        assert_eq!(reply.status, 503, "key-{number}");
    }
    assert_eq!(gateway.admin("/readyz").await.status, 503);
    assert_eq!(upstream.effects(), 5, "nothing ran that would be forgotten");
    gateway.logs("the store's file is gone").await;
    let why = refused(&site, &upstream);
    assert!(why.contains("semel.db.id says that a store was here"), "a second gateway: {why}");
    gateway.kill();
    let why = refused(&site, &upstream);
    assert!(why.contains("semel migrate --create"), "a restart: {why}");
    assert_eq!(upstream.effects(), 5);
}

#[tokio::test]
async fn a_store_that_was_replaced_refuses_commands_until_it_is_put_back() {
    let (site, upstream, mut gateway) = lab(&[]).await;
    if !on_a_file(&site) {
        return;
    }
    let first = gateway.send(order("first")).await;
    assert_eq!(first.status, 201);
    gateway.terminate();
    gateway.ended().await;
    let file = rusqlite::Connection::open(site.database()).expect("the file opens");
    let original = site.folder.path().join("original.db");
    file.execute("VACUUM INTO ?1", [original.to_string_lossy()]).expect("there is room");
    drop(file);
    let gateway = site.start(upstream.address, &[]);
    fs::copy(&original, site.folder.path().join("copy.db")).expect("there is room");
    fs::rename(site.folder.path().join("copy.db"), site.database()).expect("it is there");
    assert_eq!(gateway.send(order("other")).await.status, 503);
    assert_eq!(gateway.admin("/readyz").await.status, 503);
    drop(gateway);
    for name in FILES {
        let _ = fs::remove_file(site.folder.path().join(name));
    }
    fs::rename(&original, site.database()).expect("it is there");
    let gateway = site.start(upstream.address, &[]);
    let again = gateway.send(order("first")).await;
    assert_eq!((again.status, again.body), (first.status, first.body), "its records are back");
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn migrate_recreates_a_deleted_store_only_with_create() {
    let (site, upstream, gateway) = lab(&[]).await;
    if !on_a_file(&site) {
        return;
    }
    drop(gateway);
    for name in FILES {
        let _ = fs::remove_file(site.folder.path().join(name));
    }
    let migrate =
        |arguments: &[&str]| site.semel().arg("migrate").args(arguments).output().expect("the program runs");
    assert_eq!(migrate(&[]).status.code(), Some(2), "there is nothing to migrate");
    assert!(!site.database().exists());
    assert!(migrate(&["--create"]).status.success());
    let gateway = site.start(upstream.address, &[]);
    assert_eq!(gateway.send(order("first")).await.status, 201);
}
