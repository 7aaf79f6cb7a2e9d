//! Timeline of one command, and the actions that are possible now.

use semel_core::{
    NoteTaken, OperationId, Progress, Reason, Record, State, StateName, Step, StepKind, Timestamp,
};
use semel_flow::reconcile::{CONTRADICTION, RECONCILER, is_dead_letter};
use semel_settings::Config;
use serde_json::{Value, json};

use super::printable;
use super::records::{FIRST_ATTEMPT, FoundCommand, look_for, summary};

/// Context of a story beside the store.
pub struct Around<'a> {
    /// Flags for the store that follow the commands in the story.
    pub same_store: &'a str,
    /// Current settings, which decide if a late answer is read.
    pub config: &'a Config,
}

/// Returns the story as JSON. The names are stable.
pub fn to_json(id: OperationId, found: &FoundCommand, around: &Around<'_>) -> Value {
    let mut story = found.record.as_ref().map_or(json!({ "operationId": id.to_string() }), summary);
    story["timeline"] = timeline(found).iter().map(StoryEntry::to_json).collect();
    let unknown = |record: &&Record| matches!(record.head.state, State::Unknown { .. });
    if let Some(record) = found.record.as_ref().filter(unknown) {
        story["lookFor"] = look_for(record);
    }
    story["next"] = next(found.record.as_ref(), found.now, around).into();
    story
}

