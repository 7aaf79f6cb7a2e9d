//! How often a command ran, as far as that can be told from outside.
//!
//! Two commands under keys of their own show what tells two executions apart; only that is used afterwards. What
//! cannot be told is [`Runs::Unclear`], with the reason: nothing here guesses.

use super::client::Answer;

/// How many names of resources a sentence lists.
const MAX_NAMED: usize = 3;

/// What in an answer tells one execution from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The `Location` field.
    Location,
    /// The member `id` of a JSON body.
    Id,
    /// The whole body.
    Body,
}

impl Identity {
    /// What tells these two apart, the answers of two commands that differ in nothing but their keys.
    pub(super) fn between(first: (&Answer, &str), second: (&Answer, &str)) -> Option<Identity> {
        [Identity::Location, Identity::Id, Identity::Body].into_iter().find(|identity| {
            let (Some(one), Some(two)) = (identity.of(first.0), identity.of(second.0)) else { return false };
            // What merely repeats the key would be the same however often the command ran.
            let repeats_the_key = one.contains(first.1) || two.contains(second.1);
            one != two && !repeats_the_key
        })
    }

    /// What this answer names.
    pub(super) fn of(self, answer: &Answer) -> Option<String> {
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

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Location => "the Location header",
            Self::Id => "the member `id` of the body",
            Self::Body => "the whole body",
        }
    }
}

/// What the counter did meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// There is none, or it cannot be trusted.
    NotUsed,
    /// It moved by this much.
    By(i128),
    /// It could not be read.
    Unreadable(String),
}

impl Counted {
    pub(super) fn between(
        before: Option<Result<u64, String>>,
        after: Option<Result<u64, String>>,
    ) -> Counted {
        match (before, after) {
            (Some(Ok(before)), Some(Ok(after))) => Counted::By(i128::from(after) - i128::from(before)),
            (Some(Err(why)), _) | (_, Some(Err(why))) => Counted::Unreadable(why),
            _ => Counted::NotUsed,
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

/// How often something ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// As often as it should; and how that is known.
    Right(String),
    /// More often; and what shows it.
    TooOften(String),
    /// Nobody can tell; and why.
    Unclear(String),
}

/// What executions are judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    pub(super) identity: Option<Identity>,
    /// Whether `202 Accepted` is how the endpoint answers a command that nothing is wrong with.
    pub(super) accepts: bool,
}

impl Judge {
    /// Judges answers that must all come from one execution, while the counter should have moved by `expected`.
    pub(super) fn runs(&self, expected: i128, counted: &Counted, answers: &[&Answer]) -> Runs {
        let named = self.named(answers);
        if named.len() > 1 {
            return Runs::TooOften(self.too_many(&named));
        }
        match counted {
            Counted::By(moved) if *moved > expected => {
                Runs::TooOften(format!("the counter moved by {moved}, where {expected} was right"))
            }
            Counted::By(moved) if *moved == expected => Runs::Right(match named.first() {
                Some(name) => format!("the counter moved by {moved}, and the answers name {}", short(name)),
                None => format!("the counter moved by {moved}"),
            }),
            Counted::By(moved) => {
                Runs::Unclear(format!("the counter moved by {moved}, where {expected} was expected"))
            }
            Counted::Unreadable(why) => Runs::Unclear(format!("the counter could not be read: {why}")),
            Counted::NotUsed => self.by_name(&named, answers),
        }
    }

    fn by_name(&self, named: &[String], answers: &[&Answer]) -> Runs {
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
        let unnamed = |answer: &&&Answer| self.shows_outcome(answer) && identity.of(answer).is_none();
        match (named.first(), answers.iter().filter(unnamed).count()) {
            (Some(name), 0) => Runs::Right(format!("{} is the same: {}", identity.describe(), short(name))),
            (Some(_), unnamed) => Runs::Unclear(format!(
                "{unnamed} answers lack {}, which tells runs apart",
                identity.describe()
            )),
            (None, _) => Runs::Unclear("no answer shows what the command did".to_owned()),
        }
    }

    /// What a changed command came to that was answered with success, while the counter showed no run.
    pub(super) fn came_of_a_change(
        &self,
        first: &Answer,
        answer: &Answer,
        counted: &Counted,
    ) -> &'static str {
        let name = |answer| self.identity.and_then(|identity| identity.of(answer));
        match (name(first), name(answer), counted) {
            (Some(first), Some(named), _) if first == named => "it got the answer of the other command",
            (_, Some(_), _) => "it ran",
            // A replay may lack what tells answers apart. The counter does not.
            (_, None, Counted::By(0)) => "it got the answer of the other command",
            (_, None, _) => "it ran, or got the answer of the other command",
        }
    }

