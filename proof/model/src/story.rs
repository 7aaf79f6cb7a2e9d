//! A counterexample as a story: one line in plain English for each step.

use semel_core::{Reason, State, StateName};

use crate::configuration::NOW;
use crate::model::{Despite, Step};
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::world::{
    Answer, Finding, Phase, REQUESTS, Reconciler, Row, Says, Statement, Task, Then, Token, Told, Word, World,
};

/// Path to a state from the checker: each state with the step taken in it.
pub type Path = [(World, Option<Step>)];

/// Returns the story of a path, with the broken promise at its end.
pub fn tell(model: &Protocol, path: &Path, broken: Promise) -> Vec<String> {
    let steps = path.windows(2).filter_map(|pair| {
        let step = pair[0].1?;
        Some(line(model, &pair[0].0, step, &pair[1].0))
    });
    let end = path.last().map(|(world, _)| moral(world, broken));
    steps.chain(end).collect()
}

/// Returns the last line of the story: the broken promise.
fn moral(world: &World, broken: Promise) -> String {
    let charged: Vec<String> = world.effects.iter().map(|effect| attempt(effect.by)).collect();
    match broken {
        Promise::OneEffect | Promise::OneEffectPerReference => {
            format!("=> two effects: of {}", charged.join(" and of "))
        }
        Promise::SuccessNamesEffect
        | Promise::EqualAnswers
        | Promise::OtherPayload
        | Promise::EvidenceEndsUnknown
        | Promise::SettledStays
        | Promise::HoldersWord
        | Promise::ClaimBeforeEffect
        | Promise::NothingRan
        | Promise::FinalStays
        | Promise::NothingStaysInHand
        | Promise::NothingForgottenEarly
        | Promise::NobodyWaitsForHimself
        | Promise::HeardIsNotRun
        | Promise::SecondEffectIsLoud
        | Promise::LostIsNotRun => format!("=> not so: {}", broken.name()),
    }
}

fn line(model: &Protocol, before: &World, step: Step, after: &World) -> String {
    let task = |index: usize| who(index, &before.tasks[index]);
    match step {
        Step::Tick => tick(before, after),
        Step::Leap => "the store's clock leaps 10 s forward".into(),
        Step::Send(index, node) => {
            let node = name(node);
            match after.tasks[index].phase {
                Phase::Asking(_) => format!("request {} reaches {node}, which sends a claim", index + 1),
                _ => format!("request {} reaches {node}, which answers from memory", index + 1),
            }
        }
        Step::Start(node, _) => {
            format!("{}'s worker sees the command waiting, and sends a start", name(node))
        }
        Step::Take(index) => {
            let task = &before.tasks[index];
            let Phase::Asking(statement) = task.phase else { return String::new() };
            let then = model.take(&mut before.clone(), index, statement, task.token, task.epoch);
            taken(index, before, after, statement, then)
        }
        Step::Hear(index) => match before.tasks[index].phase {
            Phase::Answered(_, Then::Tell(told, _)) => {
                format!("{} tells its client: {}", task(index), saying(told))
            }
            _ => format!("{} hears the store's answer", task(index)),
        },
        Step::LoseStatement(index, despite) => {
            let told = gives_up(before, after, index);
            format!("the statement of {} is late, or lost: {}{told}", task(index), then_does(despite))
        }
        Step::LoseAnswer(index, despite) => {
            let (then, told) = (then_does(despite), gives_up(before, after, index));
            format!("the store takes the statement of {}, and its answer is lost: {then}{told}", task(index))
        }
        Step::Stray(place) => {
            let stray = before.strays[place];
            let sender = attempt(stray.token);
            format!("the late statement of {sender} reaches the store{}", change(before, after))
        }
        Step::Look(index) => {
            format!("{} waits no longer, and tells its client what the record says", task(index))
        }
        Step::Leave(index) => match after.tasks[index].phase {
            Phase::Done => format!("{} has waited long enough: its client is to come again", task(index)),
            _ => format!("{} has waited long enough, and executes", task(index)),
        },
        Step::Renew(index) => format!("{} renews its lease", task(index)),
        Step::RenewUnheard(index) => format!("{} renews its lease, and does not hear of it", task(index)),
        Step::Check(index) => match after.tasks[index].phase {
            Phase::Checked { .. } => format!("{} looks at its lease: it may send", task(index)),
            _ => {
                format!("{} looks at its lease, which has ended: it sends nothing, and says so", task(index))
            }
        },
        Step::Call(index) => format!("{} calls the provider", task(index)),
        Step::Refused(index) => format!("{} cannot connect: nothing was sent, and it says so", task(index)),
        Step::Charge(place) => {
            let by = attempt(before.calls[place].by);
            let again = if after.effects.len() == before.effects.len() { ", as it did before" } else { "" };
            format!("the provider charges for the call of {by}{again}")
        }
        Step::Decline(place) => {
            format!("the provider declines the call of {}", attempt(before.calls[place].by))
        }
        Step::Reply(index) => {
            format!("{} gets the provider's answer, and sends it to the store", task(index))
        }
        Step::GiveUp(index) => {
            format!("{} gets no answer from the provider: {}", task(index), sends(after, index))
        }
        Step::Offer(index) => format!("{} offers its word again{}", task(index), change(before, after)),
        Step::TakeBack(index) => format!("{} takes its claim back{}", task(index), change(before, after)),
        Step::Sweep(_) => format!("the sweeper comes by{}", change(before, after)),
        Step::Reap(_) => format!("the reaper comes by{}", change(before, after)),
        Step::LookUp(_) => match after.reconciler {
            Reconciler::Looked(held, finding) => {
                let quarantined = |state| matches!(state, State::Unknown { quarantine_until, .. } if NOW < quarantine_until);
                let early = after.row(held.key).is_some_and(|row| quarantined(row.state));
                let when = if early { ", before the quarantine is over" } else { "" };
                format!("the reconciler looks at the provider{when}: {}", seen(finding))
            }
            Reconciler::Idle => "the reconciler looks for the command".into(),
        },
        Step::LookInVain(_) => "the reconciler asks the provider, and gets no answer".into(),
        Step::Conclude => format!("the reconciler says what it saw{}", change(before, after)),
        Step::Webhook(_) => format!("the provider sends an event: charged{}", change(before, after)),
        Step::SayExecuted(_) => format!("an operator says that it was executed{}", change(before, after)),
        Step::SayNotExecuted(_) => {
            format!("an operator says that it was not executed{}", change(before, after))
        }
        Step::Purge(_) => format!("an operator purges it{}", change(before, after)),
        Step::Free(_) => format!("an operator frees the key{}", change(before, after)),
        Step::Crash(node) => format!("{} dies, and starts anew", name(node)),
        Step::BackUp => "the store is backed up".into(),
        Step::Restore => format!("the store is restored{}", change(before, after)),
        Step::Lift => format!("an operator lifts the fence{}", change(before, after)),
    }
}

