//! Judges from outside how often a command ran.
//!
//! Two commands under keys of their own show which part of an answer tells two executions apart; later answers are compared
//! by that part alone. Where neither it nor a counter decides, the result is [`Runs::Unclear`] with the reason, not a guess.

use crate::client::HttpAnswer;

/// The most names of resources in one sentence.
const MAX_NAMED: usize = 3;

/// The part of an answer that tells one execution from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutionIdentity {
    /// The `Location` field.
    Location,
    /// The member `id` of a JSON body.
    Id,
    /// The whole body.
    Body,
}

impl ExecutionIdentity {
    /// Finds the part that differs between the answers of two commands, each with its key.
    pub(super) fn between(
        first: (&HttpAnswer, &str),
        second: (&HttpAnswer, &str),
    ) -> Option<ExecutionIdentity> {
        [ExecutionIdentity::Location, ExecutionIdentity::Id, ExecutionIdentity::Body].into_iter().find(
            |identity| {
                let (Some(one), Some(two)) = (identity.of(first.0), identity.of(second.0)) else {
                    return false;
                };
                // A text that repeats the key is the same however often the command ran.
                let repeats_the_key = one.contains(first.1) || two.contains(second.1);
                one != two && !repeats_the_key
            },
        )
    }

    /// Returns this part of an answer.
    pub(super) fn of(self, answer: &HttpAnswer) -> Option<String> {
        match self {
            Self::Location => answer.header("location").map(str::to_owned),
            Self::Id => match serde_json::from_slice::<serde_json::Value>(&answer.body).ok()?.get("id")? {
                serde_json::Value::String(id) => Some(id.clone()),
                serde_json::Value::Number(id) => Some(id.to_string()),
                _ => None,
            },
            Self::Body => {
                (!answer.body.is_empty()).then(|| String::from_utf8_lossy(&answer.body).into_owned())
            }
        }
    }

    /// Returns the words for reports.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Location => "the Location header",
            Self::Id => "the member `id` of the body",
            Self::Body => "the whole body",
        }
    }
}

/// The change of the counter between two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CounterChange {
    /// There is no counter, or it cannot be trusted.
    NotUsed,
    /// The counter moved by this much.
    By(i128),
    /// The counter could not be read, for this reason.
    Unreadable(String),
}

impl CounterChange {
    /// Compares two readings.
    pub(super) fn between(
        before: Option<Result<u64, String>>,
        after: Option<Result<u64, String>>,
    ) -> CounterChange {
        match (before, after) {
            (Some(Ok(before)), Some(Ok(after))) => CounterChange::By(i128::from(after) - i128::from(before)),
            (Some(Err(why)), _) | (_, Some(Err(why))) => CounterChange::Unreadable(why),
            _ => CounterChange::NotUsed,
        }
    }
}