    /// Whether an answer shows what the command came to. `202 Accepted` may only name the place to ask again.
    pub(super) fn shows_outcome(&self, answer: &Answer) -> bool {
        answer.succeeded() && (self.accepts || answer.status != http::StatusCode::ACCEPTED)
    }

    /// What the answers that show an outcome name, each once.
    fn named(&self, answers: &[&Answer]) -> Vec<String> {
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
            Some(Identity::Body) => {
                format!("{} different bodies: it ran again, or a replay is changed: {list}", named.len())
            }
            _ => format!("the answers name {} resources: {list}", named.len()),
        }
    }
}

/// A name, short enough for a sentence.
fn short(name: &str) -> String {
    const MAX_CHARS: usize = 60;
    let printable: String =
        name.chars().take(MAX_CHARS).map(|c| if semel_core::text::steers(c) { ' ' } else { c }).collect();
    if name.chars().count() > MAX_CHARS { format!("{printable}…") } else { printable }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    fn answer(status: u16, location: Option<&'static str>, body: &'static str) -> Answer {
        let location = location.map(|text| (http::header::LOCATION, HeaderValue::from_static(text)));
        Answer {
            status: StatusCode::from_u16(status).expect("it is a status"),
            headers: location.into_iter().collect::<HeaderMap>(),
            body: Bytes::from_static(body.as_bytes()),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn only_what_differs_between_two_commands_tells_them_apart() {
        let between = |one: &Answer, two: &Answer| Identity::between((one, "key-1"), (two, "key-2"));
        let located = |location| answer(201, Some(location), "{}");
        assert_eq!(between(&located("/1"), &located("/2")), Some(Identity::Location));
        assert_eq!(between(&located("/1"), &located("/1")), None);
        let with = |body| answer(201, Some("/same"), body);
        assert_eq!(between(&with(r#"{"id":1}"#), &with(r#"{"id":2}"#)), Some(Identity::Id));
        assert_eq!(between(&with("one"), &with("two")), Some(Identity::Body));
        assert_eq!(between(&with("did key-1"), &with("did key-2")), None, "it repeats the key");
        assert_eq!(between(&answer(201, None, ""), &answer(201, None, "")), None);
    }

    #[test]
    fn runs_are_judged_by_the_counter_and_by_names() {
        let judge = Judge { identity: Some(Identity::Location), accepts: false };
        let (one, two, refused) =
            (answer(201, Some("/1"), ""), answer(201, Some("/2"), ""), answer(409, None, ""));
        let runs = |counted, answers: &[&Answer]| judge.runs(1, &counted, answers);
        assert!(matches!(runs(Counted::NotUsed, &[&one, &one, &refused]), Runs::Right(_)));
        assert!(matches!(runs(Counted::NotUsed, &[&one, &two]), Runs::TooOften(_)));
        assert!(matches!(runs(Counted::By(1), &[&one, &two]), Runs::TooOften(_)));
        assert!(matches!(runs(Counted::By(2), &[&one]), Runs::TooOften(_)));
        assert!(matches!(runs(Counted::By(1), &[&refused]), Runs::Right(_)));
        assert!(matches!(runs(Counted::By(0), &[&one]), Runs::Unclear(_)));
        assert!(matches!(runs(Counted::NotUsed, &[&one, &answer(500, None, "")]), Runs::Unclear(_)));
        assert!(matches!(runs(Counted::NotUsed, &[&refused]), Runs::Unclear(_)));
        let accepted = answer(202, Some("/operations/9"), "");
        assert!(matches!(runs(Counted::NotUsed, &[&one, &accepted]), Runs::Right(_)), "it names no outcome");
        let asynchronous = Judge { accepts: true, ..judge };
        let other = answer(202, Some("/operations/10"), "");
        assert!(matches!(asynchronous.runs(1, &Counted::NotUsed, &[&accepted, &other]), Runs::TooOften(_)));
        let blind = Judge { identity: None, accepts: false };
        assert!(matches!(blind.runs(1, &Counted::NotUsed, &[&one]), Runs::Unclear(_)));
    }

    #[test]
    fn an_answer_without_a_name_is_no_run_where_the_counter_stood_still() {
        let judge = Judge { identity: Some(Identity::Location), accepts: false };
        let (one, two, unnamed) =
            (answer(201, Some("/1"), ""), answer(201, Some("/2"), ""), answer(201, None, ""));
        let came = |answer, counted| judge.came_of_a_change(&one, answer, &counted);
        assert_eq!(came(&unnamed, Counted::By(0)), "it got the answer of the other command");
        assert_eq!(came(&unnamed, Counted::NotUsed), "it ran, or got the answer of the other command");
        assert_eq!(came(&one, Counted::NotUsed), "it got the answer of the other command");
        assert_eq!(came(&two, Counted::By(0)), "it ran");
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
