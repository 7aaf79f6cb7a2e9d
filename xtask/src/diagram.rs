//! Draws the state machine by calling `transition` itself, so that the drawing cannot be wrong.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use semel_core::policy::OnLeaseExpired;
use semel_core::state::SettledBy;
use semel_core::transition::{PhaseVerdict, Proof, Recorded, Refusal, Verdict, age};
use semel_core::{
    Attempt, AttemptToken, ClaimFence, Decision, Event, Fence, FingerprintInput, Head, Policy, Reason,
    Reference, Start, State, StateName, Terms, Timestamp, Write as Change, transition,
};

use crate::root;

const BEGIN: &str = "<!-- begin: drawn by `cargo xtask diagram` -->\n";
const END: &str = "<!-- end: drawn by `cargo xtask diagram` -->";
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LATER: Timestamp = Timestamp::from_millis(2_000_000);
const MINE: AttemptToken = AttemptToken::from_bytes([1; 16]);
const FRESH: AttemptToken = AttemptToken::from_bytes([2; 16]);

const VARIANTS: [&str; 4] =
    ["claim, store fenced", "claim, sent again", "claim by another request", "complete by a zombie"];

/// Writes the drawing into the documents.
pub(crate) fn write() -> Result<(), String> {
    for (path, drawn) in documents()? {
        std::fs::write(&path, drawn).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Checks that the documents show the state machine as it is.
pub(crate) fn check() -> Result<(), String> {
    for (path, drawn) in documents()? {
        let name = path.file_name().unwrap_or_default().display().to_string();
        if std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))? != drawn {
            return Err(format!("the state machine in {name} is not current: run `cargo xtask diagram`"));
        }
    }
    Ok(())
}

/// Returns each document as it should be.
fn documents() -> Result<Vec<(PathBuf, String)>, String> {
    let drawings = [("ARCHITECTURE.md", diagram()), ("docs/src/explanation/state-machine.md", table())];
    let between = |(name, drawing): (&str, String)| {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let (before, rest) = text.split_once(BEGIN).ok_or(format!("{name}: no line {BEGIN:?}"))?;
        let (_, after) = rest.split_once(END).ok_or(format!("{name}: no line {END:?}"))?;
        Ok((path, format!("{before}{BEGIN}{drawing}{END}{after}")))
    };
    drawings.into_iter().map(between).collect()
}

/// Returns the states, with all their times in the future.
fn states() -> [(&'static str, Option<Head>); 8] {
    let (expires_at, settled_by) = (LATER, SettledBy::Executor);
    let unknown = State::Unknown { since: NOW, reconcile_after: NOW, attempts: 0, quarantine_until: NOW };
    [
        ("none", None),
        ("Claimed", Some(head(State::Claimed { start_by: LATER, ready_at: NOW }))),
        ("Processing", Some(head(State::Processing { lease_until: LATER, start_by: None }))),
        ("Succeeded", Some(head(State::Succeeded { expires_at, settled_by }))),
        ("FailedFinal", Some(head(State::FailedFinal { expires_at, settled_by }))),
        ("FailedRetryable", Some(head(State::FailedRetryable { expires_at }))),
        ("Unknown", Some(head(unknown))),
        ("Expired", Some(head(State::Expired { forget_at: LATER }))),
    ]
}

fn attempt(token: AttemptToken, body: &[u8]) -> Attempt {
    let (content_type, content_encoding) = (None, None);
    let (method, path, query, exclude) = ("POST", "/", None, &[][..]);
    let input = FingerprintInput { method, path, query, content_type, content_encoding, body, exclude };
    Attempt {
        fingerprint: input.fingerprint(),
        token,
        terms: Policy::default().terms(),
        start: Start::Now,
        reference: Reference::None,
        fence: ClaimFence::Open,
    }
}

fn head(state: State) -> Head {
    let Attempt { fingerprint, token, terms, .. } = attempt(MINE, b"");
    let (reason, earlier_may_have_run, partly_done) = (Reason::Claimed, false, false);
    Head { fingerprint, epoch: 1, token, terms, state, reason, earlier_may_have_run, partly_done }
}

/// Returns the events, each as its rightful sender sends it.
fn events() -> Vec<(&'static str, Event)> {
    let fence = Fence { epoch: 1, token: MINE };
    let reason = Reason::Answered;
    let fresh = attempt(FRESH, b"");
    vec![
        ("claim", Event::Claim(fresh)),
        (
            "claim for a worker",
            Event::Claim(Attempt { start: Start::Within(Duration::from_secs(1)), ..fresh }),
        ),
        ("claim, sent again", Event::Claim(attempt(MINE, b""))),
        ("claim, reference taken", Event::Claim(Attempt { reference: Reference::Taken, ..fresh })),
        ("claim, store fenced", Event::Claim(Attempt { fence: ClaimFence::Closed, ..fresh })),
        ("claim, looked up first", Event::Claim(Attempt { fence: ClaimFence::LookUpFirst, ..fresh })),
        ("claim by another request", Event::Claim(attempt(FRESH, b"other"))),
        ("look", Event::Look { fingerprint: fresh.fingerprint }),
        ("start", Event::Start { fence, token: FRESH }),
        ("renew", Event::Renew { fence }),
        ("complete", Event::Complete { fence }),
        ("fail", Event::Fail { fence, reason }),
        ("release", Event::Release { fence, reason }),
        ("requeue", Event::Requeue { fence, reason, after: Duration::ZERO }),
        ("defer", Event::Defer { fence, time: Duration::from_secs(1) }),
        ("abandon", Event::Abandon { fence, reason }),
        ("complete by a zombie", Event::Complete { fence: Fence { epoch: 0, ..fence } }),
        ("verdict: executed", Event::resolve(Verdict::Succeeded)),
        ("verdict: failed", Event::resolve(Verdict::FailedFinal)),
        ("verdict: not executed", Event::resolve(Verdict::NotExecuted(Proof::Quarantine))),
        ("advance", Event::Advance),
        ("postpone", Event::Postpone { until: LATER, attempts: 0, counts: true }),
        ("doubt", Event::Doubt),
        ("free", Event::Free),
        ("purge", Event::Purge),
    ]
}

/// Returns evidence about the open call of a command in phases, whose input is stored.
fn on_open_call() -> Event {
    Event::ResolvePhase {
        epoch: 1,
        verdict: PhaseVerdict::Executed,
        seen: None,
        within: Duration::from_secs(1),
        recorded: Recorded { fits: true, has_input: true },
    }
}

fn name(state: Option<StateName>) -> &'static str {
    match state {
        None => "[*]",
        Some(StateName::Claimed) => "Claimed",
        Some(StateName::Processing) => "Processing",
        Some(StateName::Succeeded) => "Succeeded",
        Some(StateName::FailedFinal) => "FailedFinal",
        Some(StateName::FailedRetryable) => "FailedRetryable",
        Some(StateName::Unknown) => "Unknown",
        Some(StateName::Expired) => "Expired",
    }
}

