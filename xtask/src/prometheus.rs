//! `cargo xtask prometheus`: checks the alerting rules and the dashboard of `deploy/` with promtool.
//!
//! promtool comes from this machine, or from Debian's package `prometheus`, which is unpacked under `target` and never
//! installed: nothing starts, and nothing outside of `target` changes.

mod cases;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::databases::{Draft, is_root, only_file, output, run, target};
use crate::{docs, root};

/// Alerting rules.
const ALERTS: &str = "deploy/prometheus/alerts.yml";
/// Folder of their cases.
const CASES: &str = "deploy/prometheus/tests";
/// Dashboard of Grafana.
const DASHBOARD: &str = "deploy/grafana/semel.json";
/// Debian's package with promtool.
const PACKAGE: &str = "prometheus";
/// Page of the book with a table of all alerts.
const OVERVIEW: &str = "docs/src/how-to/monitor.md";
/// Variable with the path of promtool.
const VARIABLE: &str = "SEMEL_TEST_PROMTOOL";
/// Variables that Grafana replaces in a query, outside of texts, each with a value for the check.
const GRAFANA_VARIABLES: [(&str, &str); 3] =
    [("$__rate_interval", "5m"), ("$__interval", "1m"), ("$__range", "1h")];

/// Program that checks rules, queries and metrics.
pub(crate) struct Promtool(PathBuf);

impl Promtool {
    /// Returns the variable by which tests find it.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.0.display().to_string())
    }

    /// Checks the syntax of rules and of the dashboard's queries, and runs the cases of the alerts.
    pub(crate) fn check(&self) -> Result<(), String> {
        let alerts = root().join(ALERTS);
        self.check_rules(&alerts).map_err(|why| format!("{ALERTS} is wrong: {why}"))?;
        let queries = dashboard_queries(&read(&root().join(DASHBOARD))?)?;
        self.check_queries(&queries).map_err(|why| format!("a query of {DASHBOARD} is wrong: {why}"))?;
        output(Command::new(&self.0).args(["test", "rules"]).args(case_files()?))
            .map_err(|why| format!("a case of {CASES} fails: {why}"))?;
        println!(
            "── alerts: every case holds, and the {} queries of the dashboard can be read",
            queries.len()
        );
        Ok(())
    }

    /// Checks the syntax of a file of rules.
    fn check_rules(&self, file: &Path) -> Result<(), String> {
        output(Command::new(&self.0).args(["check", "rules", "--lint-fatal"]).arg(file)).map(drop)
    }

    /// Checks the syntax of queries, each as a recording rule of its own.
    fn check_queries(&self, queries: &[String]) -> Result<(), String> {
        let names = (0..queries.len()).map(|number| format!("dashboard:query:{number}"));
        let rules: Vec<Value> =
            names.zip(queries).map(|(name, query)| json!({"record": name, "expr": query})).collect();
        let folder = target()?.join("prometheus");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // JSON is YAML.
        let file = folder.join(format!("queries-{}.yml", std::process::id()));
        let text = json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let done = self.check_rules(&file);
        let _ = std::fs::remove_file(&file);
        done
    }
}

/// Checks names, runbook links and cases of the alerts. Needs no promtool.
pub(crate) fn check_names() -> Result<(), String> {
    let alerts = read(&root().join(ALERTS))?;
    let mut texts = Vec::new();
    for file in case_files()? {
        texts.push(read(&file)?);
    }
    let mut faults = cases::faults(&alerts, &texts, docs::anchors);
    let overview = read(&root().join(OVERVIEW))?;
    let missing = cases::names(&alerts).into_iter().filter(|name| !overview.contains(&format!("`{name}`")));
    faults.extend(missing.map(|name| format!("{name} is not in {OVERVIEW}")));
    if !faults.is_empty() {
        return Err(format!("{} faults in {ALERTS} and its cases:\n  {}", faults.len(), faults.join("\n  ")));
    }
    println!("── alerts: {}", cases::count(&alerts, &texts));
    Ok(())
}

/// Runs every check: names, syntax of rules and queries, and the cases.
pub(crate) fn check() -> Result<(), String> {
    check_names()?;
    let promtool = install()?;
    println!("── promtool: {}", promtool.0.display());
    promtool.check()
}

