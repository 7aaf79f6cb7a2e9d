//! Duplicate storm: a thousand concurrent duplicates of one command. Counts executions, responses, latency and the
//! server's memory meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_testkit::postgres::Cluster;

use super::report::{Aim, Section};
use super::served::Ground;
use super::{Figures, Form, Result};
use crate::chart::{Bar, Bars, Kind, count, figure};
use crate::load::{self, Keys, Outcome, Pace, Plan, Request};
use crate::peers::{Installed, Place, Settings, Store};
use crate::serve::Serve;
use crate::used;

/// Number of duplicates.
const DUPLICATES: usize = 1_000;
/// Duration of the handler: longer than duplicates need to arrive, and less than Semel's default wait of a duplicate.
const HANDLER: Duration = Duration::from_millis(150);
/// Name of the floor, which also stands behind the gateway.
const FLOOR: &str = "bare-axum";
/// Number of lines shown of the reason why a peer is missing.
const REASON_LINES: usize = 3;
const MIB: f64 = (1 << 20) as f64;

/// A server that takes part in the storm.
struct Contender {
    label: String,
    store: &'static str,
    kind: Kind,
    installed: Installed,
    /// Program of the gateway in front of it, if any.
    gateway: Option<PathBuf>,
    seen: Seen,
}

/// Figures of all rounds.
#[derive(Clone, Debug, Default)]
struct Seen {
    executions: Vec<i64>,
    statuses: BTreeMap<u16, u64>,
    unanswered: u64,
    median: Figures,
    p99: Figures,
    longest: Figures,
    mebibytes: Figures,
}

/// Runs the storm for all contenders.
pub async fn run(ground: &Ground, form: Form) -> Result<Section> {
    println!("── duplicate storm");
    let peers = ground.peers.iter();
    let peers = peers.filter(|Installed { peer, .. }| peer.store != Store::None || peer.name == FLOOR);
    let mut contenders: Vec<Contender> =
        peers.flat_map(|installed| stand(installed, &ground.semel)).collect();
    contenders.sort_by_key(|one| (one.kind != Kind::Floor, one.kind == Kind::Peer));
    let mut missing = Vec::new();
    for round in 0..form.few_rounds() {
        println!("   round {} of {}, {} servers", round + 1, form.few_rounds(), contenders.len());
        let mut left = Vec::with_capacity(contenders.len());
        for mut one in contenders {
            match one.turn(&ground.cluster, round).await {
                Err(why) if one.kind == Kind::Peer => missing.push(not_run(&one.label, why.as_ref())),
                Err(why) => return Err(format!("{}: {why}", one.label).into()),
                Ok(()) => left.push(one),
            }
        }
        contenders = left;
    }
    Ok(section(&contenders, &missing))
}

/// Makes the contenders of a peer: the peer itself, and for the floor also the gateway in front of it.
fn stand(installed: &Installed, semel: &Path) -> Vec<Contender> {
    let peer = &installed.peer;
    let one = |label: &str, store, kind, gateway| Contender {
        label: label.to_owned(),
        store,
        kind,
        installed: installed.clone(),
        gateway,
        seen: Seen::default(),
    };
    let store = peer.store.words();
    if peer.name == FLOOR {
        let gateway = one("semel serve", Store::Sqlite.words(), Kind::Ours, Some(semel.to_owned()));
        return vec![one(&peer.name, store, Kind::Floor, None), gateway];
    }
    let kind = if peer.package == "semel" { Kind::Ours } else { Kind::Peer };
    vec![one(&peer.name, store, kind, None)]
}

fn not_run(name: &str, why: &(dyn std::error::Error + Send + Sync)) -> String {
    let why = why.to_string();
    let why = why.lines().take(REASON_LINES).collect::<Vec<_>>().join("; ");
    println!("   {name} is not run: {why}");
    format!("{name} is not among them: {why}.")
}

