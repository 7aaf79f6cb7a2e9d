//! Step 19: a store of an older version meets a newer program. `semel migrate`, or a gateway that migrates as it
//! starts, is held where it changes the tables, and a fault strikes; in the end two gateways open the store at once.
//!
//! The newer program knows one version of the schema more, which only tests have.

mod judge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use semel_faults::Point;
use semel_testkit::proxy::Matching;

use crate::client;
use crate::lab::Lab;
use crate::patience;
use crate::process::tail;
use crate::rows::tool::{self, Meanwhile, Stage, When, Work};
use crate::site::Site;
use crate::table::{Cell, Fault, Store};
use crate::upstream::Mood;
use crate::verdict::Found;

use judge::{Migrated, Refused};

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 1] = [19];

/// Parts that the next version adds.
const ADDED_TO_A_FILE: [&str; 3] =
    ["column semel_next.operation_id", "column semel_records.next", "table semel_next"];
const ADDED_ON_A_SERVER: [&str; 3] =
    ["column semel_next.operation_id", "column semel_records.next", "index semel_next_pkey"];

const PARTS_OF_A_FILE: &str = "
    SELECT type || ' ' || name AS part FROM sqlite_schema WHERE name LIKE 'semel%'
    UNION SELECT 'column ' || t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
        WHERE t.type = 'table' AND t.name LIKE 'semel%'
    UNION SELECT 'version ' || version FROM semel_schema ORDER BY 1";
const PARTS_ON_A_SERVER: &str = "
    SELECT 'column ' || table_name || '.' || column_name AS part FROM information_schema.columns
        WHERE table_name LIKE 'semel%'
    UNION SELECT 'index ' || indexname FROM pg_indexes WHERE indexname LIKE 'semel%'
    UNION SELECT 'version ' || version FROM semel_schema ORDER BY 1";

/// Keys of commands settled before the migration.
const SETTLED: [&str; 2] = ["one", "two"];

/// Runs a cell.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let mut site = Site::start(lab, Mood::BreaksOffAfter).await?;
    let folder = site.folder.clone();
    let log = || ["first", "a", "b"].map(|name| tail(&folder.join(format!("{name}.log")))).join("\n    ");
    let seen = migrated(&mut site, cell).await.map_err(|why| format!("{why}\n    {}", log()))?;
    Ok(Found { violated: judge::judge(&seen), seen: vec![seen.tell(), log()] })
}

fn work(site: &Site<'_>, fault: Fault) -> Work {
    let arguments = match fault {
        // The fault kills a gateway as it starts.
        Fault::Kill => site.serving("semel.toml"),
        _ => vec!["migrate".to_owned()],
    };
    Work {
        arguments,
        before: Point::MigrationSent,
        within: Some(Point::MigrationWritten),
        after: Point::MigrationCommitted,
        statement: Matching::statement("CREATE TABLE semel_next"),
        commit: Matching::commit(),
    }
}

/// Returns the parts of the tables, and their version.
fn parts(site: &Site<'_>) -> Result<Vec<String>, String> {
    let query = if site.place.file().is_some() { PARTS_OF_A_FILE } else { PARTS_ON_A_SERVER };
    let mut parts: Vec<String> =
        site.ask(query)?.iter().filter_map(|row| row.get("part").map(str::to_owned)).collect();
    parts.sort_unstable();
    Ok(parts)
}

/// Returns the parts of the next version, from those of this one.
fn next(site: &Site<'_>, old: &[String]) -> Result<Vec<String>, String> {
    let added = if site.place.file().is_some() { ADDED_TO_A_FILE } else { ADDED_ON_A_SERVER };
    if !old.iter().any(|part| part == "version 1") {
        return Err("the schema has another version than 1: the next one is another, too".to_owned());
    }
    let kept = old.iter().filter(|part| *part != "version 1").cloned();
    let mut next: Vec<String> =
        kept.chain(added.map(str::to_owned)).chain(["version 2".to_owned()]).collect();
    next.sort_unstable();
    Ok(next)
}

async fn migrated(site: &mut Site<'_>, cell: Cell) -> Result<Migrated, String> {
    let mut gateway = site.gateway("planted", 1, "semel.toml")?;
    let mut first = BTreeMap::new();
    first.insert("unknown".to_owned(), site.pay(&gateway, "unknown").await);
    for key in SETTLED {
        first.insert(key.to_owned(), site.must_pay(&gateway, key).await?.0);
    }
    gateway.kill();
    site.set_variable(semel_faults::NEXT_VERSION, "1");
    let site = &*site;
    let old = parts(site)?;
    let new = next(site, &old)?;
    if cell.fault == Fault::Failover {
        site.place.keep_copy()?;
    }
    let before = site.rows("semel_records")?;
    let mut others = Others { site, during: Vec::new() };
    let mut seen = Migrated {
        old,
        new,
        during: Vec::new(),
        after: Vec::new(),
        before,
        rows: Vec::new(),
        ended: Vec::new(),
        refused: Vec::new(),
        first,
        meanwhile: Vec::new(),
        told: Vec::new(),
        mismatched: Vec::new(),
        gone: false,
        effects: 0,
    };
    let work = work(site, cell.fault);
    match (cell.fault, cell.store) {
        (Fault::Poison, _) => seen.refused = poison(site).await?,
        (Fault::ReadOnly, _) => seen.refused = vec![read_only(site).await?],
        (Fault::AnswerLost, Store::Sqlite) => {
            // The tool is killed before it knows of the commit.
            if let Some((mut tool, hold)) = tool::bring(site, &work, "first", 0, When::After).await? {
                tool.kill();
                hold.release(&tool);
            }
        }
        (Fault::Duplicate, Store::Postgres) => seen.ended = two_on_a_server(site, &work).await?,
        (Fault::Failover, _) => {
            seen.ended.extend(tool::strike(site, &work, cell, &mut others).await?);
            lose(site, &mut seen).await?;
            others.during.push(parts(site)?);
        }
        (Fault::ClientGone, _) => {}
        _ => seen.ended.extend(tool::strike(site, &work, cell, &mut others).await?),
    }
    seen.during = others.during;
    seen.during.push(parts(site)?);
    end(site, cell, seen).await
}

