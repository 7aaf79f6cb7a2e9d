//! Section 2: what it costs to carry out a command once, durably.

use super::compared::{section, take_turns};
use super::report::{Aim, Section};
use super::served::{Contender, Ground};
use super::stores::sync_rate;
use super::{Figures, Form, Result};
use crate::chart::{Kind, Parts, figure};
use crate::load::{Keys, Pace};
use crate::peers::{Store, Work};

/// How many connections a client has.
const CONNECTIONS: usize = 64;
/// Who is also asked by one client at a time, to see what its wait consists of.
const ALONE: [&str; 5] =
    ["bare-axum", "semel-axum-memory", "semel-axum-sqlite", "semel-axum-postgres", "semel-transact-postgres"];

/// Measures all of them.
pub async fn run(ground: &Ground, form: Form) -> Result<Section> {
    println!("── new commands");
    let mut contenders = ground.peers(Work::Insert).await?;
    contenders.push(ground.gateway(Store::Sqlite, Work::Insert).await?);
    contenders.push(ground.gateway(Store::Postgresql, Work::Insert).await?);
    let keys = |_: &Contender, turn: &str| Keys::Fresh(format!("new-{turn}"));
    take_turns(&mut contenders, form, CONNECTIONS, keys).await?;
    let what = format!(
        "{CONNECTIONS} connections, each command under a new key; the handler inserts one row into PostgreSQL (`fsync` and \
         `synchronous_commit` on). Its floor is the same server without protection."
    );
    let mut section = section("New command, durable", "commands.svg", &what, &contenders);
    section.aims.push(first_of(&contenders, "durable", is_durable));
    section.aims.push(first_of(&contenders, "durable and right in all trials", is_durable_and_right));
    let (alone, sync) = alone(&mut contenders, form).await?;
    section.charts.push(("commands-parts.svg".into(), parts(&alone, sync).svg()));
    section.why = format!(
        "What is left of the distance to the floor: a claim must be on disk before the handler begins, and the outcome before \
         anybody is told, so that one client alone waits for two writes more than the bare handler's one ({} µs each here). \
         With many clients these are shared, and what remains is processor: reading, deciding and writing a record twice, \
         on the same {} cores that the client, the handler and its database have. `transact` waits for no write of its own, but \
         for a transaction's statements, one after the other. Redis with `appendfsync always` is as durable as its \
         file, but whoever stores an answer there after the handler has run, in a store that is not the handler's, has a gap \
         in between, which the last column shows.",
        figure(sync),
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    for contender in contenders {
        contender.stop().await?;
    }
    Ok(section)
}

/// Whether the best of ours is faster than the best of the others of whom this is known.
fn first_of(contenders: &[Contender], of_whom: &str, is_so: fn(&Contender) -> bool) -> Aim {
    let best = |kind: Kind| {
        let those = contenders.iter().filter(|contender| contender.kind == kind && is_so(contender));
        let best = those.max_by(|one, other| one.tally.rate.median().total_cmp(&other.tally.rate.median()));
        best.map_or((String::new(), Figures::default()), |best| (best.name.clone(), best.tally.rate.clone()))
    };
    let ((ours, rate), (theirs, their_rate)) = (best(Kind::Ours), best(Kind::Peer));
    let times = rate.beside(&their_rate);
    Aim {
        what: format!("first among all that are {of_whom}"),
        seen: match (&*ours, &*theirs) {
            ("", _) => "nobody is known to be: nobody was tried".into(),
            (_, "") => format!("{ours}; nobody else is known to be"),
            _ => {
                format!("{ours} has {} times the rate of {theirs}, the fastest of the others", times.words())
            }
        },
        is_met: !ours.is_empty() && (theirs.is_empty() || times.median() > 1.0),
    }
}

fn is_durable(contender: &Contender) -> bool {
    contender.is_durable == Some(true)
}

fn is_durable_and_right(contender: &Contender) -> bool {
    is_durable(contender) && contender.faults.as_ref().is_some_and(Vec::is_empty)
}

/// What one client that is alone waits for, in microseconds: each of the five, and a write that reaches the disk.
async fn alone(contenders: &mut [Contender], form: Form) -> Result<([f64; 5], f64)> {
    println!("   one client alone");
    let (mut waits, mut syncs): ([Figures; 5], Figures) = Default::default();
    let folder = tempfile::TempDir::new()?;
    for round in 0..form.rounds() {
        for (number, name) in ALONE.iter().enumerate() {
            let contender = contenders.iter_mut().find(|contender| contender.name == *name);
            let contender = contender.ok_or("our own are always there")?;
            let kept = std::mem::take(&mut contender.tally);
            let keys = Keys::Fresh(format!("alone-{round}"));
            contender.turn(keys, 1, Pace::Closed, form.turn() / 2).await?;
            let turn = std::mem::replace(&mut contender.tally, kept);
            waits[number].push(1e6 / turn.rate.median());
        }
        syncs.push(1e6 / tokio::task::block_in_place(|| sync_rate(folder.path(), form.turn() / 4))?);
    }
    Ok((waits.map(|figures| figures.median()), syncs.median()))
}

/// What a first call waits for: what each step adds to the one before.
fn parts(waits: &[f64; 5], sync: f64) -> Parts {
    let [bare, memory, sqlite, postgres, transact] = *waits;
    let handler = ("HTTP, the handler and its INSERT".to_owned(), bare);
    let layer = ("the layer".to_owned(), (memory - bare).max(0.0));
    let whole = |name: &str, parts: Vec<(String, f64)>| (name.to_owned(), parts);
    let twice = ("two writes that reach the disk".to_owned(), 2.0 * sync);
    let rest =
        |all: f64| ("the rest of the store".to_owned(), (all - memory.max(bare) - 2.0 * sync).max(0.0));
    Parts {
        title: "What a first call waits for".into(),
        unit:
            "microseconds on average, for one client alone; each part is what one step adds to the one before"
                .into(),
        wholes: vec![
            whole("bare handler", vec![handler.clone()]),
            whole("semel-axum-sqlite", vec![handler.clone(), layer.clone(), twice.clone(), rest(sqlite)]),
            whole("semel-axum-postgres", vec![handler.clone(), layer, twice, rest(postgres)]),
            whole(
                "semel-transact-postgres",
                vec![handler, ("claim and answer in the same commit".to_owned(), (transact - bare).max(0.0))],
            ),
        ],
    }
}
