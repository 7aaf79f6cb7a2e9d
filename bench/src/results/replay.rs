//! Section 1: cost of a replay.

use super::compared::{named, of_floor, processor_of, section, take_turns};
use super::report::{Aim, Section};
use super::served::{Contender, Ground};
use super::{Form, Result};
use crate::chart::{Parts, figure};
use crate::load::{Keys, Pace};
use crate::peers::Work;

/// Connections of a client.
const CONNECTIONS: usize = 32;
/// Number of keys, requested in rotation.
const KEYS: u64 = 256;
/// Number of warming turns, each twice as long as the one before, in which the slowest contender must answer all keys.
const WARMING: u32 = 6;

/// Measures all contenders.
pub async fn run(ground: &Ground, form: Form) -> Result<Section> {
    println!("── replay");
    let mut contenders = ground.peers(Work::None).await?;
    let keys = |_: &Contender, _: &str| Keys::Among("replay".into(), KEYS);
    for contender in &mut contenders {
        // The first responses are made here. Each turn begins with the first key: one turn must be long enough for all
        // of them.
        for number in 0..WARMING {
            contender.turn(keys(contender, ""), 8, Pace::Closed, form.turn() * (1 << number)).await?;
            if std::mem::take(&mut contender.tally).all >= 2 * KEYS {
                break;
            }
        }
    }
    take_turns(&mut contenders, form, CONNECTIONS, keys).await?;
    let what = format!(
        "{CONNECTIONS} connections ask for {KEYS} commands that have been answered before, again and again; the handler does \
         nothing but make its JSON. Its floor is the same server without protection, which makes its answer anew each time."
    );
    let mut section = section("Replay", "replay.svg", &what, &contenders);
    for name in ["semel-axum-memory", "semel-axum-sqlite", "semel-axum-postgres"] {
        let ratio = named(&contenders, name).and_then(|contender| of_floor(&contenders, contender));
        let ratio = ratio.unwrap_or_default();
        section.aims.push(Aim {
            what: format!("{name} replays at 0.9 of the bare handler's rate"),
            seen: ratio.words(),
            is_met: ratio.median() >= 0.9,
        });
    }
    let again: Vec<String> = contenders
        .iter()
        .filter(|contender| contender.floor.is_some() && contender.tally.runs > 0)
        .map(|contender| format!("{} {} times", contender.name, contender.tally.runs))
        .collect();
    let again = match again.is_empty() {
        true => "No handler ran again under any protection.".into(),
        false => format!("Handlers that ran again although they were protected: {}.", again.join(", ")),
    };
    let cost = |name: &str| figure(processor_of(&contenders, name).iter().sum());
    section.why = format!(
        "What is left of the distance to the floor is the layer's own work: the bare handler takes {} µs of processor for an \
         answer, a replay from memory {} µs. In between are reading the key, bringing the body into its canonical form, two \
         SHA-256 of what identifies the command, one look into the cache, two counters, and an answer whose head says in \
         four lines more what became of the command. Every store's replays are answered from the layer's own memory, so that what \
         differs between them is the machine's. The client, on the same cores, reads that longer head as well. {again}",
        cost("bare-axum"),
        cost("semel-axum-memory"),
    );
    section.charts.push(("replay-parts.svg".into(), parts(&contenders).svg()));
    for contender in contenders {
        contender.stop().await?;
    }
    Ok(section)
}

/// Divides the processor time of a replay. Replays of all stores come from the layer's own memory.
fn parts(contenders: &[Contender]) -> Parts {
    let bare = processor_of(contenders, "bare-axum");
    let http = vec![
        ("HTTP and the handler, in the program".to_owned(), bare[0]),
        ("HTTP and the handler, in the kernel".to_owned(), bare[1]),
    ];
    let replay = |name: &str| {
        let [program, kernel] = processor_of(contenders, name);
        let added = (program + kernel - bare[0] - bare[1]).max(0.0);
        let layer = ("the layer, instead of the handler".to_owned(), added);
        (name.to_owned(), [http.clone(), vec![layer]].concat())
    };
    Parts {
        title: "Where the processor's time of a replay goes".into(),
        unit: "microseconds of the server's process for one answer".into(),
        wholes: vec![
            ("bare handler".into(), http.clone()),
            replay("semel-axum-memory"),
            replay("semel-axum-sqlite"),
            replay("semel-axum-postgres"),
        ],
    }
}
