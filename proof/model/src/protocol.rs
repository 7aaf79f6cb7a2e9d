//! The protocol that is tried: a configuration, and the real rules or one wrong one.

use semel_core::{Event, Terms, Write, transition};

use crate::configuration::{Configuration, NOW};
use crate::promises::Promise;
use crate::variants::{Case, Variant};
use crate::world::Row;

/// A configuration, and the variant of the protocol that it is tried with, if any.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What is tried.
    pub configuration: Configuration,
    /// The wrong protocol that is tried; `None` for the real one.
    pub variant: Option<Variant>,
    /// The one promise that is checked; `None` for all.
    pub only: Option<Promise>,
    pub(crate) terms: Terms,
}

impl Protocol {
    /// The real protocol.
    pub fn real(configuration: &Configuration) -> Protocol {
        Protocol { configuration: *configuration, variant: None, only: None, terms: configuration.terms() }
    }

    /// A wrong one, asked for the promise that it breaks.
    pub fn wrong(case: &Case) -> Protocol {
        Protocol {
            variant: Some(case.variant),
            only: Some(case.breaks),
            ..Protocol::real(case.configuration)
        }
    }

    pub(crate) fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    /// Whether the sweeper alone ends what this record is in the middle of.
    pub(crate) fn sweeper_ends(&self, row: &Row) -> bool {
        let mut head = row.head(&self.terms);
        // In hand, waiting, in hand: no command is in hand more often than its workers may start it.
        for _ in 0..8 {
            let Some(due) = head.state.due_to_sweep() else { return true };
            match transition(Some(&head), &Event::Age, due.max(NOW)).write {
                Write::Update(aged) => head = aged,
                Write::Delete => return true,
                Write::Keep | Write::Create(_) => return false,
            }
        }
        false
    }
}
