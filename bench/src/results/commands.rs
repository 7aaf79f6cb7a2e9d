//! Section 2: cost of executing a command once, durably.

use semel_stores::PostgresStore;

use super::compared::{processor_of, section, take_turns};
use super::report::{Aim, Section};
use super::served::{Contender, Ground};
use super::stores::{LIFECYCLE, pgbench, plain, sync_rate};
use super::{Figures, Form, Result};
use crate::chart::{Kind, Parts, figure};
use crate::load::{Keys, Pace};
use crate::peers::{Store, Work};

/// Connections of a client.
const CONNECTIONS: usize = 64;
/// Contenders that are also measured with one client at a time, to divide its wait into parts.
const ALONE: [&str; 5] =
    ["bare-axum", "semel-axum-memory", "semel-axum-sqlite", "semel-axum-postgres", "semel-transact-postgres"];

/// Measures all contenders.
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
    let alone = alone(ground, &mut contenders, form).await?;
    section.charts.push(("commands-parts.svg".into(), parts(&alone).svg()));
    section.charts.push(("commands-processor.svg".into(), processor(&contenders).svg()));
    section.why = format!(
        "What is left of the distance to the floor: a claim must be on disk before the handler begins, and the outcome before \
         anybody is told, so that one client alone waits for two writes more than the bare handler's one ({} µs each here). \
         With many clients these are shared, and what remains is processor: reading, deciding and writing a record twice, \
         on the same {} cores that the client, the handler and its database have: the last chart shows the part of it that is the \
         server's own. `transact` waits for no write of its own, but \
         for a transaction's statements, one after the other. Redis with `appendfsync always` is as durable as its \
         file, but whoever stores an answer there after the handler has run, in a store that is not the handler's, has a gap \
         in between, which the last column shows.",
        figure(alone.sync),
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    for contender in contenders {
        contender.stop().await?;
    }
    Ok(section)
}

/// Aim that the best of ours is faster than the best peer for which `is_so` holds.
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

/// Waits of a single client, in microseconds.
struct Alone {
    /// Response time of each contender in `ALONE`.
    waits: [f64; 5],
    /// Write that reaches the disk.
    sync: f64,
    /// INSERT, then UPDATE of a row, each durable before the next: by SQLite, and by PostgreSQL over one connection.
    sqlite: f64,
    postgres: f64,
}

async fn alone(ground: &Ground, contenders: &mut [Contender], form: Form) -> Result<Alone> {
    println!("   one client alone");
    let (mut waits, mut floors): ([Figures; 5], [Figures; 3]) = Default::default();
    let folder = tempfile::TempDir::new()?;
    let database = ground.cluster.create_database()?;
    PostgresStore::open(&database.url().parse()?).await?;
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
        let time = form.turn() / 4;
        let rates = tokio::task::block_in_place(|| -> Result<[f64; 3]> {
            Ok([
                sync_rate(folder.path(), time)?,
                plain(folder.path(), round, time)?,
                pgbench(&database.url(), LIFECYCLE, 1, time)?,
            ])
        });
        floors.iter_mut().zip(rates?).for_each(|(floor, rate)| floor.push(1e6 / rate));
    }
    let [sync, sqlite, postgres] = floors.map(|figures| figures.median());
    Ok(Alone { waits: waits.map(|figures| figures.median()), sync, sqlite, postgres })
}

/// Returns the part that one step adds to the steps before it.
fn part(name: &str, micros: f64) -> (String, f64) {
    (name.to_owned(), micros.max(0.0))
}

/// Divides the wait of a first call: each step with its addition to the one before.
fn parts(alone: &Alone) -> Parts {
    let [bare, memory, sqlite, postgres, transact] = alone.waits;
    let handler = part("HTTP, the handler and its INSERT", bare);
    let layer = part("the layer", memory - bare);
    let disk = 2.0 * alone.sync;
    let on_store = |name: &str, whole: f64, [database, store]: [&str; 2], plain: f64| {
        let parts = vec![
            handler.clone(),
            layer.clone(),
            part("two writes that reach the disk", disk),
            part(database, plain - disk),
            part(store, whole - memory - plain),
        ];
        (name.to_owned(), parts)
    };
    let of_sqlite = [
        "two plain transactions of SQLite, without the disk",
        "the store: the whole record, and the way to its one writer",
    ];
    let of_postgres = [
        "two plain transactions of PostgreSQL, without the disk (pgbench, one client)",
        "the store: statements for many records at once, and the way to their connection",
    ];
    Parts {
        title: "What a first call waits for".into(),
        unit:
            "microseconds on average, for one client alone; each part is what one step adds to the one before"
                .into(),
        wholes: vec![
            ("bare handler".into(), vec![handler.clone()]),
            on_store("semel-axum-sqlite", sqlite, of_sqlite, alone.sqlite),
            on_store("semel-axum-postgres", postgres, of_postgres, alone.postgres),
            (
                "semel-transact-postgres".into(),
                vec![handler.clone(), part("claim and answer in the same commit", transact - bare)],
            ),
        ],
    }
}

/// Divides the processor time of a first call under concurrent load.
fn processor(contenders: &[Contender]) -> Parts {
    let used = |name: &str| processor_of(contenders, name).iter().sum::<f64>();
    let (bare, memory) = (used("bare-axum"), used("semel-axum-memory"));
    let handler = part("HTTP, the handler and its INSERT", bare);
    let layer = part("the layer", memory - bare);
    let on_store = |name: &str, store: &str| {
        (name.to_owned(), vec![handler.clone(), layer.clone(), part(store, used(name) - memory)])
    };
    let transact = "semel-transact-postgres";
    let within = part("claim and answer, as a client of PostgreSQL", used(transact) - bare);
    Parts {
        title: format!("What a first call takes of the processor, {CONNECTIONS} at a time"),
        unit: "microseconds of the server's process for one answer; a database's own processes are not in it"
            .into(),
        wholes: vec![
            ("bare handler".into(), vec![handler.clone()]),
            on_store("semel-axum-sqlite", "the store, SQLite within"),
            on_store("semel-axum-postgres", "the store, as a client of PostgreSQL"),
            (transact.into(), vec![handler.clone(), within]),
        ],
    }
}
