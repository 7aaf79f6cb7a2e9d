//! Comparison of contenders that take turns at the same work. The report lists the fastest first, each with its ratio
//! to its floor and with the findings about its responses.

use super::report::Section;
use super::served::{Contender, Tally};
use super::{Figures, Form, Result};
use crate::chart::{Bar, Bars, Kind, figure};
use crate::load::{Keys, Pace};

/// Gives each contender its turns: as fast as responses come, then at half of the rate it has shown.
pub async fn take_turns(
    contenders: &mut [Contender],
    form: Form,
    connections: usize,
    keys: impl Fn(&Contender, &str) -> Keys,
) -> Result<()> {
    // Contenders of one floor stand next to it.
    contenders.sort_by_key(|contender| contender.floor.clone().unwrap_or_else(|| contender.name.clone()));
    for round in 0..form.many_rounds() {
        println!("   round {} of {}", round + 1, form.many_rounds());
        for contender in contenders.iter_mut() {
            let keys = keys(contender, &format!("closed-{round}"));
            contender.turn(keys, connections, Pace::Closed, form.short_turn()).await?;
            contender.rest()?;
        }
    }
    for round in 0..form.few_rounds() {
        println!("   round {} of {} at a fixed rate", round + 1, form.few_rounds());
        for contender in contenders.iter_mut() {
            let keys = keys(contender, &format!("open-{round}"));
            let pace = Pace::Open(contender.tally.rate.median() / 2.0);
            contender.turn(keys, connections, pace, form.turn()).await?;
            contender.rest()?;
        }
    }
    Ok(())
}

/// Returns the contender with this name.
pub fn named<'a>(contenders: &'a [Contender], name: &str) -> Option<&'a Contender> {
    contenders.iter().find(|contender| contender.name == name)
}

/// Returns the microseconds of processor time that a contender takes for a response, in user mode and in the kernel.
pub fn processor_of(contenders: &[Contender], name: &str) -> [f64; 2] {
    let processor = named(contenders, name).map(|contender| &contender.tally.processor);
    processor.map_or([0.0; 2], |[program, kernel]| [program.median(), kernel.median()])
}

/// Returns the ratio of a contender's rate to its floor's.
pub fn of_floor(contenders: &[Contender], contender: &Contender) -> Option<Figures> {
    let floor = named(contenders, contender.floor.as_deref()?)?;
    Some(contender.tally.rate.beside(&floor.tally.rate))
}

/// Writes table and chart of one comparison.
pub fn section(title: &str, file: &str, what: &str, contenders: &[Contender]) -> Section {
    let mut order: Vec<&Contender> = contenders.iter().collect();
    order.sort_by(|one, other| other.tally.rate.median().total_cmp(&one.tally.rate.median()));
    let names = [
        "who",
        "store",
        "of its floor",
        "answers a second",
        "p50 and p99 at half of it, ms",
        "processor, µs",
        "kept after `kill -9` of server and store",
        "are its answers right?",
    ];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    let mut bars = Vec::new();
    for contender in order {
        let Tally { rate, open, processor, .. } = &contender.tally;
        let of_floor = of_floor(contenders, contender);
        let is_floor = contender.kind == Kind::Floor;
        table.push(vec![
            contender.name.clone(),
            contender.store.clone(),
            of_floor.as_ref().map_or_else(String::new, Figures::words),
            rate.words(),
            format!("{}, {}", milliseconds(&open[0]), milliseconds(&open[1])),
            format!("{} + {} kernel", figure(processor[0].median()), figure(processor[1].median())),
            if is_floor { String::new() } else { contender.durability().into() },
            contender.answers(),
        ]);
        let sign = match &contender.faults {
            Some(faults) if faults.is_empty() => "✓",
            Some(_) if !is_floor => "✗",
            _ => "",
        };
        let note = match of_floor {
            Some(ratio) => format!("· {} of its floor {sign}", figure(ratio.median())),
            None => String::new(),
        };
        let (value, spread, kind) = (rate.median(), rate.spread(), contender.kind);
        bars.push(Bar { label: contender.name.clone(), value, spread, kind, note });
    }
    let unit =
        "answers a second; grey: no protection; ✓ right in all trials, ✗ not: the table says in which".into();
    let chart = Bars { title: title.to_owned(), unit, bars };
    Section {
        title: title.to_owned(),
        what: what.to_owned(),
        charts: vec![(file.to_owned(), chart.svg())],
        table,
        ..Section::default()
    }
}

/// Formats microseconds as milliseconds.
fn milliseconds(figures: &Figures) -> String {
    figure(figures.median() / 1e3)
}
