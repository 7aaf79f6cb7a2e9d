//! A scene: cases of several clients on kept connections, in turn or concurrently, with plain requests between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::answer::{self, Answer};
use crate::case::{Case, Client, Ending, Group, Wire};
use crate::draft::{Author, Credentials};
use crate::grammar;
use crate::lab::{Lab, Protocol};
use crate::over_http1::{Heard, Http1};
use crate::over_http2::{self, Http2};
use crate::upstream::World;
use semel_testkit::Chance;

/// Number of cases in a scene.
pub const CASES: u64 = 8;

/// Timeout that only a hanging case reaches.
const FOREVER: Duration = Duration::from_secs(60);

/// A connection of a scene: a client's own, or one that clients share, like behind a proxy.
type Slot = (Option<Client>, bool);

/// A case with its connection.
#[derive(Clone, Debug)]
struct Act {
    number: u64,
    slot: Slot,
    case: Case,
}

/// Description of one case: sent and received bytes.
pub(crate) struct Log {
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// Draws the cases of a scene.
fn acts(credentials: &Credentials, seed: u64, scene: u64, only: Option<Group>) -> (bool, Vec<Act>) {
    let mut chance = chance_of(seed, scene);
    let is_alone = chance.percent(75);
    let mut author =
        Author::new(chance, scene, credentials, is_alone, Protocol::of(scene) == Protocol::Http1);
    let mut acts = Vec::new();
    for number in scene * CASES..(scene + 1) * CASES {
        let group = only.unwrap_or_else(|| author.chance.pick(&Group::ALL));
        let case = grammar::draw(&mut author, group);
        let client = case.asks[0].client;
        let (slot, is_http2) = (Some(client).filter(|_| author.chance.percent(75)), case.is_http2());
        acts.push(Act { number, slot: (slot, is_http2), case });
        // The first probe is of the client most likely to get surplus bytes of the case, the next one of any client.
        let others = if group == Group::Surplus { 2 } else { usize::from(author.chance.percent(50)) };
        for other in 0..others {
            let client = if other == 0 && others > 1 { client } else { author.caller() };
            let is_http2 = author.chance.percent(40);
            let case = grammar::probe(&mut author, client, is_http2);
            acts.push(Act { number, slot: (Some(client), is_http2), case });
        }
        let is_http2 = author.chance.percent(40);
        if author.chance.percent(30)
            && let Some(case) = grammar::retry(&mut author, is_http2)
        {
            acts.push(Act { number, slot: (Some(case.asks[0].client), is_http2), case });
        }
    }
    (is_alone, acts)
}

/// Plays a scene, and returns a log of each case.
pub(crate) async fn play(lab: &Lab, seed: u64, scene: u64, only: Option<Group>) -> Vec<Log> {
    let (is_alone, acts) = acts(&lab.credentials, seed, scene, only);
    enter(&lab.world, &acts);
    if is_alone {
        let mut connections: BTreeMap<usize, Connections> = BTreeMap::new();
        let mut logs = Vec::new();
        for act in &acts {
            let connections = connections.entry(place(act.slot)).or_default();
            logs.push(perform(&lab.world, lab.front, connections, act).await);
        }
        return logs;
    }
    let mut by_slot: BTreeMap<usize, Vec<&Act>> = BTreeMap::new();
    for act in &acts {
        by_slot.entry(place(act.slot)).or_default().push(act);
    }
    let of_slot = async |acts: Vec<&Act>| {
        let mut connections = Connections::default();
        let mut logs = Vec::new();
        for act in acts {
            logs.push(perform(&lab.world, lab.front, &mut connections, act).await);
        }
        logs
    };
    join_all(by_slot.into_values().map(of_slot)).await.into_iter().flatten().collect()
}

/// Returns the index of a slot.
fn place((client, is_http2): Slot) -> usize {
    let client = client.and_then(|client| Client::ALL.iter().position(|other| *other == client));
    2 * client.unwrap_or(Client::ALL.len()) + usize::from(is_http2)
}

fn enter(world: &World, acts: &[Act]) {
    let mut book = world.book();
    for Act { number, case, .. } in acts {
        for ask in case.asks.iter().chain(&case.hidden) {
            book.enter(ask, *number, case.group);
        }
        if let Some(group) = case.group {
            *book.cases.entry(group).or_default() += 1;
        }
    }
}

/// Connections of one slot.
#[derive(Default)]
struct Connections {
    http1: Http1,
    http2: Http2,
}

/// Sends one case, and gives its responses to the judge.
async fn perform(world: &World, front: SocketAddr, connections: &mut Connections, act: &Act) -> Log {
    let Act { number, case, .. } = act;
    let asks = case.asks.len();
    let begun = Instant::now();
    let talking = async {
        match &case.wire {
            Wire::Http1 { pieces, ending } => connections.http1.send(front, pieces, *ending, asks).await,
            Wire::Http2 { steps, abandoned, ending } => {
                connections.http2.send(front, steps, abandoned, *ending, asks).await
            }
        }
    };
    let heard = match tokio::time::timeout(FOREVER, talking).await {
        Ok(heard) => heard,
        Err(_) => {
            *connections = Connections::default();
            Heard {
                fault: Some("no answer comes, and the connection stays open".to_owned()),
                ..Heard::default()
            }
        }
    };
    judge(world, *number, case, &heard);
    for ask in &case.asks {
        world.release(&ask.mark).await;
    }
    Log { number: *number, text: tell(case, &heard, begun.elapsed()) }
}

fn judge(world: &World, number: u64, case: &Case, heard: &Heard) {
    let mut book = world.book();
    if let Some(fault) = &heard.fault {
        book.violate(number, fault.clone());
    }
    for mark in answer::marks(&heard.raw) {
        if !case.asks.iter().any(|ask| ask.mark == mark) {
            book.violate(number, format!("the client got an answer to {mark}, which it did not ask for"));
        }
    }
    let is_left = match &case.wire {
        Wire::Http1 { ending, .. } | Wire::Http2 { ending, .. } => *ending == Ending::Leave,
    };
    if is_left {
        return;
    }
    let abandoned: &[usize] = match &case.wire {
        Wire::Http1 { .. } => &[],
        Wire::Http2 { abandoned, .. } => abandoned,
    };
    for (place, ask) in case.asks.iter().enumerate() {
        match heard.answers.get(place) {
            Some(Answer::None) | None if abandoned.contains(&place) => {}
            answer => book.answered(&ask.mark, answer.unwrap_or(&Answer::None)),
        }
    }
    // A refused connection says so once, also behind the last request.
    for answer in heard.answers.iter().skip(case.asks.len()) {
        if let Answer::Upstream { mark, .. } = answer {
            book.violate(number, format!("the client got one answer too many, to {mark}"));
        }
    }
}

/// Describes the case for people.
fn tell(case: &Case, heard: &Heard, took: Duration) -> String {
    let group = case.group.map_or("between", Group::as_str);
    let mut text = format!("  {group}: {}, {} ms\n", case.what, took.as_millis());
    for ask in case.asks.iter().chain(&case.hidden) {
        text += &format!(
            "    {} of {:?}: {} {}, must be {:?}, answered by {:?}\n",
            ask.mark, ask.client, ask.method, ask.target, ask.expectation, ask.script
        );
    }
    match &case.wire {
        Wire::Http1 { pieces, ending } => {
            for (after, piece) in pieces {
                let waits = if *after == crate::case::After::Response { " after a response" } else { "" };
                text += &format!("    sent{waits}: {}\n", piece.escape_ascii());
            }
            text += &format!("    then: {ending:?}\n");
        }
        Wire::Http2 { steps, ending, .. } => {
            for step in steps {
                text += &format!("    sent, from stream 1: {}\n", over_http2::bytes(step, 1).escape_ascii());
            }
            text += &format!("    then: {ending:?}\n");
        }
    }
    text += &format!("    got: {}\n    read as: {:?}\n", heard.raw.escape_ascii(), heard.answers);
    text
}

/// Returns the random source of one scene.
fn chance_of(seed: u64, scene: u64) -> Chance {
    let mut chance = Chance::new(seed ^ scene.wrapping_mul(0x0001_0000_01b3));
    chance.draw();
    chance
}
