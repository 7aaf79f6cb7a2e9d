//! Protocol under test: a configuration, with the real rules or with one wrong variant.

use semel_core::{Event, StoreFence, Terms, Write, transition};

use crate::configuration::{Configuration, NOW};
use crate::fence;
use crate::promises::Promise;
use crate::variants::{Case, Variant};
use crate::world::Row;

/// Configuration, with the wrong variant of the protocol to try on it, if any.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Configuration under test.
    pub configuration: Configuration,
    /// Wrong protocol under test; `None` for the real one.
    pub variant: Option<Variant>,
    /// Only promise to check; `None` for all.
    pub only: Option<Promise>,
    pub(crate) terms: Terms,
    /// Fence of the store, once it is restored.
    pub(crate) fence: Option<StoreFence>,
}

impl Protocol {
    /// Returns the real protocol for a configuration.
    pub fn real(configuration: &Configuration) -> Protocol {
        let (terms, fence) = (configuration.terms(), fence::fence(configuration));
        Protocol { configuration: *configuration, variant: None, only: None, terms, fence }
    }

    /// Returns a wrong protocol that is checked only for the promise it breaks.
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

    /// Returns true if the sweeper alone ends this record's command.
    pub(crate) fn sweeper_ends(&self, row: &Row) -> bool {
        let mut head = row.head(&self.terms);
        // The record alternates between processing and requeued, at most as often as workers may start it.
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