impl Contender {
    /// Runs one storm, on a fresh server with a fresh store.
    async fn turn(&mut self, cluster: &Cluster, round: usize) -> Result<()> {
        let place = Place::prepare(cluster, &self.installed.peer).await?;
        let settings = Settings { before: HANDLER, ..Settings::default() };
        let running = self.installed.start(&place, &settings).await?;
        let gateway = match &self.gateway {
            Some(program) => Some(Serve::start(program, place.folder(), running.address(), "").await?),
            None => None,
        };
        let (address, id) = match &gateway {
            Some(gateway) => (gateway.address(), gateway.id()?),
            None => (running.address(), running.id().ok_or("the server has ended")?),
        };
        send(address, format!("first-{round}"), 1).await?;
        let idle = used::resident(id)?;
        used::forget_peak(id)?;
        let outcome = send(address, format!("storm-{round}"), DUPLICATES).await?;
        let grown = used::peak(id)?.saturating_sub(idle);
        let rows = place.rows(&format!("\"storm-{round}-{:012x}\"", 0)).await?;
        self.seen.add(&outcome, rows, grown);
        if let Some(gateway) = gateway {
            gateway.stop().await?;
        }
        running.stop().await
    }
}

/// Opens connections, and sends one request on each, all at once and under one key.
async fn send(to: SocketAddr, key: String, connections: usize) -> Result<Outcome> {
    let body = r#"{"amount": 100, "currency": "EUR"}"#;
    let request = Request::post("/payments", body, Keys::Among(key, 1))
        .field("Authorization", "Bearer alice-0123456789abcdef");
    let plan = Plan { to, request, connections, pace: Pace::AtOnce, time: Duration::ZERO };
    Ok(tokio::task::spawn_blocking(move || load::run(&plan)).await??)
}

impl Seen {
    fn add(&mut self, outcome: &Outcome, executions: i64, grown: u64) {
        self.executions.push(executions);
        for (status, count) in &outcome.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.unanswered += outcome.failed;
        let milliseconds = |part| outcome.quantile(part).as_secs_f64() * 1e3;
        self.median.push(milliseconds(0.5));
        self.p99.push(milliseconds(0.99));
        self.longest.push(milliseconds(1.0));
        self.mebibytes.push(grown as f64 / MIB);
    }

    fn ran_once(&self) -> bool {
        self.executions.iter().all(|count| *count == 1)
    }

    /// Formats the executions of all storms: a number, or a range.
    fn executions(&self) -> String {
        let number = |times: Option<&i64>| count(times.copied().unwrap_or(0).unsigned_abs());
        let (least, most) = (number(self.executions.iter().min()), number(self.executions.iter().max()));
        if least == most { least } else { format!("{least} to {most}") }
    }

    /// Formats the executions of the worst storm.
    fn most_executions(&self) -> String {
        match self.executions.iter().max() {
            Some(1) => "once".to_owned(),
            most => format!("{} times", count(most.copied().unwrap_or(0).unsigned_abs())),
        }
    }

