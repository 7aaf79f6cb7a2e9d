//! Invariants, one function each. A function reads the whole history and adds its violations.

mod answers;
mod effects;
mod messages;
mod metrics;
mod parts;
mod records;

use crate::book::Book;
use crate::story::Violation;

/// Check of one invariant, which adds its violations.
type Rule = fn(&Book<'_>, &mut Vec<Violation>);

/// Every invariant, in order.
pub(crate) const ALL: [Rule; 22] = [
    effects::at_most_one,
    effects::named_by_successes,
    answers::equal,
    answers::of_their_own_scope,
    answers::of_their_own_payload,
    records::unknown_is_left_by_evidence,
    records::settled_ones_do_not_change,
    records::epochs_rise,
    effects::after_a_claim,
    effects::never_after_a_word_to_the_contrary,
    answers::final_ones_are_the_last_word,
    records::come_to_an_end,
    messages::are_delivered,
    records::are_kept_for_their_time,
    metrics::tell_what_happened,
    parts::have_one_effect,
    parts::finished_ones_stay_so,
    parts::go_on,
    parts::share_no_reference,
    parts::items_are_finished_once,
    messages::settle_their_commands,
    messages::rolled_back_ones_are_gone,
];

/// Adds a violation.
fn found(violations: &mut Vec<Violation>, invariant: u8, events: Vec<usize>, what: String) {
    violations.push(Violation { invariant, what, events });
}