/// Returns the line of a tick: the tasks that slept past a deadline, and the quarantine if it is over.
fn tick(before: &World, after: &World) -> String {
    let tasks = before.tasks.iter().zip(&after.tasks).enumerate();
    let slept = tasks.filter_map(|(index, (was, is))| match (was.phase, is.phase) {
        (Phase::Ready { lease: 1.. }, Phase::Ready { lease: 0 }) => {
            Some(format!("{} sleeps past its lease", who(index, was)))
        }
        (Phase::Checked { .. }, Phase::Checked { .. }) => {
            Some(format!("{} sleeps between looking and sending", who(index, was)))
        }
        _ => None,
    });
    let over = before.rows.iter().zip(&after.rows).filter_map(|(was, is)| {
        match (was.as_ref()?.state, is.as_ref()?.state) {
            (State::Unknown { quarantine_until: was, .. }, State::Unknown { quarantine_until: is, .. }) => {
                (was > is && is <= crate::configuration::NOW).then(|| "the quarantine is over".to_owned())
            }
            _ => None,
        }
    });
    let meanwhile: Vec<String> = slept.chain(over).collect();
    if meanwhile.is_empty() { "10 s pass".into() } else { format!("10 s pass: {}", meanwhile.join("; ")) }
}

fn taken(index: usize, before: &World, after: &World, statement: Statement, then: Then) -> String {
    let task = who(index, &before.tasks[index]);
    match (statement, then) {
        (Statement::Claim | Statement::Start { .. }, Then::Execute { epoch, .. }) => {
            let what = if statement == Statement::Claim { "claim" } else { "start" };
            let late = match after.tasks[index].phase {
                Phase::Asking(_) => ", too late for the lease: it gives the command back",
                _ => "",
            };
            format!("the store takes the {what} of {task}: epoch {epoch}{late}")
        }
        (_, Then::GiveBack { .. }) => {
            let doubted = |row: &Row| row.reason == Reason::StoreRestored;
            let in_doubt = after.row(before.tasks[index].key).is_some_and(doubted);
            let why = if in_doubt { "is in doubt" } else { "has a lease that has ended" };
            format!("the store finds that the claim of {task} {why}: it gives the command back")
        }
        (_, Then::Wait) => format!("the store tells {task} that somebody else has it in hand: it waits"),
        (Statement::Word(word), Then::Tell(told, _)) => {
            let fenced = matches!(told, Told::Overruled(_)) || rows(before) == rows(after);
            let how =
                if fenced { "does not count".to_owned() } else { format!("counts{}", change(before, after)) };
            format!("{task} says that {}: it {how}; its client is told {}", what(word), saying(told))
        }
        (Statement::Word(word), _) => {
            format!("{task} says that {}{}", what(word), change(before, after))
        }
        (_, Then::Tell(told, _)) => {
            format!("the store decides about {task}: its client is told {}", saying(told))
        }
        (_, Then::End) => format!("the store has nothing for {task}"),
    }
}

