//! Section 3: what stands between a client and its service costs: the gateway beside plain proxies.

use super::report::{Aim, Section};
use super::served::{Contender, Ground, Proxy, Tally};
use super::{Form, Result};
use crate::chart::{Bar, Bars, Kind, figure};
use crate::load::{Keys, Pace};
use crate::peers::{Store, Work};

/// How many connections a client has.
const CONNECTIONS: usize = 64;
/// How many keys are asked for again, in turn.
const KEYS: u64 = 256;

/// One way to the handler.
struct Way {
    name: &'static str,
    keys: fn(&str) -> Keys,
    contender: Contender,
}

/// Measures all ways.
pub async fn run(ground: &Ground, form: Form) -> Result<Section> {
    println!("── gateway");
    let none: fn(&str) -> Keys = |_| Keys::None;
    let again: fn(&str) -> Keys = |_| Keys::Among("again".into(), KEYS);
    let gateway = async || ground.gateway(Store::Sqlite, Work::None).await;
    let mut ways = vec![
        Way { name: "direct", keys: none, contender: ground.bare(Work::None).await? },
        Way { name: "nginx", keys: none, contender: ground.proxy(Proxy::Nginx).await? },
        Way { name: "HAProxy", keys: none, contender: ground.proxy(Proxy::Haproxy).await? },
        Way { name: "semel, without a key", keys: none, contender: gateway().await? },
        Way { name: "semel, replay", keys: again, contender: gateway().await? },
        Way {
            name: "semel, first call",
            keys: |turn| Keys::Fresh(format!("new-{turn}")),
            contender: gateway().await?,
        },
    ];
    for way in &mut ways {
        way.contender.turn((way.keys)("warm"), 8, Pace::Closed, form.turn()).await?;
        way.contender.tally = Tally::default();
    }
    for round in 0..form.rounds() {
        println!("   round {} of {}", round + 1, form.rounds());
        for way in &mut ways {
            let keys = (way.keys)(&format!("closed-{round}"));
            way.contender.turn(keys, CONNECTIONS, Pace::Closed, form.turn()).await?;
        }
    }
    let peak = ways[3].contender.tally.rate.median();
    for round in 0..form.rounds() {
        println!("   round {} of {} at a fixed rate", round + 1, form.rounds());
        for way in &mut ways {
            let keys = (way.keys)(&format!("open-{round}"));
            // All at the same rate; one that cannot keep up with it, at half of its own.
            let rate = peak.min(way.contender.tally.rate.median()) / 2.0;
            way.contender.turn(keys, CONNECTIONS, Pace::Open(rate), form.turn()).await?;
        }
    }
    let section = section(&ways, peak);
    for way in ways {
        way.contender.stop().await?;
    }
    Ok(section)
}

fn section(ways: &[Way], peak: f64) -> Section {
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
    let rate = |number: usize| ways[number].contender.tally.rate.median();
    let of_nginx = |number: usize| ways[number].contender.tally.rate.beside(&ways[1].contender.tally.rate);
    let p99 = |number: usize| ways[number].contender.tally.open[1].median() / 1e3;
    let mut bars = Vec::new();
    for (number, Way { name, contender, .. }) in ways.iter().enumerate() {
        let Tally { open, processor, .. } = &contender.tally;
        let of_nginx = of_nginx(number);
        let trouble = contender.trouble();
        table.push(vec![
            (*name).to_owned(),
            of_nginx.words(),
            format!(
                "{}{}{trouble}",
                contender.tally.rate.words(),
                if trouble.is_empty() { "" } else { "; " }
            ),
            figure(open[0].median() / 1e3),
            spread_of_milliseconds(contender),
            if number == 0 { String::new() } else { format!("{:.2}", p99(number) - p99(0)) },
            format!("{} + {} kernel", figure(processor[0].median()), figure(processor[1].median())),
        ]);
        let kind = if name.starts_with("semel") { Kind::Ours } else { Kind::Floor };
        let (value, spread) = (rate(number), contender.tally.rate.spread());
        let note =
            if number == 0 { String::new() } else { format!("· {} of nginx", figure(of_nginx.median())) };
        bars.push(Bar { label: (*name).to_owned(), value, spread, kind, note });
    }
    let (through, added) = (of_nginx(3).median(), p99(3) - p99(0));
    let chart = Bars { title: "Ways to the handler".into(), unit: "answers a second".into(), bars };
    Section {
        title: "Gateway".into(),
        what: format!(
            "{CONNECTIONS} connections to the bare handler, which does no work: directly, through plain proxies from Debian's \
             packages, and through `semel serve` on SQLite. Connections to the handler are kept by all of them. The fixed rate \
             is {} a second, half of what the gateway passes through without a key (a first call that cannot keep up with it: \
             half of its own). A first call is two durable writes; a replay never reaches the handler.",
            figure(peak / 2.0)
        ),
        charts: vec![("gateway.svg".into(), chart.svg())],
        table,
        aims: vec![
            Aim {
                what: "without a key, at least 0.8 of nginx".into(),
                seen: format!("{through:.2}"),
                is_met: through >= 0.8,
            },
            Aim {
                what: "p99 added at half of peak load is under 1 ms".into(),
                seen: format!("{added:.2} ms"),
                is_met: added < 1.0,
            },
        ],
        why: "Client, proxy and handler share the same cores, so that half of what passes through at most is far more than half of \
              what the machine can do: what waits here waits for a processor, and whoever needs more of it for a request \
              waits longer. What the gateway does beyond a proxy: it checks every head byte by byte before anybody \
              interprets it, names the client and itself to the handler, and looks whether a request is a command."
            .into(),
    }
}

fn spread_of_milliseconds(contender: &Contender) -> String {
    let figures = &contender.tally.open[1];
    let (low, high) = figures.spread();
    format!("{} ({} to {})", figure(figures.median() / 1e3), figure(low / 1e3), figure(high / 1e3))
}
