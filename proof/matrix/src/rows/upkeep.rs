//! Steps 15 and 16: expired leases and expired records. `semel sweep` and `semel reap` are held where they write, and a
//! fault strikes.
//!
//! A gateway is killed with commands in flight. Moved timestamps stand for passed time, so that no cell waits or
//! depends on speed: due records have been due for half an hour, others will not be for ten hours.

mod judge;

use std::collections::BTreeMap;

use semel_faults::Point;
use semel_testkit::proxy::Matching;

use tokio::task::JoinHandle;

use crate::client;
use crate::lab::Lab;
use crate::process::{Process, tail};
use crate::rows::tool::{self, Meanwhile, Stage, Work};
use crate::seen::Told;
use crate::site::{Row, Site};
use crate::table::{Cell, Fault};
use crate::upstream::Mood;
use crate::verdict::Found;

use judge::{Kind, Tended};

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 2] = [SWEEP, REAP];

const SWEEP: usize = 15;
const REAP: usize = 16;

/// SQL of a time half an hour ago, and of a time in ten hours.
const PAST: &str = "created_at - 1800000";
const FUTURE: &str = "created_at + 36000000";

/// Runs a cell.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let site = Site::start(lab, Mood::BreaksOffAfter).await?;
    let seen = tended(&site, cell).await;
    let seen = seen.map_err(|why| format!("{why}\n    first: {}", log(&site, "first")))?;
    Ok(Found { violated: judge::judge(&seen), seen: vec![seen.tell(), log(&site, "first")] })
}

fn log(site: &Site<'_>, name: &str) -> String {
    tail(&site.folder.join(format!("{name}.log")))
}

fn work(step: usize) -> Work {
    let update = Matching::statement("UPDATE semel_records AS r SET operation_id = i.operation_id");
    if step == SWEEP {
        return Work {
            arguments: vec!["sweep".to_owned()],
            before: Point::SweepSent,
            within: Some(Point::DueRead),
            after: Point::SweepCommitted,
            statement: update.clone(),
            commit: update,
        };
    }
    Work {
        arguments: vec!["reap".to_owned()],
        before: Point::ReapSent,
        within: Some(Point::DueRead),
        after: Point::ReapCommitted,
        statement: Matching::statement("DELETE FROM semel_records AS r USING"),
        commit: Matching::commit(),
    }
}

/// Commands in every state, each under a key that is the name of its kind.
struct Garden {
    ids: BTreeMap<&'static str, String>,
    kept: Told,
}

async fn plant(site: &Site<'_>, cell: Cell) -> Result<Garden, String> {
    let mut gateway = site.gateway("planted", 1, "semel.toml")?;
    let lost = site.pay(&gateway, "unknown").await;
    if !lost.is_failed_unknown() {
        return Err(format!("a service that breaks off got the client {lost}"));
    }
    let mut ids = BTreeMap::new();
    let own = lost.as_answer().and_then(|answer| answer.operation_id.clone());
    ids.insert("unknown", own.ok_or("the command has no name")?);
    let (kept, id) = site.must_pay(&gateway, "kept").await?;
    ids.insert("kept", id);
    let settled: &[&str] = if cell.step == REAP { &["expired-1", "expired-2"] } else { &[] };
    for name in settled {
        ids.insert(name, site.must_pay(&gateway, name).await?.1);
    }
    let mut running = Vec::new();
    for name in ["ended-1", "ended-2", "live", "waiting"] {
        gateway.arm(Point::HandlerCalled)?;
        let asked = site.payment(name);
        running.push(tokio::spawn(client::send(gateway.address(), asked)));
        gateway.is_taken(Point::HandlerCalled).await?;
        let known: Vec<&String> = ids.values().collect();
        let rows = site.rows("semel_records")?;
        let new = rows.iter().find(|row| !known.iter().any(|id| id.as_str() == row.operation_id()));
        ids.insert(name, new.ok_or("a command that runs has no record")?.operation_id().to_owned());
    }
    gateway.kill();
    for client in running {
        let _ = client.await;
    }
    let id = |name: &str| ids.get(name).map(String::as_str).unwrap_or_default();
    let due = if cell.step == SWEEP { PAST } else { FUTURE };
    site.change_records(&[id("ended-1"), id("ended-2")], &format!("due_at = {due}"))?;
    site.change_records(&[id("live")], &format!("due_at = {FUTURE}"))?;
    let claimed = format!("state = 'claimed', reason = 'claimed', ready_at = created_at, due_at = {FUTURE}");
    site.change_records(&[id("waiting")], &claimed)?;
    if cell.step == REAP {
        site.change_records(&[id("expired-1"), id("expired-2")], &format!("expires_at = {PAST}"))?;
        // These records have an expiry in the past, and a state that cannot expire.
        let running = [id("unknown"), id("live"), id("waiting")];
        site.change_records(&running, &format!("expires_at = {PAST}"))?;
    }
    if cell.fault == Fault::Poison {
        // The damaged record is the first of all due ones.
        site.change_records(&[id("ended-1")], &format!("state = 'petrified', due_at = {PAST} - 1"))?;
    }
    Ok(Garden { ids, kept })
}