    /// Returns the share of requests that got the handler's response.
    fn created(&self) -> f64 {
        let all = self.unanswered + self.statuses.values().sum::<u64>();
        self.statuses.get(&201).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// Formats the numbers of responses by status, of all storms together.
    fn answers(&self) -> String {
        let answered = self.statuses.iter().map(|(status, times)| format!("{} × {status}", count(*times)));
        let none = (self.unanswered > 0).then(|| format!("{} without an answer", count(self.unanswered)));
        answered.chain(none).collect::<Vec<_>>().join(", ")
    }

    /// Returns the number of server errors and of requests without a response.
    fn failures(&self) -> u64 {
        self.unanswered + self.statuses.range(500..).map(|(_, count)| count).sum::<u64>()
    }
}

fn section(contenders: &[Contender], missing: &[String]) -> Section {
    let handler = HANDLER.as_secs_f64() * 1e3;
    let columns = [
        "who",
        "store",
        "executions, right is 1",
        "p99 of the handler's time",
        "answers in all rounds",
        "p50, ms",
        "p99, ms",
        "longest, ms",
        "peak above idle, MiB",
    ];
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    let mut bars = Vec::new();
    for Contender { label, store, kind, seen, .. } in contenders {
        let (executions, mark) = match seen.ran_once() {
            true => (seen.executions(), "✓"),
            false => (format!("**{}**", seen.executions()), "✗"),
        };
        table.push(vec![
            label.clone(),
            (*store).to_owned(),
            executions,
            format!("{:.2}", seen.p99.median() / handler),
            seen.answers(),
            figure(seen.median.median()),
            seen.p99.words(),
            figure(seen.longest.median()),
            seen.mebibytes.words(),
        ]);
        bars.push(Bar {
            label: label.clone(),
            value: seen.p99.median(),
            spread: seen.p99.spread(),
            kind: *kind,
            note: format!("ms {mark} {}; {:.0} % 201", seen.most_executions(), 100.0 * seen.created()),
        });
    }
    let ours: Vec<&Seen> =
        contenders.iter().filter(|one| one.kind == Kind::Ours).map(|one| &one.seen).collect();
    let storms: usize = ours.iter().map(|seen| seen.executions.len()).sum();
    let once = ours.iter().flat_map(|seen| &seen.executions).filter(|count| **count == 1).count();
    let failures: u64 = ours.iter().map(|seen| seen.failures()).sum();
    let aims = vec![
        Aim {
            what: "Semel runs the command once, whichever way it is used".into(),
            seen: format!("once in {once} of {storms} storms"),
            is_met: once == storms,
        },
        Aim {
            what: "Semel answers everybody, and nobody with 5xx".into(),
            seen: format!(
                "{} of {} requests were",
                count((storms * DUPLICATES) as u64 - failures),
                count((storms * DUPLICATES) as u64)
            ),
            is_met: failures == 0,
        },
    ];
    let title = format!("Duplicate storm: {} at once", count(DUPLICATES as u64));
    let unit = format!(
        "p99 in milliseconds, of a handler that takes {handler:.0}, shorter is better; how often it was run (once is right); how many got its answer"
    );
    Section {
        what: format!(
            "{} connections are opened; then all send the same command under the same key at once, to a handler that takes \
             {handler:.0} ms and inserts a row. Executions are rows. A latency counts from the moment at which all are sent, and \
             the client is one thread. Every round has fresh servers with fresh stores, and one command before the storm. Memory \
             is the server's process, and its children's, without its database.",
            count(DUPLICATES as u64)
        ),
        charts: vec![("storm.svg".into(), Bars { title: title.clone(), unit, bars }.svg())],
        title,
        table,
        aims,
        why: format!(
            "201 is the handler's answer, also to those who waited for it. 409 tells a duplicate to come again, which is right as well, \
             and sooner said: a low p99 with many of them is no faster answer. {}",
            missing.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(executions: &[i64], statuses: &[(u16, u64)]) -> Seen {
        Seen {
            executions: executions.to_vec(),
            statuses: statuses.iter().copied().collect(),
            p99: [200.0].into_iter().collect(),
            ..Seen::default()
        }
    }

    #[test]
    fn a_storm_with_two_executions_or_none_is_reported_as_incorrect() {
        assert!(seen(&[1, 1], &[]).ran_once());
        assert!(!seen(&[1, 2], &[]).ran_once() && !seen(&[0, 1], &[]).ran_once());
        assert_eq!(seen(&[1, 1], &[]).executions(), "1");
        assert_eq!(seen(&[990, 1_000, 2], &[]).executions(), "2 to 1,000");
        assert_eq!(seen(&[990, 1_000, 2], &[]).most_executions(), "1,000 times");
        assert_eq!(seen(&[1, 1], &[]).most_executions(), "once");
    }

    #[test]
    fn answers_are_listed_by_status_and_failures_counted() {
        let seen = Seen { unanswered: 3, ..seen(&[1], &[(201, 1_990), (409, 5), (502, 2)]) };
        assert_eq!(seen.answers(), "1,990 × 201, 5 × 409, 2 × 502, 3 without an answer");
        assert_eq!(seen.failures(), 5);
        assert!((seen.created() - 0.995).abs() < 1e-9);
    }
}
