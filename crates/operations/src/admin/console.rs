//! Console: the admin listener's pages for a browser, below `/console/`.
//!
//! The shell and its assets are the same for everybody and hold no data. The script of the shell fetches each page as a
//! fragment of HTML, with the caller's token, and acts through `/admin/v1`. Invariant: nothing here changes a record,
//! and no text reaches a page except through a template, which escapes it.

mod assets;
mod audit;
mod busy;
mod chart;
mod find;
mod holds;
mod ledger;
mod lists;
mod messages;
mod overview;
mod record;
mod settings;
mod view;

use http::{HeaderValue, StatusCode, header};
use semel_core::Problem;
use semel_settings::Role;
use serde_json::json;

use super::call::{AdminAnswer, AdminCall};
use super::endpoint::{Endpoint, EndpointAccess, VIEWER, ask, get};

/// Pages of the console. They are no part of the API: a later version may change them.
pub(super) static PAGES: [Endpoint; 19] = [
    get("/", EndpointAccess::Open, &[], |call| Box::pin(enter(call))),
    get("/console", EndpointAccess::Open, &[], |call| Box::pin(enter(call))),
    get("/console/", EndpointAccess::Open, &[], |call| Box::pin(assets::shell(call))),
    get("/console/assets/console.css", EndpointAccess::Open, &["v"], |call| Box::pin(assets::style(call))),
    get("/console/assets/console.js", EndpointAccess::Open, &["v"], |call| Box::pin(assets::script(call))),
    get("/console/assets/icon.svg", EndpointAccess::Open, &["v"], |call| Box::pin(assets::icon(call))),
    get("/console/fragments/session", VIEWER, &[], |call| Box::pin(session(call))),
    get("/console/fragments/overview", VIEWER, &[], |call| Box::pin(overview::page(call))),
    get("/console/fragments/unknown", VIEWER, LIST, |call| Box::pin(lists::unknown(call))),
    get("/console/fragments/records", VIEWER, LIST, |call| Box::pin(lists::records(call))),
    ask("/console/fragments/find", super::search::TERMS, |call| Box::pin(find::page(call))),
    get("/console/fragments/records/{operationId}", VIEWER, &[], |call| Box::pin(record::page(call))),
    get("/console/fragments/outbox", VIEWER, &["state", "kind", "olderThan", "after"], |call| {
        Box::pin(messages::list(call))
    }),
    get("/console/fragments/outbox/{eventId}", VIEWER, &[], |call| Box::pin(messages::page(call))),
    get("/console/fragments/ledger", VIEWER, &[], |call| Box::pin(ledger::page(call))),
    get("/console/fragments/hot-keys", VIEWER, &[], |call| Box::pin(busy::page(call))),
    get("/console/fragments/audit", VIEWER, &["before"], |call| Box::pin(audit::page(call))),
    get("/console/fragments/holds", VIEWER, &[], |call| Box::pin(holds::page(call))),
    get("/console/fragments/settings", VIEWER, &[], |call| Box::pin(settings::page(call))),
];

/// Filters of lists of records, as those of the admin API.
const LIST: &[&str] = &["state", "operation", "tenant", "caller", "olderThan", "since", "until", "after"];

/// Leads to the console. The address is relative, since a proxy may serve it below a prefix.
async fn enter(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let address = console_address(&call.path);
    let mut answer =
        AdminAnswer::text(StatusCode::TEMPORARY_REDIRECT, format!("The console is at {address}\n"));
    let location = HeaderValue::from_str(&address).unwrap_or(HeaderValue::from_static("console/"));
    answer.headers.push((header::LOCATION, location));
    Ok(answer)
}

/// Returns the address of the console relative to this path, at which the router or the console is asked for. A router that is
/// mounted at `/ops` is asked for as `/ops` as well, from where `console/` leads out of it.
fn console_address(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((_, mount)) if !mount.is_empty() && mount != "console" => format!("{mount}/console/"),
        _ => "console/".to_owned(),
    }
}

/// Tells the script who its caller is.
async fn session(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer::json(&json!({
        "who": call.caller.who,
        "role": call.caller.role.as_str(),
        "acts": call.caller.role == Role::Operator,
        "version": env!("CARGO_PKG_VERSION"),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_below_the_path_that_led_to_it() {
        for (path, address) in [
            ("/", "console/"),
            ("/console", "console/"),
            ("/ops/", "console/"),
            ("/ops/console", "console/"),
            ("/ops", "ops/console/"),
            ("/team/ops", "ops/console/"),
        ] {
            assert_eq!(console_address(path), address, "{path}");
        }
    }
}
