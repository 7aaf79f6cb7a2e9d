//! The `semel.toml` that `semel config init` writes.

use crate::catalogue::settings;
use crate::engine::setting::SettingInfo;

const HEADER: &str = "\
# The configuration of semel: every setting, at its default.
# To change one, take away the `#` in front of its name.
#
# Later wins: this file, variables (SEMEL_TTL), flags (--ttl). Only the settings at the top level and
# those of [defaults] have variables and flags.
";

/// Settings that belong to another choice than the example's.
const APART: [&str; 1] = ["signature_header"];

/// Returns a file with every setting at its default, commented out and explained, and one example operation.
///
/// A `#` without a blank after it stands before lines that can be uncommented.
pub fn init() -> String {
    let mut text = HEADER.to_owned();
    let mut table = "";
    for info in settings() {
        if info.table != table {
            text.push_str(&between(table, info.table));
            table = info.table;
        }
        text.push_str(&entry(&info));
    }
    text
}

/// Returns the end of one table and the beginning of the next.
fn between(last: &str, next: &str) -> String {
    let end = if last == "operation" {
        "\n# Any setting of [defaults], for this operation only\n#ttl = \"7d\"\n"
    } else {
        ""
    };
    let begin = match next {
        "operation" => {
            "# A rule for the commands of one route; as many as there are routes to name\n#[[operation]]"
                .to_owned()
        }
        "operation.reconcile" => {
            "# How a provider is asked what became of a command of this operation whose outcome is \
                                  unknown\n#[operation.reconcile]"
                .to_owned()
        }
        "pass" => "# Requests that may have what is refused everywhere else; as many as there are routes to name\n#[[pass]]".to_owned(),
        "webhook" => "# Who may send events about commands; as many as there are\n#[[webhook]]".to_owned(),
        "limit" => {
            "# A tenant or caller that may use more, or less, than everybody; as many as there are\n#     [[limit]]"
                .to_owned()
        }
        "encryption.key" => {
            "# A key that what is stored can be read with; as many as there are, of which one is the current one\n\
             #     [[encryption.key]]"
                .to_owned()
        }
        "admin.token" => {
            "# Who may use the admin listener; as many as there are. Without any, it is for this machine only\n\
             #     [[admin.token]]"
                .to_owned()
        }
        next => format!("[{next}]"),
    };
    format!("{end}\n{begin}\n")
}

fn entry(info: &SettingInfo) -> String {
    let SettingInfo { table, name, help, default, example, choices, .. } = info;
    let choices = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(" | ")) };
    let value = match (*table, default, example) {
        // An operation is an example as a whole, and so is a webhook.
        (_, _, Some(example)) if APART.contains(name) => format!("#     {name} = {example}"),
        ("operation" | "operation.reconcile" | "pass" | "webhook", _, Some(example)) => {
            format!("#{name} = {example}")
        }
        (_, Some(default), _) => format!("#{name} = {default}"),
        (_, None, Some(example)) => format!("#     {name} = {example}"),
        (_, None, None) => format!("#     {name}"),
    };
    format!("\n# {help}{choices}\n{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::CHECKS;
    use crate::{Config, Sources, load};

    fn config(text: &str) -> Config {
        let sources = Sources::new().file("semel.toml", text);
        load(&sources, CHECKS).unwrap_or_else(|errors| panic!("it is refused:\n{errors}")).config
    }

    #[test]
    fn the_file_as_written_changes_nothing() {
        assert_eq!(config(&init()), Config::default());
    }

    #[test]
    fn every_setting_uncommented_changes_nothing_but_the_example() {
        let uncomment = |line: &str| match line.strip_prefix('#') {
            Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        };
        let text: String = init().lines().map(uncomment).collect();
        let mut config = config(&text);
        assert_eq!(
            config.operations.pop().map(|example| example.name.to_string()).as_deref(),
            Some("payments.create")
        );
        assert_eq!(
            config.webhooks.pop().map(|example| example.name.to_string()).as_deref(),
            Some("provider")
        );
        assert_eq!(
            config.pass.pop().map(|example| example.route.to_string()).as_deref(),
            Some("GET /search/{*rest}")
        );
        assert_eq!(config, Config::default());
        for info in settings().iter().filter(|info| info.default.is_some() || info.table == "operation") {
            assert!(text.lines().any(|line| line.starts_with(&format!("{} = ", info.name))), "{}", info.name);
        }
    }

    #[test]
    fn every_setting_is_named() {
        let text = init();
        for info in settings() {
            assert!(text.contains(&format!("{} = ", info.name)), "{}", info.name);
        }
    }
}
