//! Step 20: rotation of the encryption key. `semel keys rotate` is held where it writes, and a fault strikes, while a
//! gateway with both keys replays.

mod judge;

use std::collections::BTreeMap;

use semel_faults::Point;
use semel_testkit::proxy::Matching;

use crate::lab::Lab;
use crate::process::{Process, tail};
use crate::rows::tool::{self, Meanwhile, Stage, Work};
use crate::rows::webhook;
use crate::rows::webhook::judge::Case;
use crate::seen::Told;
use crate::site::{Row, Site};
use crate::table::{Cell, Fault};
use crate::upstream::Mood;
use crate::verdict::Found;

use judge::Rotated;

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 1] = [20];

/// Idempotency keys, one command each: more than one batch, so that some are left when the first is written.
const KEYS: [&str; 5] = ["one", "two", "three", "four", "five"];

/// Runs a cell.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let mut site = Site::start(lab, Mood::Well).await?;
    site.set_variable(webhook::VARIABLE, webhook::SECRET);
    let seen = rotated(&site, cell).await;
    let log = || tail(&site.folder.join("first.log"));
    let seen = seen.map_err(|why| format!("{why}\n    {}", log()))?;
    Ok(Found { violated: judge::judge(&seen), seen: vec![seen.tell(), log()] })
}

fn work() -> Work {
    let words = ["keys", "rotate", "--config", "both.toml", "--batch", "2", "--pause", "0s"];
    let statement = Matching::statement("UPDATE semel_records AS r SET encryption_key_id");
    Work {
        arguments: words.map(str::to_owned).to_vec(),
        before: Point::ResealSent,
        within: None,
        after: Point::ResealCommitted,
        statement: statement.clone(),
        commit: statement,
    }
}

/// Writes a configuration with these keys, the first of them the current one.
fn configure(site: &Site<'_>, name: &str, keys: &[&str]) -> Result<(), String> {
    let mut text = format!("\n[encryption]\ncurrent = \"{}\"\n", keys[0]);
    for key in keys {
        let file = site.folder.join(format!("{key}.key"));
        let digits = key.bytes().map(u32::from).sum::<u32>() % 10;
        std::fs::write(&file, format!("{digits}a").repeat(32)).map_err(|error| error.to_string())?;
        text.push_str(&format!("\n[[encryption.key]]\nid = \"{key}\"\nfile = \"{key}.key\"\n"));
    }
    // The response in an event is sealed as well, while it waits for its command.
    let keeps = webhook::CONFIGURATION.replace("[[webhook]]", "[[webhook]]\nunknown_operation = \"keep\"");
    site.configure(name, &format!("{keeps}{text}"))
}

async fn rotated(site: &Site<'_>, cell: Cell) -> Result<Rotated, String> {
    for (name, keys) in [
        ("old.toml", &["old"][..]),
        ("both.toml", &["new", "old"]),
        ("new.toml", &["new"]),
        ("blind.toml", &["other"]),
    ] {
        configure(site, name, keys)?;
    }
    let mut gateway = site.gateway("planted", 1, "old.toml")?;
    let (mut first, mut ids) = (BTreeMap::new(), BTreeMap::new());
    for key in KEYS {
        let (told, id) = site.must_pay(&gateway, key).await?;
        first.insert(key.to_owned(), told);
        ids.insert(key, id);
    }
    let event = Case::new(1, "01900000-0000-7000-8000-000000000000".to_owned());
    let kept = webhook::deliver(gateway.address(), event).await;
    if kept.as_answer().is_none_or(|answer| answer.status != 202) {
        return Err(format!("an event about a command that is still to come got {kept}"));
    }
    gateway.kill();
    let mut poisoned = Vec::new();
    if cell.fault == Fault::Poison {
        // One record has a lost encryption key, and one was tampered with in the store.
        site.change_records(&[&ids["one"]], "encryption_key_id = 'lost'")?;
        let changed =
            if site.place.file().is_some() { "zeroblob(64)" } else { "decode(repeat('00', 64), 'hex')" };
        site.change_records(&[&ids["two"]], &format!("response = {changed}"))?;
        poisoned = ["one", "two"].map(|key| ids[key].clone()).to_vec();
    }
    if cell.fault == Fault::Failover {
        site.place.keep_copy()?;
    }
    let (before, evidence) = (site.rows("semel_records")?, site.rows("semel_evidence")?);
    let work = work();
    let gateway = site.gateway("both", 1, "both.toml")?;
    let unasked = KEYS.iter().rev().copied().collect();
    let mut others = Others { site, gateway, unasked, told: Vec::new(), during: Vec::new() };
    let ended = tool::strike(site, &work, cell, &mut others).await?;
    others.ask().await;
    let Others { mut gateway, told, mut during, .. } = others;
    if cell.fault == Fault::Failover {
        gateway.kill();
        site.place.lose_all_since_copy().await?;
        during = vec![site.rows("semel_records")?];
    }
    let expected = i32::from(cell.fault == Fault::Poison);
    let last = site.finish(&work.words(), expected).await?;
    let after = site.rows("semel_records")?;
    // Both gateways start with an empty memory cache.
    let (only_new, blind) = (site.gateway("new", 1, "new.toml")?, site.gateway("blind", 1, "blind.toml")?);
    let (mut in_the_end, mut without_key) = (Vec::new(), Vec::new());
    for key in KEYS {
        in_the_end.push((key.to_owned(), site.pay(&only_new, key).await));
        without_key.push((key.to_owned(), site.pay(&blind, key).await));
    }
    Ok(Rotated {
        names: ids.into_iter().map(|(key, id)| (key.to_owned(), id)).collect(),
        poisoned,
        before,
        evidence: (evidence, site.rows("semel_evidence")?),
        during,
        ended,
        last: (last, expected),
        after,
        first,
        meanwhile: told,
        in_the_end,
        without_key,
        effects: site.upstream.effects().len(),
    })
}

/// Gateway that replays during the fault. Each request is for another command, which is not in its cache.
struct Others<'a> {
    site: &'a Site<'a>,
    gateway: Process,
    unasked: Vec<&'static str>,
    told: Vec<(String, Told)>,
    during: Vec<Vec<Row>>,
}

impl Others<'_> {
    async fn ask(&mut self) {
        if let Some(key) = self.unasked.pop() {
            self.told.push((key.to_owned(), self.site.pay(&self.gateway, key).await));
        }
    }
}

impl Meanwhile for Others<'_> {
    async fn at(&mut self, stage: Stage) -> Result<(), String> {
        self.ask().await;
        if stage == Stage::Stopped {
            // Another tool completes the rotation while the first is suspended.
            self.site.finish(&work().words(), 0).await?;
        }
        if stage != Stage::Broken {
            self.during.push(self.site.rows("semel_records")?);
        }
        Ok(())
    }
}
