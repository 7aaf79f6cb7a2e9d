//! Log level at the admin listener: what this process logs, changed for a bounded time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::{Clock, Problem, SystemClock, Timestamp};
use semel_settings::nearest;
use serde_json::{Value, json};

use super::call::{AdminAnswer, AdminCall, malformed};
use super::refused;

/// Time for which a filter holds, unless the operator says otherwise.
const TIME: Duration = Duration::from_secs(15 * 60);
/// Shortest and longest time for which a filter holds.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest number of directives in a filter.
const MAX_DIRECTIVES: usize = 20;
/// Largest number of characters in a directive.
const MAX_DIRECTIVE: usize = 100;

/// Levels in order, from the quietest.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Prefix of the modules that this program owns.
const OWN: &str = "semel";
/// Crates that log in a gateway, whose modules can be named.
const CRATES: [&str; 10] = [
    "semel_http",
    "semel_gateway",
    "semel_operations",
    "semel_stores",
    "semel_flow",
    "semel_server",
    "semel_traces",
    "semel_outgoing",
    "semel_core",
    "semel_settings",
];
/// Filter that ends a change at once.
const USUAL: &str = "usual";
/// Module that logs operators' actions, which no filter can silence.
const ACTIONS: &str = "semel_operations::admin";

/// Applies directives to the log of this process.
type Apply = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// Filter of the log, which can be changed for a time.
pub struct LogLevel {
    usual: String,
    apply: Box<Apply>,
    changed: Mutex<ChangedFilter>,
}

/// Filter in force beside the usual one.
#[derive(Default)]
struct ChangedFilter {
    /// Number of changes so far. A timer ends only the change that started it.
    number: u64,
    now: Option<(String, Timestamp)>,
}

impl LogLevel {
    /// Makes the filter of a process that logs by these directives now. `apply` takes others.
    pub fn new(usual: String, apply: Box<Apply>) -> Arc<LogLevel> {
        Arc::new(LogLevel { usual, apply, changed: Mutex::default() })
    }

    fn changed(&self) -> MutexGuard<'_, ChangedFilter> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the filter, and starts the timer that changes it back. Returns the time of that.
    ///
    /// # Errors
    /// Returns a sentence about a filter that cannot be used.
    pub fn set(self: &Arc<Self>, filter: &str, time: Duration) -> Result<Timestamp, String> {
        let directives = directives(filter)?;
        let until = SystemClock.now().plus(time);
        let number = {
            let mut changed = self.changed();
            (self.apply)(&directives)?;
            changed.now = Some((filter.to_owned(), until));
            changed.number += 1;
            changed.number
        };
        let log = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            log.reset(number);
        });
        Ok(until)
    }

    /// Returns to the usual filter, unless another change came after this one.
    fn reset(&self, number: u64) {
        let mut changed = self.changed();
        if changed.number != number {
            return;
        }
        changed.now = None;
        match (self.apply)(&self.usual) {
            Ok(()) => tracing::info!(event = "log_level_reset", filter = self.usual),
            Err(error) => tracing::error!(event = "log_level_reset", error, filter = self.usual),
        }
    }

    /// Returns to the usual filter now.
    ///
    /// # Errors
    /// Returns a sentence about the failure.
    pub fn restore(&self) -> Result<(), String> {
        let mut changed = self.changed();
        (self.apply)(&self.usual)?;
        changed.now = None;
        // A timer that still runs ends an earlier change only.
        changed.number += 1;
        Ok(())
    }

    /// Returns the filter in force, and the end of its time if it is not the usual one.
    pub fn in_force(&self) -> (String, Option<Timestamp>) {
        match &self.changed().now {
            Some((filter, until)) => (filter.clone(), Some(*until)),
            None => (self.usual.clone(), None),
        }
    }

    /// Returns the usual filter.
    pub fn usual(&self) -> &str {
        &self.usual
    }

    /// Returns the filter as JSON. The names are stable.
    pub fn to_json(&self) -> Value {
        let (filter, until) = self.in_force();
        json!({ "filter": filter, "until": until.map(Timestamp::to_rfc3339), "usual": self.usual })
    }
}