/// Returns the record's next state, if it changes.
fn target(write: Change) -> Option<Option<StateName>> {
    match write {
        Change::Keep => None,
        Change::Create(head) | Change::Update(head) => Some(Some(head.state.name())),
        Change::Delete => Some(None),
    }
}

/// Returns a Mermaid drawing of every transition from one state to another.
fn diagram() -> String {
    let mut edges: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut edge = |from: Option<StateName>, to: Option<StateName>, label| {
        let labels = edges.entry((name(from), name(to))).or_default();
        if from != to && !labels.contains(&label) {
            labels.push(label);
        }
    };
    for (_, head) in states() {
        let from = head.map(|head| head.state.name());
        // Variants of an event are for the table; without a record they equal the plain event.
        for (label, event) in events().into_iter().filter(|(label, _)| !VARIANTS.contains(label)) {
            if let Some(to) = target(transition(head.as_ref(), &event, NOW).write) {
                edge(from, to, label);
            }
        }
        let Some(head) = head else { continue };
        for (on_lease_expired, label) in
            [(OnLeaseExpired::Unknown, "lease ends"), (OnLeaseExpired::Rerun, "lease ends, declared safe")]
        {
            for (tombstone_ttl, expiry) in
                [(None, "expires"), (Some(Duration::MAX), "expires, tombstone kept")]
            {
                let aged = age(
                    Head { terms: Terms { on_lease_expired, tombstone_ttl, ..head.terms }, ..head },
                    LATER,
                );
                let label = match head.state {
                    State::Processing { .. } => label,
                    State::Claimed { .. } => "never started",
                    State::Expired { .. } => "tombstone ends",
                    State::FailedRetryable { .. } | State::Unknown { .. } => "expires",
                    State::Succeeded { .. } | State::FailedFinal { .. } => expiry,
                };
                edge(from, aged.map(|head| head.state.name()), label);
            }
        }
    }
    for (_, head) in states() {
        let phased = head.map(|head| Head {
            terms: Terms { on_lease_expired: OnLeaseExpired::Resume, ..head.terms },
            ..head
        });
        let from = phased.map(|head| head.state.name());
        if let Some(to) = target(transition(phased.as_ref(), &on_open_call(), NOW).write) {
            edge(from, to, "verdict on an open call");
        }
    }
    let mut text = String::from("```mermaid\nstateDiagram-v2\n");
    for ((from, to), labels) in edges.iter().filter(|(_, labels)| !labels.is_empty()) {
        let _ = writeln!(text, "    {from} --> {to}: {}", labels.join(" / "));
    }
    text + "```\n"
}

/// Returns a table of every pair of state and event.
fn table() -> String {
    let mut text = String::from("| event |");
    states().iter().for_each(|(state, _)| text.push_str(&format!(" {state} |")));
    text.push_str("\n|---|");
    states().iter().for_each(|_| text.push_str("---|"));
    for (label, event) in events() {
        let _ = write!(text, "\n| {label} |");
        for (_, head) in states() {
            let step = transition(head.as_ref(), &event, NOW);
            let decision = match step.decision {
                Decision::Refused(Refusal::Absent) => "Refused: absent".to_owned(),
                Decision::Refused(_) => "Refused".to_owned(),
                decision => format!("{decision:?}"),
            };
            let from = head.map(|head| head.state.name());
            match target(step.write).filter(|to| *to != from) {
                Some(to) => {
                    let _ = write!(text, " **{decision}** → {} |", name(to).replace("[*]", "none"));
                }
                None => {
                    let _ = write!(text, " {decision} |");
                }
            }
        }
    }
    text + "\n"
}