fn kind(name: &str, cell: Cell) -> Kind {
    match name {
        "ended-1" if cell.fault == Fault::Poison => Kind::Untouched,
        "ended-1" | "ended-2" if cell.step == SWEEP => Kind::Ended,
        "expired-1" if cell.fault == Fault::Stopped => Kind::UsedAnew,
        "expired-1" | "expired-2" => Kind::Expired,
        "late" => Kind::Late,
        _ => Kind::Untouched,
    }
}

async fn tended(site: &Site<'_>, cell: Cell) -> Result<Tended, String> {
    let mut garden = plant(site, cell).await?;
    let work = work(cell.step);
    let words = work.words();
    // While the tool is suspended, another gateway settles a late command, or uses an expired key again.
    let other = match cell.fault {
        Fault::Stopped => Some(site.gateway("other", 1, "semel.toml")?),
        _ => None,
    };
    let late = match (&other, cell.step) {
        (Some(other), SWEEP) => Some(plant_late(site, other, &mut garden).await?),
        _ => None,
    };
    if cell.fault == Fault::Failover {
        site.place.keep_copy()?;
    }
    let before = site.rows("semel_records")?;
    let effects_before = site.upstream.effects().len();
    let mut meanwhile = Others { site, step: cell.step, other, late, told: None, during: Vec::new() };
    let first = tool::strike(site, &work, cell, &mut meanwhile).await?;
    let Others { told: meanwhile_told, mut during, .. } = meanwhile;
    let when_first_ended = site.rows("semel_records")?;
    if cell.fault == Fault::Failover {
        site.place.lose_all_since_copy().await?;
        during = vec![site.rows("semel_records")?];
    }
    let last = site.finish(&words, 0).await?;
    let after = site.rows("semel_records")?;
    let fresh = site.gateway("fresh", 1, "semel.toml")?;
    let mut told = Vec::new();
    for name in garden.ids.keys().filter(|name| **name != "waiting") {
        if cell.fault == Fault::Poison && *name == "ended-1" {
            continue;
        }
        told.push(((*name).to_owned(), site.pay(&fresh, name).await));
    }
    let kinds = garden.ids.iter().map(|(name, id)| (id.clone(), ((*name).to_owned(), kind(name, cell))));
    Ok(Tended {
        kinds: kinds.collect(),
        before,
        not_yet: (cell.fault == Fault::ClockJump).then(|| during.first().cloned()).flatten(),
        during,
        first,
        when_first_ended: (cell.fault != Fault::Failover).then_some(when_first_ended),
        last,
        after,
        kept: garden.kept,
        meanwhile: meanwhile_told,
        told,
        effects_before,
        effects: site.upstream.effects().len(),
    })
}

/// Other processes during the fault: they read the store, and change it while the tool is suspended.
struct Others<'a> {
    site: &'a Site<'a>,
    step: usize,
    other: Option<Process>,
    late: Option<JoinHandle<Told>>,
    told: Option<Told>,
    during: Vec<Vec<Row>>,
}

impl Meanwhile for Others<'_> {
    async fn at(&mut self, stage: Stage) -> Result<(), String> {
        match (stage, &self.other) {
            (Stage::Stopped, Some(other)) if self.step == SWEEP => {
                other.release(Point::HandlerCalled);
                if let Some(late) = self.late.take() {
                    self.told = late.await.ok();
                }
            }
            (Stage::Stopped, Some(other)) => self.told = Some(self.site.pay(other, "expired-1").await),
            _ => {}
        }
        if stage != Stage::Broken {
            self.during.push(self.site.rows("semel_records")?);
        }
        Ok(())
    }
}

/// Starts a command whose executor lives although its lease has expired.
async fn plant_late(
    site: &Site<'_>,
    gateway: &Process,
    garden: &mut Garden,
) -> Result<JoinHandle<Told>, String> {
    gateway.arm(Point::HandlerCalled)?;
    let asked = site.payment("late");
    let client = tokio::spawn(client::send(gateway.address(), asked));
    gateway.is_held(Point::HandlerCalled).await?;
    let rows = site.rows("semel_records")?;
    let new = rows.iter().find(|row| !garden.ids.values().any(|id| id == row.operation_id()));
    let id = new.ok_or("a command that runs has no record")?.operation_id().to_owned();
    site.change_records(&[&id], &format!("due_at = {PAST}"))?;
    garden.ids.insert("late", id);
    Ok(client)
}
