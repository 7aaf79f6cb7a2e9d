//! The `semel.toml` that `semel config init` writes.

use crate::catalogue::settings;
use crate::engine::setting::SettingInfo;

const HEADER: &str = "\
# Configuration of Semel: every setting at its default.
# To change a setting, remove the `#` in front of its name.
#
# A flag (--ttl) overrides a variable (SEMEL_TTL), and a variable overrides this file. Only settings at the top
# level and in [defaults] have flags and variables.
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
            "# A rule for the commands of one route; repeat the table for each route\n#[[operation]]"
                .to_owned()
        }
        "operation.reconcile" => {
            "# The look-up at a provider for commands of this operation in state unknown\n\
             #[operation.reconcile]"
                .to_owned()
        }
        "pass" => {
            "# An exemption of one route from refusals; repeat the table for each route\n#[[pass]]".to_owned()
        }
        "webhook" => {
            "# A source of events about commands; repeat the table for each source\n#[[webhook]]".to_owned()
        }
        "limit" => {
            "# The quotas of one tenant or caller, in place of [limits]; repeat the table for each\n\
             #     [[limit]]"
                .to_owned()
        }
        "encryption.key" => {
            "# An encryption key; repeat the table for each key. One of them is the current key\n\
             #     [[encryption.key]]"
                .to_owned()
        }
        "admin.sso" => {
            "# People whom a proxy in front of the admin listener has signed in\n#     [admin.sso]".to_owned()
        }
        "admin.token" => {
            "# A token of the admin listener; repeat the table for each. Without any, it is for this machine only\n\
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