/// Reads a counter's answer: a number, or JSON with exactly one number in it.
pub(super) fn count_in(body: &[u8]) -> Option<u64> {
    fn numbers(value: &serde_json::Value, found: &mut Vec<serde_json::Number>) {
        match value {
            serde_json::Value::Number(number) => found.push(number.clone()),
            serde_json::Value::Array(values) => values.iter().for_each(|value| numbers(value, found)),
            serde_json::Value::Object(members) => members.values().for_each(|value| numbers(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    numbers(&serde_json::from_slice(body).ok()?, &mut found);
    match found.as_slice() {
        [only] => only.as_u64(),
        _ => None,
    }
}

/// A judgement about the number of executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// The number is right; with the evidence.
    Right(String),
    /// The number is too high; with the evidence.
    TooOften(String),
    /// The number is unknown; with the reason.
    Unclear(String),
}

/// The means to tell executions apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecutionJudge {
    pub(super) identity: Option<ExecutionIdentity>,
    /// True if the endpoint answers an ordinary command with `202 Accepted`.
    pub(super) accepts: bool,
}

impl ExecutionJudge {
    /// Judges answers that must all come from one execution, while the counter should have moved by `expected`.
    pub(super) fn runs(&self, expected: i128, counted: &CounterChange, answers: &[&HttpAnswer]) -> Runs {
        let named = self.named(answers);
        if named.len() > 1 {
            return Runs::TooOften(self.too_many(&named));
        }
        match counted {
            CounterChange::By(moved) if *moved > expected => {
                Runs::TooOften(format!("the counter moved by {moved}, where {expected} was right"))
            }
            CounterChange::By(moved) if *moved == expected => Runs::Right(match named.first() {
                Some(name) => format!("the counter moved by {moved}, and the answers name {}", short(name)),
                None => format!("the counter moved by {moved}"),
            }),
            CounterChange::By(moved) => {
                Runs::Unclear(format!("the counter moved by {moved}, where {expected} was expected"))
            }
            CounterChange::Unreadable(why) => Runs::Unclear(format!("the counter could not be read: {why}")),
            CounterChange::NotUsed => self.by_name(&named, answers),
        }
    }

    fn by_name(&self, named: &[String], answers: &[&HttpAnswer]) -> Runs {
        let Some(identity) = self.identity else {
            return Runs::Unclear(
                "executions cannot be counted: there is no --count-url that can be used, and answers to two \
                 different commands look the same"
                    .to_owned(),
            );
        };
        if let Some(odd) = answers.iter().find(|answer| !answer.succeeded() && !answer.refused()) {
            return Runs::Unclear(format!("an answer was {}, which does not say whether it ran", odd.status));
        }
        let unnamed = |answer: &&&HttpAnswer| self.shows_outcome(answer) && identity.of(answer).is_none();
        match (named.first(), answers.iter().filter(unnamed).count()) {
            (Some(name), 0) => Runs::Right(format!("{} is the same: {}", identity.describe(), short(name))),
            (Some(_), unnamed) => Runs::Unclear(format!(
                "{unnamed} answers lack {}, which tells runs apart",
                identity.describe()
            )),
            (None, _) => Runs::Unclear("no answer shows what the command did".to_owned()),
        }
    }

    /// Describes the effect of a changed command that was answered with success, while the counter showed no run.
    pub(super) fn came_of_a_change(
        &self,
        first: &HttpAnswer,
        answer: &HttpAnswer,
        counted: &CounterChange,
    ) -> &'static str {
        let name = |answer| self.identity.and_then(|identity| identity.of(answer));
        match (name(first), name(answer), counted) {
            (Some(first), Some(named), _) if first == named => "it got the answer of the other command",
            (_, Some(_), _) => "it ran",
            // A replay may lack the part that tells answers apart; then the counter decides.
            (_, None, CounterChange::By(0)) => "it got the answer of the other command",
            (_, None, _) => "it ran, or got the answer of the other command",
        }
    }

    /// Returns whether an answer shows the outcome of the command. `202 Accepted` may only name the place to poll.
    pub(super) fn shows_outcome(&self, answer: &HttpAnswer) -> bool {
        answer.succeeded() && (self.accepts || answer.status != http::StatusCode::ACCEPTED)
    }

    /// Returns the distinct names in the answers that show an outcome.
    fn named(&self, answers: &[&HttpAnswer]) -> Vec<String> {
        let Some(identity) = self.identity else { return Vec::new() };
        let mut named = Vec::new();
        let outcomes = answers.iter().filter(|answer| self.shows_outcome(answer));
        for name in outcomes.filter_map(|answer| identity.of(answer)) {
            if !named.contains(&name) {
                named.push(name);
            }
        }
        named
    }

    fn too_many(&self, named: &[String]) -> String {
        let shown: Vec<String> = named.iter().take(MAX_NAMED).map(|name| short(name)).collect();
        let more = if named.len() > MAX_NAMED { ", …" } else { "" };
        let list = format!("{}{more}", shown.join(", "));
        match self.identity {
            Some(ExecutionIdentity::Body) => {
                format!("{} different bodies: it ran again, or a replay is changed: {list}", named.len())
            }
            _ => format!("the answers name {} resources: {list}", named.len()),
        }
    }
}

/// Returns the beginning of a name, for a sentence.
fn short(name: &str) -> String {
    const MAX_CHARS: usize = 60;
    let printable: String =
        name.chars().take(MAX_CHARS).map(|c| if crate::text::steers(c) { ' ' } else { c }).collect();
    if name.chars().count() > MAX_CHARS { format!("{printable}…") } else { printable }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    fn answer(status: u16, location: Option<&'static str>, body: &'static str) -> HttpAnswer {
        let location = location.map(|text| (http::header::LOCATION, HeaderValue::from_static(text)));
        HttpAnswer {
            status: StatusCode::from_u16(status).expect("it is a status"),
            headers: location.into_iter().collect::<HeaderMap>(),
            body: Bytes::from_static(body.as_bytes()),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn two_executions_are_told_apart_by_differing_location_id_or_body() {
        let between =
            |one: &HttpAnswer, two: &HttpAnswer| ExecutionIdentity::between((one, "key-1"), (two, "key-2"));
        let located = |location| answer(201, Some(location), "{}");
        assert_eq!(between(&located("/1"), &located("/2")), Some(ExecutionIdentity::Location));
        assert_eq!(between(&located("/1"), &located("/1")), None);
        let with = |body| answer(201, Some("/same"), body);
        assert_eq!(between(&with(r#"{"id":1}"#), &with(r#"{"id":2}"#)), Some(ExecutionIdentity::Id));
        assert_eq!(between(&with("one"), &with("two")), Some(ExecutionIdentity::Body));
        assert_eq!(between(&with("did key-1"), &with("did key-2")), None, "it repeats the key");
        assert_eq!(between(&answer(201, None, ""), &answer(201, None, "")), None);
    }

    #[test]
    fn runs_are_judged_by_the_counter_and_by_names() {
        let judge = ExecutionJudge { identity: Some(ExecutionIdentity::Location), accepts: false };
        let (one, two, refused) =
            (answer(201, Some("/1"), ""), answer(201, Some("/2"), ""), answer(409, None, ""));
        let runs = |counted, answers: &[&HttpAnswer]| judge.runs(1, &counted, answers);
        assert!(matches!(runs(CounterChange::NotUsed, &[&one, &one, &refused]), Runs::Right(_)));
        assert!(matches!(runs(CounterChange::NotUsed, &[&one, &two]), Runs::TooOften(_)));
        assert!(matches!(runs(CounterChange::By(1), &[&one, &two]), Runs::TooOften(_)));
        assert!(matches!(runs(CounterChange::By(2), &[&one]), Runs::TooOften(_)));
        assert!(matches!(runs(CounterChange::By(1), &[&refused]), Runs::Right(_)));
        assert!(matches!(runs(CounterChange::By(0), &[&one]), Runs::Unclear(_)));
        assert!(matches!(runs(CounterChange::NotUsed, &[&one, &answer(500, None, "")]), Runs::Unclear(_)));
        assert!(matches!(runs(CounterChange::NotUsed, &[&refused]), Runs::Unclear(_)));
        let accepted = answer(202, Some("/operations/9"), "");
        assert!(
            matches!(runs(CounterChange::NotUsed, &[&one, &accepted]), Runs::Right(_)),
            "it names no outcome"
        );
        let asynchronous = ExecutionJudge { accepts: true, ..judge };
        let other = answer(202, Some("/operations/10"), "");
        assert!(matches!(
            asynchronous.runs(1, &CounterChange::NotUsed, &[&accepted, &other]),
            Runs::TooOften(_)
        ));
        let blind = ExecutionJudge { identity: None, accepts: false };
        assert!(matches!(blind.runs(1, &CounterChange::NotUsed, &[&one]), Runs::Unclear(_)));
    }

    #[test]
    fn an_answer_without_a_name_is_no_run_where_the_counter_stood_still() {
        let judge = ExecutionJudge { identity: Some(ExecutionIdentity::Location), accepts: false };
        let (one, two, unnamed) =
            (answer(201, Some("/1"), ""), answer(201, Some("/2"), ""), answer(201, None, ""));
        let came = |answer, counted| judge.came_of_a_change(&one, answer, &counted);
        assert_eq!(came(&unnamed, CounterChange::By(0)), "it got the answer of the other command");
        assert_eq!(came(&unnamed, CounterChange::NotUsed), "it ran, or got the answer of the other command");
        assert_eq!(came(&one, CounterChange::NotUsed), "it got the answer of the other command");
        assert_eq!(came(&two, CounterChange::By(0)), "it ran");
    }

    #[test]
    fn a_counter_is_one_number() {
        for (body, count) in
            [("7", Some(7)), (" 7\n", Some(7)), (r#"{"count":7,"of":"x"}"#, Some(7)), ("[[7]]", Some(7))]
        {
            assert_eq!(count_in(body.as_bytes()), count);
        }
        for body in ["", "seven", "-1", "1.5", r#"{"a":1,"b":2}"#, "{}", "\"7\"", "[[[["] {
            assert_eq!(count_in(body.as_bytes()), None, "{body}");
        }
    }
}
