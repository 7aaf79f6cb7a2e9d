//! The report of a run, as text and as JSON.
//!
//! Texts of a server are cut short and made safe for a terminal. Of a request's headers, only the key is shown: reports are
//! pasted into tickets.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::client::{Exchange, HttpAnswer, ProbeRequest};
use crate::options::AnswerProfile;
use crate::rules::{RuleFinding, RuleLevel, RuleOutcome};
use crate::text;

/// The length of an excerpt of a body or of a field's value.
const MAX_EXCERPT_CHARS: usize = 200;
/// The most exchanges that the text shows as evidence; JSON has all of them.
const MAX_SHOWN: usize = 3;
/// The most fields of an answer in JSON.
const MAX_FIELDS: usize = 40;
/// The fields of an answer that the text shows.
const TELLING_FIELDS: [&str; 7] = [
    "content-type",
    "location",
    "retry-after",
    "idempotency-replayed",
    "idempotent-replayed",
    "idempotency-operation-id",
    "idempotency-expires",
];
/// The fields whose values are secret.
const SECRET_FIELDS: [&str; 4] = ["set-cookie", "set-cookie2", "authorization", "authentication-info"];

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[1;31m";
const YELLOW: &str = "\u{1b}[33m";
const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// The report of a run.
#[derive(Debug)]
pub struct VerifyReport {
    pub(super) url: String,
    pub(super) profile: AnswerProfile,
    /// The number of requests.
    pub(super) requests: usize,
    /// The means by which executions were counted and told apart.
    pub(super) basis: Vec<String>,
    pub(super) findings: Vec<RuleFinding>,
}

impl VerifyReport {
    /// Returns whether no rule of level `must` is broken.
    pub fn holds(&self) -> bool {
        self.broken(RuleLevel::Must).is_empty()
    }

    fn broken(&self, level: RuleLevel) -> Vec<&'static str> {
        self.of_level(level, |outcome| matches!(outcome, RuleOutcome::Fail(_)))
    }

    fn not_tried(&self, level: RuleLevel) -> Vec<&'static str> {
        self.of_level(level, |outcome| matches!(outcome, RuleOutcome::NotTried(_)))
    }

    fn of_level(&self, level: RuleLevel, wanted: fn(&RuleOutcome) -> bool) -> Vec<&'static str> {
        let of_level = self.findings.iter().filter(|finding| finding.rule.level() == level);
        of_level.filter(|finding| wanted(&finding.outcome)).map(|finding| finding.rule.name()).collect()
    }

    /// Returns the report for programs. Its names are part of the contract.
    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            let (outcome, why) = words(&finding.outcome);
            json!({
                "rule": finding.rule.name(),
                "level": finding.rule.level().name(),
                "promise": finding.rule.promise(),
                "outcome": outcome,
                "why": printable(why),
                "evidence": finding.evidence.iter().map(exchange_json).collect::<Vec<_>>(),
            })
        });
        json!({
            "url": self.url,
            "profile": self.profile.to_string(),
            "requests": self.requests,
            "executions": self.basis.iter().map(|line| printable(line)).collect::<Vec<_>>(),
            "holds": self.holds(),
            "broken": self.broken(RuleLevel::Must),
            "notTried": self.not_tried(RuleLevel::Must),
            "rules": findings.collect::<Vec<_>>(),
        })
    }

    /// Returns the report for people.
    pub fn to_text(&self, colour: bool) -> String {
        let paint = Paint { colour };
        let mut out = String::new();
        line(&mut out, &format!("POST {}, profile {}, {} requests", self.url, self.profile, self.requests));
        for basis in &self.basis {
            line(&mut out, &format!("executions are {}", printable(basis)));
        }
        let width = self.findings.iter().map(|finding| finding.rule.name().len()).max().unwrap_or(0);
        for level in [RuleLevel::Must, RuleLevel::Should] {
            line(&mut out, "");
            line(&mut out, &format!("{}: {}", level.name(), level.meaning()));
            for finding in self.findings.iter().filter(|finding| finding.rule.level() == level) {
                paint.finding(&mut out, finding, width);
            }
        }
        line(&mut out, "");
        line(&mut out, &self.summary(paint));
        out
    }

    fn summary(&self, paint: Paint) -> String {
        let (musts, shoulds) = (self.broken(RuleLevel::Must), self.broken(RuleLevel::Should));
        let verdict = match (musts.as_slice(), self.not_tried(RuleLevel::Must).as_slice()) {
            ([], []) => paint.in_colour(GREEN, "Every must holds."),
            ([], not_tried) => {
                let not_tried = not_tried.join(", ");
                let text = format!("Every must that could be tried holds; not tried: {not_tried}.");
                paint.in_colour(YELLOW, &text)
            }
            ([one], _) => paint.in_colour(RED, &format!("A must is broken: {one}.")),
            (many, _) => {
                paint.in_colour(RED, &format!("{} musts are broken: {}.", many.len(), many.join(", ")))
            }
        };
        match (shoulds.as_slice(), self.not_tried(RuleLevel::Should).as_slice()) {
            ([], []) => format!("{verdict}\nEvery should holds."),
            ([], not_tried) => {
                format!(
                    "{verdict}\nEvery should that could be tried holds; not tried: {}.",
                    not_tried.join(", ")
                )
            }
            ([one], _) => format!("{verdict}\nA should is broken: {one}."),
            (many, _) => format!("{verdict}\n{} shoulds are broken: {}.", many.len(), many.join(", ")),
        }
    }
}

