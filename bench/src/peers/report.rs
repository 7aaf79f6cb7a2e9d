//! Report of the findings about peers: JSON in `target/peers`, and Markdown for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::{Duplicates, Fate, Findings, Second, Tried, Verified};
use super::manifest::{Peer, Store, all};
use super::{Error, folder, sources};

/// Findings about one peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Software that ran.
    pub package: String,
    /// Version of that software.
    pub version: String,
    /// Store for responses.
    pub store: Store,
    /// Date of the trial, as `2026-01-31`.
    pub date: String,
    /// Findings, or the reason why the peer could not be installed.
    pub found: Tried<Findings>,
}

/// Findings about all peers, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    peers: BTreeMap<String, Entry>,
}

impl Report {
    fn file() -> Result<PathBuf, Error> {
        Ok(folder()?.join("correctness.json"))
    }

    /// Reads the findings of earlier runs.
    pub fn read() -> Result<Report, Error> {
        let file = Report::file()?;
        match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                format!("{}: {error}; remove it if an older version wrote it", file.display()).into()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Report::default()),
            Err(error) => Err(format!("{}: {error}", file.display()).into()),
        }
    }

    /// Replaces the findings about a peer.
    pub fn put(&mut self, peer: &Peer, date: String, found: Tried<Findings>) {
        let (package, version) = (peer.runs.clone(), peer.version.clone());
        self.peers.insert(peer.name.clone(), Entry { package, version, store: peer.store, date, found });
    }

    /// Returns the findings about a peer.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.peers.get(name)
    }

    /// Writes both files, and returns their paths.
    pub fn write(&self) -> Result<[PathBuf; 2], Error> {
        let (json, markdown) = (Report::file()?, sources().join("CORRECTNESS.md"));
        std::fs::create_dir_all(folder()?)?;
        std::fs::write(&json, serde_json::to_string_pretty(self)? + "\n")?;
        std::fs::write(&markdown, self.markdown(&all()?)?)?;
        Ok([json, markdown])
    }

    fn markdown(&self, peers: &[Peer]) -> Result<String, Error> {
        let mut out = String::from(INTRODUCTION);
        let seen: Vec<(&Peer, &Entry, &Findings)> = peers
            .iter()
            .filter_map(|peer| {
                let entry = self.peers.get(&peer.name)?;
                let Tried::Seen(findings) = &entry.found else { return None };
                Some((peer, entry, findings))
            })
            .collect();
        self.table(&mut out, &seen)?;
        out.push_str("\n## Rules of `semel verify` that are broken\n\n| peer | profile | must | should |\n|---|---|---|---|\n");
        for (peer, _, findings) in &seen {
            let Tried::Seen(verified) = &findings.verify else { continue };
            let list = |rules: &[String]| if rules.is_empty() { "none".into() } else { rules.join(", ") };
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                peer.name,
                verified.profile,
                list(&verified.must_broken),
                list(&verified.should_broken)
            )?;
        }
        out.push_str("\n## Not run\n\n");
        let mut others = 0;
        for peer in peers {
            let why = match self.peers.get(&peer.name).map(|entry| &entry.found) {
                Some(Tried::Seen(_)) => continue,
                Some(Tried::Not(why)) => why.replace('\n', " "),
                None => "not tried yet".into(),
            };
            others += 1;
            writeln!(out, "- {}: {}", peer.named(), cell(&why))?;
        }
        if others == 0 {
            out.push_str("Nothing: all of them were.\n");
        }
        out.push_str("\n## What each is, and how it was set up\n");
        for peer in peers {
            write!(out, "\n### {}\n\n", peer.name)?;
            writeln!(
                out,
                "{}{} {}, {}, store: {}.\n",
                if peer.store == Store::None { "The handler alone, in " } else { "" },
                peer.runs,
                peer.version,
                peer.language,
                peer.store.words()
            )?;
            writeln!(out, "- Durability: {}", peer.durability.trim())?;
            writeln!(out, "- Set up: {}", peer.configuration.trim())?;
            writeln!(out, "- A claim is believed for: {}", peer.claim_time.trim())?;
        }
        Ok(out)
    }

    fn table(&self, out: &mut String, seen: &[(&Peer, &Entry, &Findings)]) -> Result<(), Error> {
        out.push_str(
            "| peer | version | store | verify: musts broken | 20 keys × 50 at once | killed before the INSERT | \
             killed after the INSERT | slower than its claim | paused longer than its claim | store killed after the \
             answer | other payload | other caller | date |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (peer, entry, findings) in seen {
            let cells = [
                peer.name.clone(),
                entry.version.clone(),
                entry.store.words().into(),
                show(&findings.verify, verified),
                show(&findings.duplicates, duplicates),
                show(&findings.killed_before, fate),
                show(&findings.killed_after, fate),
                show(&findings.slow, fate),
                show(&findings.paused, fate),
                show(&findings.store_killed, fate),
                show(&findings.other_payload, second),
                show(&findings.other_caller, second),
                entry.date.clone(),
            ];
            writeln!(out, "| {} |", cells.map(|text| cell(&text)).join(" | "))?;
        }
        Ok(())
    }
}

