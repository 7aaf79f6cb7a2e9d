//! The rules, each with its level, and the findings about them.

use crate::client::Exchange;

/// The severity of a broken rule. The levels are Semel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleLevel {
    /// Broken by a second execution, or by an answer that belongs to another command or caller.
    Must,
    /// Broken by a wrong code, shape or header.
    Should,
}

impl RuleLevel {
    /// Returns the name for reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }

    /// Returns the explanation for reports.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Must => "no second execution, and no answer that belongs to another command or caller",
            Self::Should => "codes, shapes and headers, so that clients need not guess",
        }
    }
}

/// Defines the rules: each with its level, its name and its promise.
macro_rules! rules {
    ($($rule:ident, $level:ident, $name:literal, $promise:literal;)*) => {
        /// A rule that an endpoint keeps or breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum EndpointRule { $($rule),* }

        impl EndpointRule {
            /// Every rule, in the order of the report.
            pub(super) const ALL: &[EndpointRule] = &[$(EndpointRule::$rule),*];

            /// Returns the name of the rule in reports. Programs rely on it.
            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$rule => $name),* }
            }

            /// Returns the level of the rule.
            pub(super) fn level(self) -> RuleLevel {
                match self { $(Self::$rule => RuleLevel::$level),* }
            }

            /// Returns the sentence that is true of an endpoint that keeps the rule.
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

/// The outcome of a rule, with its reason.
#[derive(Clone, Debug)]
pub(super) enum RuleOutcome {
    /// The endpoint keeps the rule.
    Pass(String),
    /// The endpoint breaks the rule.
    Fail(String),
    /// The rule could not be judged.
    NotTried(String),
}

/// A rule, its outcome, and the evidence.
#[derive(Clone, Debug)]
pub(super) struct RuleFinding {
    pub(super) rule: EndpointRule,
    pub(super) outcome: RuleOutcome,
    pub(super) evidence: Vec<Exchange>,
}

/// The most exchanges that are kept as the evidence of one rule.
const MAX_EVIDENCE: usize = 8;

/// The findings of a run so far, at most one for each rule.
#[derive(Debug, Default)]
pub(super) struct RuleFindings {
    found: Vec<RuleFinding>,
    /// The exchanges that ended in a refusal because of the key.
    refusals: Vec<Exchange>,
}

impl RuleFindings {
    /// Records the outcome of a rule. A second outcome for the same rule is ignored.
    pub(super) fn record(&mut self, rule: EndpointRule, outcome: RuleOutcome, evidence: &[&Exchange]) {
        if !self.found.iter().any(|finding| finding.rule == rule) {
            let evidence = evidence.iter().take(MAX_EVIDENCE).map(|exchange| (*exchange).clone()).collect();
            self.found.push(RuleFinding { rule, outcome, evidence });
        }
    }

    /// Records one outcome for several rules.
    pub(super) fn record_all(
        &mut self,
        rules: &[EndpointRule],
        outcome: &RuleOutcome,
        evidence: &[&Exchange],
    ) {
        for rule in rules {
            self.record(*rule, outcome.clone(), evidence);
        }
    }

    /// Keeps the exchange for the rule about refusals, if its answer is one.
    pub(super) fn refusal(&mut self, exchange: &Exchange) {
        if exchange.answer.as_ref().is_ok_and(crate::client::HttpAnswer::refused) {
            self.refusals.push(exchange.clone());
        }
    }

    /// Returns the refusals so far.
    pub(super) fn refusals(&self) -> &[Exchange] {
        &self.refusals
    }

    /// Returns a finding for every rule.
    pub(super) fn into_all(self) -> Vec<RuleFinding> {
        let finding = |rule: &EndpointRule| {
            let found = self.found.iter().find(|finding| finding.rule == *rule).cloned();
            found.unwrap_or_else(|| RuleFinding {
                rule: *rule,
                outcome: RuleOutcome::NotTried("no request came far enough to tell".to_owned()),
                evidence: Vec::new(),
            })
        };
        EndpointRule::ALL.iter().map(finding).collect()
    }
}
