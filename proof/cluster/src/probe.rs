//! Probe of the database itself, beside the gateways: tries a durable commit on every node, again and again, so that a
//! reader can tell the database's own gap from what Semel adds.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::NoTls;

use crate::commits::Commits;
use crate::world::World;

/// Time between two commits, and the longest time for a connection and for a commit. A commit that waits for a standby
/// keeps its connection: each dropped one would hold a process of the server until then.
const PAUSE: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_millis(1_500);
const COMMIT: Duration = Duration::from_secs(20);
const TABLE: &str = "CREATE TABLE probe (number bigint PRIMARY KEY)";
const WRITE: &str = "INSERT INTO probe VALUES ($1)";
const READ: &str = "SELECT number FROM probe";

/// Returns how many confirmed commits the database itself has lost, and of how many. Blocks.
pub(crate) fn lost(world: &World) -> Result<(usize, usize), String> {
    let confirmed = world.commits.confirmed();
    let rows = world.base.sql("postgres", READ)?;
    let there: HashSet<i64> = rows.lines().filter_map(|line| line.parse().ok()).collect();
    let lost = confirmed.iter().filter(|commit| !there.contains(&commit.number)).count();
    Ok((lost, confirmed.len()))
}

/// Probes every node. Ends with the runtime.
pub(crate) async fn start(world: &Arc<World>) -> Result<(), String> {
    world.blocking(|world| world.base.sql("postgres", TABLE)).await?;
    for (host, port) in world.base.hosts() {
        let (commits, password) = (world.commits.clone(), world.base.password().to_owned());
        tokio::spawn(async move {
            loop {
                // A node that is no leader, or is away, is tried again.
                let _ = probe(&commits, host, port, &password).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    Ok(())
}

/// Commits until something fails. A commit that is late is not cancelled: its connection is dropped.
async fn probe(commits: &Commits, host: Ipv4Addr, port: u16, password: &str) -> Option<()> {
    let mut config = tokio_postgres::Config::new();
    config.host(host.to_string()).port(port).user("postgres").password(password).dbname("postgres");
    let (client, connection) = tokio::time::timeout(CONNECT, config.connect(NoTls)).await.ok()?.ok()?;
    let connection = Task(tokio::spawn(async move { drop(connection.await) }));
    loop {
        let number = commits.next_number();
        tokio::time::timeout(COMMIT, client.execute(WRITE, &[&number])).await.ok()?.ok()?;
        commits.note(number);
        if connection.0.is_finished() {
            return None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Task that ends when it is dropped.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