/// Starts two gateways on the store at once, and sends them retries of every command.
async fn end(site: &Site<'_>, cell: Cell, mut seen: Migrated) -> Result<Migrated, String> {
    let (a, b) = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let a = scope.spawn(|| site.gateway("a", 0, "semel.toml"));
            let b = site.gateway("b", 1, "semel.toml");
            (a.join().unwrap_or_else(|_| Err("it panicked".to_owned())), b)
        })
    });
    let (a, b) = (a?, b?);
    if cell.fault == Fault::ClientGone {
        a.arm(Point::HandlerCalled)?;
        let asked = site.payment("gone");
        let client = tokio::spawn(client::send(a.address(), asked));
        a.is_held(Point::HandlerCalled).await?;
        client.abort();
        let _ = client.await;
        a.release(Point::HandlerCalled);
        seen.gone = true;
        let begun = Instant::now();
        while !site.pay(&b, "gone").await.is_done() {
            if begun.elapsed() > patience::PATIENCE {
                return Err("whose client left was never carried out".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    seen.after = parts(site)?;
    seen.rows = site.rows("semel_records")?;
    for gateway in [&a, &b] {
        let names = seen.first.keys().map(String::as_str).chain(seen.gone.then_some("gone"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        for name in names {
            let told = site.pay(gateway, &name).await;
            seen.told.push((name, told));
        }
        seen.mismatched.push(site.pay_otherwise(gateway, SETTLED[0]).await);
    }
    seen.effects = site.upstream.effects().len();
    Ok(seen)
}

/// Loses the migration under running gateways.
async fn lose(site: &Site<'_>, seen: &mut Migrated) -> Result<(), String> {
    let mut running = site.gateway("running", 0, "semel.toml")?;
    if site.place.file().is_some() {
        running.kill();
    }
    site.place.lose_all_since_copy().await?;
    if site.place.file().is_none() {
        for name in SETTLED {
            seen.meanwhile.push((name.to_owned(), site.pay(&running, name).await));
        }
    }
    Ok(())
}

async fn refused(site: &Site<'_>, arguments: &[&str]) -> Result<Refused, String> {
    let before = parts(site)?;
    let code = site.tool("first", 0, arguments, &[])?.ended().await?;
    Ok(Refused { code, before, after: parts(site)? })
}

/// Tries a store that a newer program wrote, and one with a foreign table of the same name.
async fn poison(site: &Site<'_>) -> Result<Vec<Refused>, String> {
    let serving = site.serving("semel.toml");
    let serving: Vec<&str> = serving.iter().map(String::as_str).collect();
    site.change("UPDATE semel_schema SET version = 99, readable_from = 99")?;
    let mut all = vec![refused(site, &["migrate"]).await?, refused(site, &serving).await?];
    all.push(refused(site, &["sweep"]).await?);
    site.change("UPDATE semel_schema SET version = 1, readable_from = 1")?;
    site.change("CREATE TABLE semel_next (somebody_else INTEGER)")?;
    all.push(refused(site, &["migrate"]).await?);
    all.push(refused(site, &serving).await?);
    site.change("DROP TABLE semel_next")?;
    Ok(all)
}

/// Tries a read-only store.
async fn read_only(site: &Site<'_>) -> Result<Refused, String> {
    let Some(file) = site.place.file() else {
        site.place.read_only(true)?;
        let refused = refused(site, &["migrate"]).await;
        site.place.read_only(false)?;
        return refused;
    };
    // The header of a file says which SQLite versions may write it. Older ones may only read.
    let may_write = |version: u8| {
        use std::os::unix::fs::FileExt;
        let open = std::fs::OpenOptions::new().write(true).open(file);
        open.and_then(|file| file.write_all_at(&[version], 18)).map_err(|error| error.to_string())
    };
    site.place.keep_copy()?;
    let before = parts(site)?;
    may_write(3)?;
    let code = site.tool("first", 0, &["migrate"], &[])?.ended().await?;
    may_write(2)?;
    Ok(Refused { code, before, after: parts(site)? })
}

/// Runs two migrations at once: the second waits for the first, which is held.
async fn two_on_a_server(site: &Site<'_>, work: &Work) -> Result<Vec<i32>, String> {
    let held = tool::bring(site, work, "first", 0, When::Before).await?;
    let (mut one, hold) = held.ok_or("it cannot be held")?;
    let mut other = site.tool("second", 1, &work.words(), &[])?;
    let waits = || {
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        site.place.sql(locks).is_ok_and(|count| count.trim() == "1")
    };
    patience::until("the second does not wait", Duration::from_millis(20), waits).await?;
    hold.release(&one);
    Ok(vec![one.ended().await?, other.ended().await?])
}

/// Observer of the tables during the fault. It reads no rows: those may be locked.
struct Others<'a> {
    site: &'a Site<'a>,
    during: Vec<Vec<String>>,
}

impl Meanwhile for Others<'_> {
    async fn at(&mut self, stage: Stage) -> Result<(), String> {
        if stage == Stage::Stopped {
            // A second migration runs as well. On a server it waits in vain, and says so.
            self.site.tool("second", 1, &["migrate"], &[])?.ended().await?;
        }
        if stage != Stage::Broken {
            self.during.push(parts(self.site)?);
        }
        Ok(())
    }
}
