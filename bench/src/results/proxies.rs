//! Section 3: cost of a process between client and service: the gateway against plain proxies.

use super::apart::{self, Apart};
use super::report::{Aim, Section};
use super::served::{Contender, Ground, Tally};
use super::ways::{CONNECTIONS, DIRECT, Front, NGINX, THROUGH, Way, ways};
use super::{Figures, Form, Result};
use crate::chart::{Bar, Bars, Kind, figure};
use crate::load::Pace;
use crate::peers::{Store, Work};

/// Figures of one way.
struct Seen {
    name: &'static str,
    /// Figures with all processes on all cores.
    tally: Tally,
    /// Median and 99th percentile at a fixed rate, in microseconds, with the process between on cores of its own.
    latencies: [Figures; 2],
    trouble: String,
}

/// Measures all ways.
pub async fn run(ground: &Ground, form: Form) -> Result<Section> {
    println!("── gateway");
    let ways = ways();
    let rates = together(ground, form, &ways).await?;
    let mut apart = apart::run(ground, form, &ways).await?;
    let latencies = std::mem::take(&mut apart.latencies);
    let seen = ways.iter().zip(rates).zip(latencies).map(|((way, (tally, trouble)), latencies)| Seen {
        name: way.name,
        tally,
        latencies,
        trouble,
    });
    Ok(section(&seen.collect::<Vec<_>>(), &apart))
}

/// Measures as fast as responses come, with client, handler and the process between on all cores.
async fn together(ground: &Ground, form: Form, ways: &[Way]) -> Result<Vec<(Tally, String)>> {
    let mut contenders: Vec<Contender> = Vec::new();
    for way in ways {
        let mut contender = match way.front {
            Front::Nothing => ground.bare(Work::None).await?,
            Front::Proxy(proxy) => ground.proxy(proxy).await?,
            Front::Gateway => ground.gateway(Store::Sqlite, Work::None).await?,
        };
        contender.turn((way.keys)("warm"), 8, Pace::Closed, form.turn()).await?;
        contender.tally = Tally::default();
        contenders.push(contender);
    }
    for round in 0..form.many_rounds() {
        println!("   round {} of {}", round + 1, form.many_rounds());
        for (way, contender) in ways.iter().zip(&mut contenders) {
            let keys = (way.keys)(&format!("closed-{round}"));
            contender.turn(keys, CONNECTIONS, Pace::Closed, form.short_turn()).await?;
        }
    }
    let mut seen = Vec::new();
    for contender in contenders {
        seen.push((contender.tally.clone(), contender.trouble()));
        contender.stop().await?;
    }
    Ok(seen)
}

fn section(ways: &[Seen], apart: &Apart) -> Section {
    let names = [
        "way",
        "of nginx",
        "answers a second",
        "p50 at a fixed rate, ms",
        "p99 at a fixed rate, ms",
        "p99 added, ms",
        "processor of what stands between, µs",
    ];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    let of_nginx = |way: &Seen| way.tally.rate.beside(&ways[NGINX].tally.rate);
    let [half, most] = [0, 1].map(|part| move |way: &Seen| milliseconds(&way.latencies[part]));
    let added = |way: &Seen| most(way).median() - most(&ways[DIRECT]).median();
    let mut bars = Vec::new();
    for (number, way) in ways.iter().enumerate() {
        let Seen { name, tally: Tally { rate, processor, .. }, trouble, .. } = way;
        let unless_direct = |words: String| if number == DIRECT { String::new() } else { words };
        table.push(vec![
            (*name).to_owned(),
            of_nginx(way).words(),
            format!("{}{}{trouble}", rate.words(), if trouble.is_empty() { "" } else { "; " }),
            half(way).words(),
            most(way).words(),
            unless_direct(format!("{:.2}", added(way))),
            format!("{} + {} kernel", figure(processor[0].median()), figure(processor[1].median())),
        ]);
        let kind = if name.starts_with("semel") { Kind::Ours } else { Kind::Floor };
        let note = unless_direct(format!("· {} of nginx", figure(of_nginx(way).median())));
        bars.push(Bar { label: (*name).to_owned(), value: rate.median(), spread: rate.spread(), kind, note });
    }
    let chart = Bars { title: "Ways to the handler".into(), unit: "answers a second".into(), bars };
    let (through, added) = (of_nginx(&ways[THROUGH]), added(&ways[THROUGH]));
    Section {
        title: "Gateway".into(),
        what: format!(
            "{CONNECTIONS} connections to the bare handler, which does no work: directly, through plain proxies from Debian's \
             packages, and through `semel serve` on SQLite. Connections to the handler are kept by all of them. A first \
             call is two durable writes; a replay never reaches the handler. Latencies are at a fixed rate, half of what the \
             gateway passes through without a key (a first call that cannot keep up with it: half of its own). They are measured \
             with what stands between on half of the cores, and client and handler on the other half in one thread that never \
             sleeps, at {} a second, in turns of a tenth of a second: each turn has its p50 and its p99, and the figures are the \
             medians of the turns. Turns in which the machine's own host took cores away (steal) do not count: {} of {} were left \
             out.",
            figure(apart.peak / 2.0),
            apart.turns - apart.counted,
            apart.turns,
        ),
        charts: vec![("gateway.svg".into(), chart.svg()), ("gateway-latency.svg".into(), latency(ways))],
        table,
        aims: vec![
            Aim {
                what: "without a key, at least 0.8 of nginx".into(),
                seen: through.words(),
                is_met: through.median() >= 0.8,
            },
            Aim {
                what: "p99 added at half of peak load is under 1 ms, on cores of its own".into(),
                seen: format!("{added:.2} ms"),
                is_met: added < 1.0,
            },
        ],
        why: "Where all three share the cores, the slowest hundredth has mostly waited until the kernel took a core from somebody \
              else, the client among them, with plain proxies as well; that is why latencies are taken where nobody has to. What \
              the gateway does beyond a proxy: it checks every head byte by byte before anybody interprets it, names the client \
              and itself to the handler, and looks whether a request is a command."
            .into(),
    }
}

/// Draws the 99th percentiles, with the process between on cores of its own.
fn latency(ways: &[Seen]) -> String {
    let bars = ways.iter().map(|Seen { name, latencies: [half, most], .. }| {
        let p99 = milliseconds(most);
        let kind = if name.starts_with("semel") { Kind::Ours } else { Kind::Floor };
        let note = format!("ms; p50 {}", figure(milliseconds(half).median()));
        Bar { label: (*name).to_owned(), value: p99.median(), spread: p99.spread(), kind, note }
    });
    Bars {
        title: "The slowest hundredth".into(),
        unit: "p99 in milliseconds at a fixed rate, shorter is better; what stands between has its own cores"
            .into(),
        bars: bars.collect(),
    }
    .svg()
}

fn milliseconds(micros: &Figures) -> Figures {
    micros.in_units_of(1e3)
}