const INTRODUCTION: &str = "# Are the answers right?

What the peers of the benchmark did when they were tried, beside how fast they are. Written by
`cargo run --release -p semel-bench --bin peers -- check`, which takes names of peers to try only these; `--debug` builds
the Rust peers sooner. Every peer is a server with the same handler, which inserts one row for each payment it makes.

How to read it:

- **rows** is how many payments there are under one key in the end. 1 is right. 0 is right where the client was told that nothing
  ran, or that the outcome is unknown, or is still refused. 2 is a payment that was made twice.
- Statuses are what clients got: the first request's, then those of its retries, without repeats. *no answer* is a connection
  that broke, which is right for a server that is killed.
- *20 keys × 50 at once*: 50 identical requests at the same time under each key, while the handler takes 50 ms. Right are 20
  rows, and no answers that name different payments.
- *killed*: `kill -9` of the server while the handler runs; it is started again, and the client retries for 12 s.
- *slower*, *paused*: claims are set to 1 s where they can be. In *slower* the handler takes 5 s and a retry comes after 2.5 s. In
  *paused* the process is stopped in the middle of the handler, the retry goes to a second process, and then the first one goes on.
- *store killed*: `kill -9` of server and store after the answer; both are started again. No power was cut: what had reached
  the operating system was kept.
- *other payload*: the same key with another amount. *other caller*: the same key and payload with another `Authorization`.
- Powertools and DBOS protect functions, not HTTP: the statuses and forms of refusals are those of the server around them.
- Peers that do not claim to hold in a case are tried in it all the same. What they say of themselves is further down.

";

fn show<T>(tried: &Tried<T>, words: fn(&T) -> String) -> String {
    match tried {
        Tried::Seen(seen) => words(seen),
        Tried::Not(why) => format!("not tried: {why}"),
    }
}

fn verified(verified: &Verified) -> String {
    match verified.must_broken.len() {
        0 if verified.must_not_tried.is_empty() => "none".into(),
        0 => format!("none; {} could not be tried", verified.must_not_tried.len()),
        count => format!("{count}: {}", verified.must_broken.join(", ")),
    }
}

fn duplicates(found: &Duplicates) -> String {
    let statuses: Vec<String> =
        found.statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    format!("**{} rows**, {} answers differ; {}", found.rows, found.differing, statuses.join(", "))
}

fn fate(fate: &Fate) -> String {
    let unknown = if fate.told_unknown { "; told unknown" } else { "" };
    format!("**{} rows**; {}, then {}{unknown}", fate.rows, fate.first, fate.retries.join(", "))
        .replace("**1 rows**", "**1 row**")
}

fn second(second: &Second) -> String {
    let got = if second.got_the_first { "got the first one's answer" } else { "not the first one's answer" };
    format!("{}; {got}; {} runs", second.answer, second.runs).replace(" 1 runs", " 1 run")
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fate_shows_the_number_of_rows() {
        let of = |rows| {
            fate(&Fate { rows, first: "201".into(), retries: vec!["409".into()], told_unknown: false })
        };
        assert_eq!(of(1), "**1 row**; 201, then 409");
        assert_eq!(of(2), "**2 rows**; 201, then 409");
    }

    #[test]
    fn untried_peer_is_listed() {
        let peers = all().expect("they can be read");
        let text = Report::default().markdown(&peers).expect("it can be written");
        for peer in peers {
            assert!(text.contains(&format!("- {}: not tried yet", peer.named())), "{}", peer.name);
        }
        assert!(text.contains("- hono-idempotency: not tried yet"), "{text}");
    }

    #[test]
    fn bare_handler_is_described_as_the_handler_alone() {
        let text = Report::default().markdown(&all().expect("they can be read")).expect("it can be written");
        let (_, bare) = text.split_once("### bare-axum\n\n").expect("it is told of");
        assert!(bare.starts_with("The handler alone, in axum 0."), "{bare}");
    }

    #[test]
    fn cell_escapes_bars_and_line_breaks() {
        assert_eq!(cell("a | b\nc"), "a \\| b c");
    }
}
