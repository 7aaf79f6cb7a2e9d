//! Holds in force, and the forms that add and lift one.

use askama::Template;
use semel_core::{Hold, HoldTarget, Problem};

use super::view::{acts, fragment, time};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::admin::unavailable;
use crate::operate::holds::{HoldAction, effect};

/// Largest number of holds that another page shows.
pub(super) const MAX_SHOWN: usize = 5;

pub(super) struct HoldRow {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) since: String,
    pub(super) who: String,
    pub(super) why: String,
    /// Effect of lifting it.
    lifted: String,
}

impl HoldRow {
    pub(super) fn of(hold: &Hold) -> HoldRow {
        HoldRow {
            kind: hold.target.kind(),
            name: hold.target.name().to_owned(),
            since: time(hold.since),
            who: hold.who.clone(),
            why: hold.why.clone(),
            lifted: effect(&hold.target, HoldAction::Lift),
        }
    }
}

/// Kind of target that can be held, and what a hold of it does.
struct HoldKind {
    name: &'static str,
    is_named: bool,
    effect: String,
}

#[derive(Template)]
#[template(path = "holds.html")]
struct HoldsPage {
    rows: Vec<HoldRow>,
    kinds: Vec<HoldKind>,
    operations: Vec<String>,
    acts: bool,
}

/// Shows the holds in force.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let holds = call.admin.holds.holds().await.map_err(unavailable)?;
    let kinds = HoldTarget::KINDS.into_iter().filter_map(|name| {
        let is_named = HoldTarget::is_named(name);
        let target = HoldTarget::new(name, if is_named { "any" } else { "" })?;
        Some(HoldKind { name, is_named, effect: effect(&target, HoldAction::Add) })
    });
    fragment(&HoldsPage {
        rows: holds.iter().map(HoldRow::of).collect(),
        kinds: kinds.collect(),
        operations: call.admin.config.operations.iter().map(|rule| rule.name.to_string()).collect(),
        acts: acts(&call),
    })
}