/// Returns the directives of a filter: levels, and levels of this program's own modules. Modules of others stay at `info` at
/// most, since they may log header fields and bodies.
fn directives(filter: &str) -> Result<String, String> {
    let given: Vec<&str> = filter.split(',').map(str::trim).collect();
    if given.len() > MAX_DIRECTIVES || given.iter().any(|directive| directive.len() > MAX_DIRECTIVE) {
        return Err(format!(
            "`filter` has at most {MAX_DIRECTIVES} parts, each of at most {MAX_DIRECTIVE} characters."
        ));
    }
    let (mut of_all, mut of_modules) = (None, Vec::new());
    for directive in given {
        match directive.split_once('=') {
            None => {
                if of_all.replace(level(directive)?).is_some() {
                    return Err("`filter` has more than one level for all modules.".to_owned());
                }
            }
            Some((module, name)) => {
                of_modules.push(format!("{}={}", own_module(module.trim())?, LEVELS[level(name.trim())?]));
            }
        }
    }
    let info = level("info")?;
    let of_all = of_all.unwrap_or(info);
    let mut all = vec![LEVELS[of_all.min(info)].to_owned(), format!("{OWN}={}", LEVELS[of_all])];
    all.extend(of_modules);
    all.push(format!("{ACTIONS}={}", LEVELS[of_all.max(info)]));
    Ok(all.join(","))
}

/// Returns the place of a level in their order.
fn level(name: &str) -> Result<usize, String> {
    let found = LEVELS.iter().position(|level| level.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let name: String = crate::operate::printable(name).chars().take(MAX_DIRECTIVE).collect();
        format!(
            "{name:?} is not a level: a filter is a level ({}), or module=level, with commas between them, such \
             as info,semel_http=debug.",
            LEVELS.join(", ")
        )
    })
}

/// Checks that a module is one of this program, and may be filtered.
fn own_module(module: &str) -> Result<&str, String> {
    let is_path = module.split("::").all(|part| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    let is_own = module == OWN || module.starts_with("semel_") || module.starts_with("semel::");
    if !is_path || !is_own {
        return Err(format!(
            "Only modules of this program have a level of their own, such as semel_http or semel_gateway::proxy, not {:?}: \
             others may log header fields and bodies.",
            crate::operate::printable(module)
        ));
    }
    let first = module.split("::").next().unwrap_or(module);
    if first != OWN && !CRATES.contains(&first) {
        let advice = match nearest(first, CRATES) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("they begin with {}.", CRATES.join(", ")),
        };
        let first: String = first.chars().take(MAX_DIRECTIVE).collect();
        return Err(format!("No module of this program begins with {first}: {advice}"));
    }
    if module.starts_with(ACTIONS) {
        return Err(format!("{ACTIONS} logs the actions of operators, and has the level of all modules."));
    }
    Ok(module)
}

/// Returns the filter of this process.
fn log(call: &AdminCall) -> Result<&Arc<LogLevel>, Problem> {
    let none = || refused("the log of this process belongs to another program");
    call.admin.log.as_ref().ok_or_else(none)
}

pub(crate) async fn show(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(AdminAnswer::json(&log(&call)?.to_json()))
}

