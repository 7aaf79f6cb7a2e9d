//! Private servers, and the actions of tests on them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semel_testkit::postgres::{Binaries, Cluster};
use sqlx::Connection;

use crate::{connect, execute};

/// Variable of the process that owns a server and is killed.
const CHILD: &str = "SEMEL_TEST_OWNER";

/// Everything that a server could leave behind.
struct Traces {
    folder: PathBuf,
    processes: Vec<u32>,
    shared_memory: String,
}

impl Traces {
    fn of(cluster: &Cluster) -> Traces {
        let file = std::fs::read_to_string(cluster.folder().join("data/postmaster.pid")).expect("it runs");
        let line = file.lines().nth(6).expect("it names its shared memory");
        let traces = Traces {
            folder: cluster.folder().to_owned(),
            processes: cluster.processes(),
            shared_memory: line.split_whitespace().nth(1).expect("it has an id").to_owned(),
        };
        assert!(traces.processes.len() > 1 && traces.has_shared_memory(), "what is looked for can be found");
        traces
    }

    fn has_shared_memory(&self) -> bool {
        let segments = std::fs::read_to_string("/proc/sysvipc/shm").expect("Linux lists them");
        segments.lines().any(|line| line.split_whitespace().nth(1) == Some(&self.shared_memory))
    }

    fn left(&self) -> Vec<String> {
        // An ended process may still be listed until its new parent has noticed; it has no folder then.
        let alive = self
            .processes
            .iter()
            .filter(|process| Path::new(&format!("/proc/{process}/cwd")).read_link().is_ok());
        let mut left: Vec<String> = alive.map(|process| format!("process {process}")).collect();
        left.extend(self.folder.exists().then(|| self.folder.display().to_string()));
        left.extend(self.has_shared_memory().then(|| format!("shared memory {}", self.shared_memory)));
        left
    }
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    let cluster = Cluster::start().expect("a server starts");
    let traces = Traces::of(&cluster);
    drop(cluster);
    assert_eq!(traces.left(), [""; 0]);
}

#[test]
fn a_killed_or_paused_server_leaves_nothing_behind_when_it_is_dropped() {
    for hurt in [Cluster::kill9, Cluster::pause] {
        let cluster = Cluster::start().expect("a server starts");
        let traces = Traces::of(&cluster);
        hurt(&cluster).expect("it can be hurt");
        drop(cluster);
        assert_eq!(traces.left(), [""; 0]);
    }
}

/// Owns a server, in a process of its own: prints its possible remains and waits to be killed.
#[test]
fn the_owner_in_a_process_of_its_own() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let cluster = Cluster::start().expect("a server starts");
    let traces = Traces::of(&cluster);
    println!("server {} {} {:?}", traces.folder.display(), traces.shared_memory, traces.processes);
    loop {
        std::thread::park();
    }
}