/// Event in the life of a command.
pub enum StoryEntry<'a> {
    /// Step of the record.
    Step(Step),
    /// Action of an operator.
    Note(&'a NoteTaken),
    /// Beginning of a phase's call.
    Begun(&'a Progress),
    /// End of a phase.
    Done(&'a Progress, Timestamp),
}

/// Returns the events in order. An operator's action comes before the step that it led to.
pub fn timeline(found: &FoundCommand) -> Vec<StoryEntry<'_>> {
    let FoundCommand { record, notes, steps: phases, .. } = found;
    let (mut calls, mut done, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for phase in phases {
        match (&phase.what, phase.done_at) {
            (StepKind::Item { .. }, _) => {}
            (StepKind::Local { .. }, at) => done.push(StoryEntry::Done(phase, at.unwrap_or(phase.began_at))),
            (StepKind::External { .. }, Some(at)) => {
                calls.push(StoryEntry::Begun(phase));
                done.push(StoryEntry::Done(phase, at));
            }
            (StepKind::External { .. }, None) => left.push(StoryEntry::Begun(phase)),
        }
    }
    let steps = record.iter().flat_map(|record| record.history.steps()).map(StoryEntry::Step);
    let mut timeline: Vec<StoryEntry<'_>> = notes.iter().map(StoryEntry::Note).chain(steps).collect();
    timeline.extend(calls.into_iter().chain(done).chain(left));
    timeline.sort_by_key(StoryEntry::at);
    timeline
}

impl StoryEntry<'_> {
    /// Returns the time of the event.
    pub fn at(&self) -> Timestamp {
        match self {
            StoryEntry::Step(step) => step.at,
            StoryEntry::Note(taken) => taken.at,
            StoryEntry::Begun(phase) => phase.began_at,
            StoryEntry::Done(_, at) => *at,
        }
    }

    /// Describes the event in a sentence.
    pub fn tell(&self) -> String {
        match self {
            StoryEntry::Step(step) => tell(step),
            StoryEntry::Note(taken) => {
                let note = &taken.note;
                if note.action == CONTRADICTION {
                    return printable(&format!(
                        "CONTRADICTION, which an operator must look into: {}",
                        note.why
                    ));
                }
                let whose = if note.who == RECONCILER { "by itself" } else { "by hand" };
                printable(&format!("{whose}: {} by {}, because: {}", note.action, note.who, note.why))
            }
            StoryEntry::Begun(phase) => {
                let (how, again) = match phase.what {
                    StepKind::External { deduplicated: true, .. } => {
                        ("deduplicates on its key", "may be made again")
                    }
                    _ => ("does not deduplicate", "is never made again"),
                };
                let Progress { name, .. } = phase;
                printable(&format!("phase {name}: its call is begun; the receiver {how}, so it {again}"))
            }
            StoryEntry::Done(phase, _) => printable(&format!("phase {}: done", phase.name)),
        }
    }

    fn to_json(&self) -> Value {
        let mut entry = json!({ "at": self.at().to_rfc3339(), "what": self.tell() });
        match self {
            StoryEntry::Step(step) => {
                entry["epoch"] = step.epoch.into();
                entry["state"] = step.state.as_str().into();
                entry["reason"] = step.reason.as_str().into();
                if let Some((times, last)) = step.again {
                    entry["again"] = json!({ "times": times, "last": last.to_rfc3339() });
                }
            }
            StoryEntry::Note(taken) => {
                entry["who"] = taken.note.who.as_str().into();
                entry["action"] = taken.note.action.as_str().into();
                entry["why"] = taken.note.why.as_str().into();
            }
            StoryEntry::Begun(phase) | StoryEntry::Done(phase, _) => {
                entry["phase"] = phase.name.as_str().into();
            }
        }
        entry
    }
}

/// Describes one step in a sentence.
fn tell(step: &Step) -> String {
    let Step { epoch, state, .. } = step;
    let what = match step.reason {
        Reason::HandlerUnsure | Reason::TimedOut | Reason::Panicked if *state == StateName::Claimed => {
            let what = match step.reason {
                Reason::TimedOut => "a phase took too long",
                Reason::Panicked => "a phase panicked",
                _ => "the outcome of a call is unknown, and the call may be made again",
            };
            format!("{what}: it waits to be resumed, as epoch {epoch}")
        }
        Reason::Claimed if *state == StateName::Claimed => "accepted, to be run by a worker".to_owned(),
        Reason::Claimed if *epoch > 1 => format!("claimed anew, as epoch {epoch}, and run at once"),
        Reason::Claimed => format!("claimed, as epoch {epoch}, and run at once"),
        Reason::Started => format!("taken up by a worker, as epoch {epoch}"),
        Reason::Deferred => "committed, and its outcome left to the message that it sends".to_owned(),
        Reason::PartlyDone => "partly done: the same request, sent again, does the rest".to_owned(),
        Reason::Answered => format!("answered: {state}, and kept for retries"),
        Reason::NotExecuted if *state == StateName::Claimed => {
            format!("proven not executed: it waits for a worker again, as epoch {epoch}")
        }
        Reason::NotExecuted if *state == StateName::Unknown => {
            "given up between two of its phases: unknown".to_owned()
        }
        Reason::NotExecuted => "proven not executed: the key is free for one retry".to_owned(),
        Reason::ServerError if *state == StateName::Unknown => {
            "answered with a server error, which says nothing about the effect: unknown".to_owned()
        }
        Reason::ServerError => format!("answered with a server error: {state}, as the operation declares"),
        Reason::HandlerUnsure => "the service said that it does not know itself: unknown".to_owned(),
        Reason::TimedOut => "no answer in time: unknown".to_owned(),
        Reason::BrokeOff => "the connection or the answer broke off: unknown".to_owned(),
        Reason::Panicked => "the handler panicked: unknown".to_owned(),
        Reason::ShutDown => "its process was shut down before the answer came: unknown".to_owned(),
        Reason::LeaseExpired if *state == StateName::Unknown => {
            "its lease expired without a word from the executor: unknown".to_owned()
        }
        Reason::LeaseExpired if *state == StateName::Claimed => {
            format!(
                "its lease expired without a word from the executor: it waits to be resumed, as epoch \
                 {epoch}"
            )
        }
        Reason::LeaseExpired => {
            format!("its lease expired without a word from the executor: {state}, as the operation declares")
        }
        Reason::DeferralExpired => "its message was not delivered in time: unknown".to_owned(),
        Reason::MessageDead => "its message is given up: unknown".to_owned(),
        Reason::NeverStarted if *state == StateName::Unknown => {
            "it was not resumed in time: unknown".to_owned()
        }
        Reason::NeverStarted => "no worker took it up in time: nothing ran, the key is free".to_owned(),
        Reason::ClaimUnconfirmed => "its claim could not be confirmed, so nothing was started".to_owned(),
        Reason::VerdictExecuted if in_phases(*state, *epoch) => {
            format!("evidence says that its open call was executed: it goes on after it, as epoch {epoch}")
        }
        Reason::VerdictNotExecuted | Reason::VerdictDeduplicated if *state == StateName::Claimed => {
            format!("evidence says that its open call was not executed: it waits to be resumed, as epoch {epoch}")
        }
        Reason::Resumed => format!("resumed by an operator, with no call open, as epoch {epoch}"),
        Reason::VerdictExecuted => format!("evidence says that it was executed: {state}"),
        Reason::VerdictNotExecuted => {
            "evidence says that it was not executed: the key is free for one retry".to_owned()
        }
        Reason::VerdictDeduplicated => {
            "evidence says that it was not executed so far, and that it is never executed twice: the key is free for one retry"
                .to_owned()
        }
        Reason::Expired => "its time to live ended: the response is gone".to_owned(),
        Reason::Purged => "purged: the response is gone".to_owned(),
        Reason::StoreRestored => {
            "the store was restored, and may have forgotten attempts at it: unknown".to_owned()
        }
    };
    match (step.again, state) {
        (None, _) => what,
        (Some((times, last)), StateName::Unknown) => {
            format!("{what}; evidence was sought {}, last at {last}", count(times))
        }
        (Some((times, last)), _) => format!("{what}; its lease was renewed {}, last at {last}", count(times)),
    }
}

/// Returns true if a verdict with this resulting state was about the open call, and not about the whole
/// command.
fn in_phases(state: StateName, epoch: semel_core::Epoch) -> bool {
    matches!(state, StateName::Claimed | StateName::FailedRetryable) && epoch > 1
}

fn count(times: u32) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

/// Describes the answer to a retry now, and the operator's possible actions.
pub fn next(record: Option<&Record>, now: Timestamp, around: &Around<'_>) -> String {
    let same_store = around.same_store;
    let Some(record) = record else {
        return "now: deleted; a request with this key is a new command, and runs".to_owned();
    };
    let id = record.operation_id;
    let attempt = match record.head.epoch {
        FIRST_ATTEMPT => String::new(),
        epoch => format!(" --attempt {epoch}"),
    };
    match record.head.state {
        State::Claimed { start_by, .. } => format!("now: waits for a worker, until {start_by}"),
        State::Processing { lease_until, .. } if lease_until <= now => {
            "now: its lease has expired; the next retry or sweep records that".to_owned()
        }
        State::Processing { lease_until, .. } => {
            format!("now: runs, with a lease until {lease_until}; a retry waits for it, then gets 409")
        }
        State::Succeeded { expires_at, .. } | State::FailedFinal { expires_at, .. } => {
            let status = record.result.as_ref().map_or(String::new(), |result| format!(" {}", result.status));
            let response = record.result.as_ref().and_then(|result| result.response.decode().ok());
            let body = match response {
                Some(response) if response.body.is_none() => match response.resource() {
                    Some(_) => {
                        ", without its body, which was not stored: it may be at the record's `resource`"
                    }
                    None => ", without its body, which was not stored",
                },
                Some(_) | None => "",
            };
            format!("now: settled; a retry gets the stored{status}{body} until {expires_at}")
        }
        State::FailedRetryable { .. } if record.head.partly_done => {
            "now: partly done; the same request under the same key does the rest".to_owned()
        }
        State::FailedRetryable { expires_at } => {
            format!("now: free; one retry runs it, and after {expires_at} the record is deleted")
        }
        State::Unknown { quarantine_until, .. } if record.head.is_phased() => {
            phased(record, quarantine_until, now, same_store)
        }
        State::Unknown { quarantine_until, reconcile_after, .. } => format!(
            "now: unknown; retries get 409 until there is evidence. {}{}Look where the effect would be, then:\n  \
             semel records resolve {id}{attempt} --verdict executed --status 201 --body FILE --reason TEXT{same_store}\n  \
             semel records resolve {id}{attempt} --verdict not-executed --reason TEXT{same_store}{}\n\
             Its call: {}{}",
            late_answer(record, now, around.config).map_or(String::new(), |until| {
                format!(
                    "Its answer is still read until {until}, if its request was sent whole, and settles it. "
                )
            }),
            if reconcile_after > now && !is_dead_letter(&record.head.state) {
                format!("The next look-up is at {reconcile_after}, or now with `semel reconcile {id}`. ")
            } else {
                String::new()
            },
            if quarantine_until <= now {
                String::new()
            } else {
                format!("    (from {quarantine_until} on: a call may still be in flight)")
            },
            traces(record),
            if record.head.terms.keep_request {
                format!(
                    "\nIts request is kept until then:\n  semel records request {id} --reason TEXT{same_store}"
                )
            } else {
                String::new()
            }
        ),
        State::Expired { forget_at } if forget_at <= now => {
            "now: a tombstone whose time is over; a request with this key runs the command again".to_owned()
        }
        State::Expired { forget_at } => format!(
            "now: a tombstone; retries get 410 until {forget_at}. After that, a request with this key runs the command again"
        ),
    }
}

/// Returns the time until which a late answer is still read, by the current settings.
fn late_answer(record: &Record, now: Timestamp, config: &Config) -> Option<Timestamp> {
    let State::Unknown { since, .. } = record.head.state else { return None };
    let is_timeout = record.head.reason == Reason::TimedOut;
    let late = config.policy_of(&record.operation).late_answer.filter(|_| is_timeout)?;
    Some(since.plus(late)).filter(|until| *until > now)
}

/// Returns the identifiers of this command's call.
fn traces(record: &Record) -> String {
    let (id, epoch) = (record.operation_id, record.head.epoch);
    let begun = record.history.began(epoch).map_or(String::new(), |at| format!(", begun at {at}"));
    let seen = record.history.observation().map_or(String::new(), |seen| format!(" ({})", printable(seen)));
    format!("Semel-Operation-Id {id}, Semel-Attempt {epoch}{begun}{seen}")
}

/// Describes the operator's possible actions on an unknown command in phases: they concern its open call.
fn phased(record: &Record, quarantine_until: Timestamp, now: Timestamp, same_store: &str) -> String {
    let (id, attempt) = (record.operation_id, record.head.epoch);
    let early = if quarantine_until <= now {
        String::new()
    } else {
        format!("    (from {quarantine_until} on: a call may still be in flight)")
    };
    format!(
        "now: unknown; retries get 409 until there is evidence about its open call, which `semel records show` names. \
         Look where the effect of that call would be, then:\n  \
         semel records resolve {id} --attempt {attempt} --phase NAME --verdict executed --output FILE --reason \
         TEXT{same_store}\n  \
         semel records resolve {id} --attempt {attempt} --phase NAME --verdict not-executed --reason \
         TEXT{same_store}{early}\n\
         If no call is open:\n  \
         semel records resolve {id} --attempt {attempt} --verdict resume --reason TEXT{same_store}"
    )
}
