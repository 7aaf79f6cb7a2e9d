//! Settings in force, and the log level.

use askama::Template;
use semel_core::Problem;

use super::view::{acts, fragment, time};
use crate::admin::call::{AdminAnswer, AdminCall};

struct SettingRow {
    name: String,
    value: String,
    source: String,
}

struct LogFilter {
    filter: String,
    usual: String,
    until: Option<String>,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    version: &'static str,
    rows: Vec<SettingRow>,
    log: Option<LogFilter>,
    acts: bool,
}

/// Shows the settings as `semel config show` does, without secrets.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let rows = call.admin.settings.iter().map(|row| SettingRow {
        name: row.name.clone(),
        value: row.value.clone(),
        source: row.source.clone(),
    });
    let log = call.admin.log.as_ref().map(|log| {
        let (filter, until) = log.in_force();
        LogFilter { filter, usual: log.usual().to_owned(), until: until.map(time) }
    });
    fragment(&SettingsPage {
        version: env!("CARGO_PKG_VERSION"),
        rows: rows.collect(),
        log,
        acts: acts(&call),
    })
}