#[test]
fn a_server_ends_with_its_owner_even_if_that_is_killed() {
    for signal in ["KILL", "INT"] {
        let mut owner = Command::new(std::env::current_exe().expect("tests run from a file"))
            .args(["--exact", "cluster::the_owner_in_a_process_of_its_own", "--nocapture"])
            .env(CHILD, "yes")
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a process can be started");
        let mut lines = BufReader::new(owner.stdout.take().expect("it is piped")).lines();
        let traces = loop {
            let line = lines.next().expect("it says what it has started").expect("it can be read");
            let Some((_, line)) = line.split_once("server ") else { continue };
            let (folder, rest) = line.split_once(' ').expect("a folder");
            let (shared_memory, processes) = rest.split_once(' ').expect("shared memory");
            break Traces {
                folder: folder.into(),
                shared_memory: shared_memory.into(),
                processes: serde_json::from_str(processes).expect("a list"),
            };
        };
        assert!(traces.left().len() > 3);
        // Like a terminal: to the whole group.
        let group = format!("-{}", owner.id());
        let sent = Command::new("sh").args(["-c", "kill -s \"$0\" -- \"$1\"", signal, &group]).status();
        assert!(sent.expect("sh runs").success());
        owner.wait().expect("it ends");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !traces.left().is_empty() {
            assert!(Instant::now() < deadline, "after SIG{signal}, these are left: {:?}", traces.left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn durable_settings_are_those_of_production_unless_a_test_says_otherwise() {
    let show = |cluster: &Cluster, name: &str| {
        cluster.server().sql("postgres", &format!("SHOW {name}")).expect("it is a setting")
    };
    let cluster =
        Cluster::start_with(&[("default_transaction_isolation", "serializable")]).expect("it starts");
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(show(&cluster, name), "on", "{name}");
    }
    assert_eq!(show(&cluster, "listen_addresses"), "127.0.0.1");
    assert_eq!(show(&cluster, "default_transaction_isolation"), "serializable");
    let error = Cluster::start_with(&[("no_such_setting", "it's")]).err().expect("it is refused");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn a_password_is_needed() {
    let cluster = Cluster::start().expect("a server starts");
    let url = cluster.url("postgres").replace("semel:", "semel:wrong-");
    let stranger = semel_testkit::postgres::Server::at(&url).expect("it is a URL");
    let error = stranger.sql("postgres", "SELECT 1").expect_err("the password is wrong");
    assert!(error.to_string().contains("password authentication failed"), "{error}");
}

#[tokio::test]
async fn a_killed_server_restarts_with_its_committed_rows_only() {
    let cluster = Cluster::start().expect("a server starts");
    let mut committed = connect(&cluster.url("postgres")).await;
    execute(&mut committed, "CREATE TABLE rows (id int)").await.expect("it is made");
    execute(&mut committed, "INSERT INTO rows VALUES (1)").await.expect("it is committed");
    let mut open = connect(&cluster.url("postgres")).await;
    execute(&mut open, "BEGIN").await.expect("it begins");
    execute(&mut open, "INSERT INTO rows VALUES (2)").await.expect("it is inserted");

    cluster.kill9().expect("it can be killed");
    assert!(cluster.processes().is_empty());
    assert!(std::net::TcpStream::connect(cluster.server().address()).is_err());
    execute(&mut committed, "SELECT 1").await.expect_err("the server is gone");
    execute(&mut open, "COMMIT").await.expect_err("the server is gone");

    cluster.restart().expect("it starts again");
    assert_eq!(cluster.server().sql("postgres", "SELECT * FROM rows").expect("it answers"), "1");
}

#[tokio::test]
async fn a_stopped_server_comes_back_and_a_running_one_restarts() {
    let cluster = Cluster::start().expect("a server starts");
    let mut connection = connect(&cluster.url("postgres")).await;
    execute(&mut connection, "CREATE TABLE rows (id int)").await.expect("it is made");
    cluster.stop_fast().expect("it stops");
    execute(&mut connection, "SELECT 1").await.expect_err("the server has ended the connection");
    cluster.stop_fast().expect_err("it does not run");
    cluster.restart().expect("it starts again");
    let mut connection = connect(&cluster.url("postgres")).await;
    execute(&mut connection, "INSERT INTO rows VALUES (1)").await.expect("it is committed");
    cluster.restart().expect("it restarts");
    execute(&mut connection, "SELECT 1").await.expect_err("the server has ended the connection");
    assert_eq!(cluster.server().sql("postgres", "SELECT * FROM rows").expect("it answers"), "1");
}

#[test]
fn a_restart_names_its_occupied_address_and_works_once_it_is_free() {
    let cluster = Cluster::start().expect("a server starts");
    cluster.stop_fast().expect("it stops");
    let other = std::net::TcpListener::bind(cluster.server().address()).expect("it is free");
    let error = cluster.restart().expect_err("somebody else listens there").to_string();
    assert!(error.contains(&cluster.server().address().to_string()), "{error}");
    drop(other);
    cluster.restart().expect("it is free again");
}

#[tokio::test]
async fn a_paused_server_answers_only_after_it_was_resumed() {
    let cluster = Cluster::start().expect("a server starts");
    let url = cluster.url("postgres");
    let mut connection = connect(&url).await;
    cluster.pause().expect("it can be paused");
    let mut waiting =
        tokio::spawn(async move { execute(&mut connection, "SELECT 1").await.map(|()| connection) });
    let newcomer = tokio::spawn(async move { connect(&url).await });
    let answer = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(answer.is_err() && !newcomer.is_finished(), "nothing is answered");
    cluster.resume().expect("it goes on");
    let mut connection = waiting.await.expect("no panic").expect("the connection was never lost");
    connection.ping().await.expect("it is still there");
    newcomer.await.expect("the server takes connections");
}

#[tokio::test]
async fn terminated_connections_fail_and_new_ones_are_accepted() {
    let cluster = Cluster::start().expect("a server starts");
    let mut first = connect(&cluster.url("postgres")).await;
    let mut second = connect(&cluster.url("postgres")).await;
    assert_eq!(cluster.terminate_backends().expect("it answers"), 2);
    for connection in [&mut first, &mut second] {
        execute(connection, "SELECT 1").await.expect_err("it was terminated");
    }
    connect(&cluster.url("postgres")).await;
}

#[tokio::test]
async fn one_killed_backend_takes_all_connections_and_no_committed_row() {
    let cluster = Cluster::start().expect("a server starts");
    assert!(!cluster.kill_one_backend().expect("it answers"), "there is none");
    let mut first = connect(&cluster.url("postgres")).await;
    let mut second = connect(&cluster.url("postgres")).await;
    execute(&mut first, "CREATE TABLE rows AS SELECT 1 AS id").await.expect("it is committed");
    assert!(cluster.kill_one_backend().expect("it answers"));
    for connection in [&mut first, &mut second] {
        execute(connection, "SELECT 1").await.expect_err("the server has ended all of them");
    }
    cluster.wait_until_ready().expect("it recovers");
    assert_eq!(cluster.server().sql("postgres", "SELECT * FROM rows").expect("it answers"), "1");
}

#[test]
fn a_folder_without_the_programs_is_refused_by_name() {
    let error = Binaries::at("/nowhere").expect_err("there is nothing").to_string();
    assert_eq!(error, "/nowhere has no program `initdb`");
}