pub(crate) async fn set(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (log, note) = (log(&call)?, call.note("log level")?);
    let filter = call.member("filter")?.ok_or_else(|| malformed("`filter` is missing."))?;
    if filter == USUAL {
        if call.member("for")?.is_some() {
            return Err(malformed("`for` does not go with the filter `usual`."));
        }
        log.restore().map_err(malformed)?;
        tracing::info!(event = "log_level_reset", filter = log.usual, who = note.who, why = note.why);
        return Ok(AdminAnswer::json(&log.to_json()));
    }
    let time = match call.member("for")? {
        None => TIME,
        Some(text) => semel_settings::parse_duration(&text)
            .filter(|time| (SHORTEST..=LONGEST).contains(time))
            .ok_or_else(|| malformed("`for` is a time from 1s to 24h, such as \"15m\"."))?,
    };
    let until = log.set(&filter, time).map_err(malformed)?;
    tracing::info!(
        event = "log_level_changed",
        who = note.who,
        filter,
        until = %until,
        why = note.why,
    );
    Ok(AdminAnswer::json(&log.to_json()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a filter, and the directives that were applied.
    fn log() -> (Arc<LogLevel>, Arc<Mutex<Vec<String>>>) {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let applying = applied.clone();
        let apply = move |directives: &str| {
            applying.lock().expect("nobody panics with it").push(directives.to_owned());
            Ok(())
        };
        (LogLevel::new("warn".to_owned(), Box::new(apply)), applied)
    }

    fn last(applied: &Mutex<Vec<String>>) -> String {
        applied.lock().expect("nobody panics with it").last().cloned().unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_level_returns_to_the_usual_one_when_its_time_is_over() {
        let (log, applied) = log();
        log.set("debug", Duration::from_secs(600)).expect("it is a filter");
        assert_eq!(log.to_json()["filter"], "debug");
        tokio::time::sleep(Duration::from_secs(599)).await;
        assert_eq!(last(&applied), "info,semel=debug,semel_operations::admin=debug");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(last(&applied), "warn");
        assert_eq!(log.to_json(), json!({ "filter": "warn", "until": null, "usual": "warn" }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_change_of_the_log_level_decides_when_it_ends() {
        let (log, applied) = log();
        log.set("debug", Duration::from_secs(10)).expect("it is a filter");
        log.set("trace", Duration::from_secs(100)).expect("it is a filter");
        tokio::time::sleep(Duration::from_secs(99)).await;
        assert_eq!(log.to_json()["filter"], "trace");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(last(&applied), "warn");
        assert_eq!(applied.lock().expect("nobody panics with it").len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_log_level_can_be_ended_before_its_time_is_over() {
        let (log, applied) = log();
        log.set("debug", Duration::from_secs(10)).expect("it is a filter");
        log.restore().expect("the usual filter can be applied");
        assert_eq!(log.to_json(), json!({ "filter": "warn", "until": null, "usual": "warn" }));
        log.set("trace", Duration::from_secs(100)).expect("it is a filter");
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(log.to_json()["filter"], "trace", "the timer of the first change is void");
        assert_eq!(applied.lock().expect("nobody panics with it").len(), 3);
    }

    #[test]
    fn modules_of_others_stay_at_info_and_actions_are_always_logged() {
        for (filter, expected) in [
            ("info", "info,semel=info,semel_operations::admin=info"),
            ("TRACE", "info,semel=trace,semel_operations::admin=trace"),
            ("off", "off,semel=off,semel_operations::admin=info"),
            ("semel_http=debug, warn", "warn,semel=warn,semel_http=debug,semel_operations::admin=info"),
            (
                "semel_gateway::proxy=trace",
                "info,semel=info,semel_gateway::proxy=trace,semel_operations::admin=info",
            ),
        ] {
            assert_eq!(directives(filter).as_deref(), Ok(expected), "{filter}");
        }
    }

    #[test]
    fn a_filter_that_cannot_be_used_is_refused_with_the_reason() {
        for (filter, why) in [
            ("", "is not a level"),
            ("loud", "is not a level"),
            ("info,debug", "more than one level"),
            ("h2=trace", "Only modules of this program"),
            ("semelx=trace", "Only modules of this program"),
            ("semel_http[{x=1}]=trace", "Only modules of this program"),
            ("semel_htp=debug", "did you mean semel_http?"),
            ("semel_ledgers_of_others=debug", "they begin with semel_http, "),
            ("semel_operations::admin::records=off", "actions of operators"),
            ("semel_operations=loud", "is not a level"),
            (&"info,".repeat(21), "at most 20 parts"),
        ] {
            let said = directives(filter).expect_err("it is refused");
            assert!(said.contains(why), "{filter}: {said}");
        }
    }
}