/// Returns the change of the records in words.
fn change(before: &World, after: &World) -> String {
    let state = |row: &Option<Row>| row.as_ref().map(|row| row.state.name());
    let changed = before.rows.iter().zip(&after.rows).find(|(was, is)| state(was) != state(is));
    match changed {
        None => String::new(),
        Some((_, None)) => ": the record is forgotten".into(),
        Some((_, Some(row))) => format!(": the record is {}", shown(row)),
    }
}

fn shown(row: &Row) -> &'static str {
    match (row.state.name(), row.reason) {
        (StateName::FailedRetryable, _) => "free for one retry",
        (StateName::Unknown, _) => "unknown",
        (StateName::Succeeded, _) => "a success",
        (StateName::FailedFinal, _) => "a final failure",
        (StateName::Expired, Reason::Purged) => "a tombstone, until every memory must have noticed",
        (StateName::Expired, _) => "a tombstone",
        (StateName::Claimed, _) => "waiting for a worker",
        (StateName::Processing, _) => "in hand",
    }
}

fn rows(world: &World) -> [Option<(StateName, u8)>; 2] {
    world.rows.map(|row| row.map(|row| (row.state.name(), row.epoch)))
}

fn sends(after: &World, index: usize) -> &'static str {
    match after.tasks[index].phase {
        Phase::Asking(Statement::Word(Word::Release(_) | Word::Requeue(_))) => "it says that nothing ran",
        _ => "it says that it does not know",
    }
}

fn what(word: Word) -> &'static str {
    match word {
        Word::Complete(_) => "it is charged",
        Word::Fail(_) => "it is declined",
        Word::Release(_) => "nothing ran",
        Word::Requeue(_) => "nothing ran, and a worker may go on",
        Word::Abandon(_) => "nobody knows",
    }
}

fn seen(finding: Finding) -> &'static str {
    match finding {
        Finding::Charged(_) => "charged",
        Finding::Declined => "declined",
        Finding::NoRecord => "no record",
        Finding::Silence => "no answer",
    }
}

fn saying(told: Told) -> String {
    let answer = |answer: Answer| match answer.says {
        Says::Charged(by) => format!("charged, by {}", attempt(by)),
        Says::Declined => "declined".to_owned(),
    };
    match told {
        Told::Own(own) => answer(own),
        Told::Replay(stored) => format!("{} (a replay)", answer(stored)),
        Told::Overruled(stored) => format!("{} (what the record says)", answer(stored)),
        Told::InProgress => "that it is in progress".into(),
        Told::Unknown => "that the outcome is unknown".into(),
        Told::NothingRan => "that nothing ran".into(),
        Told::Mismatch => "that the key is another payload's".into(),
        Told::Expired => "that it has expired".into(),
        Told::Vacant => "to send it again".into(),
        Told::Accepted => "that a worker will run it".into(),
        Told::Duplicate => "that another command has its business reference".into(),
        Told::Fenced => "that the store may have forgotten it".into(),
    }
}

fn then_does(despite: Despite) -> &'static str {
    match despite {
        Despite::Again => "it is sent again",
        Despite::GiveUp => "its sender gives up",
    }
}

fn gives_up(before: &World, after: &World, index: usize) -> &'static str {
    let is_told = after.tasks[index].told_nothing_ran && !before.tasks[index].told_nothing_ran;
    if is_told { ", and its client is told that nothing ran" } else { "" }
}

fn name(node: u8) -> char {
    char::from(b'A' + node)
}

fn who(index: usize, task: &Task) -> String {
    let node = name(task.node);
    if index < REQUESTS { format!("{node} (request {})", index + 1) } else { format!("{node}'s worker") }
}

fn attempt(token: Token) -> String {
    let request = usize::from(token % crate::world::FRESH);
    if request <= REQUESTS { format!("request {request}") } else { format!("start {}", request - REQUESTS) }
}
