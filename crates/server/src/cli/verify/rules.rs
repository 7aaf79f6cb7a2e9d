//! The promises, each with its level, and what was found about it.

use super::client::Exchange;

/// How bad it is to break a rule. The levels are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Broken by a second execution, or by an answer that belongs to another command or caller.
    Must,
    /// Codes, shapes and headers.
    Should,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Must => "no second execution, and no answer that belongs to another command or caller",
            Self::Should => "codes, shapes and headers, so that clients need not guess",
        }
    }
}

/// Makes the rules: each with its name, its level and what it promises.
macro_rules! rules {
    ($($rule:ident, $level:ident, $name:literal, $promise:literal;)*) => {
        /// A promise that an endpoint keeps or breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rule { $($rule),* }

        impl Rule {
            /// Every rule, in the order of the report.
            pub(super) const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// What a rule is called, in reports and by programs that read them.
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$rule => $name),* }
            }

            pub(super) fn level(self) -> Level {
                match self { $(Self::$rule => Level::$level),* }
            }

            /// What is true of an endpoint that keeps it.
            pub(super) fn promise(self) -> &'static str {
                match self { $(Self::$rule => $promise),* }
            }
        }
    };
}

rules! {
    RetryRunsOnce, Must, "retry-runs-once", "a retry under the same key does not run the command again";
    ReplayIsExact, Must, "replay-is-exact", "what a retry gets is the first answer: status, headers, bytes";
    RespelledRunsOnce, Must, "respelled-runs-once", "the same JSON in another spelling does not run again";
    ChangedIsNoRetry, Must, "changed-is-no-retry", "a changed value under a used key neither runs nor gets the old answer";
    DuplicatesRunOnce, Must, "duplicates-run-once", "twenty duplicates at once run once";
    DisconnectRunsOnce, Must, "disconnect-runs-once", "a retry after the client hung up does not run a second time";
    GetIsNoReplay, Must, "get-is-no-replay", "GET under a used key does not get the command's answer";
    CallersAreApart, Must, "callers-are-apart", "another caller's same key does not get the first caller's answer";
    ReplayGiven, Should, "replay-given", "a retry gets an answer, not a refusal";
    ReplayMarked, Should, "replay-marked", "a replay says that it is one, and a first answer does not";
    RespelledIsSame, Should, "respelled-is-same", "the same JSON in another spelling gets the first answer";
    ChangedCode, Should, "changed-code", "a changed value under a used key is refused with the right status";
    DuplicatesAnswered, Should, "duplicates-answered", "each duplicate gets the answer, or 409 with Retry-After, or 202";
    DisconnectAnswered, Should, "disconnect-answered", "a retry after the client hung up gets the answer";
    GetIgnoresKey, Should, "get-ignores-key", "a key on GET changes nothing";
    CallersAreIndependent, Should, "callers-are-independent", "another caller may use the same key for itself";
    MissingKeyRefused, Should, "missing-key-refused", "a command without a key is refused with 400";
    MalformedKeysRefused, Should, "malformed-keys-refused", "a key that is none is refused with 400";
    ProblemDetails, Should, "problem-details", "refusals are problem documents (RFC 9457), or errors as Stripe writes them";
    ExpiryPublished, Should, "expiry-published", "an answer says until when it can be had again: Idempotency-Expires";
}

/// What a rule came to, and on what ground.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Pass(String),
    Fail(String),
    NotTried(String),
}

/// A rule, what it came to, and the evidence.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) rule: Rule,
    pub(super) outcome: Outcome,
    pub(super) evidence: Vec<Exchange>,
}

/// How many exchanges are kept as the evidence of one rule.
const MAX_EVIDENCE: usize = 8;

/// What was found so far: one finding for each rule, in the end.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Finding>,
    /// Answers that refuse something because of its key.
    refusals: Vec<Exchange>,
}

impl Findings {
    /// Records what a rule came to. The first word counts.
    pub(super) fn record(&mut self, rule: Rule, outcome: Outcome, evidence: &[&Exchange]) {
        if !self.found.iter().any(|finding| finding.rule == rule) {
            let evidence = evidence.iter().take(MAX_EVIDENCE).map(|exchange| (*exchange).clone()).collect();
            self.found.push(Finding { rule, outcome, evidence });
        }
    }

    /// Records the same of several rules.
    pub(super) fn record_all(&mut self, rules: &[Rule], outcome: &Outcome, evidence: &[&Exchange]) {
        for rule in rules {
            self.record(*rule, outcome.clone(), evidence);
        }
    }

    /// Keeps an answer for the rule about refusals, if it is one.
    pub(super) fn refusal(&mut self, exchange: &Exchange) {
        if exchange.answer.as_ref().is_ok_and(super::client::Answer::refused) {
            self.refusals.push(exchange.clone());
        }
    }

    pub(super) fn refusals(&self) -> &[Exchange] {
        &self.refusals
    }

    /// Every rule with what it came to.
    pub(super) fn into_all(self) -> Vec<Finding> {
        let finding = |rule: &Rule| {
            let found = self.found.iter().find(|finding| finding.rule == *rule).cloned();
            found.unwrap_or_else(|| Finding {
                rule: *rule,
                outcome: Outcome::NotTried("no request came far enough to tell".to_owned()),
                evidence: Vec::new(),
            })
        };
        Rule::ALL.iter().map(finding).collect()
    }
}