/// Finds promtool, or unpacks it if this machine has none.
pub(crate) fn install() -> Result<Promtool, String> {
    // A wrong path in the variable is a mistake to fix, not a reason to unpack something.
    if let Some(program) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let unusable = || format!("{VARIABLE}: {} is no promtool", program.display());
        return if is_usable(&program) { Ok(Promtool(program)) } else { Err(unusable()) };
    }
    if is_usable(Path::new("promtool")) {
        return Ok(Promtool(PathBuf::from("promtool")));
    }
    let folder = target()?.join("tools").join("promtool");
    let unpacked = folder.join("promtool");
    if !is_usable(&unpacked) {
        unpack(&folder).map_err(|why| {
            format!(
                "promtool is missing, and Debian's package cannot be unpacked: {why}\n\
                 Put promtool 2.42 or newer on the search path: from `apt-get install {PACKAGE}`, or from \
                 https://prometheus.io/download/."
            )
        })?;
    }
    Ok(Promtool(unpacked))
}

fn is_usable(program: &Path) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Unpacks promtool alone into this folder.
fn unpack(to: &Path) -> Result<(), String> {
    eprintln!("── prometheus: unpacking promtool of Debian's package {PACKAGE} into {}", to.display());
    let draft = Draft::new(to)?;
    download(draft.folder())?;
    let package = only_file(draft.folder(), "deb")?;
    let whole = draft.folder().join("whole");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&whole))?;
    let why = |error: std::io::Error| format!("{}: {error}", to.display());
    std::fs::rename(whole.join("usr/bin/promtool"), draft.folder().join("promtool")).map_err(why)?;
    std::fs::remove_dir_all(&whole).map_err(why)?;
    std::fs::remove_file(&package).map_err(why)?;
    draft.publish(to)
}

/// Downloads the package. Only root can update the list of packages, if that is what fails.
fn download(to: &Path) -> Result<(), String> {
    // As root, apt would download as another user, who cannot write here.
    let arguments = ["-o", "APT::Sandbox::User=root", "download", PACKAGE];
    let download = || run(Command::new("apt-get").args(arguments).stdout(Stdio::null()).current_dir(to));
    match download() {
        Err(_) if is_root() => run(Command::new("apt-get").arg("update")).and_then(|()| download()),
        done => done,
    }
}

/// Returns the queries of a dashboard, with values for Grafana's variables.
fn dashboard_queries(text: &str) -> Result<Vec<String>, String> {
    let dashboard: Value = serde_json::from_str(text).map_err(|error| format!("{DASHBOARD}: {error}"))?;
    let mut queries = Vec::new();
    add_queries(&dashboard, &mut queries);
    if queries.is_empty() {
        return Err(format!("{DASHBOARD} has no query"));
    }
    Ok(queries)
}

fn add_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(query)) = members.get("expr") {
                let query = GRAFANA_VARIABLES
                    .iter()
                    .fold(query.clone(), |query, (name, value)| query.replace(name, value));
                queries.push(query);
            }
            members.values().for_each(|member| add_queries(member, queries));
        }
        Value::Array(items) => items.iter().for_each(|item| add_queries(item, queries)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the files of cases, in order.
fn case_files() -> Result<Vec<PathBuf>, String> {
    let folder = root().join(CASES);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yml"));
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_found_in_panels_of_rows_and_get_values_for_variables() {
        let text = r#"{"panels": [{"targets": [{"expr": "rate(a[$__rate_interval])"}]},
            {"type": "row", "panels": [{"targets": [{"expr": "b{job=~\"$job\"}"}, {"refId": "B"}]}]}]}"#;
        assert_eq!(
            dashboard_queries(text),
            Ok(vec!["rate(a[5m])".to_owned(), "b{job=~\"$job\"}".to_owned()])
        );
    }

    #[test]
    fn a_dashboard_without_queries_is_refused() {
        assert!(dashboard_queries(r#"{"panels": []}"#).is_err());
        assert!(dashboard_queries("panels").is_err());
    }
}