#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn in_colour(self, colour: &str, text: &str) -> String {
        if self.colour { format!("{colour}{text}{RESET}") } else { text.to_owned() }
    }

    fn finding(self, out: &mut String, finding: &RuleFinding, width: usize) {
        let (word, why) = words(&finding.outcome);
        let colour = match finding.outcome {
            RuleOutcome::Pass(_) => GREEN,
            RuleOutcome::Fail(_) => RED,
            RuleOutcome::NotTried(_) => YELLOW,
        };
        let word = self.in_colour(colour, &format!("{word:9}"));
        line(out, &format!("  {word}  {:width$}  {}", finding.rule.name(), finding.rule.promise()));
        let why = printable(why);
        if !why.is_empty() {
            line(out, &self.in_colour(DIM, &format!("             {why}")));
        }
        if matches!(finding.outcome, RuleOutcome::Fail(_)) {
            for exchange in finding.evidence.iter().take(MAX_SHOWN) {
                line(out, &format!("             > {}", request(exchange)));
                let answer = match &exchange.answer {
                    Ok(answer) => response(answer),
                    Err(error) => error.to_string(),
                };
                line(out, &format!("             < {answer}"));
            }
            if let more @ 1.. = finding.evidence.len().saturating_sub(MAX_SHOWN) {
                line(out, &self.in_colour(DIM, &format!("             and {more} more like it: see --json")));
            }
        }
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{}", text.trim_end()).expect("a string takes whatever is written");
}

fn words(outcome: &RuleOutcome) -> (&'static str, &str) {
    match outcome {
        RuleOutcome::Pass(why) => ("pass", why),
        RuleOutcome::Fail(why) => ("fail", why),
        RuleOutcome::NotTried(why) => ("not tried", why),
    }
}

fn keys(message: &ProbeRequest) -> Vec<String> {
    message.keys.iter().map(|key| excerpt(key.as_bytes())).collect()
}

fn request(exchange: &Exchange) -> String {
    let Exchange { note, target, message, .. } = exchange;
    let keys: Vec<String> = keys(message).iter().map(|key| format!(" Idempotency-Key: {key}")).collect();
    format!("{note}: {} {}{} {}", message.method, printable(target), keys.concat(), excerpt(&message.body))
}

fn response(answer: &HttpAnswer) -> String {
    let fields = TELLING_FIELDS.into_iter().filter_map(|name| {
        let value = answer.headers.get(name)?;
        Some(format!(" {name}: {}", excerpt(value.as_bytes())))
    });
    format!("{}{} {}", answer.status.as_u16(), fields.collect::<String>(), excerpt(&answer.body))
}

fn exchange_json(exchange: &Exchange) -> Value {
    let message = &exchange.message;
    let answer = match &exchange.answer {
        Ok(answer) => json!({
            "status": answer.status.as_u16(),
            "headers": answer.headers.iter().take(MAX_FIELDS).map(|(name, value)| {
                let secret = SECRET_FIELDS.contains(&name.as_str());
                let value = if secret { "(not shown)".to_owned() } else { excerpt(value.as_bytes()) };
                json!([name.as_str(), value])
            }).collect::<Vec<_>>(),
            "body": excerpt(&answer.body),
            "bodyBytes": answer.body.len(),
        }),
        Err(error) => json!({ "error": printable(&error.to_string()) }),
    };
    json!({
        "note": exchange.note,
        "request": {
            "method": message.method.as_str(),
            "target": exchange.target,
            "idempotencyKeys": keys(message),
            "body": excerpt(&message.body),
        },
        "response": answer,
    })
}

/// Returns the beginning of a body or value on one line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes, so the rest of a large body need not be decoded.
    let start = bytes.get(..4 * (MAX_EXCERPT_CHARS + 1)).unwrap_or(bytes);
    let text = printable(&String::from_utf8_lossy(start));
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns text that is safe for a terminal, with a single space for each run of whitespace.
fn printable(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    text::printable(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_cannot_steer_a_terminal() {
        assert_eq!(excerpt(b"{\n  \"a\": 1\r\n}"), "{ \"a\": 1 }");
        assert_eq!(excerpt(b"\x1b[31mred\x07"), "\u{fffd}[31mred\u{fffd}");
        let long = excerpt("é".repeat(1 << 20).as_bytes());
        assert_eq!(long.chars().count(), MAX_EXCERPT_CHARS + 1);
        assert_eq!(excerpt(&[0xff, b'a']), "\u{fffd}a");
    }
}
